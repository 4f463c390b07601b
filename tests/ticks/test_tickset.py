"""TickSet against a Python set, including its moves inside the buffer."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.ticks import TICK_MAX, TICK_MIN, TickSet

LAST = 400
batches = st.builds(
    lambda first, gaps: np.cumsum([first, *gaps]).astype(np.int64),
    st.integers(0, LAST),
    st.lists(st.integers(1, 4), max_size=60),
)
ranges = st.tuples(st.integers(0, LAST), st.integers(0, LAST)).map(lambda ends: (min(ends), max(ends)))


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.lists(st.one_of(batches, ranges), max_size=14), ranges)
def test_a_tick_set_answers_like_a_set(
    steps: list[np.ndarray | tuple[int, int]], asked: tuple[int, int]
) -> None:
    actual, model = TickSet(), set[int]()
    for step in steps:
        if isinstance(step, tuple):
            gone = {tick for tick in model if step[0] < tick <= step[1]}
            assert actual.remove(*step) == len(gone)
            model -= gone
        else:
            assert actual.add(step).tolist() == [tick not in model for tick in step.tolist()]
            model |= set(step.tolist())
        assert actual.within(TICK_MIN, TICK_MAX).tolist() == sorted(model)
    assert len(actual) == len(model)
    assert actual.within(*asked).tolist() == sorted(tick for tick in model if asked[0] < tick <= asked[1])
    assert [actual.contains(tick) for tick in range(LAST)] == [tick in model for tick in range(LAST)]


def test_growing_at_both_ends_in_turn_seldom_copies() -> None:
    held = TickSet()
    held.add(np.arange(10_000, 20_000))
    buffers = [held._buffer]
    for step in range(1_000):
        held.add(np.array([9_999 - step]))
        held.add(np.array([20_000 + step]))
        if held._buffer is not buffers[-1]:
            buffers.append(held._buffer)
    assert held.within(TICK_MIN, TICK_MAX).tolist() == list(range(9_000, 21_000))
    assert len(buffers) <= 3


def test_the_buffer_follows_what_is_held_not_what_passed_through() -> None:
    held = TickSet()
    for step in range(1_000):
        held.add(np.arange(step * 100, step * 100 + 100))
        held.remove(TICK_MIN, step * 100)
    assert len(held) == 99
    assert len(held._buffer) < 1_000


def test_what_within_gave_out_is_not_changed_later() -> None:
    held = TickSet()
    held.add(np.arange(10, 20))
    given_out = held.within(10, 15)
    held.remove(0, 14)
    held.add(np.array([1, 2, 3]))
    assert given_out.tolist() == [11, 12, 13, 14, 15]
    assert repr(held) == "TickSet([1, 2, 3, 15, 16, 17, 18, 19])"
