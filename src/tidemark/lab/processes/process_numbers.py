"""Numbers about processes, read from /proc: CPU time and resident memory."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessStat:
    """One reading of /proc/PID/stat; raises OSError if the process has ended."""

    def __init__(self, pid: int) -> None:
        # The name of the command, which may contain anything, ends at the last parenthesis.
        self._fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()

    @property
    def parent(self) -> int:
        """The id of the parent process."""
        return int(self._fields[1])

    @property
    def started(self) -> str:
        """When the process started; together with its id this identifies a process for good."""
        return self._fields[19]

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all threads, in the kernel too, without that of children that have ended."""
        return (int(self._fields[11]) + int(self._fields[12])) / _TICKS_A_SECOND

    @property
    def system_seconds(self) -> float:
        """The part of `cpu_seconds` in the kernel."""
        return int(self._fields[12]) / _TICKS_A_SECOND

    @property
    def ended_children_cpu_seconds(self) -> float:
        """CPU time of all children that have ended, and of theirs, once the process has waited for them."""
        return (int(self._fields[13]) + int(self._fields[14])) / _TICKS_A_SECOND


def cpu_seconds_exact(pid: int) -> float:
    """CPU time of all live threads of a process, to the nanosecond, which /proc/PID/stat is not."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def peak_resident_bytes(pid: int) -> int:
    """The most resident memory that a process has had since it started."""
    status = Path(f"/proc/{pid}/status").read_text()
    kibibytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kibibytes) << 10


def tree_of(pid: int) -> list[int]:
    """The process and all that descend from it."""
    parents: dict[int, int] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            with suppress(OSError):
                parents[int(each.name)] = ProcessStat(int(each.name)).parent
    found = [pid]
    for ancestor in found:
        found += [child for child, parent in parents.items() if parent == ancestor]
    return found


def tree_cpu_seconds(pid: int) -> float:
    """CPU time of the process and of all that descend from it."""
    total = 0.0
    for each in tree_of(pid):
        with suppress(OSError):
            stat = ProcessStat(each)
            total += stat.cpu_seconds + stat.ended_children_cpu_seconds
    return total
