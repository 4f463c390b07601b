"""A broker that has lost its machine and goes on from a backup, judged by the ledgers of its clients."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.admin.backups.local_snapshot import LocalSnapshot
from tidemark.admin.backups.make import copy_snapshot
from tidemark.admin.backups.restore import restore_backup
from tidemark.lab.damage.campaign import faults_of, refusals_of, scratch
from tidemark.lab.damage.stepped_broker import BEGIN, MILLISECOND, SECOND, Reader, SteppedBroker, Writer
from tidemark.persistence.restoration import Restoration
from tidemark.storage.tables.sqlite_tables import SqliteTables
from tidemark.storage.tables.tables import INCARNATION, SUBSCRIBERS


@dataclass
class Story:
    """What happened until the machine was lost, and the backups that were made on the way."""

    backups: list[Path]
    readers: tuple[Reader, ...]
    writers: tuple[Writer, ...]
    now: int
    #: incarnation and greatest number of a subscriber at the end
    incarnation: int
    subscribers: int

    def clients(self) -> tuple[list[Reader], list[Writer]]:
        """Copies of the clients. Who leaves its token to the broker has only the broker's word for it."""
        readers = [each.copy() for each in self.readers]
        for reader in readers:
            if not reader.holds:
                reader.kept = {}
        return readers, [each.copy() for each in self.writers]


def tell(path: Path) -> Story:
    """Readers come and go, history is let go, and a backup is made after every step and in the middle."""
    life = SteppedBroker(path / "data", BEGIN)
    writer, other = Writer("w"), Writer("v")
    live, lazy = Reader("live", 10, holds=True), Reader("lazy", 6, holds=True)
    kept, late = Reader("kept", 8, holds=False), Reader("late", 10, holds=False)
    backups: list[Path] = []

    def work(rounds: int = 3) -> None:
        for number in range(rounds):
            life.publish(writer, 1 + number % 3)
            life.publish(other, 12)
            life.pass_time(60 * MILLISECOND)
            for reader in (live, kept, late):
                if reader.client is not None and number % 2:
                    life.acknowledge(reader)
        life.pass_time(300 * MILLISECOND)

    def back_up(*, busy: bool = True) -> None:
        snapshot = LocalSnapshot(life._store, path / "data", life.now, work if busy else lambda: None)
        backups.append(Path(copy_snapshot(snapshot, path / "backups").backup))
        life.pass_time(SECOND)

    back_up()
    for reader in (live, lazy, kept):
        life.subscribe(reader)
        life.pass_time(200 * MILLISECOND)
    work()
    back_up(busy=False)
    work()
    life.acknowledge(lazy)
    life.leave(lazy)
    back_up()
    life.subscribe(late)
    life.pass_time(SECOND)
    work()
    life.leave(kept)
    for _ in range(2):
        life.leave(live)
        life.pass_time(SECOND)
        # The machine restarts its broker now and then.
        life.kill()
        life = SteppedBroker(path / "data", life.now + SECOND)
        life.subscribe(live)
        work()
    back_up(busy=False)
    work()
    life.leave(live)
    life.stop()
    tables = SqliteTables(path / "data/tables/tables.sqlite")
    ends = tables.counter(INCARNATION), tables.counter(SUBSCRIBERS)
    tables.close()
    shutil.rmtree(path / "data")
    return Story(backups, (live, lazy, kept, late), (writer, other), life.now, *ends)


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    with scratch() as path:
        yield tell(path)


NAMES = ("before anybody came", "of an idle broker", "of a busy one", "the last")


@pytest.mark.parametrize("which", range(len(NAMES)), ids=NAMES)
def test_who_comes_back_to_a_restored_broker_has_every_event_once_or_is_told_a_gap(
    which: int, story: Story, tmp_path: Path
) -> None:
    readers, writers = story.clients()
    restore_backup(story.backups[which], tmp_path / "data", ahead=60)
    life = SteppedBroker(tmp_path / "data", story.now + 5 * SECOND)
    assert any("restored from the backup" in each for each in life.alarms)
    life.welcome(readers, writers)
    assert [fault for reader in readers for fault in faults_of(reader, writers)] == []
    assert refusals_of(readers, writers) == []
    # Nothing that the lost broker has used is used again, and everybody has what is published now.
    before = max(tick for writer in story.writers for tick in writer.ticks.values())
    for writer in writers:
        news = [key for key, *_ in writer.sent[-2:]]
        assert all(writer.ticks[key] > before for key in news)
        assert all(set(news) <= {key for _, key in each.events} for each in readers if each.below == 10)
    assert life._store.incarnation > story.incarnation
    life.kill()
    tables = SqliteTables(tmp_path / "data/tables/tables.sqlite")
    assert tables.counter(SUBSCRIBERS) > story.subscribers
    tables.close()


@pytest.mark.parametrize("which", range(len(NAMES)), ids=NAMES)
def test_a_copy_that_is_started_without_being_restored_can_lose_events_in_silence(
    which: int, story: Story, tmp_path: Path
) -> None:
    """Why there is a command for it, and why these tests would notice a restoration that forgot something."""
    readers, writers = story.clients()
    restore_backup(story.backups[which], tmp_path / "data")
    (tmp_path / "data/restored").unlink()
    (tmp_path / "data/version").write_text("tidemark data 1\n")
    life = SteppedBroker(tmp_path / "data", story.now + 5 * SECOND)
    life.welcome(readers, writers)
    faults = [fault for reader in readers for fault in faults_of(reader, writers)]
    life.kill()
    assert faults or refusals_of(readers, writers)


def test_a_restored_broker_that_crashes_at_once_and_starts_again_has_lost_nothing_more(
    story: Story, tmp_path: Path
) -> None:
    readers, writers = story.clients()
    restore_backup(story.backups[2], tmp_path / "data")
    now, lives = story.now + 5 * SECOND, []
    for _ in range(3):
        life = SteppedBroker(tmp_path / "data", now)
        lives.append(life._store.incarnation)
        life.kill()
        now += 10 * SECOND
    life = SteppedBroker(tmp_path / "data", now)
    assert lives == sorted({*lives, *range(lives[0], lives[0] + 3)})
    life.welcome(readers, writers)
    assert [fault for reader in readers for fault in faults_of(reader, writers)] == []
    life.kill()


def test_a_clock_that_is_behind_that_of_the_lost_machine_gives_no_tick_twice(
    story: Story, tmp_path: Path
) -> None:
    readers, writers = story.clients()
    restore_backup(story.backups[-1], tmp_path / "data", ahead=3600)
    # The clock of this machine has gone back by a quarter of an hour, and the backup itself is ahead of it.
    life = SteppedBroker(tmp_path / "data", story.now - 900 * SECOND)
    life.welcome(readers, writers)
    assert [fault for reader in readers for fault in faults_of(reader, writers)] == []
    life.kill()


def test_the_life_of_a_restored_broker_is_beyond_any_that_the_lost_one_can_have_had() -> None:
    restoration = Restoration(taken=BEGIN, generation=7, segment=3, ahead=0)
    day = 86_400 * SECOND
    assert restoration.last_life(5, BEGIN - day) == 5
    assert restoration.last_life(5, BEGIN + day) == 5 + 2 * 86_400
    assert restoration.last_life(5, BEGIN + 100 * 365 * day) < 2**30
    assert restoration.known.log.segment > 3
    assert restoration.known.generation == 8


def test_a_pubend_that_the_backup_does_not_have_begins_with_what_was_lost(
    story: Story, tmp_path: Path
) -> None:
    """It may have been made, and published to, after the backup: a neighbour tells of it later."""
    restore_backup(story.backups[0], tmp_path / "data", ahead=60)
    now = story.now + 5 * SECOND
    for _ in range(2):  # a later life does not forget it
        life = SteppedBroker(tmp_path / "data", now)
        now += SECOND
        name = f"late-{now}"
        (found,) = life._store.open_pubends([name], now).values()
        assert found.is_damaged
        assert found.last == now + 60 * SECOND
        assert found.lease >= found.last
        life._data.has_started()
        life.kill()
    fresh = SteppedBroker(tmp_path / "fresh", now)
    (found,) = fresh._store.open_pubends([name], now).values()
    assert not found.is_damaged
    fresh.kill()
