"""Staged files and records: what a task wrote is what is published, and a record never changes."""

from __future__ import annotations

import os
from pathlib import Path
from struct import pack
from zlib import crc32

import numpy as np
import pytest

from tidemark.errors import DamagedError, StorageError
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.spark.sink.publishing import commit
from tidemark.spark.sink.staging import STAGED_SECONDS_MAX, BatchRecord, StagedFile, Staging


def events(*names: str) -> EventBatch:
    builder = BatchBuilder()
    for name in names:
        builder.add(Shape("t", 1), name.encode())
    return builder.build()


class Pubend:
    """Takes each number of a publisher once, as the broker's does; may die after so many batches."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.next: dict[str, int] = {}
        self.dies_after: int | None = None
        self.name = "main"

    def pubend_of(self, _publisher: str, _before: str | None) -> str:
        return self.name

    def publish(self, staging: Staging, record: BatchRecord) -> None:
        sequence = record.first
        for part in record.parts:
            for batch in staging.read(part):
                if self.dies_after == 0:
                    raise KeyboardInterrupt
                self.dies_after = None if self.dies_after is None else self.dies_after - 1
                known = self.next.get(record.publisher, 1)
                assert sequence <= known, "a number was left out"
                rows = np.arange(max(0, known - sequence), batch.count)
                self.log += [batch.message(int(row)).decode() for row in rows]
                sequence += batch.count
                self.next[record.publisher] = max(known, sequence)


@pytest.fixture
def pubend() -> Pubend:
    return Pubend()


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return Staging(tmp_path / "deep" / "query")


def run(staging: Staging, pubend: Pubend, batch: int, *parts: StagedFile, where: str = "main") -> None:
    pubend.name = where
    commit(staging, "q", batch, parts, pubend)


def directory(staging: Staging) -> Path:
    return Path(staging.folder.text)


def files(staging: Staging) -> list[str]:
    return sorted(path.name for path in directory(staging).iterdir())


def test_what_was_staged_is_read_back_and_nothing_is_no_file(staging: Staging) -> None:
    part = staging.stage(3, [events("a", "b"), events("c")])
    assert part.counts == (2, 1)
    assert [batch.message(0) for batch in staging.read(part)] == [b"a", b"c"]
    assert staging.stage(4, []).counts == ()
    assert files(staging) == [part.name]


def test_a_task_that_fails_half_way_leaves_no_file(staging: Staging) -> None:
    def failing() -> object:
        yield events("a")
        raise ValueError

    with pytest.raises(ValueError):
        staging.stage(0, failing())  # type: ignore[arg-type]  # a generator of batches
    assert files(staging) == []


@pytest.mark.parametrize("at", [0, 4, 9, 60])
def test_a_damaged_file_is_not_published(staging: Staging, at: int) -> None:
    part = staging.stage(0, [events("a", "b")])
    path = directory(staging) / part.name
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedError):
        list(staging.read(part))
    path.write_bytes(data[:-1])
    with pytest.raises(DamagedError):
        list(staging.read(part))


def test_a_file_that_version_0_1_0_has_staged_is_published(staging: Staging, pubend: Pubend) -> None:
    data = events("a", "b").data
    staging.stage(0, [events("c")])
    path = directory(staging) / "000000-old.events"
    path.write_bytes(pack("<II", len(data), crc32(data)) + data)
    run(staging, pubend, 0, StagedFile(path.name, 0, (2,)))
    assert pubend.log == ["a", "b"]
    path.write_bytes(pack("<II", len(data), crc32(data) ^ 1) + data)
    with pytest.raises(DamagedError):
        list(staging.read(StagedFile(path.name, 0, (2,))))


def test_a_file_of_another_machine_says_what_to_do(staging: Staging, pubend: Pubend) -> None:
    with pytest.raises(StorageError, match="share"):
        run(staging, pubend, 0, StagedFile("000000-elsewhere.staged", 0, (1,)))


def test_batches_follow_each_other_in_the_order_of_their_partitions(staging: Staging, pubend: Pubend) -> None:
    later, first = staging.stage(1, [events("c")]), staging.stage(0, [events("a"), events("b")])
    run(staging, pubend, 0, later, first, staging.stage(2, []))
    run(staging, pubend, 1, staging.stage(0, [events("d")]))
    assert pubend.log == ["a", "b", "c", "d"]
    assert len(pubend.next) == 1
    assert files(staging) == ["00000000000000000001.json", "00000000000000000001.published"]


def test_a_replay_of_a_published_batch_publishes_nothing(staging: Staging, pubend: Pubend) -> None:
    run(staging, pubend, 0, staging.stage(0, [events("a", "b")]))
    run(staging, pubend, 0, staging.stage(0, [events("b")]), staging.stage(1, [events("a")]))
    run(staging, pubend, 1, staging.stage(0, [events("c")]))
    run(staging, pubend, 0, staging.stage(0, [events("a", "b")]))
    assert pubend.log == ["a", "b", "c"]
    assert not [name for name in files(staging) if name.endswith(".staged")]


@pytest.mark.parametrize("dies_after", [0, 1, 2])
def test_a_batch_that_was_half_published_is_completed_however_its_rows_come_again(
    staging: Staging, pubend: Pubend, dies_after: int
) -> None:
    pubend.dies_after = dies_after
    parts = [staging.stage(0, [events("a", "b")]), staging.stage(1, [events("c"), events("d")])]
    with pytest.raises(KeyboardInterrupt):
        run(staging, pubend, 0, *parts)
    staging.discard(parts)  # Spark's abort, which names them all
    pubend.dies_after = None
    run(staging, pubend, 0, staging.stage(0, [events("d", "c", "b", "a")]))
    assert pubend.log == ["a", "b", "c", "d"]
    run(staging, pubend, 1, staging.stage(0, [events("e")]))
    assert pubend.log == ["a", "b", "c", "d", "e"]


def test_a_batch_that_died_before_its_record_is_what_it_is_the_next_time(
    staging: Staging, pubend: Pubend
) -> None:
    staging.stage(0, [events("a", "b")])
    run(staging, pubend, 0, staging.stage(0, [events("b")]), staging.stage(1, [events("a")]))
    assert pubend.log == ["b", "a"]


def test_a_kill_between_the_last_event_and_the_mark_adds_nothing(
    staging: Staging, pubend: Pubend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: Staging, record: BatchRecord) -> None:
        raise KeyboardInterrupt(record)

    with monkeypatch.context() as patch:
        patch.setattr(Staging, "mark_published", killed)
        part = staging.stage(0, [events("a")])
        with pytest.raises(KeyboardInterrupt):
            run(staging, pubend, 0, part)
    run(staging, pubend, 0, staging.stage(0, [events("a")]))
    run(staging, pubend, 1, staging.stage(0, [events("b")]))
    assert pubend.log == ["a", "b"]


def test_of_two_drivers_the_second_publishes_what_the_first_has_recorded(
    staging: Staging, pubend: Pubend
) -> None:
    mine, theirs = staging.stage(0, [events("a", "b")]), staging.stage(0, [events("b", "a")])
    first = staging.record(BatchRecord(0, "p", "main", 1, (mine,)))
    assert staging.record(BatchRecord(0, "other", "main", 1, (theirs,))) == first
    run(staging, pubend, 0, theirs)
    assert pubend.log == ["a", "b"]


def test_a_driver_whose_files_another_has_published_is_content(staging: Staging) -> None:
    part = staging.stage(0, [events("a")])

    class Overtaken(Pubend):
        def publish(self, staging: Staging, record: BatchRecord) -> None:
            staging.mark_published(record)
            list(staging.read(part))

    commit(staging, "q", 0, [part], Overtaken())
    last = staging.last()
    assert last is not None
    assert staging.is_published(last)


def test_another_pubend_and_lost_records_start_a_new_publisher(staging: Staging, pubend: Pubend) -> None:
    run(staging, pubend, 0, staging.stage(0, [events("a")]))
    run(staging, pubend, 1, staging.stage(0, [events("b")]), where="other")
    assert len(pubend.next) == 2
    staging.remove()
    run(staging, pubend, 2, staging.stage(0, [events("c")]))
    assert len(pubend.next) == 3
    assert pubend.log == ["a", "b", "c"]


def test_what_failed_tasks_left_goes_with_time(staging: Staging, pubend: Pubend) -> None:
    old, young = staging.stage(0, [events("x")]), staging.stage(0, [events("y")])
    past = (directory(staging) / old.name).stat().st_mtime - STAGED_SECONDS_MAX - 1
    os.utime(directory(staging) / old.name, (past, past))
    run(staging, pubend, 0, staging.stage(0, [events("a")]))
    left = files(staging)
    assert young.name in left
    assert old.name not in left
