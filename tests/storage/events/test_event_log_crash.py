"""The event log after crashes at every step, and on a disk that rots."""

from __future__ import annotations

from random import Random

import pytest

from tests.storage.log_steps import CRASHES, copy_of, events, open_volume, run_until_power_loss, ticks_of
from tidemark.storage.disk.memory_disk import MemoryDisk, by_chance, lose_all
from tidemark.storage.events.event_log import EventLog, EventLogState
from tidemark.storage.events.publishers import LastPublished
from tidemark.storage.log.volume import LogVolume
from tidemark.ticks import TICK_MIN

SEGMENT = 1_500
NOW = 5_000


class Story:
    """What a pubend did, and what it could have told others when the power went."""

    def __init__(self) -> None:
        #: (ticks, publisher, first sequence)
        self.batches: list[tuple[list[int], str, int]] = []
        self.leases = [TICK_MIN]
        self.losses = [TICK_MIN]
        #: how much of each was synced
        self.synced = (0, 1, 1)

    def run(self, disk: MemoryDisk) -> None:
        volume = open_volume(disk, SEGMENT)
        log = EventLog(volume, "p1", now=0)
        for number in range(1, 22):
            publisher = ("p", "q", "once")[2 if number == 2 else number % 2]
            ticks = [100 * number + row for row in range(1 + number % 3)]
            self.batches.append((ticks, publisher, 10 * number))
            log.append(events(ticks, publisher), publisher, 10 * number)
            if number % 4 == 0:
                self.leases.append(100 * number + 50)
                log.lease(100 * number + 50)
            if number % 7 == 0:
                self.losses.append(100 * number - 300)
                log.lose(100 * number - 300)
            if number % 3:
                volume.sync()
                self.synced = len(self.batches), len(self.leases), len(self.losses)
        volume.close()

    def check(self, log: EventLog) -> None:
        state = log.state
        assert state.damage == ()
        batches, leases, losses = self.synced
        assert state.lease in self.leases[leases - 1 :]
        assert state.lost in self.losses[losses - 1 :]
        recovered = sum(ticks[-1] <= state.last_tick for ticks, _, _ in self.batches)
        assert recovered >= batches
        assert state.last_tick == (self.batches[recovered - 1][0][-1] if recovered else TICK_MIN)
        self._check_events(log, state, recovered)
        assert state.publishers == {
            publisher: LastPublished(sequence + len(ticks) - 1, ticks[-1])
            for ticks, publisher, sequence in self.batches[:recovered]
        }

    def _check_events(self, log: EventLog, state: EventLogState, recovered: int) -> None:
        answer = log.read(state.lost, 10_000)
        expected = [tick for ticks, _, _ in self.batches[:recovered] for tick in ticks if tick > state.lost]
        assert (ticks_of(answer.batches), answer.lost) == (expected, ())


@pytest.mark.parametrize("crash", range(len(CRASHES)))
def test_what_was_synced_holds_after_a_crash_at_any_step(crash: int) -> None:
    for operation in range(1, 1_000):
        disk, story = MemoryDisk(), Story()
        lost_power = run_until_power_loss(disk, operation, lambda: story.run(disk))  # noqa: B023
        disk.crash(CRASHES[crash](operation))
        run_until_power_loss(disk, 1 + operation % 5, lambda: recovered(disk))  # noqa: B023
        disk.crash(CRASHES[crash](operation))
        _, log = recovered(disk)
        story.check(log)
        log.append(events([6_000]), "p", 10_000)
        if not lost_power:
            assert operation > 40
            return
    pytest.fail("the story does not end")


def recovered(disk: MemoryDisk, now: int = NOW) -> tuple[LogVolume, EventLog]:
    volume = open_volume(disk, SEGMENT)
    return volume, EventLog(volume, "p1", now=now)


def test_a_retried_batch_is_recognised_after_any_crash_if_it_was_logged() -> None:
    for operation in range(1, 120, 2):
        disk, story = MemoryDisk(), Story()
        run_until_power_loss(disk, operation, lambda: story.run(disk))  # noqa: B023
        disk.crash(by_chance(Random(operation)))
        _, log = recovered(disk)
        for ticks, publisher, sequence in story.batches:
            known = log.published(publisher)
            logged = ticks[-1] <= log.state.last_tick
            assert logged == (known is not None and known.sequence >= sequence + len(ticks) - 1)


BATCHES = [[10, 11, 12], [20], [30, 31], [40], [50, 51], [60]]


def rotting(*, segment_bytes: int = SEGMENT) -> MemoryDisk:
    disk = MemoryDisk()
    volume = open_volume(disk, segment_bytes)
    log = EventLog(volume, "p1", now=0)
    for number, ticks in enumerate(BATCHES):
        log.append(events(ticks), "p", 10 * number)
        if number == 2:
            log.lease(35)
        if number == 3:
            log.lose(11)
        volume.sync()
    volume.close()
    return disk


def test_rot_of_any_byte_turns_exactly_the_ticks_around_it_to_lost() -> None:
    disk = rotting()
    published = [tick for ticks in BATCHES for tick in ticks]
    outcomes = set()
    for name, content in disk.contents().items():
        for at in range(0, len(content), 3) if name.endswith("segment") else ():
            rotten = copy_of(disk)
            rotten.rot(name, at, flip=1 << at % 8)
            _, log = recovered(rotten)
            answer = log.read(0, NOW)
            state = log.state
            there = ticks_of(answer.batches)
            assert all(tick > state.lost for tick in there)
            gone = [tick for tick in published if tick not in there and tick > max(state.lost, 9)]
            assert gone == [
                tick for tick in published if any(base < tick <= upto for base, upto in state.damage)
            ]
            for base, upto in state.damage:
                assert base in (state.lost, 10, 11, *(ticks[-1] for ticks in BATCHES))
                assert upto in (NOW, *(ticks[0] - 1 for ticks in BATCHES))
            assert state.floor >= 60
            assert state.lease in (35, NOW)
            if not gone:
                assert state.publishers == {"p": LastPublished(50, 60)}
            outcomes.add((tuple(gone), state.damage))
    assert len(outcomes) > 6


def test_damage_in_the_middle_loses_the_ticks_between_its_neighbours() -> None:
    disk = rotting(segment_bytes=1 << 20)
    content = disk.contents()["0000000001.segment"]
    disk.rot("0000000001.segment", content.index(b"30      "))
    _, log = recovered(disk)
    assert log.state.damage == ((20, 39),)
    answer = log.read(15, 45)
    assert (ticks_of(answer.batches), answer.lost) == ([20, 40], ((20, 39),))
    answer = log.read(25, 35)
    assert (answer.batches, answer.upto, answer.lost) == ([], 35, ((25, 35),))
    log.lose(30)
    assert log.state.damage == ((30, 39),)


def test_what_of_damage_is_not_let_go_stays_lost_after_a_restart() -> None:
    disk = rotting(segment_bytes=1 << 20)
    disk.rot("0000000001.segment", disk.contents()["0000000001.segment"].index(b"30      "))
    volume, log = recovered(disk)
    log.lose(30)
    volume.sync()
    volume.close()
    volume, log = recovered(disk)
    assert log.state.damage == ((30, 39),)
    answer = log.read(30, 45)
    assert (ticks_of(answer.batches), answer.lost) == ([40], ((30, 39),))
    log.lose(39)
    volume.sync()
    volume.close()
    assert recovered(disk)[1].state.damage == ()


def test_damage_found_by_a_read_is_reported_by_that_read() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk, 600)
    log = EventLog(volume, "p1", now=0)
    for number in range(1, 40):
        log.append(events([10 * number]), "p", number)
        volume.sync()
    volume.close()
    name = next(name for name, content in disk.contents().items() if b"200     " in content)
    disk.rot(name, disk.contents()[name].index(b"200     "))
    _, log = recovered(disk)
    for _ in range(2):
        answer = log.read(150, 250, bytes_max=1 << 20)
        assert ticks_of(answer.batches) == [160, 170, 180, 190, 210, 220, 230, 240, 250]
        assert answer.lost == ((190, 209),)
    answer = log.read(195, 250, bytes_max=1)
    assert (ticks_of(answer.batches), answer.upto, answer.lost) == ([210], 210, ((195, 209),))


def test_lost_ticks_stay_lost_when_the_mark_that_says_so_is_damaged() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk, 1 << 20)
    log = EventLog(volume, "p1", now=0)
    log.append(events([10]), "p", 1)
    log.append(events([20, 21]), "p", 2)
    log.lease(777)
    volume.sync()
    log.lose(10)
    volume.close()
    content = disk.contents()["0000000001.segment"]
    disk.rot("0000000001.segment", content.rindex((777).to_bytes(8, "little")))
    _, log = recovered(disk)
    state = log.state
    assert (state.lost, state.lease, state.damage) == (10, NOW, ())
    assert state.publishers == {"p": LastPublished(3, 21)}
    assert ticks_of(log.read(0, 100).batches) == [20, 21]


def test_where_the_end_of_the_log_is_lost_everything_up_to_now_is() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk, 1 << 20)
    log = EventLog(volume, "p1", now=0)
    other = EventLog(volume, "p2", now=0)
    log.append(events([10]), "p", 1)
    volume.sync()
    log.append(events([20]), "p", 2)
    other.append(events([30]), "p", 1)
    volume.sync()
    content = disk.contents()["0000000001.segment"]
    disk.rot("0000000001.segment", content.index(b"20      ") - 100)
    disk.crash(lose_all)
    volume = open_volume(disk, 1 << 20)
    log, other = EventLog(volume, "p1", now=NOW), EventLog(volume, "p2", now=NOW)
    assert log.state.damage == ((10, NOW),)
    assert log.state.floor == NOW
    assert ticks_of(other.read(0, 100).batches) == [30]
    log.append(events([NOW + 10]), "p", 3)
    volume.sync()
    disk.crash(lose_all)
    _, log = recovered(disk, now=NOW + 100)
    assert log.state.damage == ((10, NOW),)
    assert log.read(0, NOW + 10).lost == ((10, NOW),)
