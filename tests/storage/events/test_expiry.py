"""Events whose validity has passed: the log lets the oldest of them go, and they read as silence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.storage.log_steps import open_volume
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.batches.validity import expires_at, may_expire
from tidemark.message.publisher_names import PublisherMove
from tidemark.storage.disk.memory_disk import MemoryDisk, keep_all, lose_all
from tidemark.storage.events import record
from tidemark.storage.events.event_log import EventLog, Expired
from tidemark.storage.events.publishers import LastPublished
from tidemark.storage.events.record import Marks, decode_marks, encode_marks
from tidemark.storage.log.volume import LogVolume
from tidemark.ticks import TICK_MAX, TICK_MIN

SEGMENT = 2_000
MS = 1_000


def batch_of(rows: Sequence[tuple[int, int]]) -> EventBatch:
    """A batch of (tick, validity in milliseconds)."""
    builder = BatchBuilder()
    for tick, validity_ms in rows:
        builder.add(Shape("t", 1), str(tick).encode().ljust(8), publisher="p", validity_ms=validity_ms)
    built = builder.build()
    built.fill_ticks(np.array([tick for tick, _ in rows], np.int64))
    return built


def log_of(*batches: list[tuple[int, int]]) -> tuple[MemoryDisk, LogVolume, EventLog]:
    """A synced log of these batches by one publisher."""
    disk = MemoryDisk()
    volume = open_volume(disk, SEGMENT)
    log = EventLog(volume, "p1", now=0)
    sequence = 1
    for rows in batches:
        log.append(batch_of(rows), "p", sequence)
        sequence += len(rows)
        volume.sync()
    return disk, volume, log


def ticks(log: EventLog) -> list[int]:
    return [tick for batch in log.read(0, TICK_MAX).batches for tick in batch.ticks.tolist()]


def used(disk: MemoryDisk) -> int:
    return sum(len(data) for name, data in disk.contents().items() if name.endswith(".segment"))


def test_a_batch_has_expired_when_its_last_event_has() -> None:
    assert expires_at(batch_of([(10, 1), (20, 5), (30, 2)])) == 20 + 5 * MS
    assert expires_at(batch_of([(10, 1), (20, 0)])) is None
    assert [may_expire(batch_of(rows)) for rows in ([(1, 0)], [(1, 3)], [(1, 0), (2, 1)])] == [
        False,
        True,
        True,
    ]


def test_the_oldest_batches_go_as_silence_once_all_their_events_have_expired() -> None:
    _, _, log = log_of([(10, 1)], [(20, 1), (30, 2)], [(40, 1)], [(50, 0)], [(60, 1)])
    assert log.expire(5, TICK_MAX) == Expired(TICK_MIN, 10 + MS)
    assert log.expire(20 + MS, TICK_MAX) == Expired(10, 30 + 2 * MS)
    assert ticks(log) == [20, 30, 40, 50, 60]
    # What never expires stays, and what is behind it.
    assert log.expire(99 * MS, TICK_MAX) == Expired(40, None)
    answer = log.read(0, 100)
    assert [batch.ticks.tolist() for batch in answer.batches] == [[50], [60]]
    assert (answer.upto, answer.lost, log.lost) == (100, (), TICK_MIN)
    assert [tick for tick, _ in log.sizes()] == [50, 60]


def test_nothing_goes_beyond_what_may_go() -> None:
    _, _, log = log_of([(10, 1)], [(20, 1), (30, 1)], [(40, 1)])
    assert log.expire(99 * MS, 29) == Expired(10, 10 + MS)
    assert log.expire(99 * MS, 30).upto == 30
    assert ticks(log) == [40]


def test_what_has_expired_stays_silence_after_a_crash_and_its_publishers_are_remembered() -> None:
    disk, volume, log = log_of([(10, 1)], [(20, 1)], [(30, 0)])
    log.expire(99 * MS, TICK_MAX)
    disk.crash(lose_all)
    volume = open_volume(disk, SEGMENT)
    log = EventLog(volume, "p1", now=0)
    assert ticks(log) == [10, 20, 30]  # it was not synced
    log.expire(99 * MS, TICK_MAX)
    log.free()
    volume.sync()
    disk.crash(keep_all)
    log = EventLog(open_volume(disk, SEGMENT), "p1", now=0)
    assert (ticks(log), log.lost, log.state.expired) == ([30], TICK_MIN, 20)
    assert log.published("p") == (3, 30)


def test_the_place_of_expired_events_is_given_back() -> None:
    disk, volume, log = log_of(*([(10 * number, 1)] for number in range(1, 100)))
    before = used(disk)
    assert log.expire(99 * MS, TICK_MAX).upto == 990
    log.free()
    volume.sync()
    assert used(disk) < before / 4
    log.append(batch_of([(5_000, 0)]), "p", 100)
    volume.sync()
    assert ticks(log) == [5_000]


def test_expiring_in_small_parts_says_that_there_is_more() -> None:
    _, _, log = log_of(*([(10 * number, 1)] for number in range(1, 20)))
    rounds, upto = 0, TICK_MIN
    while upto < 190:
        answer = log.expire(99 * MS, TICK_MAX, bytes_max=200)
        assert answer.upto > upto
        assert answer.due is not None
        assert answer.due <= 99 * MS
        upto, rounds = answer.upto, rounds + 1
    assert rounds > 3


def test_nothing_expires_beyond_a_damaged_record_which_is_lost() -> None:
    disk, volume, log = log_of([(10, 1)], [(20, 1)], [(30, 1)])
    volume.close()
    name = next(name for name in disk.list() if name.endswith(".segment"))
    at = bytes(disk.platter(name)).index(b"20      ")
    disk.rot(name, at, 1)
    log = EventLog(open_volume(disk, SEGMENT), "p1", now=0)
    assert log.expire(99 * MS, TICK_MAX) == Expired(10, None)
    assert log.read(0, 40).lost == ((10, 29),)
    assert ticks(log) == [30]


def test_what_is_lost_on_purpose_before_expired_events_does_not_make_damage_behind_them_silence() -> None:
    disk, volume, log = log_of([(10, 1)], [(20, 1)], [(30, 0)])
    volume.close()
    name = next(name for name in disk.list() if name.endswith(".segment"))
    disk.rot(name, bytes(disk.platter(name)).index(b"20      "), 1)
    volume = open_volume(disk, SEGMENT)
    log = EventLog(volume, "p1", now=0)
    assert log.expire(99 * MS, TICK_MAX) == Expired(10, None)
    volume.sync()
    for upto in (5, 10, 15):
        log.lose(upto)
        log.free()
        volume.sync()
        volume.close()
        volume = open_volume(disk, SEGMENT)
        log = EventLog(volume, "p1", now=0)
        assert log.state.damage == ((max(10, upto), 29),)
        assert ticks(log) == [30]
    log.lose(29)
    log.free()
    assert log.state.damage == ()


def test_the_move_of_a_publisher_behind_a_damaged_record_does_not_make_it_silence() -> None:
    disk, volume, log = log_of([(10, 1)], [(20, 1)])
    log.move("somebody", LastPublished(0, 20), PublisherMove(1, "elsewhere"))
    log.append(batch_of([(30, 1)]), "p", 3)
    volume.sync()
    volume.close()
    name = next(name for name in disk.list() if name.endswith(".segment"))
    at = bytes(disk.platter(name)).index(b"20      ")
    disk.rot(name, at, 1)
    log = EventLog(open_volume(disk, SEGMENT), "p1", now=0)
    assert log.expire(99 * MS, TICK_MAX) == Expired(10, None)
    assert log.read(0, 40).lost == ((10, 20),)


@pytest.mark.parametrize("expired", [TICK_MIN, 7])
def test_marks_are_read_back_also_those_of_earlier_versions(expired: int) -> None:
    marks = Marks(5, 3, expired)
    assert decode_marks(b"".join(bytes(piece) for piece in encode_marks(marks))) == marks
    assert decode_marks(record._MARKS_BEFORE.pack(5, 3)) == Marks(5, 3, TICK_MIN)
