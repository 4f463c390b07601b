"""TableStore: subscriptions, acknowledgements and topics, in the words of the broker.

A disk without room loses nothing: rows wait in memory for the commit that finds some.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark.broker.effects import (
    DropSubscription,
    SaveHosts,
    SaveReleased,
    SaveSubscription,
    SaveTopic,
    SelectorSince,
    TablesCommitted,
)
from tidemark.broker.hosting.host import SavedSubscription
from tidemark.errors import DiskFailedError
from tidemark.persistence.patient_sync import PatientSync
from tidemark.storage.tables.subscription import SelectorVersion, SubscriptionRow
from tidemark.storage.tables.tables import INCARNATION, SUBSCRIBERS, Tables, TopicRow
from tidemark.ticks import CheckpointToken, Tick
from tidemark.wire.frames import Topic

#: Rows that wait for a disk to have room; more, and the broker stops.
UNCOMMITTED_ROWS_MAX = 1_000_000
#: A subscription that came from another broker has a time of day for its epoch. One that never did is known
#: to the PFS from where it began, which tables of version 2 do not say for each pubend.
EPOCH_NEVER_MOVED_MAX = 1


class TableStore:
    """See above."""

    def __init__(self, tables: Tables, alarm: Callable[[str], None]) -> None:
        self._tables = tables
        self._commit = PatientSync(tables.commit, TablesCommitted, alarm)
        #: what a subscription that is made in this life says of when that was
        self.now: Tick = 0
        self.commit = self._commit.sync
        self.retry = self._commit.retry

    @property
    def is_waiting(self) -> bool:
        """The disk had no room for something."""
        return self._commit.is_waiting

    def next_incarnation(self) -> int:
        """The number of a new life, on disk before anyone hears it."""
        incarnation = self._tables.bump(INCARNATION)
        self._tables.commit()
        return incarnation

    def subscriptions(self) -> list[SavedSubscription]:
        """All durable subscriptions."""
        return [_saved(row, self._tables.released(row.id)) for row in self._tables.subscriptions()]

    def next_subscriber(self) -> int:
        """Neither this number nor a higher one was ever a subscriber's."""
        return self._tables.counter(SUBSCRIBERS) + 1

    def topics(self) -> list[Topic]:
        """All topics."""
        return [Topic(row.topic, row.is_open, row.schemas) for row in self._tables.topics()]

    def save_subscription(self, effect: SaveSubscription) -> None:
        """Create it, or replace what it was."""
        self._check_room()
        assert effect.history
        history = tuple(
            SelectorVersion(number, each.wanted, each.since) for number, each in enumerate(effect.history, 1)
        )
        before = self._tables.subscription(effect.name)
        # By the subscriber's clock, which epochs are compared by, not by this broker's.
        created = effect.made_at or (before.created if before is not None else self.now)
        self._tables.use_subscriber(effect.subscriber)
        self._tables.put_subscription(
            SubscriptionRow(effect.subscriber, effect.name, "", effect.epoch, effect.known, created, history)
        )

    def drop(self, effect: DropSubscription) -> None:
        """Remove it with all that it acknowledged."""
        self._tables.remove_subscription(effect.subscriber)

    def save_released(self, effect: SaveReleased) -> None:
        """What it acknowledged."""
        self._tables.release(effect.subscriber, effect.token)

    def save_topic(self, effect: SaveTopic) -> None:
        """Create it, or replace what it was."""
        self._check_room()
        self._tables.put_topic(TopicRow(effect.topic, effect.is_open, effect.schemas))

    def hosts(self) -> dict[str, dict[str, int]]:
        """pubend -> the brokers that may have subscribers of it -> the oldest row that counts."""
        return self._tables.hosts()

    def save_hosts(self, effect: SaveHosts) -> None:
        """Replace what was known of the pubend."""
        self._tables.put_hosts(effect.pubend, effect.hosts)

    def _check_room(self) -> None:
        if self.is_waiting and self._tables.uncommitted >= UNCOMMITTED_ROWS_MAX:
            reason = f"full for so long that {UNCOMMITTED_ROWS_MAX} rows wait; make room and restart"
            raise DiskFailedError(reason, path="tables")


def _saved(row: SubscriptionRow, released: CheckpointToken) -> SavedSubscription:
    history = tuple(SelectorSince(each.wanted, each.since) for each in row.history)
    if row.epoch > EPOCH_NEVER_MOVED_MAX:
        return SavedSubscription(row.id, row.name, history, released, row.start, row.epoch, row.created)
    known = {**history[0].since, **row.start}
    return SavedSubscription(row.id, row.name, history, released, known, 0, row.created)
