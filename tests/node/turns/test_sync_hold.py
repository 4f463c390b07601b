"""SyncHold: a sync for little waits for what publishers send who were answered a moment ago."""

from __future__ import annotations

from tidemark.node.turns.sync_hold import ANSWERED_BYTES_MIN, HOLD_SECONDS, RESTS, SPARE_PART, SyncHold


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


#: What was answered, and nearly as much.
MUCH = 4 * ANSWERED_BYTES_MIN
NEARLY = MUCH - MUCH // SPARE_PART


def test_a_sync_waits_until_nearly_as_much_has_come_as_was_answered() -> None:
    hold = SyncHold(Clock())
    hold.answered(MUCH)
    assert hold.holds(1)
    assert hold.holds(NEARLY - 1)
    assert not hold.has_come(NEARLY - 1)
    assert not hold.holds(NEARLY)
    assert hold.has_come(NEARLY)


def test_a_sync_waits_no_longer_than_a_moment() -> None:
    clock = Clock()
    hold = SyncHold(clock)
    hold.answered(4 * ANSWERED_BYTES_MIN)
    clock.now += HOLD_SECONDS * 0.9
    assert hold.holds(1)
    clock.now += HOLD_SECONDS * 0.2
    assert not hold.holds(1)


def test_no_sync_waits_where_little_was_answered_or_nothing_has_come() -> None:
    hold = SyncHold(Clock())
    assert not hold.holds(1)
    hold.answered(ANSWERED_BYTES_MIN - 1)
    assert not hold.holds(1)
    hold.answered(ANSWERED_BYTES_MIN)
    assert not hold.holds(0)


def test_after_a_sync_has_waited_in_vain_the_next_ones_do_not_wait() -> None:
    hold = SyncHold(Clock())
    hold.answered(ANSWERED_BYTES_MIN)
    hold.gave_up()
    assert not hold.holds(1)
    for _ in range(RESTS - 1):
        hold.answered(ANSWERED_BYTES_MIN)
        assert not hold.holds(1)
    hold.answered(ANSWERED_BYTES_MIN)
    assert hold.holds(1)


def test_after_half_has_come_in_time_the_next_syncs_wait_for_half() -> None:
    hold = SyncHold(Clock())
    hold.answered(MUCH)
    hold.gave_up(MUCH // 2)
    for _ in range(RESTS - 1):
        hold.answered(MUCH)
        assert hold.holds(MUCH // 2 - 1)
        assert not hold.holds(MUCH // 2)
    hold.answered(MUCH)
    assert hold.holds(NEARLY - 1)


def test_after_less_than_half_has_come_in_time_the_next_syncs_do_not_wait() -> None:
    hold = SyncHold(Clock())
    hold.answered(MUCH)
    hold.gave_up(MUCH // 2 - 1)
    hold.answered(MUCH)
    assert not hold.holds(1)
    assert not hold.has_come(MUCH), "nothing is expected"
