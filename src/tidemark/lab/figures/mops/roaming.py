"""Roaming: mobile subscribers on a tree of seven brokers, as in MOPS, for any approach to serving them.

Every approach is run with the same itinerary: who comes where and when, who leaves when, what is published
when. The messages that the brokers receive and send are counted by kind, and what they store is sampled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol

import numpy as np

from tidemark.lab.figures.estimates import quantile
from tidemark.lab.figures.table import Table

PARENTS: dict[str, str | None] = {
    "B1": None, "B2": "B1", "B3": "B1", "B4": "B2", "B5": "B2", "B6": "B3", "B7": "B3",
}  # fmt: skip
#: Subscribers do not connect to the root.
OPEN_TO_ALL = tuple(PARENTS)[1:]
PUBLISH_EVERY_S = 2.0
VALIDITY_MS = 5_000
#: Connections a second of a subscriber, which is connected half of the time.
RATE_MIN, RATE_MAX = 0.2, 0.6
#: Seconds before which nothing is counted.
BEGIN_S = 4.0
SAMPLE_S = 0.5
#: A run goes in so many parts: the simulator takes too many steps in one part for a storm.
PARTS = 60
#: What the table of waits calls the time from the publication of an event to its receipt: of events that were
#: published while the subscriber was connected, and for those that it missed at first.
CONNECTED, AWAY = "notification, connected", "notification, away"
#: Kinds of messages. Silence is knowledge that there was no event; only Tidemark sends it.
KINDS = ("notification", "subscription", "unsubscription", "control", "silence")


@dataclass(frozen=True, slots=True)
class Move:
    """A subscriber comes to a broker, or (None) leaves its broker."""

    at: float
    subscriber: int
    broker: str | None


@dataclass
class MessageCounts:
    """How many messages of each kind each broker received and sent while `is_counting`."""

    received: Counter[tuple[str, str]] = field(default_factory=Counter)
    sent: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: frame, as it is on the wire -> how often a broker sent or received one
    frames: Counter[str] = field(default_factory=Counter)
    #: what subscribers waited for -> how many seconds each of them did
    waits: dict[str, list[float]] = field(default_factory=dict)
    is_counting: bool = False

    def passed(self, sender: str | None, receiver: str | None, kind: str, count: int = 1) -> None:
        """Count messages from one broker to another; None stands for a client."""
        if self.is_counting and sender is not None:
            self.sent[sender, kind] += count
        if self.is_counting and receiver is not None:
            self.received[receiver, kind] += count

    def framed(self, frame: str, *, brokers: int) -> None:
        """Count a frame that so many brokers handle: two on a link, one on the connection of a client."""
        if self.is_counting:
            self.frames[frame] += brokers

    def notified(self, published: float, came: float, now: float) -> None:
        """A subscriber that came at `came` gets an event now; times are seconds."""
        self.waited(CONNECTED if published >= came else AWAY, now - published)

    def waited(self, what: str, seconds: float) -> None:
        """A subscriber has waited so long."""
        if self.is_counting:
            self.waits.setdefault(what, []).append(seconds)


class MobileSubscriber(Protocol):
    """A mobile subscriber."""

    def come(self, at: str) -> None:
        """Connect to this broker."""

    def leave(self) -> None:
        """Disconnect."""


@dataclass(frozen=True, slots=True)
class DeliveryCounts:
    """What all subscribers together should have got, and how many events were missed or repeated."""

    expected: int
    missed: int
    repeated: int


class Approach(Protocol):
    """An approach to serving mobile subscribers, in a world of its own."""

    name: str
    message_counts: MessageCounts

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Schedule an action."""

    def run(self, until: float) -> None:
        """Let simulated time pass."""

    def mobile_subscriber(self, number: int) -> MobileSubscriber:
        """Returns a subscriber of everything that has not come yet."""

    def publish_every(self, broker: str, seconds: float, first: float) -> None:
        """Start a publisher of an event every so many seconds at this broker."""

    def stored(self, broker: str) -> int:
        """Returns the number of events that a broker must keep for a subscriber."""

    def cached_bytes(self, broker: str) -> int:
        """Returns the bytes of events that a broker caches without having to."""

    def finish(self) -> DeliveryCounts:
        """Stop publishing and let every subscriber return and get the rest; returns the counts."""


#: Where a subscriber goes next, by the brokers that it has been at so far; this is how the paper has it.
Mobility = Callable[[Random, list[str]], str]


def anywhere(chance: Random, been: list[str]) -> str:  # noqa: ARG001  (a Mobility)
    """Go to any broker."""
    return chance.choice(OPEN_TO_ALL)


def itinerary(chance: Random, subscribers: int, until: float, mobility: Mobility = anywhere) -> list[Move]:
    """Returns the moves of all subscribers in order of time."""
    moves: list[Move] = []
    for number in range(subscribers):
        period = 1 / chance.uniform(RATE_MIN, RATE_MAX)
        at = BEGIN_S / 2 + chance.uniform(0, period)
        been: list[str] = []
        while at < until:
            been.append(mobility(chance, been))
            moves.append(Move(at, number, been[-1]))
            moves.append(Move(at + period / 2, number, None))
            at += period
    return sorted(moves, key=lambda move: move.at)


def brokers_table() -> Table:
    """Returns the table of averages of one broker over one run: numbers, and messages a second."""
    messages = tuple(f"{way}_{kind}" for way in ("received", "sent") for kind in KINDS)
    fixed = ("approach", "subscribers", "run", "broker", "connected", "stored", "cached_bytes")
    return Table("brokers", (*fixed, *messages))


def deliveries_table() -> Table:
    """Returns the table of the deliveries of one run."""
    return Table("deliveries", ("approach", "subscribers", "run", "expected", "missed", "repeated"))


def storage_table() -> Table:
    """Returns the table of events stored at a broker on average, over the time of a run."""
    return Table("storage", ("approach", "subscribers", "run", "time_s", "stored"))


def frames_table() -> Table:
    """Returns the table of frames by kind: how many a broker sends and receives in a second, on average."""
    return Table("frames", ("approach", "subscribers", "run", "frame", "a_second"))


def waits_table() -> Table:
    """Returns the table of what subscribers waited for, in milliseconds."""
    return Table("waits", ("approach", "subscribers", "run", "what", "number", "p50_ms", "p99_ms"))


@dataclass
class RoamingTables:
    """The tables of all runs."""

    brokers: Table = field(default_factory=brokers_table)
    deliveries: Table = field(default_factory=deliveries_table)
    storage: Table = field(default_factory=storage_table)
    frames: Table = field(default_factory=frames_table)
    waits: Table = field(default_factory=waits_table)

    def tables(self) -> list[Table]:
        """Returns every table."""
        return [self.brokers, self.deliveries, self.storage, self.frames, self.waits]

    def add(self, run: Mapping[str, Table]) -> None:
        """Add the rows of a run's tables, which are found by their names."""
        for table in self.tables():
            table.rows += run[table.name].rows


class RoamingRun:
    """One run of one approach with one number of subscribers."""

    def __init__(
        self,
        approach: Approach,
        subscribers: int,
        run: int,
        seconds: float,
        mobility: Mobility = anywhere,
    ) -> None:
        self._approach = approach
        self._mobility = mobility
        self._subscribers = subscribers
        self._end = BEGIN_S + seconds
        self._places: list[str | None] = [None] * subscribers
        self._connected: Counter[str] = Counter()
        self._stored: Counter[str] = Counter()
        self._cached: Counter[str] = Counter()
        self._samples = 0
        self._who = approach.name, subscribers, run
        self._tables = RoamingTables()

    def play(self) -> RoamingTables:
        """Run it; returns its tables."""
        approach, chance = self._approach, Random(f"{self._who[1]} {self._who[2]}")
        for number, broker in enumerate(PARENTS):
            approach.publish_every(
                broker, PUBLISH_EVERY_S, BEGIN_S / 2 + number * PUBLISH_EVERY_S / len(PARENTS)
            )
        subscribers = [approach.mobile_subscriber(number) for number in range(self._subscribers)]
        for move in itinerary(chance, self._subscribers, self._end, self._mobility):
            approach.at(move.at, partial(self._move, subscribers[move.subscriber], move))
        at = BEGIN_S
        while at < self._end:
            approach.at(at, partial(self._sample, at - BEGIN_S))
            at += SAMPLE_S
        approach.run(BEGIN_S)
        approach.message_counts.is_counting = True
        for part in range(1, PARTS + 1):
            approach.run(BEGIN_S + (self._end - BEGIN_S) * part / PARTS)
        approach.message_counts.is_counting = False
        for broker in PARENTS:
            self._tables.brokers.add(*self._row(broker))
        self._add_frames_and_waits()
        found = approach.finish()
        self._tables.deliveries.add(*self._who, found.expected, found.missed, found.repeated)
        return self._tables

    def _move(self, mobile_subscriber: MobileSubscriber, move: Move) -> None:
        self._places[move.subscriber] = move.broker
        if move.broker is None:
            mobile_subscriber.leave()
        else:
            mobile_subscriber.come(at=move.broker)

    def _sample(self, at: float) -> None:
        self._samples += 1
        self._connected.update(place for place in self._places if place is not None)
        stored = {broker: self._approach.stored(broker) for broker in PARENTS}
        self._tables.storage.add(*self._who, at, sum(stored.values()) / len(stored))
        self._stored.update(stored)
        self._cached.update({broker: self._approach.cached_bytes(broker) for broker in PARENTS})

    def _row(self, broker: str) -> tuple[str | float, ...]:
        message_counts, seconds = self._approach.message_counts, self._end - BEGIN_S
        averages = (each[broker] / self._samples for each in (self._connected, self._stored, self._cached))
        ways = (message_counts.received, message_counts.sent)
        messages = (way[broker, kind] / seconds for way in ways for kind in KINDS)
        return (*self._who, broker, *averages, *messages)

    def _add_frames_and_waits(self) -> None:
        counts, seconds = self._approach.message_counts, self._end - BEGIN_S
        for frame, count in sorted(counts.frames.items()):
            self._tables.frames.add(*self._who, frame, count / seconds / len(PARENTS))
        for what, waits in sorted(counts.waits.items()):
            p50, p99 = (quantile(np.array(waits), each) * 1e3 for each in (0.5, 0.99))
            self._tables.waits.add(*self._who, what, len(waits), p50, p99)
