"""Curiosity: when each tick is asked for, against a simulation that keeps one record per tick."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.ticks import Curiosity, Pace, Range, RangeSet, Thresholds, Wants

LAST = 20
ranges = st.tuples(st.integers(0, LAST), st.integers(0, LAST)).map(lambda ends: (min(ends), max(ends)))
thresholds = st.builds(
    Thresholds,
    gct_us=st.integers(0, 5),
    nrt_us=st.integers(1, 4),
    backoff=st.integers(1, 3),
    nrt_us_max=st.integers(4, 12),
    chop_ticks_max=st.integers(1, 8),
    outstanding_ranges_max=st.integers(1, 5),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(["want", "want", "answered", "wait", "wait", "reset"]), ranges, st.integers(0, 6)
    ),
    max_size=16,
)


@dataclass
class Wanted:
    """One tick of the naive simulation."""

    due: int
    tries: int = 0
    #: the nack that asked for it and may still be answered
    nack: int | None = None


class Naive:
    """Every tick on its own; only `due` looks at neighbours, to form ranges."""

    def __init__(self, limits: Thresholds) -> None:
        self.limits = limits
        self.ticks: dict[int, Wanted] = {}
        self.numbers = count()

    def want(self, base: int, upto: int, now: int) -> None:
        for tick in range(base + 1, upto + 1):
            self.ticks.setdefault(tick, Wanted(now + self.limits.gct_us))

    def answered(self, base: int, upto: int) -> None:
        for tick in range(base + 1, upto + 1):
            self.ticks.pop(tick, None)

    def reset(self, now: int) -> None:
        self.ticks = {tick: Wanted(now) for tick in self.ticks}

    def outstanding(self) -> int:
        """Runs of consecutive ticks of one nack: an answer in the middle makes two of one."""
        asked = {tick: wanted.nack for tick, wanted in self.ticks.items() if wanted.nack is not None}
        return sum(asked.get(tick - 1) != nack for tick, nack in asked.items())

    def ready(self, now: int) -> list[list[int]]:
        """Runs of consecutive ticks that are due and were asked for equally often."""
        found: list[list[int]] = []
        for tick in sorted(self.ticks):
            if self.ticks[tick].due > now:
                continue
            if found and found[-1][-1] == tick - 1 and self.ticks[tick - 1].tries == self.ticks[tick].tries:
                found[-1].append(tick)
            else:
                found.append([tick])
        return found

    def due(self, now: int) -> list[Range]:
        runs = self.ready(now)
        for run in runs:
            earliest = min(self.ticks[tick].due for tick in run)
            for tick in run:
                self.ticks[tick] = Wanted(earliest, self.ticks[tick].tries)
        slots = self.limits.outstanding_ranges_max - self.outstanding()
        size = self.limits.chop_ticks_max
        runs.sort(key=lambda run: (self.ticks[run[0]].due, run[0]))
        parts = [run[at : at + size] for run in runs for at in range(0, len(run), size)][: max(slots, 0)]
        for part in parts:
            self.ask(part, next(self.numbers), now)
        return sorted((part[0] - 1, part[-1]) for part in parts)

    def ask(self, part: list[int], nack: int, now: int) -> None:
        for tick in part:
            tries = self.ticks[tick].tries + 1
            wait = min(self.limits.nrt_us * self.limits.backoff ** (tries - 1), self.limits.nrt_us_max)
            self.ticks[tick] = Wanted(now + wait, tries, nack)


@settings(derandomize=True, deadline=None, max_examples=500)
@given(thresholds, steps)
def test_curiosity_asks_when_a_simulation_of_every_tick_does(
    limits: Thresholds, steps: list[tuple[str, Range, int]]
) -> None:
    actual, model, now = Curiosity(limits), Naive(limits), 0
    for step, (base, upto), wait in steps:
        if step == "want":
            actual.want(base, upto, now)
            model.want(base, upto, now)
        elif step == "answered":
            actual.answered(base, upto)
            model.answered(base, upto)
        elif step == "reset":
            actual.reset(now)
            model.reset(now)
        now += wait if step == "wait" else 0
        assert actual.due(now) == model.due(now)
        assert actual.outstanding == model.outstanding()
        assert {tick for base, upto in actual.wanted() for tick in range(base + 1, upto + 1)} == set(
            model.ticks
        )
        wake = actual.next_due()
        assert (wake is None) == (not model.ticks)
        assert wake is None or wake > now, "a timer set from it never fires in vain for ever"


@settings(derandomize=True, deadline=None, max_examples=150)
@given(thresholds, st.lists(ranges.filter(lambda r: r[0] < r[1]), min_size=1, max_size=5))
def test_the_timer_alone_asks_for_every_wanted_tick_again_and_again(
    limits: Thresholds, wanted: list[Range]
) -> None:
    curiosity = Curiosity(limits)
    times: dict[int, list[int]] = {}
    for base, upto in wanted:
        curiosity.want(base, upto, 0)
    for _ in range(150):
        now = curiosity.next_due()
        assert now is not None
        nacks = curiosity.due(now)
        assert nacks, "nothing to do at the time it asked to be woken"
        assert RangeSet(nacks).ticks() == sum(upto - base for base, upto in nacks), "no tick twice"
        assert max(upto - base for base, upto in nacks) <= limits.chop_ticks_max
        assert curiosity.outstanding <= limits.outstanding_ranges_max
        for base, upto in nacks:
            for tick in range(base + 1, upto + 1):
                times.setdefault(tick, []).append(now)
    ticks = {tick for base, upto in wanted for tick in range(base + 1, upto + 1)}
    assert times.keys() == ticks
    for asked in times.values():
        assert asked[0] >= limits.gct_us
        assert len(asked) >= 3
        waits = [after - before for before, after in pairwise(asked)]
        assert all(wait >= limits.patience_us(tries) for tries, wait in enumerate(waits, 1))


SIMPLE = Thresholds(gct_us=50, nrt_us=100, nrt_us_max=1_000, chop_ticks_max=1_000, outstanding_ranges_max=4)


def test_a_hole_filled_within_gct_asks_nothing() -> None:
    curiosity = Curiosity(SIMPLE)
    curiosity.want(10, 20, now=0)
    assert curiosity.due(49) == []
    curiosity.answered(10, 20)
    assert curiosity.due(50) == []
    assert curiosity.next_due() is None


def test_a_lost_nack_is_repeated_with_back_off() -> None:
    curiosity = Curiosity(SIMPLE)
    curiosity.want(10, 20, now=0)
    asked: list[Any] = []
    while (now := curiosity.next_due()) is not None and len(asked) < 7:
        assert curiosity.due(now - 1) == []
        assert curiosity.due(now) == [(10, 20)]
        assert curiosity.due(now) == [], "it is being asked for"
        asked.append(now)
    assert asked == [50, 150, 350, 750, 1550, 2550, 3550]


def test_what_is_wanted_twice_is_asked_for_once() -> None:
    curiosity = Curiosity(SIMPLE)
    curiosity.want(10, 20, now=0)
    curiosity.want(10, 20, now=30)
    assert curiosity.due(50) == [(10, 20)]
    curiosity.want(5, 25, now=60)
    assert curiosity.due(110) == [(5, 10), (20, 25)]


def test_neighbours_that_became_due_leave_as_one_nack() -> None:
    curiosity = Curiosity(SIMPLE)
    for tick in range(10, 20):
        curiosity.want(tick, tick + 1, now=tick)
    assert len(curiosity.wanted()) == 10
    assert curiosity.due(100) == [(10, 20)]
    assert curiosity.outstanding == 1


def test_a_large_range_is_chopped_and_asked_for_as_slots_become_free() -> None:
    curiosity = Curiosity(SIMPLE)
    curiosity.want(0, 6_500, now=0)
    assert curiosity.due(50) == [(0, 1_000), (1_000, 2_000), (2_000, 3_000), (3_000, 4_000)]
    assert curiosity.next_due() == 150, "no slot is free before"
    curiosity.answered(0, 1_500)
    assert curiosity.next_due() == 50, "one is free now"
    assert curiosity.due(60) == [(4_000, 5_000)]
    assert curiosity.outstanding == 4


def test_ranges_that_nobody_answers_do_not_keep_the_slots() -> None:
    curiosity = Curiosity(SIMPLE)
    curiosity.want(0, 8_000, now=0)
    assert curiosity.due(50)[-1] == (3_000, 4_000)
    assert curiosity.due(150) == [(4_000, 5_000), (5_000, 6_000), (6_000, 7_000), (7_000, 8_000)]
    assert curiosity.due(250)[0] == (0, 1_000)


def test_an_answer_in_fragments_does_not_become_a_storm() -> None:
    curiosity = Curiosity(SIMPLE)
    curiosity.want(0, 1_000, now=0)
    assert curiosity.due(50) == [(0, 1_000)]
    for tick in range(0, 1_000, 10):
        curiosity.answered(tick, tick + 5)
    assert curiosity.outstanding == 100
    assert len(curiosity.due(150)) == SIMPLE.outstanding_ranges_max


def test_a_changed_link_is_asked_for_everything_at_once() -> None:
    curiosity = Curiosity(SIMPLE)
    curiosity.want(10, 20, now=0)
    for now in (50, 150, 350):
        assert curiosity.due(now) == [(10, 20)]
    curiosity.want(30, 40, now=360)
    curiosity.reset(now=365)
    assert curiosity.next_due() == 365
    assert curiosity.due(365) == [(10, 20), (30, 40)]
    assert curiosity.next_due() == 465, "the back-off starts again"


def test_many_askers_of_one_lost_range_cause_one_nack() -> None:
    wants, curiosity = Wants[int](), Curiosity(Thresholds(gct_us=0))
    nacks = []
    for asker in range(200):
        for base, upto in wants.ask(asker, [(1_000, 5_000)]):
            curiosity.want(base, upto, now=asker)
        nacks += curiosity.due(asker)
    assert nacks == [(1_000, 5_000)]
    curiosity.answered(1_000, 5_000)
    assert len(wants.take(1_000, 5_000)) == 200
    assert curiosity.next_due() is None


def test_back_off_never_overflows() -> None:
    assert Thresholds().patience_us(1) == 200_000
    assert Thresholds().patience_us(1_000_000) == 10_000_000


def test_thresholds_that_could_ask_for_ever_are_a_bug() -> None:
    for wrong in (
        {"nrt_us": 0},
        {"chop_ticks_max": 0},
        {"outstanding_ranges_max": 0},
        {"backoff": 0},
        {"gct_us": -1},
    ):
        with pytest.raises(AssertionError):
            Thresholds(**wrong)


@pytest.mark.parametrize("slots", [1, 2, 3, 64])
def test_who_may_ask_for_few_ranges_at_once_comes_to_ask_for_large_ones(slots: int) -> None:
    thresholds = Thresholds(gct_us=0, outstanding_ranges_max=slots)
    pace = Pace(16, 4_999, 1_000_000, patience_us=200_000, patience_us_max=10_000_000)
    curiosity = Curiosity(thresholds, pace)
    curiosity.want(0, 1_000_000, 0)
    questions, now = 0, 0
    while curiosity.wanted():
        asked = curiosity.due(now)
        questions += len(asked)
        assert questions < 100, "the ranges do not become larger although the way is fast"
        now += 1_000
        for base, upto in asked:
            curiosity.heard(base, upto, 10_000, now)
            curiosity.answered(base, upto)
