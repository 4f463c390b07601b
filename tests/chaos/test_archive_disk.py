"""Disks and the archive: a broker's stays bounded while it runs, and its own may be full for a while."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from test_full_disk import SMALL_DISK, can_mount
from verdicts import started

from tidemark import sync
from tidemark.lab.stage import Stage, wait_for
from tidemark.spark import archivefiles
from tidemark.spark.archivestate import load_state
from tidemark.ticks import TICK_MAX, TICK_MIN

pytestmark = pytest.mark.chaos

PATIENCE_SECONDS = 60.0


class ArchivePart:
    """An archive in a process of its own."""

    def __init__(self, url: str, path: Path, log: Path, *wrapper: str) -> None:
        self.log = log
        command = [*wrapper, sys.executable, "-m", "tidemark", "pipeline", "archive", "--log", "debug"]
        command += ["--log-format", "json", "--interval", "20ms", "--broker", url, "--path", str(path)]
        with log.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=output)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


@contextmanager
def archiving(stage: Stage, url: str, path: Path, *wrapper: str) -> Iterator[ArchivePart]:
    part = ArchivePart(url, path, stage.directory / "archive.log", *wrapper)
    try:
        yield part
    finally:
        if part.process.poll() is None:
            part.process.kill()
            part.process.wait()


def size_of(directory: Path) -> int:
    sizes = 0
    for folder, _, files in os.walk(directory):
        for name in files:
            with suppress(FileNotFoundError):
                sizes += (Path(folder) / name).stat().st_size
    return sizes


def ticks_in(path: Path) -> list[int]:
    found = archivefiles.read(path, "main", TICK_MIN, TICK_MAX)
    return [int(tick) for batch in found for tick in batch.ticks]


def publish(tm: sync.Client, count: int, size: int) -> list[int]:
    # Random, so that the archive's files are as large as the events.
    values = [{"n": n, "data": os.urandom(size)} for n in range(count)]
    return [tick for tick in tm.publish_many("load", values) if tick is not None]


def test_a_brokers_disk_stays_bounded_while_a_subscriber_is_away(stage: Stage) -> None:
    kept = 1 << 20
    broker = started(
        stage,
        storage__segment="256KiB",
        retention__archive="true",
        retention__max_bytes=f"{kept}B",
        limits__window="256KiB",
    )
    path, log = stage.directory / "archive", stage.directory / "broker" / "log"
    ticks: list[int] = []
    largest = 0
    with sync.connect(broker.url) as tm, archiving(stage, broker.url, path):
        tm.subscribe("load", durable="away").close()
        for _ in range(40):
            ticks += publish(tm, 125, 4_000)
            # As fast as the archive, which here shares two cores with everything else.
            follows(path, ticks[-1])
            largest = max(largest, size_of(log))
        assert size_of(path) > 16 * kept
        # What it may hold and some segments that go with the next one, of twenty times as much.
        assert largest < 4 * kept
        assert dict(load_state(path).missing) == {}
        assert ticks_in(path) == ticks
        (pubend,) = tm.ask("pubends")
        assert ticks[0] < pubend["lost"] <= pubend["archived"]


def test_an_archive_whose_disk_is_full_waits_and_goes_on_when_there_is_room(stage: Stage) -> None:
    disk = stage.directory / "disk"
    disk.mkdir()
    if not can_mount(disk):
        pytest.skip("no small disk: this container does not let a user mount a tmpfs in a namespace")
    broker = started(stage, retention__archive="true")
    with (
        sync.connect(broker.url) as tm,
        archiving(stage, broker.url, disk / "archive", *SMALL_DISK, str(disk)) as part,
    ):
        inside = Path(f"/proc/{part.process.pid}/root{disk}")
        path = inside / "archive"
        ticks = publish(tm, 100, 1_000)
        follows(path, ticks[-1])
        ticks += publish(tm, 2_500, 4_000)
        wait_for(lambda: said(part, "No space left"), lambda: "a full disk is not told", PATIENCE_SECONDS)
        assert part.process.poll() is None
        # Nothing half-written counts, and nothing was let go.
        there = ticks_in(copied(path, stage.directory / "before"))
        assert there == ticks[: len(there)] != ticks
        (pubend,) = tm.ask("pubends")
        assert pubend["archived"] <= archivefiles.covered(path)["main"] < ticks[-1]
        subprocess.run(
            ["nsenter", "-t", str(part.process.pid), "-U", "-m", "--preserve-credentials",
             "mount", "-o", "remount,size=64m", str(disk)],
            check=True,
        )  # fmt: skip
        follows(path, ticks[-1])
        wait_for(lambda: said(part, "goes on"), lambda: "it does not say so", PATIENCE_SECONDS)
        assert ticks_in(copied(path, stage.directory / "after")) == ticks
        assert part.stop() == 0


def follows(path: Path, tick: int) -> None:
    """Wait until the archive covers it."""
    wait_for(
        lambda: dict(archivefiles.covered(path)).get("main", TICK_MIN) >= tick,
        lambda: "the archive does not follow",
        PATIENCE_SECONDS,
    )


def copied(path: Path, to: Path) -> Path:
    """Out of the namespace, into which Delta's reader does not find."""
    shutil.copytree(path, to)
    return to


def said(part: ArchivePart, text: str) -> bool:
    return text in part.log.read_text()
