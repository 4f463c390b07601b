"""A catchup stream by itself: told in order, tiling, exactly what matched or a gap, whatever arrives when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.desk import batch
from tidemark.broker.hosting import catchup as catchup_module
from tidemark.broker.hosting.catchup import ASK_RANGES_MAX, LOG_STEP_TICKS_MIN, Catchup, Mask
from tidemark.broker.hosting.catchup_streams import SharedTicks
from tidemark.broker.streams.window import Cuts
from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import TICK_MAX, Range

END = 60


def nobody(events: EventBatch) -> Mask:
    """A matcher for catchup streams that have nothing to match again."""
    raise AssertionError(f"{events} should not be looked at")


def arrive(catchup: Catchup, base: int, upto: int, *ticks: int, damaged: Sequence[Range] = ()) -> None:
    catchup.arrived(base, upto, Cuts(batch(*ticks)) if ticks else None, damaged, nobody, TICK_MAX)


def ready(catchup: Catchup, credit: int = 1) -> tuple[int, list[int]] | None:
    told = catchup.ready(credit)
    if told is None:
        return None
    return told[0], [] if told[1] is None else told[1].ticks.tolist()


def matched(catchup: Catchup, upto: int, *ticks: int, unknown: Range | None = None) -> None:
    catchup.matched(upto, np.array(ticks, np.int64), unknown)


def test_it_tells_in_order_and_only_what_it_has() -> None:
    catchup = Catchup(0)
    matched(catchup, 100, 10, 20, 30)
    assert catchup.missing() == [(9, 10), (19, 20), (29, 30)]
    arrive(catchup, 15, 25, 20)
    assert ready(catchup) == (9, [])
    arrive(catchup, 5, 12, 10, 11)
    assert ready(catchup) == (29, [10, 20])
    arrive(catchup, 25, 40)  # it is not there any more
    assert ready(catchup) == (100, [])
    assert catchup.needs_read


def test_without_credit_it_tells_of_silence_only() -> None:
    catchup = Catchup(0)
    matched(catchup, 100, 10, 20)
    arrive(catchup, 0, 100, 10, 20)
    assert ready(catchup, 0) == (9, [])
    assert ready(catchup, 0) is None
    assert ready(catchup, 1) == (100, [10, 20])


def test_a_gap_reaches_exactly_as_far_as_what_was_lost() -> None:
    catchup = Catchup(0)
    matched(catchup, 100, 10, 20, 30, 60)
    arrive(catchup, 15, 25, 20)
    assert catchup.gap(5) is None
    assert ready(catchup) == (9, [])
    assert catchup.gap(50) == 19  # 20 is held
    catchup.skip(19)
    assert ready(catchup) == (29, [20])
    assert catchup.gap(50) == 50
    catchup.skip(50)
    assert catchup.gap(50) is None
    assert ready(catchup) == (59, [])
    assert catchup.missing() == [(59, 60)]


def test_what_is_lost_and_did_not_match_is_no_gap() -> None:
    catchup = Catchup(0)
    matched(catchup, 100, 80)
    assert catchup.gap(50) is None
    assert ready(catchup) == (79, [])


def test_a_damaged_range_is_a_gap_between_what_was_read() -> None:
    catchup = Catchup(0)
    matched(catchup, 100, 10, 20, 30)
    arrive(catchup, 0, 40, 10, 30, damaged=[(15, 25)])
    assert ready(catchup) == (19, [10])
    assert catchup.gap(0) == 25
    catchup.skip(25)
    assert ready(catchup) == (100, [30])


def test_where_the_pfs_does_not_know_events_are_matched_again() -> None:
    catchup = Catchup(0)
    matched(catchup, 10, 5, unknown=(10, 50))
    assert catchup.missing() == [(4, 5)]
    arrive(catchup, 0, 10, 5)
    assert ready(catchup) == (10, [5])
    assert catchup.missing() == [(10, 50)]
    even = lambda events: events.ticks % 2 == 0  # noqa: E731  # one line in a test
    catchup.arrived(10, 50, Cuts(batch(20, 21, 22)), (), even, TICK_MAX)
    assert ready(catchup) == (50, [20, 22])
    assert catchup.needs_read


def test_an_event_whose_topic_is_not_known_yet_is_waited_for_where_it_has_to_be_matched_again() -> None:
    catchup = Catchup(0)
    matched(catchup, 0, unknown=(0, 50))
    everything = lambda events: np.ones(events.count, np.bool_)  # noqa: E731  # one line in a test
    catchup.arrived(0, 50, Cuts(batch(20, 30, 40)), (), everything, 29)
    assert ready(catchup) == (29, [20])
    assert catchup.waits_for_topic
    assert catchup.missing() == [(29, 50)]
    catchup.arrived(29, 50, Cuts(batch(30, 40)), (), everything, TICK_MAX)
    assert ready(catchup) == (50, [30, 40])


def test_many_scattered_ticks_are_asked_for_in_few_ranges() -> None:
    catchup = Catchup(0)
    ticks = [100 * n + (50 if n % 7 == 0 else 0) for n in range(1, 1_000)]
    matched(catchup, 200_000, *ticks)
    asked = catchup.missing()
    assert len(asked) == ASK_RANGES_MAX
    covered = [tick for tick in ticks if any(base < tick <= upto for base, upto in asked)]
    assert covered == ticks
    assert asked == sorted(asked)


def test_subscribers_that_want_the_same_rows_share_one_copy() -> None:
    cuts = Cuts(batch(1, 2, 3))
    assert cuts.take(np.array([0, 2])) is cuts.take(np.array([0, 2]))
    assert cuts.take(np.arange(3)) is cuts.batch


def test_the_batches_of_an_answer_are_not_joined_before_rows_are_taken() -> None:
    first, second = batch(1, 2), batch(3, 5)
    cuts = Cuts.of([first, second])
    assert cuts is not None
    assert cuts.ticks.tolist() == [1, 2, 3, 5]
    wanted = np.array([2, 5])
    part = cuts.at(wanted, 0, 2)
    assert part is not None
    assert part.ticks.tolist() == [2, 5]
    assert cuts.at(wanted, 0, 2) is part
    assert cuts.held_bytes >= first.held_bytes + second.held_bytes
    assert Cuts.of([]) is None


@dataclass
class World:
    """The truth about one subscriber and one pubend, and the catchup stream that a test drives."""

    chance: Random
    events: set[int]
    wanted: set[int]
    #: ticks that the PFS knows nothing of
    dark: set[int]
    damaged: set[int]
    #: everything at or below is L
    lost: int = 0
    #: ticks that were L when a gap was told
    events_told: list[int] = field(default_factory=list)
    gaps_told: list[Range] = field(default_factory=list)
    at: int = 0

    def read(self, base: int) -> tuple[int, np.ndarray[tuple[int], np.dtype[np.int64]], Range | None]:
        """What the PFS says, a few matches at a time."""
        limit, ticks, upto = self.chance.randint(1, 5), list[int](), base
        while upto < END and upto + 1 not in self.dark and len(ticks) < limit:
            upto += 1
            if upto in self.wanted:
                ticks.append(upto)
        stop = upto
        while stop < END and stop + 1 in self.dark and len(ticks) < limit:
            stop += 1
        return upto, np.array(ticks, np.int64), (upto, stop) if stop > upto else None

    def answer(self, catchup: Catchup, base: int, upto: int) -> None:
        """`(base, upto]` of the log arrives; others may have asked for it as well."""
        base = max(base, self.lost)
        if upto <= base:
            return
        there = sorted(t for t in self.events - self.damaged if base < t <= upto)
        damaged = [(t - 1, t) for t in sorted(self.damaged) if base < t <= upto]
        catchup.arrived(base, upto, Cuts(batch(*there)) if there else None, damaged, self.chosen, TICK_MAX)

    def chosen(self, events: EventBatch) -> Mask:
        return np.isin(events.ticks, sorted(self.wanted))

    def settle(self, catchup: Catchup, credit: int) -> None:
        """Deliver all that can be delivered, as a host does."""
        while True:
            told = catchup.ready(credit)
            if told is not None:
                upto, events = told
                assert upto > self.at
                ticks = [] if events is None else events.ticks.tolist()
                assert all(self.at < tick <= upto for tick in ticks)
                assert not ticks or credit > 0
                self.events_told += ticks
                self.at = upto
                continue
            gap = catchup.gap(self.lost)
            if gap is None:
                return
            catchup.skip(gap)
            self.tell_gap(gap)

    def tell_gap(self, upto: int) -> None:
        assert upto > self.at
        ticks = set(range(self.at + 1, upto + 1))
        assert all(tick <= self.lost or tick in self.damaged for tick in ticks), "a gap where nothing is lost"
        assert ticks & (self.wanted | self.dark), "a gap where nothing could be missing"
        self.gaps_told.append((self.at, upto))
        self.at = upto


ticks = st.sets(st.integers(1, END))


@settings(derandomize=True, deadline=None, max_examples=250)
@given(ticks, ticks, ticks, ticks, st.integers(0, 3), st.randoms(use_true_random=False))
def test_what_is_told_tiles_and_is_exactly_what_matched_or_a_gap(
    events: set[int], wanted: set[int], dark: set[int], damaged: set[int], harm: int, chance: Random
) -> None:
    world = World(chance, events, wanted & events, dark, damaged & events if harm % 2 else set())
    catchup = Catchup(0)
    for step in range(200):
        calm = step > 60
        world.settle(catchup, 1 if calm else chance.randint(0, 1))
        assert catchup.position == world.at
        if world.at >= END:
            break
        if catchup.needs_read:
            catchup.reads_from = catchup.position
        if catchup.reads_from is not None and (calm or chance.random() < 0.7):
            catchup.matched(*world.read(catchup.reads_from))
        asked = catchup.missing()
        chance.shuffle(asked)
        for base, upto in asked:
            if calm:
                world.answer(catchup, base, upto)
            elif chance.random() < 0.5:
                stop = chance.randint(base + 1, upto)
                world.answer(catchup, min(base, chance.randint(0, END)), stop)
        if harm >= 2 and not calm and chance.random() < 0.1:
            world.lost = chance.randint(world.lost, END)
    assert world.at >= END
    assert world.events_told == sorted(set(world.events_told))
    assert set(world.events_told) <= world.wanted
    excused = {tick for base, upto in world.gaps_told for tick in range(base + 1, upto + 1)}
    assert world.wanted <= set(world.events_told) | excused
    assert not set(world.events_told) & excused


def test_where_the_pfs_is_imprecise_what_arrives_is_matched_again() -> None:
    def odd(events: EventBatch) -> Mask:
        return np.equal(events.ticks % 20, 10)

    catchup = Catchup(0)
    catchup.matched(100, np.array([10, 20, 30, 40], np.int64), None, is_exact=False)
    assert catchup.missing() == [(9, 10), (19, 20), (29, 30), (39, 40)]
    catchup.arrived(0, 25, Cuts(batch(10, 15, 20)), (), odd, TICK_MAX)
    assert ready(catchup) == (29, [10])
    catchup.arrived(25, 100, Cuts(batch(30, 40)), (), odd, TICK_MAX)
    assert ready(catchup) == (100, [30])
    # What may have matched and is lost is a gap.
    catchup = Catchup(0)
    catchup.matched(100, np.array([10, 20], np.int64), None, is_exact=False)
    assert ready(catchup, credit=0) == (9, [])
    assert catchup.gap(50) == 50


def test_where_the_pfs_is_imprecise_events_of_an_unknown_topic_are_put_off_and_asked_for_again() -> None:
    catchup = Catchup(0)
    catchup.matched(100, np.array([10, 20, 30], np.int64), None, is_exact=False)
    assert catchup.is_worth_asking(30)
    catchup.arrived(0, 100, Cuts(batch(10, 20, 30)), (), lambda events: events.ticks > 0, 15)
    assert catchup.waits_for_topic
    assert ready(catchup) == (19, [10])
    catchup.waits_for_topic = False
    assert catchup.missing() == [(19, 20), (29, 30)]
    assert catchup.is_worth_asking(30)
    catchup.arrived(0, 100, Cuts(batch(10, 20, 30)), (), lambda events: events.ticks > 20, TICK_MAX)
    assert ready(catchup) == (100, [30])


def test_those_who_want_the_same_rows_are_told_the_same_batch() -> None:
    shared = SharedTicks()
    answers = [np.array([10, 20, 40], np.int64) for _ in range(2)]
    others = np.array([10, 30], np.int64)
    cuts, told = Cuts(batch(10, 20, 30, 40)), []
    for ticks in (*answers, others):
        catchup = Catchup(0)
        catchup.matched(100, shared.of(ticks), None)
        catchup.arrived(0, 25, cuts, (), nobody, TICK_MAX)
        catchup.arrived(25, 100, cuts, (), nobody, TICK_MAX)
        told.append([catchup.ready(1)])
    one, two, three = ([each for each in parts if each is not None] for parts in told)
    assert [each[1].ticks.tolist() for each in one if each[1] is not None] == [[10, 20, 40]]
    assert [upto for upto, _ in three] == [100]
    assert shared.of(answers[1]) is answers[0]
    assert cuts.at(answers[0], 0, 2) is cuts.at(answers[0], 0, 2)
    assert cuts.at(others, 0, 1) is not cuts.at(answers[0], 0, 2)
    assert two == one


def test_an_array_of_ticks_that_is_shared_is_not_changed() -> None:
    ticks = np.array([10, 20, 30, 40], np.int64)
    ticks.flags.writeable = False
    one, other = Catchup(0), Catchup(0)
    for catchup in (one, other):
        catchup.matched(50, ticks, None)
    arrive(one, 0, 25, 10, 20)
    assert ready(one) == (29, [10, 20])
    arrive(one, 25, 35)  # 30 has expired
    assert ready(one) == (39, [])
    matched(one, 100, 60)
    arrive(other, 0, 50, 10, 20, 30, 40)
    assert ready(other) == (50, [10, 20, 30, 40])
    arrive(one, 35, 100, 40, 60)
    assert ready(one) == (100, [40, 60])


def test_large_parts_are_told_one_by_one_and_small_ones_together(monkeypatch: pytest.MonkeyPatch) -> None:
    catchup = Catchup(0)
    matched(catchup, 100, 10, 20, 30, 40)
    monkeypatch.setattr(catchup_module, "ALONE_BYTES", len(batch(1, 2).data))
    arrive(catchup, 0, 25, 10, 20)
    arrive(catchup, 25, 35, 30)
    arrive(catchup, 35, 50, 40)
    assert [ready(catchup) for _ in range(3)] == [(20, [10, 20]), (100, [30, 40]), None]
    catchup = Catchup(0)
    matched(catchup, 100, 10, 20, 30, 40)
    arrive(catchup, 25, 50, 30, 40)
    arrive(catchup, 0, 25, 10, 20)  # the later part came first
    assert [ready(catchup) for _ in range(3)] == [(20, [10, 20]), (100, [30, 40]), None]


def test_large_parts_that_arrived_in_any_order_are_told_without_a_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catchup_module, "ALONE_BYTES", len(batch(1, 2).data))
    catchup = Catchup(0)
    matched(catchup, 100, 10, 20, 30, 40)
    later, earlier = batch(30, 40), batch(10, 20)
    for base, upto, part in ((25, 50, later), (0, 25, earlier)):
        catchup.arrived(base, upto, Cuts(part), (), nobody, TICK_MAX)
    for upto, part in ((20, earlier), (100, later)):
        told = catchup.ready(1)
        assert told is not None
        assert told[0] == upto
        assert told[1] is part
    assert catchup.ready(1) is None


def test_what_was_asked_for_is_not_asked_again_before_time_has_passed() -> None:
    catchup = Catchup(0)
    matched(catchup, 100, 10, 20, 30)
    assert catchup.span() == (9, 30)
    assert catchup.is_worth_asking(30)
    assert not catchup.is_worth_asking(30)
    catchup.ask_again()
    assert catchup.is_worth_asking(30)
    arrive(catchup, 0, 50, 10, 20, 30)
    assert catchup.span() is None


def test_a_log_is_read_in_one_range_unless_its_ticks_are_far_apart() -> None:
    catchup = Catchup(0)
    far = 64 * LOG_STEP_TICKS_MIN
    matched(catchup, 2 * far, *range(100, 200, 2), *range(far + 9_000, far + 9_100, 3))
    assert len(catchup.missing()) == ASK_RANGES_MAX
    first, second = catchup.missing(log_upto=far + 9_500)
    assert first == (0, LOG_STEP_TICKS_MIN // 2)
    assert second[0] == far + LOG_STEP_TICKS_MIN // 2
    assert second[1] == far + 9_500  # and not a round tick, of which nothing is known yet


def test_subscribers_of_different_events_ask_a_log_for_the_same_ranges() -> None:
    asked = []
    for kind in range(4):
        catchup = Catchup(0)
        ticks = range(5_000_000 + 250 * kind, 6_000_000 - 250 * (3 - kind), 1_000)
        matched(catchup, 9_000_000, *ticks)
        asked.append(catchup.missing(log_upto=8_000_000))
        ((base, upto),) = asked[-1]
        assert base < ticks[0]
        assert upto >= ticks[-1]
    assert all(each == asked[0] for each in asked)


def test_an_answer_with_events_where_it_says_that_they_are_gone_is_told_as_a_gap_and_what_lies_beyond() -> (
    None
):
    catchup = Catchup(0)
    matched(catchup, 100, 10, 50)
    catchup.recalled(0, 100, batch(10, 50), [(0, 20)], for_good=False)
    assert catchup.gap(0) == 20
    catchup.skip(20)
    assert ready(catchup) == (100, [50])
