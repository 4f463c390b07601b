"""The moves of publishers in an event log: remembered over crashes, snapshots and what is let go."""

from __future__ import annotations

import pytest

from tests.storage.events.test_event_log import log_of, reopened
from tests.storage.events.test_expiry import batch_of
from tests.storage.log_steps import events, open_volume, ticks_of
from tidemark.errors import DiskFullError
from tidemark.message.publisher_names import PublisherMove, made_name
from tidemark.storage.disk.memory_disk import MemoryDisk
from tidemark.storage.events import event_log
from tidemark.storage.events import publishers as remembered
from tidemark.storage.events.event_log import EventLog
from tidemark.storage.events.publishers import LastPublished, Publishers, decode_publishers
from tidemark.ticks import TICK_MIN

AWAY, HERE = PublisherMove(1, "q"), PublisherMove(2)


def test_a_move_is_remembered_after_a_restart_with_the_last_event() -> None:
    disk, volume, log = log_of([10, 20])
    log.move("p", LastPublished(2, 20), AWAY)
    log.move("other", LastPublished(57, TICK_MIN), HERE)
    assert log.state.moves == {"p": AWAY, "other": HERE}
    volume.sync()
    _, log = reopened(disk)
    assert log.state.moves == {"p": AWAY, "other": HERE}
    assert log.state.publishers == {"p": (2, 20), "other": (57, TICK_MIN)}
    assert log.state.damage == ()


def test_a_log_may_begin_with_a_move() -> None:
    disk, volume, log = log_of()
    log.move("p", LastPublished(57, TICK_MIN), HERE)
    log.append(events([10]), "p", 58)
    volume.sync()
    assert ticks_of(log.read(0, 100).batches) == [10]
    _, log = reopened(disk)
    assert (log.state.moves, log.state.publishers) == ({"p": HERE}, {"p": (58, 10)})


def test_a_move_that_was_not_synced_has_not_happened() -> None:
    disk, _, log = log_of([10])
    log.move("p", LastPublished(1, 10), AWAY)
    _, log = reopened(disk)
    assert log.state.moves == {}


def test_a_move_that_finds_no_room_is_taken_back() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk, 2_000)
    log = EventLog(volume, "p1", now=0)
    log.append(events([10]), "p", 1)
    volume.sync()
    disk.fill()
    log.move("p", LastPublished(1, 10), AWAY)
    with pytest.raises(DiskFullError):
        volume.sync()
    assert log.state.moves == {}
    assert log.state.publishers == {"p": (1, 10)}


def test_moves_outlive_what_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "SNAPSHOT_EVERY_RECORDS", 4)
    disk, volume, log = log_of([10])
    log.move("p", LastPublished(1, 10), AWAY)
    for number in range(1, 40):
        log.append(events([10 + number], size=200), "r", number)
        volume.sync()
        log.lose(10 + number)
        volume.sync()
    _, log = reopened(disk)
    assert log.state.moves == {"p": AWAY}
    assert log.published("p") == (1, 10)


def test_one_bad_record_does_not_lose_a_move() -> None:
    disk, volume, log = log_of([10])
    log.move("p", LastPublished(1, 10), AWAY)
    volume.sync()
    data = disk.contents()["0000000001.segment"]
    first = bytes(data).index(b"pq", bytes(data).index(b"TMB1"))
    disk.rot("0000000001.segment", first)
    _, log = reopened(disk)
    assert log.state.moves == {"p": AWAY}


def test_a_move_does_not_keep_what_has_expired() -> None:
    _, volume, log = log_of()
    log.append(batch_of([(10, 1)]), "p", 1)
    log.move("p", LastPublished(1, 10), AWAY)
    log.append(batch_of([(20, 1)]), "r", 1)
    volume.sync()
    assert log.expire(1_000_000, 100).upto == 20


def test_a_snapshot_without_moves_is_as_it_always_was() -> None:
    publishers = Publishers()
    publishers.note("p", LastPublished(3, 9))
    before = b"".join(publishers.encode(7))
    assert len(before) == 12 + 18 + 1
    undo = publishers.move("p", LastPublished(3, 9), AWAY)
    covered, found = decode_publishers(b"".join(publishers.encode(7)))
    assert (covered, found.moves(), found.as_dict()) == (7, {"p": AWAY}, {"p": (3, 9)})
    assert publishers.encoded_bytes == len(b"".join(publishers.encode(7)))
    undo()
    assert b"".join(publishers.encode(7)) == before
    assert decode_publishers(before)[1].moves() == {}


OWNED = PublisherMove(0, "", "alice")


def test_an_owner_is_remembered_after_a_restart_and_so_is_that_of_a_publisher_that_moved() -> None:
    disk, volume, log = log_of()
    log.move("p", LastPublished(0, TICK_MIN), OWNED)
    log.append(events([10]), "p", 1)
    log.move("q", LastPublished(3, TICK_MIN), PublisherMove(2, "there", "bob"))
    volume.sync()
    _, log = reopened(disk)
    assert log.state.moves == {"p": OWNED, "q": PublisherMove(2, "there", "bob")}
    assert log.state.publishers == {"p": (1, 10), "q": (3, TICK_MIN)}


def test_a_snapshot_has_the_owners_of_those_that_have_one() -> None:
    publishers = Publishers()
    for name in ("p", "ü", "r"):
        publishers.note(name, LastPublished(3, 9))
    publishers.move("p", LastPublished(3, 9), OWNED)
    publishers.move("ü", LastPublished(3, 9), PublisherMove(1, "q", "Zoë"))
    data = b"".join(publishers.encode(7))
    assert publishers.encoded_bytes == len(data)
    covered, found = decode_publishers(data)
    assert (covered, found.moves()) == (7, {"p": OWNED, "ü": PublisherMove(1, "q", "Zoë")})
    assert found.as_dict() == publishers.as_dict()
    assert b"".join(found.encode(7)) == data


def test_the_owner_of_a_name_that_a_client_made_is_forgotten_and_taken_back_with_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remembered, "MADE_NAMES_MAX", 1)
    publishers = Publishers()
    first, second = made_name("0" * 16), made_name("1" * 16)
    publishers.move(first, LastPublished(1, 1), OWNED)
    undo = publishers.note(second, LastPublished(1, 2))
    assert publishers.moves() == {}
    undo()
    assert (publishers.moves(), publishers.as_dict()) == ({first: OWNED}, {first: (1, 1)})
    assert publishers.encoded_bytes == len(b"".join(publishers.encode(7)))
