"""TableStore: subscriptions, acknowledgements and topics, as the broker's effects name them.

A full disk loses nothing: rows wait in memory for the first commit that finds room.
"""

from __future__ import annotations

from tidemark.broker.effects import (
    DropSubscription,
    SaveHosts,
    SaveReleased,
    SaveSubscription,
    SaveTopic,
    SelectorSince,
    TablesCommitted,
)
from tidemark.broker.hosting.subscription import SavedSubscription
from tidemark.errors import DiskFailedError
from tidemark.persistence.alarm import Alarms
from tidemark.persistence.patient_sync import PatientSync
from tidemark.persistence.vouching import Vouching
from tidemark.storage.tables.subscription import SelectorVersion, SubscriptionRow
from tidemark.storage.tables.tables import ACCEPTED, INCARNATION, SUBSCRIBERS, Tables, TopicRow
from tidemark.ticks import CheckpointToken, Tick
from tidemark.wire.frames import Topic

#: How many rows may wait for room on the disk before the broker stops.
UNCOMMITTED_ROWS_MAX = 1_000_000
#: A subscription that came from another broker has a time of day as its epoch. One that never moved is known
#: to the PFS from its beginning, which tables of version 2 do not have for each pubend.
EPOCH_NEVER_MOVED_MAX = 1


class TableStore:
    """The tables of one broker, for effects that concern them."""

    def __init__(self, tables: Tables, vouching: Vouching, alarms: Alarms) -> None:
        """`tables` belong to the store."""
        self._tables = tables
        self._vouching = vouching
        self._commit = PatientSync(vouching.commit_tables, TablesCommitted, alarms, "tables")
        #: the time of the broker's start, for a new subscription that does not say when it was made
        self.now: Tick = 0
        self.commit = self._commit.sync
        self.retry = self._commit.retry

    @property
    def is_waiting(self) -> bool:
        """Whether a commit waits for room on the disk."""
        return self._commit.is_waiting

    def next_incarnation(self) -> int:
        """Count the broker's starts. Returns the number of this one, which is on disk then.

        For that there is a reserve: a broker starts on a full disk too, so that what it has can be read.
        Raises DiskFullError or DiskFailedError.
        """
        incarnation = self._tables.bump(INCARNATION)
        self._vouching.commit_tables(reserved=True)
        return incarnation

    def subscriptions(self) -> list[SavedSubscription]:
        """Returns all durable subscriptions."""
        return [_saved(row, self._tables.released(row.id)) for row in self._tables.subscriptions()]

    def next_subscriber(self) -> int:
        """Returns a number such that neither it nor a higher one was ever a subscriber's."""
        return self._tables.counter(SUBSCRIBERS) + 1

    def topics(self) -> list[Topic]:
        """Returns all topics."""
        return [Topic(row.topic, row.is_open, row.schemas, row.generation) for row in self._tables.topics()]

    def save_subscription(self, effect: SaveSubscription) -> None:
        """Create a subscription, or replace it. Raises DiskFailedError if too many rows wait for room."""
        self._check_room()
        assert effect.history
        history = tuple(
            SelectorVersion(number, each.wanted, each.since) for number, each in enumerate(effect.history, 1)
        )
        before = self._tables.subscription(effect.name)
        # By the subscriber's clock, because epochs are times of that clock too.
        created = effect.made_at or (before.created if before is not None else self.now)
        self._tables.use_subscriber(effect.subscriber)
        self._tables.put_subscription(
            SubscriptionRow(
                effect.subscriber, effect.name, effect.owner, effect.epoch, effect.known, created, history
            )
        )

    def drop(self, effect: DropSubscription) -> None:
        """Remove a subscription with all that it acknowledged."""
        self._tables.remove_subscription(effect.subscriber)

    def save_released(self, effect: SaveReleased) -> None:
        """Keep what a subscriber has acknowledged."""
        self._tables.release(effect.subscriber, effect.token)

    def save_topic(self, effect: SaveTopic) -> None:
        """Create or remove a topic, or add versions to it. DiskFailedError if too many rows wait for room."""
        self._check_room()
        self._tables.put_topic(TopicRow(effect.topic, effect.is_open, effect.schemas, effect.generation))

    def hosts(self) -> dict[str, dict[str, int]]:
        """Returns pubend -> the brokers that may have subscribers of it -> the oldest row that counts."""
        return self._tables.hosts()

    def doubtful_above(self) -> int | None:
        """Returns the greatest number of a subscriber before rows were lost; None if none ever were."""
        return self._tables.counter(ACCEPTED) or None

    def save_hosts(self, effect: SaveHosts) -> None:
        """Replace the hosts of a pubend."""
        self._tables.put_hosts(effect.pubend, effect.hosts)

    def _check_room(self) -> None:
        if self.is_waiting and self._tables.uncommitted >= UNCOMMITTED_ROWS_MAX:
            reason = f"full for so long that {UNCOMMITTED_ROWS_MAX} rows wait; make room and restart"
            raise DiskFailedError(reason, path="tables")


def _saved(row: SubscriptionRow, released: CheckpointToken) -> SavedSubscription:
    history = tuple(SelectorSince(each.wanted, each.since) for each in row.history)
    if row.epoch > EPOCH_NEVER_MOVED_MAX:
        known, epoch = dict(row.start), row.epoch
    else:
        known, epoch = {**history[0].since, **row.start}, 0
    return SavedSubscription(row.id, row.name, history, released, known, epoch, row.created, row.principal)
