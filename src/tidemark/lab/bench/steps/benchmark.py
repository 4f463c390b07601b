"""Steps: what each hot path of a broker costs, by counts that do not depend on the load of the machine.

Calls in Python and in C, the memory that a path has at most, and the instructions of a simulated processor
are the same from run to run; CPU time is shown beside them. `--before FILE` compares with an earlier run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from tidemark.lab.bench.report import Measurement, Section
from tidemark.lab.bench.steps.counting import CallCounter, cpu_ns, memory_peak
from tidemark.lab.bench.steps.hot_paths import PATHS, HotPath, opened
from tidemark.lab.bench.steps.instructions import instructions_a_unit, program

NOTES = ("the broker and its store on one thread, without sockets and without a sync",)
#: Functions that are named, the most called first.
NAMED = 6


@dataclass(frozen=True, slots=True)
class StepsEffort:
    """How much is measured."""

    #: times that each path is taken for its calls and its memory, and for its CPU time
    times: int
    timed: int
    #: times under the simulated processor, 0 for none
    simulated: int


FULL = StepsEffort(20, 200, 20)
QUICK = StepsEffort(5, 20, 0)


def sections(effort: StepsEffort) -> Iterator[Section]:
    """Yields a section for each path."""
    for name, (_, unit) in PATHS.items():
        with opened(name) as path:
            yield _section(name, unit, path, effort)


def _section(name: str, unit: str, path: HotPath, effort: StepsEffort) -> Section:
    counter, units = CallCounter(), 0
    for _ in range(effort.times):
        path.prepare()
        units += counter.run(path.take)
    found = counter.counts(units, NAMED)
    peaks, times = [], []
    for _ in range(effort.times):
        path.prepare()
        peaks.append(memory_peak(path.take))
    for _ in range(effort.timed):
        path.prepare()
        served, taken = cpu_ns(path.take)
        times.append(taken / served)
    each = [
        Measurement(name, f"Python calls, each {unit}", found.python_calls / units, ""),
        Measurement(name, f"C calls, each {unit}", found.c_calls / units, ""),
        Measurement(name, "memory at most, beyond what stays", median(peaks) / 1e3, "kB"),
        Measurement(name, f"CPU, each {unit}, p50", median(times) / 1e3, "µs"),
    ]
    notes = list(NOTES)
    if effort.simulated and program() is not None:
        instructions = instructions_a_unit(name, effort.simulated)
        each.append(Measurement(name, f"instructions, each {unit}", instructions, ""))
    elif effort.simulated:
        notes.append("no instructions: valgrind is not installed (Debian's package valgrind)")
    often = ", ".join(f"{where} {calls / effort.times:.1f}" for where, calls in found.most_called.items())
    notes.append(f"most called, each time: {often}")
    return Section(name, each, notes=notes)
