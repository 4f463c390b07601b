"""Liveness: quiet is not dead, busy is not dead, and stopped is."""

from __future__ import annotations

from tidemark.wire.liveness.liveness import Liveness

PING, SILENCE = 0.15, 0.6


def test_a_side_that_has_said_nothing_says_something_although_it_hears_enough() -> None:
    side = Liveness(0.0)
    side.hear(0.2)
    assert side.should_ping(0.2, PING)
    side.ask(0.2, 16)
    assert not side.should_ping(0.3, PING)


def test_a_side_that_has_heard_nothing_asks_once_although_it_says_enough() -> None:
    side = Liveness(0.0)
    side.say(0.2)
    assert side.should_ping(0.2, PING)
    side.ask(0.2, 16)
    assert not side.should_ping(0.3, PING)
    side.hear(0.3)
    assert not side.is_asked


def test_nobody_is_dead_who_was_not_asked() -> None:
    side = Liveness(0.0)
    assert not side.is_dead(60.0, SILENCE)
    side.ask(60.0, 16)
    assert side.is_dead(60.0, SILENCE)


def test_a_busy_line_is_alive_as_long_as_bytes_before_the_ping_are_taken() -> None:
    side = Liveness(0.0)
    side.ask(0.1, 1_000_016)
    for step in range(80):
        side.take(0.1 + 0.1 * step, 12_500 * step)
        assert not side.is_dead(0.1 + 0.1 * step, SILENCE)
    last = 0.1 + 0.1 * 79
    side.take(last + 0.5, 12_500 * 79)
    assert not side.is_dead(last + 0.5, SILENCE)
    side.take(last + 0.7, 12_500 * 79)
    assert side.is_dead(last + 0.7, SILENCE)


def test_a_process_that_is_stopped_is_noticed_although_its_kernel_goes_on_taking() -> None:
    side = Liveness(0.0)
    side.ask(0.15, 16)
    for step in range(1, 10):
        side.take(0.1 * step, 10_000 * step)
    assert not side.is_dead(0.6, SILENCE)
    assert side.is_dead(0.61, SILENCE)


def test_what_was_taken_long_ago_is_no_progress_now() -> None:
    side = Liveness(0.0)
    side.take(0.1, 5_000)
    side.ask(0.2, 5_016)
    side.take(0.3, 5_000)
    assert side.is_dead(0.61, SILENCE)


def test_a_side_that_was_stopped_itself_does_not_judge_what_it_could_not_hear() -> None:
    side = Liveness(0.0)
    side.ask(0.1, 16)
    side.forgive(9.9)
    assert not side.is_dead(10.0, SILENCE)
    assert side.is_dead(10.6, SILENCE)
