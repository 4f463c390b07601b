"""The quality of a link: what its deaths and measurements make of its grade, and for how long."""

from __future__ import annotations

from tidemark.broker.overlay.link_quality import DAMPED, PENALTY_MAX, RATE_KEPT_US, LinkQuality

SECOND = 1_000_000
MBIT = 125_000


def link() -> LinkQuality:
    return LinkQuality(half_life=15 * SECOND)


def test_a_link_that_dies_now_and_then_is_a_good_link() -> None:
    each = link()
    for minute in range(60):
        each.died(minute * 60 * SECOND)
    assert (each.deaths, each.grade) == (60, 0)


def test_a_link_that_dies_three_times_within_seconds_is_damped_until_it_has_lived_for_a_while() -> None:
    each = link()
    for second in (0, 1, 2):
        assert each.grade == 0
        each.died(second * SECOND)
    assert each.grade == DAMPED
    until = each.damped_until()
    assert until is not None
    assert not each.wake(until - 1)
    assert each.grade == DAMPED
    assert each.wake(until)
    assert each.grade == 0
    assert not each.wake(until + 1)


def test_however_often_a_link_has_died_it_gets_another_chance_within_three_half_lives() -> None:
    each = link()
    for number in range(10_000):
        each.died(number * 1_000)
    until = each.damped_until()
    assert until is not None
    assert until <= 10 * SECOND + 3 * 15 * SECOND
    assert PENALTY_MAX < 2**3


def test_grades_follow_the_time_that_a_piece_takes_and_small_changes_do_not_change_them() -> None:
    each = link()
    assert not each.measure(0, 1_000, 100 * MBIT, is_lower_bound=False)
    assert each.grade == 0
    for rate, grade in ((10 * MBIT, 0), (MBIT, 2), (MBIT // 8, 3)):
        for _ in range(10):  # a rate falls by half of the difference each time
            each.measure(0, 1_000, rate, is_lower_bound=False)
        assert each.grade == grade
    assert not each.measure(0, 1_000, MBIT // 5, is_lower_bound=False)
    assert each.measure(0, 1_000, 100 * MBIT, is_lower_bound=False)
    assert each.grade == 0


def test_a_link_with_little_to_send_is_not_slow() -> None:
    each = link()
    assert not each.measure(0, 1_000, 50, is_lower_bound=True)
    assert (each.grade, each.bytes_per_second) == (0, None)
    each.measure(0, 1_000, MBIT // 8, is_lower_bound=False)
    assert not each.measure(0, 1_000, 50, is_lower_bound=True)
    assert each.grade == 3
    assert each.measure(0, 1_000, 10 * MBIT, is_lower_bound=True)


def test_a_rate_that_was_not_measured_for_long_is_forgotten() -> None:
    each = link()
    each.measure(5, 1_000, MBIT // 8, is_lower_bound=False)
    assert not each.wake(5 + RATE_KEPT_US)
    assert each.wake(6 + RATE_KEPT_US)
    assert (each.grade, each.bytes_per_second, each.delay) == (0, None, 1_000)


def test_a_link_is_as_bad_as_the_worse_of_what_both_ends_say() -> None:
    each = link()
    each.theirs = 2
    assert (each.here, each.grade) == (0, 2)
    each.measure(0, None, MBIT // 8, is_lower_bound=False)
    assert (each.here, each.grade) == (3, 3)
