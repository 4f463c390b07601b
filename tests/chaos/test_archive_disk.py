"""Disks and the archive: a broker's stays bounded while it runs, and its own may be full for a while.

The audit judges what the archive has as if it were a subscriber to everything.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from base64 import b85encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.ledger_checks import assert_audit_is_exact, assert_exact, started
from tests.chaos.test_full_disk import SMALL_DISK, can_mount
from tests.waiting import PATIENCE_SECONDS
from tidemark import sync
from tidemark.lab.processes.ledger import audit
from tidemark.lab.processes.ledger_writers import PublisherLedger, opening
from tidemark.lab.processes.process_harness import ProcessHarness, wait_for
from tidemark.message.batches.batch import BatchBuilder, Shape
from tidemark.message.schema import Schema
from tidemark.spark.archive import reader as archive_reader
from tidemark.spark.archive.state import load_state
from tidemark.ticks import TICK_MAX, TICK_MIN, CheckpointToken

pytestmark = pytest.mark.chaos

SCHEMA = Schema.parse("[data: string]")


class ManagedArchive:
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
def archiving(harness: ProcessHarness, url: str, path: Path, *wrapper: str) -> Iterator[ManagedArchive]:
    part = ManagedArchive(url, path, harness.directory / "archive.log", *wrapper)
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
    found = archive_reader.read(path, "main", TICK_MIN, TICK_MAX)
    return [int(tick) for batch in found for tick in batch.ticks]


class Desk:
    """A publisher and its ledger, in this process."""

    def __init__(self, tm: sync.Client, directory: Path) -> None:
        self._tm = tm
        self.ledger = directory / "desk.publisher.jsonl"
        self._book = PublisherLedger(self.ledger, "desk", "main", "load")
        self.ticks: list[int] = []
        tm.create_topic("load", SCHEMA.text)

    def publish(self, count: int, size: int) -> None:
        # Random, so that the archive's files are about as large as the events.
        made = self._book.intend({"data": b85encode(os.urandom(size)).decode()} for _ in range(count))
        builder = BatchBuilder()
        for each in made:
            message = SCHEMA.encode(each.fields)
            builder.add(Shape("load", SCHEMA.fingerprint), message, key=each.key.encode())
        for each, tick in zip(made, self._tm.publish_batch(builder.build()), strict=True):
            assert tick is not None
            self._book.settle(each, tick)
            self.ticks.append(tick)


def write_down(path: Path, ledgers: Path) -> Path:
    """What an archive has, as a subscriber's ledger."""
    lines = [opening("archive", "load", "", CheckpointToken(), is_new=True, is_durable=True)]
    for batch in archive_reader.read(path, "main", TICK_MIN, TICK_MAX):
        lines += [
            {
                "what": "event",
                "pubend": "main",
                "tick": int(tick),
                "key": batch.key(row).decode(),
                "topic": batch.shapes[batch.prelude("shape")[row]].topic,
                "fields": SCHEMA.decode(batch.message(row)),
            }
            for row, tick in enumerate(batch.ticks)
        ]
    made = ledgers / "archive.subscriber.jsonl"
    made.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return made


def test_a_brokers_disk_stays_bounded_while_a_subscriber_is_away(harness: ProcessHarness) -> None:
    kept = 256 << 10
    broker = started(
        harness,
        storage__segment="64KiB",
        retention__archive="true",
        retention__max_bytes=f"{kept}B",
        limits__window="64KiB",
    )
    path, log = harness.directory / "archive", harness.directory / "broker" / "log"
    with sync.connect(broker.url) as tm, archiving(harness, broker.url, path):
        desk = Desk(tm, harness.directory)
        tm.subscribe("load", durable="away").close()
        for number in range(20):
            desk.publish(250, 1_000)
            # As fast as the archive, which here shares two cores with everything else.
            follows(path, desk.ticks[-1])
            if number % 5 < 4:
                continue
            # What it may hold and some segments that go with the next one, of twenty times as much.
            wait_for(lambda: size_of(log) < 4 * kept, lambda: f"the log has {size_of(log)} bytes")
        assert size_of(path) > 16 * kept
        assert dict(load_state(path).missing) == {}
        (pubend,) = tm.ask("pubends")
        assert desk.ticks[0] < pubend["lost"] <= pubend["archived"]
    assert_exact(audit([desk.ledger], [write_down(path, harness.directory)]), len(desk.ticks))


@pytest.mark.spark
def test_an_archive_whose_disk_is_full_waits_and_goes_on_when_there_is_room(
    spark: Any, harness: ProcessHarness
) -> None:
    disk = harness.directory / "disk"
    disk.mkdir()
    if not can_mount(disk):
        pytest.skip("no small disk: this container does not let a user mount a tmpfs in a namespace")
    broker = started(harness, retention__archive="true")
    with (
        sync.connect(broker.url) as tm,
        archiving(harness, broker.url, disk / "archive", *SMALL_DISK, str(disk)) as part,
    ):
        inside = Path(f"/proc/{part.process.pid}/root{disk}")
        path = inside / "archive"
        desk = Desk(tm, harness.directory)
        desk.publish(100, 1_000)
        follows(path, desk.ticks[-1])
        leave_free(inside, 1 << 20)
        for _ in range(20):
            desk.publish(125, 1_000)
        ticks = desk.ticks
        wait_for(lambda: said(part, "No space left"), lambda: "a full disk is not told", PATIENCE_SECONDS)
        assert part.process.poll() is None
        # Nothing half-written counts, and nothing was let go.
        there = ticks_in(copied(path, harness.directory / "before"))
        assert there == ticks[: len(there)] != ticks
        (pubend,) = tm.ask("pubends")
        assert pubend["archived"] <= archive_reader.covered(path)["main"] < ticks[-1]
        subprocess.run(
            ["nsenter", "-t", str(part.process.pid), "-U", "-m", "--preserve-credentials",
             "mount", "-o", "remount,size=64m", str(disk)],
            check=True,
        )  # fmt: skip
        follows(path, ticks[-1])
        wait_for(lambda: said(part, "goes on"), lambda: "it does not say so", PATIENCE_SECONDS)
        write_down(copied(path, harness.directory / "after"), harness.directory)
        assert part.stop() == 0
    assert_audit_is_exact(spark, harness.directory, len(ticks))


def leave_free(disk: Path, size: int) -> None:
    """Fill a disk with something else, up to so many bytes."""
    room = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes(room.f_bavail * room.f_frsize - size))


def follows(path: Path, tick: int) -> None:
    """Wait until the archive covers this tick."""
    wait_for(
        lambda: dict(archive_reader.covered(path)).get("main", TICK_MIN) >= tick,
        lambda: "the archive does not follow",
        PATIENCE_SECONDS,
    )


def copied(path: Path, to: Path) -> Path:
    """A copy of the archive outside the namespace, which Delta's reader cannot enter."""
    shutil.copytree(path, to)
    return to


def said(part: ManagedArchive, text: str) -> bool:
    return text in part.log.read_text()
