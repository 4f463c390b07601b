"""A matcher under measurement: built, timed, changed, and compared with the reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tidemark.lab.bench.matching.workload import READER, SCHEMA, Event, batch_of, holds, selectors
from tidemark.lab.bench.measure import check_exact, each, repeat
from tidemark.matching.matcher import Matcher
from tidemark.matching.selectors.selector import Selector
from tidemark.message.batches.batch import EventBatch

#: Number of selectors whose tree, built by the workload, is compared with what their text parses to.
PARSED_TOO = 100


@dataclass(slots=True)
class MeasuredMatcher:
    """A matcher, its selectors, and its measurements."""

    size: int
    matcher: Matcher
    #: subscriber -> selector
    selectors: dict[int, Selector]
    add_us: float
    #: nanoseconds of a batch, the median of each round: of matching; of matching and reading the match sets
    matched_ns: list[float] = field(default_factory=list)
    read_ns: list[float] = field(default_factory=list)
    #: average number of subscribers of an event, one number for each round
    matches: list[float] = field(default_factory=list)

    @classmethod
    def build(cls, size: int, seed: int, narrow: float) -> MeasuredMatcher:
        """Returns a matcher with `size` selectors, added one by one."""
        matcher = Matcher(SCHEMA)
        wanted = dict(enumerate(selectors(size, Random(seed), narrow=narrow)))
        for number in range(min(size, PARSED_TOO)):
            parsed = Selector.parse(wanted[number].text, SCHEMA)
            check_exact(wanted[number], parsed, "a selector, and what its text means")

        def add_all() -> None:
            for subscriber, selector in wanted.items():
                matcher.add(subscriber, selector)

        return cls(size, matcher, wanted, repeat(add_all, 1) / size / 1_000)

    def match(self, data: bytes) -> NDArray[np.uint32]:
        """Bytes of a batch -> set[row]. The columns are made anew, as for a batch that just arrived."""
        return self.matcher.match(READER.columns(EventBatch.parse(data)))

    def match_and_read(self, data: bytes) -> int:
        """Match and read the subscribers of every match set; returns the number of matches."""
        sets, rows = np.unique(self.match(data), return_counts=True)
        lengths = [len(self.matcher.members(number)) for number in sets.tolist()]
        return int(np.dot(lengths, rows))

    def take_turn(self, batches: Sequence[bytes]) -> None:
        """Time matching of the first half of the batches, and matching and reading of the second half.

        The batches must be new to the matcher: match sets that it knows would be cheap.
        """
        half = len(batches) // 2
        self.matched_ns.append(median(each(self.match, batches[:half])))
        self.read_ns.append(median(each(self.match_and_read, batches[half:])))
        self.matches.append(self.match_and_read(batches[0]) / EventBatch.parse(batches[0]).count)

    def check(self, events: Sequence[Event], random: Random, selectors_max: int) -> None:
        """Compare the matches of these events with the reference evaluator; AssertionError if they differ.

        Compared are all subscribers, or those that the matcher names and `selectors_max` random ones.
        """
        sets = self.match(batch_of(events)).tolist()
        for of_event, number in zip(events, sets, strict=True):
            named = set(self.matcher.members(number).tolist())
            asked = list(self.selectors)
            if len(asked) > selectors_max:
                asked = [*random.sample(asked, selectors_max), *named]
            for subscriber in asked:
                selector = self.selectors[subscriber]
                what = f"{self.size} selectors, does {of_event} match {selector}"
                check_exact(subscriber in named, holds(selector, of_event), what)

    def add_and_remove(self, new: Sequence[Selector], random: Random) -> tuple[list[int], list[int]]:
        """Add the new selectors and remove as many old ones; returns the nanoseconds of each change."""
        first = max(self.selectors) + 1
        added = dict(enumerate(new, start=first))
        removed = random.sample(list(self.selectors), len(new))
        add = each(lambda subscriber: self.matcher.add(subscriber, added[subscriber]), list(added))
        remove = each(self.matcher.remove, removed)
        self.selectors |= added
        for subscriber in removed:
            del self.selectors[subscriber]
        return add, remove
