"""The tables of a subscriber hosting broker: what must survive besides the PFS (DSN'03 4.1, 5.2).

A table is held in memory whole and read there. Writes are seen at once and survive a crash after the next
`commit`; many of them make one transaction, whose size the caller chooses. What is written between two
commits survives together or not at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidemark.storage.tables.subscription import SUBSCRIBER_MAX, SubscriptionRow
from tidemark.ticks import TICK_MIN, CheckpointToken, Tick

#: subscriber -> {pubend: tick}
Positions = dict[int, dict[str, Tick]]

#: The counter that subscribers' numbers come from.
SUBSCRIBERS = "subscribers"
#: How often this broker has started.
INCARNATION = "incarnation"


@dataclass(frozen=True, slots=True)
class PfsMark:
    """What the PFS of a pubend should hold. If it knows less than `upto`, it has lost something."""

    upto: Tick
    #: everything at or below was let go
    chopped: Tick


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic with all versions of its schema, oldest first; of an open one, all shapes met so far."""

    topic: str
    is_open: bool
    schemas: tuple[str, ...]


@dataclass(slots=True)
class TableRows:
    """Rows of all tables. For each: what a crash may lose, and why that is safe."""

    # Nothing: a subscriber's number is committed before any matcher or PFS hears of it, or a later subscriber
    # would inherit its number and its matches; a selector's `since` before an event is filtered with it.
    subscriptions: dict[int, SubscriptionRow] = field(default_factory=dict)
    # The latest acknowledgements: released goes back a little, so the pubend keeps its events a little
    # longer. Nothing is redelivered for it, because the subscriber's own token decides.
    released: Positions = field(default_factory=dict)
    # Nothing that was confirmed: a server-kept token is committed before the subscriber's commit is answered.
    # One that was not answered is delivered again, which is what its acknowledgement mode promises.
    tokens: Positions = field(default_factory=dict)
    # The latest steps: the constream delivers again from there; the PFS recognises what it has, subscribers
    # skip what their token covers. It is committed after the PFS has synced, so it is never ahead of it.
    latest_delivered: dict[str, Tick] = field(default_factory=dict)
    # The latest marks: a lower mark expects less of the PFS, which knows its own last tick anyway.
    pfs: dict[str, PfsMark] = field(default_factory=dict)
    # Nothing: a number is committed before anyone hears it, so that none is given out twice.
    counters: dict[str, int] = field(default_factory=dict)
    # Nothing that was confirmed: a topic is committed before its declaration is answered. One that was not
    # answered is declared again by whoever wanted it.
    topics: dict[str, TopicRow] = field(default_factory=dict)
    # Nothing that was confirmed: a host is told that it was heard after the commit, and starts nobody before.
    # A pubend that is not there is one of before there was this table.
    hosts: dict[str, dict[str, int]] = field(default_factory=dict)

    def merge(self, changes: TableRows, removed: Iterable[int]) -> None:
        """Take in rows that were written, without the subscribers that were removed."""
        self.subscriptions.update(changes.subscriptions)
        self.latest_delivered.update(changes.latest_delivered)
        self.pfs.update(changes.pfs)
        self.counters.update(changes.counters)
        self.topics.update(changes.topics)
        self.hosts.update(changes.hosts)
        for mine, theirs in ((self.released, changes.released), (self.tokens, changes.tokens)):
            for subscriber, ticks in theirs.items():
                mine.setdefault(subscriber, {}).update(ticks)
        for subscriber in removed:
            self.forget(subscriber)

    def forget(self, subscriber: int) -> None:
        """Drop the rows of a subscriber."""
        for rows in (self.subscriptions, self.released, self.tokens):
            rows.pop(subscriber, None)


class Tables(ABC):
    """All tables. A kind of tables says how the rows written since the last commit are made to last."""

    def __init__(self, contents: TableRows) -> None:
        self._contents = contents
        self._by_name = {row.name: row for row in contents.subscriptions.values()}
        #: written since the last commit; a subscriber is never in both
        self._changes = TableRows()
        self._removed: set[int] = set()

    @abstractmethod
    def _write(self, changes: TableRows, removed: set[int]) -> None:
        """Make it last, all or nothing. When it raises, nothing is lost and the next commit tries again."""

    def commit(self) -> None:
        """Everything written so far survives a crash from now on."""
        if self._removed or self._changes != TableRows():
            self._write(self._changes, self._removed)
            self._changes, self._removed = TableRows(), set()

    @property
    def uncommitted(self) -> int:
        """Rows that wait for the next commit; all of a subscriber's positions count as one."""
        changes = self._changes
        positions = len(changes.released) + len(changes.tokens)
        others = len(changes.subscriptions) + len(changes.topics) + len(changes.counters) + len(changes.hosts)
        return positions + others + len(changes.latest_delivered) + len(changes.pfs) + len(self._removed)

    def close(self) -> None:  # noqa: B027  (most kinds have nothing to close)
        """Give up what is not committed."""

    def subscriptions(self) -> list[SubscriptionRow]:
        """All of them, in the order of their numbers."""
        return [self._contents.subscriptions[number] for number in sorted(self._contents.subscriptions)]

    def subscription(self, name: str) -> SubscriptionRow | None:
        """The one of this name."""
        return self._by_name.get(name)

    def new_subscriber(self) -> int:
        """A number that no subscriber has had."""
        number = self.bump(SUBSCRIBERS)
        assert number <= SUBSCRIBER_MAX
        return number

    def use_subscriber(self, number: int) -> None:
        """A number that was given out elsewhere: none up to it is given out from now on."""
        if number > self.counter(SUBSCRIBERS):
            self._contents.counters[SUBSCRIBERS] = self._changes.counters[SUBSCRIBERS] = number

    def put_subscription(self, row: SubscriptionRow) -> None:
        """Add a subscription, or change the one of the same number. Names are unique and never change."""
        assert row.history
        assert 0 < row.id <= self.counter(SUBSCRIBERS), "its number was given out before"
        known = self._by_name.get(row.name)
        assert known is None or known.id == row.id, "names are unique"
        assert row.id not in self._contents.subscriptions or known is not None, "names never change"
        self._contents.subscriptions[row.id] = self._changes.subscriptions[row.id] = row
        self._by_name[row.name] = row

    def remove_subscription(self, subscriber: int) -> None:
        """Forget a subscription with all its positions."""
        row = self._contents.subscriptions.get(subscriber)
        if row is None:
            return
        del self._by_name[row.name]
        self._contents.forget(subscriber)
        self._changes.forget(subscriber)
        self._removed.add(subscriber)

    def release(self, subscriber: int, positions: Mapping[str, Tick]) -> None:
        """The subscriber has acknowledged up to these ticks; never goes back."""
        self._advance(self._contents.released, self._changes.released, subscriber, positions)

    def released(self, subscriber: int) -> CheckpointToken:
        """What the subscriber has acknowledged."""
        return CheckpointToken(self._contents.released.get(subscriber))

    def keep_token(self, subscriber: int, positions: Mapping[str, Tick]) -> None:
        """The subscriber has committed up to these ticks, and its token is kept here; never goes back."""
        self._advance(self._contents.tokens, self._changes.tokens, subscriber, positions)

    def token(self, subscriber: int) -> CheckpointToken:
        """The token kept for the subscriber; empty when there is none."""
        return CheckpointToken(self._contents.tokens.get(subscriber))

    def deliver(self, pubend: str, tick: Tick) -> None:
        """Up to `tick` the PFS and all who are not catching up have got everything; never goes back."""
        if tick > self._contents.latest_delivered.get(pubend, TICK_MIN):
            self._contents.latest_delivered[pubend] = self._changes.latest_delivered[pubend] = tick

    def latest_delivered(self) -> CheckpointToken:
        """Of every pubend."""
        return CheckpointToken(self._contents.latest_delivered)

    def mark_pfs(self, pubend: str, mark: PfsMark) -> None:
        """What the PFS holds of a pubend."""
        self._contents.pfs[pubend] = self._changes.pfs[pubend] = mark

    def pfs(self, pubend: str) -> PfsMark | None:
        """The last mark of a pubend."""
        return self._contents.pfs.get(pubend)

    def put_topic(self, row: TopicRow) -> None:
        """Add a topic, or change the one of the same name."""
        self._contents.topics[row.topic] = self._changes.topics[row.topic] = row

    def topics(self) -> list[TopicRow]:
        """All of them, in the order of their names."""
        return [self._contents.topics[name] for name in sorted(self._contents.topics)]

    def put_hosts(self, pubend: str, hosts: Mapping[str, int]) -> None:
        """The brokers that may have subscribers of a pubend hosted here -> the oldest row that counts."""
        self._contents.hosts[pubend] = self._changes.hosts[pubend] = dict(hosts)

    def hosts(self) -> dict[str, dict[str, int]]:
        """Of every pubend of which it was said."""
        return dict(self._contents.hosts)

    def bump(self, counter: str) -> int:
        """Count one up, from 0 when it is new: versions of filters, incarnations. Commit before using it."""
        value = self.counter(counter) + 1
        self._contents.counters[counter] = self._changes.counters[counter] = value
        return value

    def counter(self, name: str) -> int:
        """Where a counter stands."""
        return self._contents.counters.get(name, 0)

    def _advance(
        self, rows: Positions, changes: Positions, subscriber: int, positions: Mapping[str, Tick]
    ) -> None:
        """A late word about a subscriber that is gone is ignored."""
        if subscriber not in self._contents.subscriptions:
            return
        held = rows.setdefault(subscriber, {})
        news = {pubend: tick for pubend, tick in positions.items() if tick > held.get(pubend, TICK_MIN)}
        if news:
            held.update(news)
            changes.setdefault(subscriber, {}).update(news)
