"""The tables of a subscriber hosting broker: what must survive besides the PFS (DSN'03 4.1, 5.2).

All tables are held in memory and read there. A write is visible at once and survives a crash after the next
`commit`. What is written between two commits is one transaction: it survives together or not at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidemark.errors import DiskFullError
from tidemark.message.generations import creation_of
from tidemark.storage.log.segments.durable_end import DurableEnd
from tidemark.storage.tables.subscription import SubscriptionRow
from tidemark.storage.witness.known import Known
from tidemark.ticks import TICK_MIN, CheckpointToken, Tick

#: subscriber -> {pubend: tick}
Positions = dict[int, dict[str, Tick]]

#: The counter from which subscribers get their numbers.
SUBSCRIBERS = "subscribers"
#: The counter of the broker's starts.
INCARNATION = "incarnation"
#: The counter of commits: what log, PFS and witness know of it tells an older copy of the tables.
GENERATION = "generation"
#: The greatest number that a subscriber may have had when rows were lost; 0 if that never was.
ACCEPTED = "accepted"
#: How many microseconds the clock of a lost machine may have been ahead of this one's, if the tables were put
#: back from a backup of that machine; 0 if they never were.
RESTORED = "restored"
#: The numbers of the versions of a topic's schema in its creations are so far apart.
CREATION_NUMBERS = 1 << 32
#: The counters with what the tables know of the log and of the PFS: segment and offset of each.
_PLACES = ("log segment", "log offset", "pfs segment", "pfs offset")
#: When rows were lost, what is known of these counters may be a little old: numbers go on after so many more.
_SUBSCRIBERS_MARGIN = 1_000_000
_INCARNATIONS_MARGIN = 1_000


@dataclass(frozen=True, slots=True)
class PfsMark:
    """What the PFS of a pubend should hold: if it does not reach `upto`, it has lost something."""

    upto: Tick
    #: everything at or below this tick was let go on purpose
    chopped: Tick


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic with versions of its schema, oldest first; of an open one, with shapes."""

    topic: str
    is_open: bool
    schemas: tuple[str, ...]
    #: of the schemas; if it is odd, the topic is removed (`message.generations`)
    generation: int = 0


@dataclass(slots=True)
class TableRows:
    """Rows of all tables. Beside each table stands what a crash may lose of it, and why that is safe."""

    #: Subscriber's number -> its subscription. A crash loses nothing that was used: a number is committed
    #: before any matcher or the PFS gets it, since otherwise a later subscriber would inherit the number and
    #: its matches; the `since` of a selector is committed before an event is filtered with that selector.
    subscriptions: dict[int, SubscriptionRow] = field(default_factory=dict)
    #: Subscriber -> the ticks that it has acknowledged. A crash may lose the latest acknowledgements:
    #: released goes back a little, so the pubend keeps its events a little longer. Nothing is delivered again
    #: for that, because the subscriber's own token decides.
    released: Positions = field(default_factory=dict)
    #: Subscriber -> the token that a broker kept for it. No broker writes or reads these rows now, because a
    #: subscriber keeps its own token; the table stays so that files of tables keep their form.
    tokens: Positions = field(default_factory=dict)
    #: Pubend -> latest_delivered. A crash may lose the latest steps: the constream delivers again from there,
    #: the PFS recognises what it has, and subscribers skip what their tokens cover. The value is committed
    #: after the PFS has synced, so it is never ahead of the PFS.
    latest_delivered: dict[str, Tick] = field(default_factory=dict)
    #: Pubend -> what its PFS should hold. No broker writes or reads these rows now, because the PFS knows its
    #: own last tick; the table stays so that files of tables keep their form.
    pfs: dict[str, PfsMark] = field(default_factory=dict)
    #: Name -> value. A crash loses nothing that was used: a number is committed before anyone gets it, so
    #: that no number is given out twice.
    counters: dict[str, int] = field(default_factory=dict)
    #: Topic -> its schemas. A crash loses nothing that was confirmed: a topic is committed before its
    #: declaration is answered, and a client that gets no answer declares it again.
    topics: dict[str, TopicRow] = field(default_factory=dict)
    #: Topic and number -> a version of its schema. Each has a row of its own, since there may be thousands;
    #: older brokers kept them in `topics`, where they come before these. Numbers of each creation begin at
    #: CREATION_NUMBERS times the creation. A crash loses nothing that was confirmed, as for `topics`.
    schemas: dict[tuple[str, int], str] = field(default_factory=dict)
    #: Topic and creation -> whether that one was open, and its generation, which is odd if it is removed. The
    #: first creation has a row only when it is removed. A crash loses nothing that was confirmed, as for
    #: `topics`.
    generations: dict[tuple[str, int], tuple[bool, int]] = field(default_factory=dict)
    #: Pubend hosted here -> the brokers that may have subscribers of it -> the oldest release row that
    #: counts. A crash loses nothing that was confirmed: a host gets its answer after the commit, and lets no
    #: subscriber start before. A pubend without an entry is older than this table.
    hosts: dict[str, dict[str, int]] = field(default_factory=dict)

    def merge(self, changes: TableRows, removed: Iterable[int]) -> None:
        """Take over the rows of `changes`, and drop those of the subscribers in `removed`."""
        self.subscriptions.update(changes.subscriptions)
        self.latest_delivered.update(changes.latest_delivered)
        self.pfs.update(changes.pfs)
        self.counters.update(changes.counters)
        self.topics.update(changes.topics)
        self.schemas.update(changes.schemas)
        self.generations.update(changes.generations)
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
    """All tables of a broker. A subclass makes the rows that were written since the last commit durable."""

    #: rows whose numbers were brought within bounds when they were read: a sentence each
    bounded: tuple[str, ...] = ()

    def __init__(self, contents: TableRows) -> None:
        #: all rows, committed or not
        self._contents = contents
        self._by_name = {row.name: row for row in contents.subscriptions.values()}
        #: topic and creation -> how many numbers its versions have taken
        self._schema_counts = {(name, 0): len(row.schemas) for name, row in contents.topics.items()}
        for topic, number in contents.schemas:
            key = (topic, number // CREATION_NUMBERS)
            self._schema_counts[key] = max(self._schema_counts.get(key, 0), number % CREATION_NUMBERS + 1)
        #: rows written, and subscribers removed, since the last commit; a subscriber is never in both
        self._changes = TableRows()
        self._removed: set[int] = set()
        #: how many commits there have been
        self.generation = contents.counters.get(GENERATION, 0)

    @abstractmethod
    def _write(self, changes: TableRows, removed: set[int]) -> None:
        """Make the changes durable, all or nothing.

        Raises DiskFullError: nothing is lost, and the next commit tries again. Raises DiskFailedError.
        """

    @property
    def path(self) -> str:
        """Where the tables are, for error messages."""
        return "tables"

    def commit(self, *, reserved: bool = False) -> None:
        """Make everything written so far durable. Raises DiskFullError or DiskFailedError.

        With `reserved`, space that is kept for the start of a broker may be used if the disk is full.
        """
        if not self.has_changes:
            return
        # The number of the last commit and one more, also if an attempt failed in between.
        self._keep_counter(GENERATION, self.generation + 1)
        try:
            self._write(self._changes, self._removed)
        except DiskFullError:
            if not reserved or not self._spend_reserve():
                raise
            self._write(self._changes, self._removed)
        self.generation += 1
        self._changes, self._removed = TableRows(), set()

    @property
    def is_short_of_space(self) -> bool:
        """Whether the space that is kept for the start of a broker was given up, and is not back yet."""
        return False

    def _spend_reserve(self) -> bool:
        """Give up the space that is kept for the start of a broker. Returns False if there is none."""
        return False

    @property
    def has_changes(self) -> bool:
        """Whether something was written since the last commit."""
        return bool(self._removed) or self._changes != TableRows()

    @property
    def has_lasting_changes(self) -> bool:
        """Whether something was written since the last commit that nobody would say again."""
        changes = self._changes
        topics = changes.topics or changes.schemas
        return bool(self._removed or changes.subscriptions or topics or changes.hosts)

    def known(self) -> Known:
        """Returns what the tables know of all stores."""
        log, pfs = (
            DurableEnd(self.counter(segment), self.counter(offset))
            for segment, offset in (_PLACES[:2], _PLACES[2:])
        )
        return Known(log, pfs, self.generation, self.counter(INCARNATION), self.counter(SUBSCRIBERS))

    def learn(self, log: DurableEnd, pfs: DurableEnd) -> None:
        """Keep how far the log and the PFS are on the platter."""
        for name, value in zip(_PLACES, (*log, *pfs), strict=True):
            if value != self.counter(name):
                self._keep_counter(name, value)

    def accept_loss(self, known: Known) -> None:
        """Go on although rows of later commits were lost: no number that was used is given out again.

        `known` is what other stores know of these tables.
        """
        self.generation = max(self.generation, known.generation)
        subscribers = max(self.counter(SUBSCRIBERS), known.subscribers) + _SUBSCRIBERS_MARGIN
        incarnation = max(self.counter(INCARNATION), known.incarnation) + _INCARNATIONS_MARGIN
        self._keep_counter(SUBSCRIBERS, subscribers)
        self._keep_counter(INCARNATION, incarnation)
        self._keep_counter(ACCEPTED, subscribers)

    def restored(self, ahead: int) -> None:
        """The tables were put back from a backup; see RESTORED."""
        self._keep_counter(RESTORED, max(1, ahead, self.counter(RESTORED)))

    @abstractmethod
    def copy_to(self, path: str) -> None:
        """Make a file of tables at `path`, with everything that is committed. Raises StorageError."""

    @property
    def uncommitted(self) -> int:
        """How many rows wait for the next commit; all positions of a subscriber count as one."""
        changes = self._changes
        positions = len(changes.released) + len(changes.tokens)
        topics = len(changes.topics) + len(changes.schemas)
        others = len(changes.subscriptions) + topics + len(changes.counters) + len(changes.hosts)
        return positions + others + len(changes.latest_delivered) + len(changes.pfs) + len(self._removed)

    def close(self) -> None:  # noqa: B027  (most kinds have nothing to close)
        """Close the tables. What is not committed is lost."""

    def subscriptions(self) -> list[SubscriptionRow]:
        """Returns all subscriptions, in the order of their numbers."""
        return [self._contents.subscriptions[number] for number in sorted(self._contents.subscriptions)]

    def subscription(self, name: str) -> SubscriptionRow | None:
        """Returns the subscription of this name, or None."""
        return self._by_name.get(name)

    def use_subscriber(self, number: int) -> None:
        """The broker uses this number for a subscriber: no number up to it is given out from now on."""
        if number > self.counter(SUBSCRIBERS):
            self._keep_counter(SUBSCRIBERS, number)

    def put_subscription(self, row: SubscriptionRow) -> None:
        """Add a subscription, or replace the one with the same number. Names are unique and never change."""
        assert row.history
        assert 0 < row.id <= self.counter(SUBSCRIBERS), "its number was given out before"
        known = self._by_name.get(row.name)
        assert known is None or known.id == row.id, "names are unique"
        assert row.id not in self._contents.subscriptions or known is not None, "names never change"
        self._contents.subscriptions[row.id] = self._changes.subscriptions[row.id] = row
        self._by_name[row.name] = row

    def remove_subscription(self, subscriber: int) -> None:
        """Remove a subscription with all its positions."""
        row = self._contents.subscriptions.get(subscriber)
        if row is None:
            return
        del self._by_name[row.name]
        self._contents.forget(subscriber)
        self._changes.forget(subscriber)
        self._removed.add(subscriber)

    def release(self, subscriber: int, positions: Mapping[str, Tick]) -> None:
        """The subscriber has acknowledged up to these ticks; a lower tick than before is ignored."""
        self._advance(self._contents.released, self._changes.released, subscriber, positions)

    def released(self, subscriber: int) -> CheckpointToken:
        """Returns the ticks that the subscriber has acknowledged."""
        return CheckpointToken(self._contents.released.get(subscriber))

    def deliver(self, pubend: str, tick: Tick) -> None:
        """latest_delivered of the pubend is `tick`; a lower tick than before is ignored."""
        if tick > self._contents.latest_delivered.get(pubend, TICK_MIN):
            self._contents.latest_delivered[pubend] = self._changes.latest_delivered[pubend] = tick

    def latest_delivered(self) -> CheckpointToken:
        """Returns latest_delivered of every pubend."""
        return CheckpointToken(self._contents.latest_delivered)

    def put_topic(self, row: TopicRow) -> None:
        """Add a topic, or add versions of its schema to those it has; an open one may become declared.

        Versions of one creation are kept apart from those of another. What is removed stays removed.
        """
        creation = creation_of(row.generation)
        known = self._contents.topics.get(row.topic)
        if known is None or (known.is_open and not row.is_open and not creation):
            put = TopicRow(row.topic, row.is_open, ()) if known is None else replace(known, is_open=False)
            self._contents.topics[row.topic] = self._changes.topics[row.topic] = put
        if row.generation:
            key = (row.topic, creation)
            _, before = self._contents.generations.get(key, (False, 0))
            kept = (row.is_open, max(before, row.generation))
            self._contents.generations[key] = self._changes.generations[key] = kept
        for schema in row.schemas:
            count = self._schema_counts.get((row.topic, creation), 0)
            number = creation * CREATION_NUMBERS + count
            self._contents.schemas[row.topic, number] = self._changes.schemas[row.topic, number] = schema
            self._schema_counts[row.topic, creation] = count + 1

    def topics(self) -> list[TopicRow]:
        """Returns all topics with all versions of their schemas, in the order of their names and creations.

        A version that was put twice comes where it was put last.
        """
        rows = {(name, 0): (row.is_open, 0) for name, row in self._contents.topics.items()}
        rows |= self._contents.generations
        schemas: dict[tuple[str, int], list[str]] = {key: [] for key in rows}
        for name, row in self._contents.topics.items():
            schemas[name, 0] += row.schemas
        for topic, number in sorted(self._contents.schemas):
            schemas[topic, number // CREATION_NUMBERS].append(self._contents.schemas[topic, number])
        for name, creation in self._contents.generations:
            if creation and not schemas.get((name, 0), True) and (name, 0) not in self._contents.generations:
                del rows[name, 0]  # only later creations were ever heard of here
                del schemas[name, 0]
        return [
            TopicRow(name, is_open, tuple(dict.fromkeys(schemas[name, creation][::-1]))[::-1], generation)
            for (name, creation), (is_open, generation) in sorted(rows.items())
        ]

    def put_hosts(self, pubend: str, hosts: Mapping[str, int]) -> None:
        """Keep the brokers that may have subscribers of a pubend, each with the oldest row that counts."""
        self._contents.hosts[pubend] = self._changes.hosts[pubend] = dict(hosts)

    def hosts(self) -> dict[str, dict[str, int]]:
        """Returns pubend -> what `put_hosts` kept for it."""
        return dict(self._contents.hosts)

    def bump(self, counter: str) -> int:
        """Count one up, from 0 if the counter is new. Returns the value; commit before using it."""
        value = self.counter(counter) + 1
        self._keep_counter(counter, value)
        return value

    def counter(self, name: str) -> int:
        """Returns the value of a counter; 0 if it is new."""
        return self._contents.counters.get(name, 0)

    def _keep_counter(self, name: str, value: int) -> None:
        self._contents.counters[name] = self._changes.counters[name] = value

    def _advance(
        self, rows: Positions, changes: Positions, subscriber: int, positions: Mapping[str, Tick]
    ) -> None:
        """Raise positions of a subscriber; those of a subscriber that was removed are ignored."""
        if subscriber not in self._contents.subscriptions:
            return
        held = rows.setdefault(subscriber, {})
        news = {pubend: tick for pubend, tick in positions.items() if tick > held.get(pubend, TICK_MIN)}
        if news:
            held.update(news)
            changes.setdefault(subscriber, {}).update(news)
