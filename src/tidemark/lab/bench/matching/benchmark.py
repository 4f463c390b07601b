"""How many events a second the matcher takes, by number of selectors, and a single selector's scan.

There are two series. In the first, ranges get narrower as the selectors get more, so that an event always
matches about 10. In the second, the distribution stays the same, so that matches grow with the selectors. The
matchers of a series are all built first and then measured in turns, each on events that are new to it: match
sets that a matcher knows already would be cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from statistics import mean, median, quantiles

import numpy as np
from numpy.typing import NDArray

from tidemark.lab.bench.matching.measured_matcher import MeasuredMatcher
from tidemark.lab.bench.matching.workload import (
    MATCHING_TEN,
    READER,
    SCHEMA,
    Event,
    batch_of,
    event,
    holds,
    selectors,
)
from tidemark.lab.bench.measure import check_exact, each, heap_frozen, race
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.matching.index.key_memo import PAUSED_ROWS, TRIED_ROWS
from tidemark.matching.matcher import Matcher
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.vectors.vector import compile_condition
from tidemark.message.batches.batch import EventBatch
from tidemark.message.batches.columns import Bools

BATCH_EVENTS = 256
SCAN = "price > 10 AND qty < 5"
#: Adding and removing is measured among this many selectors, or the largest smaller number there is.
CHANGES_AMONG = 100_000
#: Events of each matcher whose matches are compared with the reference evaluator.
CHECKED_EVENTS = 5


@dataclass(frozen=True, slots=True)
class MatchingEffort:
    """How much is measured."""

    sizes: tuple[int, ...]
    #: rounds of measurement of every matcher, and batches in a round
    rounds: int
    batches: int
    #: selectors added and removed one by one
    changes: int
    #: selectors that the reference evaluator evaluates for each checked event
    checked: int
    #: events in the larger batch of the scan
    scanned: int
    #: distinct selectors that are no boxes
    conditions: int
    seed: int = 1


FULL = MatchingEffort((1_000, 10_000, 100_000, 1_000_000), 8, 32, 1_000, 100_000, 10_000, 10_000)
QUICK = MatchingEffort((1_000, 10_000, 100_000), 4, 16, 200, 20_000, 10_000, 10_000)


def sections(effort: MatchingEffort) -> Iterator[Section]:
    """Yields the sections; AssertionError when the matcher or the scan is wrong."""
    yield _scan(effort)
    yield _beyond_boxes(effort)
    ten = _measured_matchers(effort, lambda size: size / MATCHING_TEN)
    yield from _sections("about 10 matches", ten)
    yield _changes(ten, effort)
    del ten
    same = _measured_matchers(effort, lambda _: 1.0)
    yield from _sections("same distribution", same)
    yield _repeats(same, effort)


def _measured_matchers(effort: MatchingEffort, narrow: Callable[[int], float]) -> list[MeasuredMatcher]:
    """Build a matcher of each size, measure them in turns, and check them."""
    random = Random(effort.seed)
    matchers = [MeasuredMatcher.build(size, effort.seed, narrow(size)) for size in effort.sizes]
    with heap_frozen():
        for _ in range(effort.rounds):
            batches = [batch_of(_events(random, BATCH_EVENTS)) for _ in range(effort.batches)]
            for measured in matchers:
                measured.take_turn(batches)
    for measured in matchers:
        measured.check(_events(random, CHECKED_EVENTS), random, effort.checked)
    return matchers


def _events(random: Random, count: int) -> list[Event]:
    return [event(random) for _ in range(count)]


def _sections(series: str, matchers: Sequence[MeasuredMatcher]) -> Iterator[Section]:
    table = [measurement for measured in matchers for measurement in _table(measured)]
    note = f"batches of {BATCH_EVENTS} events from their bytes, columns made anew; checked by the reference"
    yield Section(f"matching, {series}", table, prefix=series, grid=True, notes=(note,))
    yield Section(f"matching, {series}: goals", list(_goals(matchers)), prefix=series)


def _table(measured: MeasuredMatcher) -> Iterator[Measurement]:
    case, memory = _case(measured), measured.matcher.memory_bytes
    rate, matches = _rate(measured.matched_ns), mean(measured.matches)
    yield Measurement(case, "events/s", rate, "/s")
    yield Measurement(case, "events/s, sets read too", _rate(measured.read_ns), "/s")
    yield Measurement(case, "matches an event", matches, "subscribers")
    yield Measurement(case, "matches/s", rate * matches, "/s")
    yield Measurement(case, "index, MB", memory / 1e6, "MB")
    yield Measurement(case, "index, bytes a selector", memory / measured.size, "bytes")
    yield Measurement(case, "adding one, us", measured.add_us, "us")


def _goals(matchers: Sequence[MeasuredMatcher]) -> Iterator[Measurement]:
    for measured in matchers:
        if measured.size == MATCHING_TEN:
            rate = _rate(measured.matched_ns)
            yield Measurement(_case(measured), "matching", rate, "events/s", Goal(">", 100_000))
    for small, large in pairwise(matchers):
        more = f"{large.size // small.size}x selectors from {small.size:,}: time"
        slower = min(large.matched_ns) / min(small.matched_ns)
        yield Measurement(_case(large), more, slower, "x", Goal("<", 4))


def _case(measured: MeasuredMatcher) -> str:
    return f"{measured.size:,} selectors"


def _rate(batch_ns: Sequence[float]) -> float:
    return BATCH_EVENTS * 1e9 / min(batch_ns)


def _changes(matchers: Sequence[MeasuredMatcher], effort: MatchingEffort) -> Section:
    """Time adding and removing one selector; then check the matcher again."""
    random = Random(effort.seed + 1)
    among = max((one for one in matchers if one.size <= CHANGES_AMONG), key=lambda one: one.size)
    new = list(selectors(effort.changes, random, narrow=among.size / MATCHING_TEN))
    with heap_frozen():
        add, remove = among.add_and_remove(new, random)
    among.check(_events(random, CHECKED_EVENTS), random, effort.checked)
    goal, measurements = Goal("<=", 1_000), []
    for name, taken in (("adding one", add), ("removing one", remove)):
        slowest = quantiles(taken, n=100)[-1]
        measurements += [
            Measurement(_case(among), f"{name}, median", median(taken) / 1_000, "us", goal),
            Measurement(_case(among), f"{name}, 99th percentile", slowest / 1_000, "us", goal),
        ]
    return Section("matching, changes", measurements)


def _repeats(matchers: Sequence[MeasuredMatcher], effort: MatchingEffort) -> Section:
    """Time matching of events that come again and again: a look-up, once the matcher knows them."""
    random = Random(effort.seed + 2)
    batches = [batch_of(_events(random, BATCH_EVENTS)) for _ in range(effort.batches)]
    measurements = []
    for measured in matchers:
        new = min(each(measured.match, batches))
        # Until the memo, which has paused for the new events of before, tries again.
        for _ in range((PAUSED_ROWS + 2 * TRIED_ROWS) // (BATCH_EVENTS * len(batches)) + 1):
            for batch in batches:
                measured.match(batch)
        last = each(measured.match, batches)
        rate = BATCH_EVENTS * 1e9 / min(last)
        measurements.append(Measurement(_case(measured), "events met before, events/s", rate, "/s"))
        measurements.append(Measurement(_case(measured), "against new ones", new / min(last), "x"))
    return Section("matching, events that repeat", measurements)


def _beyond_boxes(effort: MatchingEffort) -> Section:
    """Time distinct selectors that are no boxes, each of which has to be evaluated, or shown to be false."""
    random = Random(effort.seed + 3)
    events = _events(random, BATCH_EVENTS)
    data, count = batch_of(events), effort.conditions
    texts = {
        f"LIKE '%123456%', {count:,} distinct": [
            f"account LIKE '%{random.randrange(10**6):06}%'" for _ in range(count)
        ],
        f"price * qty > 1, {count:,} distinct": [f"price * qty > {number}" for number in range(count)],
    }
    measurements = []
    for case, selectors_of_case in texts.items():
        matcher = Matcher(SCHEMA)
        wanted = [Selector.parse(text, SCHEMA) for text in selectors_of_case]
        for subscriber, selector in enumerate(wanted):
            matcher.add(subscriber, selector)

        def match(matcher: Matcher = matcher) -> NDArray[np.uint32]:
            return matcher.match(READER.columns(EventBatch.parse(data)))

        # Of the first events, whether some subscribers have them is checked.
        for number, of_event in zip(match()[:CHECKED_EVENTS].tolist(), events, strict=False):
            named = set(matcher.members(number).tolist())
            for subscriber in random.sample(range(count), min(count, 100)):
                what = f"does {of_event} match {wanted[subscriber]}"
                check_exact(subscriber in named, holds(wanted[subscriber], of_event), what)
        taken = min(each(lambda _, match=match: match(), range(3)))  # type: ignore[misc]
        measurements.append(Measurement(case, "a batch of 256", taken / 1e6, "ms"))
        measurements.append(Measurement(case, "each distinct selector", taken / 1e3 / count, "us"))
    return Section("matching, selectors that are no boxes", measurements)


def _scan(effort: MatchingEffort) -> Section:
    """Time one selector over batches of two sizes, including making the columns."""
    random = Random(effort.seed)
    cases = {size: _scanner(_events(random, size)) for size in (effort.scanned, BATCH_EVENTS)}
    times = race(cases, 20 * effort.rounds)
    goals = {effort.scanned: Goal(">", 5_000_000)}
    rows = [
        Measurement(f"batch of {size:,}", SCAN, size * 1e9 / timing.best, "events/s", goals.get(size))
        for size, timing in times.items()
    ]
    return Section("a single selector's scan, from the bytes of a batch", rows)


def _scanner(events: Sequence[Event]) -> Callable[[], object]:
    """Returns a function that scans a batch of the events; its result is checked here."""
    selector = Selector.parse(SCAN, SCHEMA)
    condition = compile_condition(selector.tree, SCHEMA)
    data = batch_of(events)

    def scan() -> Bools:
        return condition.matched(READER.columns(EventBatch.parse(data)))

    for found, of_event in zip(scan().tolist(), events, strict=True):
        check_exact(found, holds(selector, of_event), f"scanning {len(events)} events, does {of_event} match")
    return scan
