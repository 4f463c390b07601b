"""Liveness: quiet is not dead, busy is not dead, and stopped is."""

from __future__ import annotations

from tidemark.wire.liveness.liveness import Liveness

PING, IDLE, SILENCE = 0.15, 1.0, 0.6
PATIENCE = SILENCE - PING


def asks(side: Liveness, now: float) -> bool:
    return side.should_ask(now, PING, IDLE)


def idle(now: float = 0.0) -> Liveness:
    """A side that has heard a word a second for a while, the last one at `now`."""
    side = Liveness(now - 3.0)
    for at in (now - 2.0, now - 1.0, now):
        side.hear(at)
        side.say(at)
    return side


def test_an_idle_side_says_a_word_a_second_and_asks_only_if_it_hears_none() -> None:
    side = idle()
    assert not side.should_speak(1.0, IDLE)
    assert side.should_speak(1.1, IDLE)
    assert not asks(side, 2.0)
    assert asks(side, 2.1)
    side.ask(2.1, 16)
    assert not asks(side, 3.0)
    side.hear(3.0)
    assert not side.is_asked


def test_a_question_without_an_answer_is_asked_about_soon() -> None:
    side = idle()
    side.say(0.5, is_question=True)
    side.say(0.6, is_question=True)
    assert not asks(side, 0.64)
    assert asks(side, 0.66)
    side.hear(0.66)
    assert not asks(side, 1.5)


def test_what_is_said_and_not_answered_by_anybody_is_asked_about_only_if_it_is_not_taken() -> None:
    side = idle()
    side.take(0.1, 500)
    side.say(0.5, 500)
    side.say(0.6, 900)
    assert not asks(side, 0.7)
    assert asks(side, 0.76)
    side.take(0.76, 900)
    assert not asks(side, 0.9)


def test_where_nobody_sees_what_is_taken_an_idle_side_waits_for_a_word() -> None:
    side = idle()
    side.say(0.5, 900)
    assert not asks(side, 2.0)


def test_a_link_that_was_busy_a_moment_ago_is_asked_about_soon_and_then_ever_later() -> None:
    side = Liveness(0.0)
    step = 1 / 64
    for at in range(1, 65):
        side.hear(step * at)
    steps: list[int] = []
    waited, now = 0, 1.0
    while len(steps) < 5:
        now, waited = now + step, waited + 1
        if asks(side, now):
            side.ask(now, 16)
            side.hear(now)
            steps.append(waited)
            waited = 0
    assert steps == [10, 41, 129, 129, 129]  # 150 ms, 4 * 156 ms, 2 s


def test_a_pause_is_forgotten_when_much_is_heard_again() -> None:
    side = idle()
    for at in range(1, 41):
        side.hear(0.01 * at)
    assert not asks(side, 0.5)
    assert asks(side, 0.56)


def test_nobody_is_dead_who_was_not_asked() -> None:
    side = Liveness(0.0)
    assert not side.is_dead(60.0, PATIENCE)
    side.ask(60.0, 16)
    assert not side.is_dead(60.4, PATIENCE)
    assert side.is_dead(60.46, PATIENCE)


def test_a_busy_line_is_alive_as_long_as_bytes_before_the_ping_are_taken() -> None:
    side = Liveness(0.0)
    side.ask(0.1, 1_000_016)
    for step in range(80):
        side.take(0.1 + 0.1 * step, 12_500 * step)
        assert not side.is_dead(0.1 + 0.1 * step, PATIENCE)
    last = 0.1 + 0.1 * 79
    side.take(last + 0.4, 12_500 * 79)
    assert not side.is_dead(last + 0.4, PATIENCE)
    side.take(last + 0.5, 12_500 * 79)
    assert side.is_dead(last + 0.5, PATIENCE)


def test_a_process_that_is_stopped_is_noticed_although_its_kernel_goes_on_taking() -> None:
    side = Liveness(0.0)
    side.ask(0.15, 16)
    for step in range(1, 10):
        side.take(0.1 * step, 10_000 * step)
        side.say(0.1 * step, 10_000 * step + 500)
    assert not side.is_dead(0.59, PATIENCE)
    assert side.is_dead(0.61, PATIENCE)


def test_what_was_taken_long_ago_is_no_progress_now() -> None:
    side = Liveness(0.0)
    side.take(0.1, 5_000)
    side.ask(0.2, 5_016)
    side.take(0.3, 5_000)
    assert side.is_dead(0.66, PATIENCE)


def test_a_side_that_was_stopped_itself_does_not_judge_what_it_could_not_hear() -> None:
    side = Liveness(0.0)
    side.ask(0.1, 16)
    side.forgive(9.9)
    assert not side.is_dead(10.0, PATIENCE)
    assert side.is_dead(10.4, PATIENCE)
