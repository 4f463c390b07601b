"""How long a catch-up still takes, from what the subscription was owed at several looks."""

from __future__ import annotations

from tidemark.console.catch_up import REMEMBERED_SECONDS, SUBSCRIPTIONS_MAX, CatchUp, CatchUps


def test_the_first_look_says_how_much_and_not_yet_how_fast() -> None:
    assert CatchUps().look("s", 500, 0.0) == CatchUp(500, 500, None)


def test_what_becomes_less_is_done_in_a_while() -> None:
    looks = CatchUps()
    looks.look("s", 1_000, 0.0)
    found = looks.look("s", 600, 4.0)
    assert (found.rate, found.share, found.seconds_left) == (100.0, 0.4, 6.0)


def test_what_does_not_become_less_has_no_end() -> None:
    looks = CatchUps()
    looks.look("s", 1_000, 0.0)
    assert looks.look("s", 1_000, 4.0).seconds_left is None
    assert looks.look("s", 2_000, 8.0).rate == -125.0
    assert looks.look("s", 0, 9.0).seconds_left == 0.0


def test_what_is_long_ago_does_not_count_and_few_are_remembered() -> None:
    looks = CatchUps()
    looks.look("s", 9_000, 0.0)
    looks.look("s", 100, REMEMBERED_SECONDS)
    assert looks.look("s", 50, REMEMBERED_SECONDS + 5.0) == CatchUp(50, 100, 10.0)
    for number in range(SUBSCRIPTIONS_MAX):
        looks.look(f"other-{number}", 1, 70.0)
    assert looks.look("s", 40, 71.0).rate is None
