"""The event log of a pubend: batches, leases, losses, publishers."""

from __future__ import annotations

import struct
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.log_steps import events, open_volume, ticks_of
from tidemark.errors import DiskFailedError, DiskFullError, UnknownFormatError
from tidemark.message.batches.batch import PRELUDE
from tidemark.storage.disk.memory_disk import MemoryDisk, keep_all, lose_all
from tidemark.storage.events import event_log, publishers
from tidemark.storage.events.event_log import EventLog
from tidemark.storage.events.publishers import LastPublished, Publishers, decode_publishers
from tidemark.storage.events.record import decode_events, encode_events
from tidemark.storage.log.volume import LogVolume
from tidemark.ticks import TICK_MAX, TICK_MIN

SEGMENT = 2_000


def reopened(disk: MemoryDisk, now: int = 0) -> tuple[LogVolume, EventLog]:
    disk.crash(lose_all)
    volume = open_volume(disk, SEGMENT)
    return volume, EventLog(volume, "p1", now=now)


def log_of(*batches: list[int], sequence: int = 1) -> tuple[MemoryDisk, LogVolume, EventLog]:
    """A synced log of these batches by one publisher."""
    disk = MemoryDisk()
    volume = open_volume(disk, SEGMENT)
    log = EventLog(volume, "p1", now=0)
    for ticks in batches:
        log.append(events(ticks), "p", sequence)
        sequence += len(ticks)
    volume.sync()
    return disk, volume, log


def test_a_new_log_knows_nothing() -> None:
    _, _, log = log_of()
    state = log.state
    assert (state.last_tick, state.lease, state.lost, state.floor) == (TICK_MIN,) * 4
    assert (state.publishers, state.damage) == ({}, ())
    answer = log.read(0, 100)
    assert (answer.batches, answer.upto, answer.lost) == ([], 100, ())


def test_a_read_is_exact_to_the_row() -> None:
    _, _, log = log_of([10, 20, 30], [40], [50, 60])
    for base, upto, expected in [
        (0, 100, [10, 20, 30, 40, 50, 60]),
        (10, 60, [20, 30, 40, 50, 60]),
        (15, 29, [20]),
        (20, 20, []),
        (30, 40, [40]),
        (31, 39, []),
        (40, 49, []),
        (39, 50, [40, 50]),
        (60, 100, []),
        (TICK_MIN, TICK_MAX, [10, 20, 30, 40, 50, 60]),
    ]:
        answer = log.read(base, upto)
        assert (ticks_of(answer.batches), answer.upto, answer.lost) == (expected, upto, ())


def test_batches_that_are_wholly_asked_for_are_the_very_bytes_that_were_logged() -> None:
    _, _, log = log_of([10, 20], [30, 40])
    assert log.read(0, 40).batches == [events([10, 20]), events([30, 40])]


def test_a_limited_read_says_how_far_it_is_complete() -> None:
    _, _, log = log_of(*([tick, tick + 5] for tick in range(10, 200, 10)))
    base, rounds, found = 0, 0, []
    while base < 150:
        answer = log.read(base, 150, bytes_max=300)
        assert answer.upto > base
        found += ticks_of(answer.batches)
        base, rounds = answer.upto, rounds + 1
    assert found == list(range(10, 151, 5))
    assert rounds > 5
    assert base == 150


def test_everything_is_recovered() -> None:
    disk, volume, log = log_of([10, 20], [30])
    log.append(events([40, 41], publisher="q"), "q", 7)
    log.lease(1_000)
    log.lose(15)
    volume.sync()
    before = log.state
    _, log = reopened(disk)
    assert log.state == before
    assert before.publishers == {"p": LastPublished(3, 30), "q": LastPublished(8, 41)}
    assert (before.last_tick, before.lease, before.lost, before.floor) == (41, 1_000, 15, 1_000)
    assert log.published("q") == LastPublished(8, 41)
    assert log.published("nobody") is None


def test_a_publisher_that_is_not_in_the_batch_and_one_without_a_name() -> None:
    disk, volume, log = log_of()
    log.append(events([10], publisher="shown"), "sender", 5)
    log.append(events([20], publisher=""), "", 0)
    volume.sync()
    _, log = reopened(disk)
    assert log.state.publishers == {"sender": LastPublished(5, 10)}
    assert log.read(0, 100).batches[0].publishers == ("shown",)


def test_no_later_life_may_log_at_or_below_a_lease() -> None:
    disk, volume, log = log_of([10])
    log.lease(500)
    log.lease(400)
    log.append(events([20]), "p", 2)
    volume.sync()
    volume, log = reopened(disk)
    assert (log.state.lease, log.state.floor) == (500, 500)
    with pytest.raises(AssertionError):
        log.append(events([500]), "p", 3)
    log.append(events([501]), "p", 3)


def test_ticks_only_go_up() -> None:
    _, _, log = log_of([10, 20])
    for ticks in ([20], [15], [30, 30], [31, 30]):
        with pytest.raises(AssertionError):
            log.append(events(ticks), "p", 3)


def test_lost_ticks_stay_lost_and_are_cut_to_the_row() -> None:
    disk, volume, log = log_of([10, 20, 30], [40, 50])
    for _ in range(2):
        log.lose(20)
        log.lose(15)
        volume.sync()
        answer = log.read(5, 100)
        assert (ticks_of(answer.batches), answer.lost) == ([30, 40, 50], ((5, 20),))
        assert log.read(0, 12).lost == ((0, 12),)
        assert log.read(20, 100).lost == ()
        volume, log = reopened(disk)
    assert volume.bounds("events/p1") == (1, 2)
    log.lose(30)
    volume.sync()
    assert volume.bounds("events/p1") == (2, 2)


def test_what_a_publisher_sent_last_survives_the_chopping_of_all_its_events() -> None:
    disk, volume, log = log_of()
    tick = 0
    for sequence in range(1, 200):
        tick += 10
        log.append(events([tick]), "p", sequence)
        if sequence == 1:
            log.append(events([tick + 1], publisher="once"), "once", 77)
        log.lose(tick - 50)
        volume.sync()
    log.lose(tick)
    volume.sync()
    assert len(disk.list()) <= 4
    _, log = reopened(disk)
    assert log.state.publishers == {"p": LastPublished(199, tick), "once": LastPublished(77, 11)}
    assert log.state.last_tick == tick
    assert log.read(0, tick).lost == ((0, tick),)


@pytest.mark.parametrize("limit", [("SNAPSHOT_EVERY_BYTES", 300), ("SNAPSHOT_EVERY_RECORDS", 5)])
def test_recovery_replays_what_follows_the_last_snapshot(
    limit: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, *limit)
    disk, volume, log = log_of()
    for number in range(1, 60):
        log.append(events([number * 10], publisher=f"p{number % 7}"), f"p{number % 7}", number)
        volume.sync()
    before = log.state
    volume, log = reopened(disk)
    assert log.state == before
    first, last = volume.bounds("publishers/p1")
    assert first > 1
    assert last - first < 4


def test_a_pubend_that_is_only_leased_keeps_no_old_segment_alive() -> None:
    disk, volume, log = log_of([10])
    log.lose(10)
    for number in range(400):
        volume.append("other", [bytes(200)])
        log.lease(100 + number)
        volume.sync()
        volume.chop("other", number)
    volume.sync()
    assert len(disk.list()) < 15
    _, log = reopened(disk)
    assert log.state.lease == 499
    assert log.state.publishers == {"p": LastPublished(1, 10)}


def test_of_names_that_clients_made_the_longest_idle_is_forgotten_and_given_names_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishers, "MADE_NAMES_MAX", 3)
    table = Publishers()
    made = [f"publisher-{number:016x}" for number in range(4)]
    for tick, name in enumerate(("named", *made[:3], made[0], made[1])):
        table.note(name, LastPublished(1, tick))
    before = table.encoded_bytes
    undo = table.note(made[3], LastPublished(1, 9))
    assert list(table.as_dict()) == [made[0], made[1], made[3], "named"]
    undo()
    assert table.as_dict().keys() == {"named", *made[:3]}
    assert before == table.encoded_bytes == len(b"".join(table.encode(5)))
    assert decode_publishers(b"".join(table.encode(5)))[1].as_dict() == table.as_dict()


@pytest.mark.parametrize("count", [1, 40, 1_000])
def test_what_a_release_writes_does_not_grow_with_the_publishers_that_are_remembered(count: int) -> None:
    disk = MemoryDisk()
    volume = open_volume(disk, 1 << 20)
    log = EventLog(volume, "p1", now=0)
    for number in range(1, count + 1):
        log.append(events([number]), f"named-{number}", 1)
    volume.sync()
    log.lose(count)
    volume.sync()
    written = 0
    for number in range(1, 201):
        log.append(events([count + number]), f"named-{1 + number % count}", 1 + number)
        log.lose(count + number)
        written += volume.pending_bytes
        volume.sync()
    assert written / 200 < 1_000
    known = log.state.publishers
    disk.crash(lose_all)
    assert EventLog(open_volume(disk, 1 << 20), "p1", now=0).state.publishers == known


def test_batches_that_wait_for_a_snapshot_give_their_place_back() -> None:
    disk, volume, log = log_of()
    for number in range(1, 400):
        log.append(events([number]), f"named-{number}", 1)
        volume.sync()
    log.lose(399)
    volume.sync()
    volume, log = reopened(disk)
    assert log.read(0, 399).lost == ((0, 399),)
    assert log.sizes() == ()
    kept = len(disk.list())
    log.free()
    volume.sync()
    assert len(disk.list()) < kept / 4
    _, log = reopened(disk)
    assert len(log.state.publishers) == 399


def test_many_pubends_that_write_snapshots_at_once_leave_room_for_events() -> None:
    volume = open_volume(MemoryDisk(), 64 << 20)
    logs = [EventLog(volume, f"p{number}", now=0) for number in range(12)]
    many = Publishers()
    for number in range(20_000):
        many.note(f"{number:0250}", LastPublished(1, 1))
    for log in logs:
        log._publishers = many
        log.append(events([10]), "", 1)
        volume.flush()
        log.lose(10)
    for log in logs:
        log.free()
    assert volume.pending_bytes <= 48 << 20
    volume.append("events", [bytes(32 << 20)])
    volume.append("events", [bytes(32 << 20)])


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    disk, volume, log = log_of([10, 20])
    log.lease(100)
    volume.sync()
    before = log.state
    disk.bytes_max = sum(map(len, disk.contents().values())) + 50
    for ticks, publisher, sequence in (([30], "new", 1), ([30, 31], "p", 4), ([40], "p", 9)):
        log.append(events([25]), "p", 3)
        log.lease(10_000)
        log.append(events(ticks, publisher, size=100), publisher, sequence)
        with pytest.raises(DiskFullError):
            volume.sync()
        assert log.state == before
        assert ticks_of(log.read(0, 100).batches) == [10, 20]
    disk.bytes_max = None
    log.append(events([30, 31]), "p", 3)
    volume.sync()
    _, log = reopened(disk)
    assert log.state.publishers == {"p": LastPublished(4, 31)}
    assert ticks_of(log.read(0, 100).batches) == [10, 20, 30, 31]


def test_losing_ticks_frees_a_full_disk() -> None:
    disk, volume, log = log_of()
    disk.bytes_max = 400_000
    tick = full = 0
    while full < 4:
        log.append(events([tick + 1], size=700), "p", tick + 1)
        try:
            volume.sync()
            tick += 1
        except DiskFullError:
            full += 1
            log.lose(tick)
            volume.sync()
    assert tick > 300
    _, log = reopened(disk)
    assert log.published("p") == LastPublished(tick, tick)


def test_after_a_failed_sync_the_log_reads_on() -> None:
    disk, volume, log = log_of([10, 20])
    log.append(events([30]), "p", 3)
    disk.syncs_to_fail = 1
    with pytest.raises(DiskFailedError):
        volume.sync()
    with pytest.raises(DiskFailedError):
        log.append(events([40]), "p", 4)
    for change in (log.lease, log.lose):
        with pytest.raises(DiskFailedError):
            change(99)
    assert ticks_of(log.read(0, 20).batches) == [10, 20]
    assert log.state.lost == TICK_MIN


def test_several_pubends_share_a_volume() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk, SEGMENT)
    logs = [EventLog(volume, f"p{number}", now=0) for number in range(3)]
    for tick in range(10, 200, 10):
        for number, log in enumerate(logs):
            log.append(events([tick + number]), "p", tick)
        volume.sync()
    logs[0].lose(1_000)
    volume.sync()
    disk.crash(keep_all)
    volume = open_volume(disk, SEGMENT)
    logs = [EventLog(volume, f"p{number}", now=0) for number in range(3)]
    assert [log.state.last_tick for log in logs] == [190, 191, 192]
    assert ticks_of(logs[1].read(50, 75).batches) == [51, 61, 71]


def bytes_an_event(together: int) -> tuple[float, EventLog]:
    """What 1,600 events of 250 bytes, so many in a batch, cost in the log; and that log."""
    disk = MemoryDisk()
    volume = open_volume(disk, 64 << 20)
    log = EventLog(volume, "p1", now=0)
    log.append(events([1], size=250), "p", 1)
    volume.sync()
    before = len(disk.contents()["0000000001.segment"])
    for first in range(2, 1_602, together):
        log.append(events(range(first, first + together), size=250), "p", first)
        volume.sync()
    return (len(disk.contents()["0000000001.segment"]) - before) / 1_600, log


def test_an_event_costs_at_most_about_thirty_bytes_beyond_its_payload() -> None:
    assert bytes_an_event(16)[0] <= 250 + 30


def test_events_of_one_size_that_came_together_cost_their_rows_and_little_more() -> None:
    cost, log = bytes_an_event(100)
    assert cost <= 250 + PRELUDE.size + 2
    assert ticks_of(log.read(0, 5_000).batches) == list(range(1, 1_602))


@pytest.mark.parametrize("publisher", ["p", "another"])
def test_a_record_of_an_earlier_version_has_the_whole_batch_and_is_read(publisher: str) -> None:
    batch = events([10, 11, 12])
    name = b"" if publisher == "p" else b"another\0"
    kind, size = (2, 0) if publisher == "p" else (1, len("another"))
    prefix = struct.pack("<BBHIq", kind, 0, size, 0, 7)
    assert decode_events(prefix + name + bytes(batch.data), 12) == (batch, publisher, 7)


@pytest.mark.parametrize("publisher", ["p", "another"])
def test_a_record_comes_back_with_its_ticks(publisher: str) -> None:
    for batch in (events([10, 11, 12]), events([10, 20]), events([5])):
        payload = b"".join(encode_events(batch, publisher, 7))
        assert decode_events(payload, int(batch.ticks[-1])) == (batch, publisher, 7)


def test_a_record_of_a_later_version_is_refused() -> None:
    with pytest.raises(UnknownFormatError, match="later version"):
        decode_events(bytes([9]) + bytes(40), 1)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(0, 2**32))
def test_reads_of_any_range_agree_with_a_list(seed: int) -> None:
    random = Random(seed)
    disk, volume, log = log_of()
    model: list[int] = []
    tick, lost, sequence = 0, TICK_MIN, 0
    for _ in range(40):
        match random.randrange(6):
            case 0:
                volume.sync()
                lost = max(lost, tick - random.randrange(200))
                log.lose(lost)
            case 1:
                volume.sync()
                volume, log = reopened(disk, now=tick)
            case _:
                ticks = []
                for _ in range(random.randint(1, 8)):
                    tick += random.randint(1, 9)
                    ticks.append(tick)
                log.append(events(ticks), "p", sequence)
                sequence += len(ticks)
                model += ticks
        base = random.randint(-5, tick + 5)
        upto = random.randint(base, tick + 10)
        answer = log.read(base, upto, bytes_max=random.choice([1, 500, 1 << 20]))
        expected = [t for t in model if max(base, lost) < t <= answer.upto]
        assert ticks_of(answer.batches) == expected
        assert base <= answer.upto <= upto
        end = min(lost, answer.upto)
        assert answer.lost == (((base, end),) if base < end else ())


def test_the_sizes_of_what_is_not_let_go_are_known_after_a_restart() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk)
    log = EventLog(volume, "p1", now=0)
    for number, ticks in enumerate(([10], [20, 21], [30])):
        log.append(events(ticks), "p", 10 * number)
    volume.sync()
    log.lose(20)
    volume.sync()
    assert log.lost == 20
    disk.crash(lose_all)
    log = EventLog(open_volume(disk), "p1", now=0)
    assert [tick for tick, _ in log.sizes()] == [21, 30]
    assert log.sizes()[0][1] > log.sizes()[1][1] > 0
