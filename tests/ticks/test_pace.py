"""Pace: what may be under way fits the way, and a question is repeated only when its answer is late."""

from __future__ import annotations

from collections import deque

from tidemark.ticks import Pace
from tidemark.ticks.pace import QUEUE_US

MS = 1_000


def pace() -> Pace:
    """A pace in bytes that begins with 32 KiB and waits for 200 ms to 10 s."""
    return Pace(4 << 10, 32 << 10, 16 << 20, patience_us=200 * MS, patience_us_max=10_000 * MS)


def fetch_all(at: Pace, bytes_per_second: int, round_trip_us: int, total: int) -> tuple[float, int, int]:
    """Ask over a way of this rate for `total` bytes, as many at once as may be.

    Returns the share of the rate that was used, the longest queue in bytes once the pace has settled, and
    how often a question would have been repeated.
    """
    now = free_at = repeated = longest = asked = answered = 0
    under_way: deque[tuple[int, int, int]] = deque()
    while answered < total:
        while asked - answered < at.limit and asked < total:
            size = min(total - asked, max(1, at.limit // 4))
            free_at = max(free_at, now + round_trip_us) + size * 1_000_000 // bytes_per_second
            under_way.append((now, free_at, size))
            asked += size
        began, arrives, size = under_way.popleft()
        repeated += at.due(began, 1) < arrives
        now = arrives
        longest = max(longest, asked - answered if answered > total * 3 // 4 else 0)
        at.answered(size, asked - answered, now - began, now)
        answered += size
    return total * 1_000_000 / bytes_per_second / now, longest, repeated


def test_a_thin_way_is_used_and_not_flooded() -> None:
    used, longest, repeated = fetch_all(pace(), 125_000, 40 * MS, 2_500_000)
    assert used > 0.9
    assert longest < 100_000, "no more than a second's worth is under way"
    assert repeated <= 1


def test_a_fast_way_is_used_although_it_is_long() -> None:
    used, _, repeated = fetch_all(pace(), 12_500_000, 60 * MS, 60_000_000)
    assert used > 0.85
    assert repeated == 0


def test_a_way_that_becomes_slow_gets_less_and_nothing_is_asked_twice_for_long() -> None:
    at = pace()
    fetch_all(at, 12_500_000, 2 * MS, 20_000_000)
    assert at.limit > 1 << 20
    _, longest, repeated = fetch_all(at, 125_000, 40 * MS, 10_000_000)
    assert longest < 250_000
    assert repeated < 8


def test_a_way_that_takes_long_whatever_is_asked_for_is_not_starved() -> None:
    at = pace()
    at.answered(16 << 10, 32 << 10, 5 * MS, 5 * MS)
    now = 1_000 * MS
    for _ in range(200):  # the neighbour has much else to do: every answer takes a second
        now += 1_000 * MS
        at.answered(at.limit // 2, at.limit, 1_000 * MS, now)
    assert at.limit > 32 << 10


def test_the_limit_does_not_grow_while_it_is_not_used() -> None:
    at = pace()
    for each in range(100):
        at.answered(100, 100, 2 * MS, each * 10 * MS)
    assert at.limit == 32 << 10


def test_patience_comes_from_how_long_answers_take_and_backs_off() -> None:
    at = pace()
    assert [at.patience_us(tries) for tries in (1, 2, 3)] == [200 * MS, 400 * MS, 800 * MS]
    for each in range(50):
        at.answered(1, 1, 600 * MS, each * 700 * MS)
    assert 600 * MS <= at.patience_us(1) < 700 * MS
    assert at.patience_us(2) == 2 * at.patience_us(1)
    assert at.patience_us(1_000_000) == 10_000 * MS


def test_who_takes_longer_than_the_longest_patience_is_still_waited_for() -> None:
    at = pace()
    for each in range(50):
        at.answered(1, 1, 30_000 * MS, each * 30_000 * MS)
    assert at.patience_us(1) >= 30_000 * MS
    assert at.patience_us(5) == at.patience_us(1)


def test_an_outage_does_not_make_the_next_questions_wait_for_as_long() -> None:
    at = pace()
    at.answered(1, 1, 5 * MS, 5 * MS)
    before = at.patience_us(1)
    for each in range(20):
        at.answered(1, 1, 20_000 * MS, (20_005 + each) * MS, tries=7)
    assert before <= at.patience_us(1) <= 4 * before


def test_patience_reaches_a_slow_way_although_every_question_is_repeated() -> None:
    at = pace()
    for each in range(50):
        patience = at.patience_us(1)
        at.answered(1, 1, 5_000 * MS, each * 6_000 * MS, tries=1 if patience >= 5_000 * MS else 3)
    assert at.patience_us(1) >= 5_000 * MS


def test_while_answers_come_a_question_is_not_repeated_for_a_while() -> None:
    at = pace()
    assert at.due(1_000 * MS, 1) == 1_200 * MS
    at.progressed(1_150 * MS)
    assert at.due(1_000 * MS, 1) == 1_350 * MS
    at.progressed(5_000 * MS)
    assert at.due(1_000 * MS, 1) == 1_800 * MS, "it was lost: others went by"


def test_another_way_is_measured_anew() -> None:
    at = pace()
    at.answered(32 << 10, 32 << 10, 900 * MS, 1_000 * MS)
    at.restart()
    assert at.limit == 32 << 10
    assert at.patience_us(1) == 200 * MS
    assert QUEUE_US > 200 * MS


def test_small_answers_that_take_long_show_that_the_way_is_long() -> None:
    at = pace()
    now = 0
    for _ in range(20):
        now += 700 * MS
        at.answered(at.limit // 2, at.limit, 700 * MS, now, is_small=True)
    assert at.limit == 16 << 20, "what is asked for at once does not grow, and a long way is idle"
    for _ in range(3):
        now += 20 * MS
        at.answered(at.limit // 2, at.limit, 20 * MS, now, is_small=True)
    before = at.limit
    at.answered(at.limit // 2, at.limit, 700 * MS, now + 1_000 * MS)
    assert at.limit < before, "the way has become short again, and large answers fill it"
