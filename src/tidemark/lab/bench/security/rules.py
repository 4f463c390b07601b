"""Rules: what rules of access cost the core of a broker, told from the noise of the machine.

Two brokers with their stores are in this process, on one thread, without sockets and without a sync. At one
of them every subscriber is a principal with a rule of its own, and what is published is held against a rule
too; at the other, which is open, every subscriber has written the same condition into its selector. Both take
the same paths in turns, many times. Each pair of turns gives one ratio of CPU times: the median of the ratios
is told with its standard error. Beside it are the calls in Python and in C, which are the same from run to
run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import hypot, sqrt
from statistics import fmean, median
from time import sleep
from typing import NamedTuple

from tidemark.access.document import AccessDocument
from tidemark.broker.effects import ClientCame, ClientFrameReceived, SendClient, Woken
from tidemark.lab.bench.measure import heap_frozen
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.bench.security.principals import SCHEMA, SHARDS, TOPIC, document, selector, user, value
from tidemark.lab.bench.steps.counting import CallCounter, cpu_ns
from tidemark.lab.bench.system.steps import PUBEND, PUBLISHER, BrokerInProcess, broker_in_process
from tidemark.message.batches.batch import BatchBuilder, Shape
from tidemark.message.publisher_names import made_name
from tidemark.message.schema import Schema
from tidemark.wire.codec import encode
from tidemark.wire.frames import Deliver, Publish, Published, Subscribe, Topic
from tidemark.wire.limits import FRAME_BYTES_MAX

RULES_TIMES = 1.05
#: Bytes of credit that no subscriber uses up.
CREDIT_BYTES = 1 << 40
#: Times that a path is taken before it counts.
WARM_TIMES = 5
_FIRST_CLIENT = 2
_NAME = made_name("0" * 16)
_WAKES = 10
_WAKE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class RulesEffort:
    """How many principals there are, and how many pairs of turns each path has."""

    principals: int
    pairs: int
    #: times that each path is taken for its calls
    counted: int


FULL = RulesEffort(1_000, 300, 20)
QUICK = RulesEffort(1_000, 60, 5)
TINY = RulesEffort(10, 2, 1)
NOTES = (
    "each pair of turns gives a ratio; told is the median of the ratios, and the standard error of that; "
    "in one half of the pairs the open broker was made first, and the mean of both halves is told",
    "both brokers and their stores on one thread, without sockets and without a sync",
)


@dataclass(frozen=True, slots=True)
class Path:
    """What is published at a time, and whether a tenth of the subscribers sees it or nobody does."""

    events: int
    is_seen: bool
    unit: str


PATHS: Mapping[str, Path] = {
    "deliver, batches of 100": Path(100, True, "delivery"),
    "deliver, one event": Path(1, True, "delivery"),
    "publish, batches of 100": Path(100, False, "event"),
    "publish, one event": Path(1, False, "event"),
}


class RulesBroker:
    """A broker with its subscribers, to which one publisher publishes."""

    def __init__(self, in_process: BrokerInProcess, document: AccessDocument | None, principals: int) -> None:
        """All subscribe; with a `document` each has a principal of it, and a rule instead of a selector."""
        self._in_process = in_process
        self._document = document
        self._principals = principals
        self._schema = Schema.parse(SCHEMA)
        self._published = 0
        in_process.decoder.bytes_max = FRAME_BYTES_MAX
        self._come(PUBLISHER, "desk")
        self._say(PUBLISHER, Topic(TOPIC, False, (SCHEMA,)))
        for number in range(principals):
            self._come(_FIRST_CLIENT + number, user(number))
            wanted = "" if document is not None else selector(number)
            self._say(_FIRST_CLIENT + number, Subscribe(f"s{number}", TOPIC, wanted, False, CREDIT_BYTES))
        for _ in range(_WAKES):
            sleep(_WAKE_SECONDS)
            in_process.pump(Woken())

    def _come(self, client: int, name: str) -> None:
        principal = None if self._document is None else self._document.principal(name)
        self._in_process.pump(ClientCame(client, principal))

    def _say(self, client: int, frame: Topic | Subscribe) -> None:
        self._in_process.pump(ClientFrameReceived(client, frame))

    def prepared(self, path: Path) -> bytes:
        """Return the bytes of the next Publish of a path."""
        builder = BatchBuilder()
        for number in range(self._published, self._published + path.events):
            shard = number % SHARDS + (0 if path.is_seen else SHARDS)
            message = self._schema.encode({**value(number), "shard": shard})
            builder.add(Shape(TOPIC, self._schema.fingerprint), message)
        frame = Publish(PUBEND, _NAME, self._published + 1, builder.build())
        self._published += path.events
        return b"".join(bytes(piece) for piece in encode(frame))

    def take(self, path: Path, raw: bytes) -> int:
        """Handle a Publish from its bytes to the bytes of all that it causes; return the units it served.

        AssertionError if it is not acknowledged, or not delivered to all who may see it and to nobody else.
        """
        (frame,) = self._in_process.decoder.feed(raw)
        assert isinstance(frame, Publish)
        deliveries = 0
        is_published = False
        for effect in self._in_process.pump(ClientFrameReceived(PUBLISHER, frame)):
            assert isinstance(effect, SendClient)
            encode(effect.frame)
            match effect.frame:
                case Deliver(batch=batch):
                    deliveries += 0 if batch is None else batch.count
                case Published():
                    is_published = True
                case _:
                    raise AssertionError(f"a broker says {effect.frame}")
        due = path.events * self._principals // SHARDS if path.is_seen else 0
        assert is_published, "the publisher is told that its events are on disk"
        assert deliveries == due, f"{deliveries} deliveries, not {due}"
        return deliveries if path.is_seen else path.events


def sections(effort: RulesEffort) -> Iterator[Section]:
    """Yields the section; AssertionError when somebody gets anything but what it may see."""
    rules = AccessDocument.parse(document(effort.principals))
    # Where a broker lies in memory makes it faster or slower by a hundredth or two, for as long as it lives:
    # in one half of the pairs the open one was made first, in the other half the one with rules.
    halves = [_half(is_open_first, rules, effort) for is_open_first in (True, False)]
    found = [each for name, path in PATHS.items() for each in _compared(name, path, halves)]
    yield Section(
        f"rules in the core, {effort.principals:,} principals", found, prefix="rules in the core", notes=NOTES
    )


class Calls(NamedTuple):
    """The calls of one unit."""

    python: float
    c: float


@dataclass(frozen=True, slots=True)
class Taken:
    """What one path took in one half of the pairs: nanoseconds[pair] and calls of each unit."""

    free: list[float]
    ruled: list[float]
    free_calls: Calls
    ruled_calls: Calls


def _half(is_open_first: bool, rules: AccessDocument, effort: RulesEffort) -> dict[str, Taken]:
    """Take all paths at two new brokers."""
    with ExitStack() as stack:
        made = {
            has_rules: RulesBroker(
                stack.enter_context(broker_in_process(rules if has_rules else None)),
                rules if has_rules else None,
                effort.principals,
            )
            for has_rules in (not is_open_first, is_open_first)
        }
        return {name: _taken(path, made[False], made[True], effort) for name, path in PATHS.items()}


def _taken(path: Path, free: RulesBroker, ruled: RulesBroker, effort: RulesEffort) -> Taken:
    taken: dict[RulesBroker, list[float]] = {free: [], ruled: []}
    for broker in taken:
        for _ in range(WARM_TIMES):
            broker.take(path, broker.prepared(path))
    with heap_frozen():
        for pair in range(effort.pairs // 2):
            # Each goes first in every other pair, so that a machine that becomes slower harms both.
            for broker in (free, ruled) if pair % 2 else (ruled, free):
                units, spent = cpu_ns(partial(broker.take, path, broker.prepared(path)))
                taken[broker].append(spent / units)
    calls = [_calls(broker, path, effort.counted) for broker in taken]
    return Taken(taken[free], taken[ruled], *calls)


def _compared(name: str, path: Path, halves: Sequence[Mapping[str, Taken]]) -> Iterator[Measurement]:
    found = [half[name] for half in halves]
    free = [each for half in found for each in half.free]
    ruled = [each for half in found for each in half.ruled]
    ratios = [middle([b / a for a, b in zip(half.free, half.ruled, strict=True)]) for half in found]
    times, error = fmean(each for each, _ in ratios), hypot(*(error for _, error in ratios)) / len(ratios)
    yield Measurement(name, f"open, CPU, each {path.unit}", median(free) / 1e3, "µs")
    yield Measurement(name, f"rules, CPU, each {path.unit}", median(ruled) / 1e3, "µs")
    yield Measurement(name, "rules, CPU", times, "times open", Goal("<=", RULES_TIMES))
    yield Measurement(name, "rules, CPU, standard error", error, "times open")
    python = fmean(half.ruled_calls.python / half.free_calls.python for half in found)
    yield Measurement(name, "rules, calls in Python", python, "times open")
    c = fmean(half.ruled_calls.c / half.free_calls.c for half in found)
    yield Measurement(name, "rules, calls in C", c, "times open")


def _calls(broker: RulesBroker, path: Path, times: int) -> Calls:
    counter, units = CallCounter(), 0
    for _ in range(times):
        units += counter.run(partial(broker.take, path, broker.prepared(path)))
    found = counter.counts(units, 0)
    return Calls(found.python_calls / units, found.c_calls / units)


def middle(numbers: Sequence[float]) -> tuple[float, float]:
    """Return the median, and its standard error; 0 if there is one number only.

    The spread is taken from the median deviation, as if the numbers were normal without their outliers.
    """
    found = median(numbers)
    spread = 1.4826 * median(abs(each - found) for each in numbers)
    return found, 1.2533 * spread / sqrt(len(numbers))
