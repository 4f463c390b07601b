"""A disk that is full and then is not: publishing is refused with a reason, reading goes on, all is kept."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.chaos.ledger_checks import assert_exact
from tidemark.lab.processes.ledger import read
from tidemark.lab.processes.process_harness import ManagedBroker, ManagedPublisher, ProcessHarness, wait_for

pytestmark = pytest.mark.chaos

EVENTS = 500
PADDING = ("--padding", "3000")
DISK_BYTES = 8 << 20
#: Runs a command in a file system of its own that is small, and there for nobody else.
SMALL_DISK = ("unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o size={DISK_BYTES} tmpfs "$0" && exec "$@"')

Free = Callable[[], None]


def can_mount(directory: Path) -> bool:
    """Unprivileged user namespaces are switched off in some containers."""
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*SMALL_DISK, str(directory), "true"], capture_output=True, check=False)
    return tried.returncode == 0


def small_disk(harness: ProcessHarness) -> ManagedBroker:
    """A broker whose data directory is on a small disk."""
    disk = harness.directory / "disk"
    disk.mkdir()
    if not can_mount(disk):
        pytest.skip("no small disk: this container does not let a user mount a tmpfs in a namespace")
    broker = harness.broker(storage__data_dir=str(disk / "data"))
    broker.wrapper = [*SMALL_DISK, str(disk)]
    return broker


def fill(broker: ManagedBroker, harness: ProcessHarness) -> Free:
    """Leave no byte free on the disk; returns a function that makes room again."""
    filler = Path(f"/proc/{broker.pid}/root{harness.directory}/disk/filler")
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            assert file.tell() <= DISK_BYTES
    return filler.unlink


def roomy(harness: ProcessHarness) -> ManagedBroker:
    """A broker on the disk that there is."""
    return harness.broker()


def limit(broker: ManagedBroker, harness: ProcessHarness) -> Free:
    """Let the log not grow any more; returns a function that lifts the limit."""
    if sys.platform != "linux":
        pytest.skip("the limits of another process can only be set on Linux")
    log, tables = (
        max(path.stat().st_size for path in (harness.directory / "broker" / part).iterdir())
        for part in ("log", "tables")
    )
    # SQLite takes this limit for a broken disk, not for a full one: its files must stay below it.
    assert log > 2 * tables
    before = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (log, resource.RLIM_INFINITY))

    def free() -> None:
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, before)

    return free


@pytest.mark.parametrize(
    ("make", "starve"), [(small_disk, fill), (roomy, limit)], ids=["small disk", "limited files"]
)
def test_a_full_disk_refuses_publishers_serves_subscribers_and_recovers(
    harness: ProcessHarness,
    make: Callable[[ProcessHarness], ManagedBroker],
    starve: Callable[[ManagedBroker, ProcessHarness], Free],
) -> None:
    broker = make(harness)
    broker.start()
    reader = harness.subscriber("reader", broker.url)
    harness.subscribe()
    assert reader.stop() == 0
    first = harness.publisher("first", broker.url, EVENTS, *PADDING)
    first.start()
    assert first.wait() == 0
    free = starve(broker, harness)
    refused = harness.publisher("refused", broker.url, EVENTS, *PADDING, "--timeout", "2")
    refused.start()
    assert refused.wait() == 1
    # The batch that found it full says so; those on their way behind it, only that they come too early.
    assert "disk is full" in why(refused) or "send again from" in why(refused)
    reader.start()
    wait_for(lambda: reader.consumed == EVENTS, lambda: "a full disk cannot be read")
    free()
    refused.start("--timeout", "300")
    assert refused.wait() == 0
    assert_exact(harness.settled(), 2 * EVENTS)


@contextmanager
def standing_disk(harness: ProcessHarness) -> Iterator[tuple[ManagedBroker, int]]:
    """A broker on a small disk that outlives it, and the process that holds the disk."""
    disk = harness.directory / "disk"
    disk.mkdir()
    if not can_mount(disk) or shutil.which("nsenter") is None:
        pytest.skip("no small disk: this container does not let a user mount a tmpfs in a namespace")
    holder = subprocess.Popen([*SMALL_DISK, str(disk), "sleep", "600"])
    try:
        mounted = Path(f"/proc/{holder.pid}/mounts")
        wait_for(lambda: str(disk) in mounted.read_text(), lambda: "the small disk is not mounted")
        broker = harness.broker(storage__data_dir=str(disk / "data"))
        broker.wrapper = ["nsenter", "--preserve-credentials", "-U", "-m", "-t", str(holder.pid)]
        yield broker, holder.pid
    finally:
        holder.kill()
        holder.wait()


def test_a_broker_that_stopped_on_a_full_disk_starts_and_serves_what_it_has(harness: ProcessHarness) -> None:
    with standing_disk(harness) as (broker, holder):
        broker.start()
        reader = harness.subscriber("reader", broker.url)
        harness.subscribe()
        assert reader.stop() == 0
        first = harness.publisher("first", broker.url, EVENTS, *PADDING)
        first.start()
        assert first.wait() == 0
        filler = Path(f"/proc/{holder}/root{harness.directory}/disk/filler")
        for _ in range(3):
            with filler.open("ab", buffering=0) as file, suppress(OSError):
                while file.write(bytes(4096)):
                    assert file.tell() <= DISK_BYTES
            assert broker.stop() == 0
            broker.start()
        refused = harness.publisher("refused", broker.url, EVENTS, *PADDING, "--timeout", "2")
        refused.start()
        assert refused.wait() == 1
        assert "disk is full" in why(refused) or "send again from there" in why(refused)
        reader.start()
        wait_for(lambda: reader.consumed == EVENTS, lambda: "a full disk cannot be read")
        filler.unlink()
        refused.start("--timeout", "300")
        assert refused.wait() == 0
        assert_exact(harness.settled(), 2 * EVENTS)
        assert broker.stop() == 0


def why(part: ManagedPublisher) -> str:
    return next(str(line["reason"]) for line in read(part.ledger) if line.get("outcome") == "unknown")
