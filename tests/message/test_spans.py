"""Copying many stretches of bytes: however they lie, the same bytes arrive at the same places."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.message.batches import spans
from tidemark.message.batches.columns import Spans


def stretches(lengths: list[int], gaps: list[int]) -> tuple[Spans, list[bytes]]:
    """Stretches of these lengths with so many other bytes before each, and what they are."""
    body = np.random.default_rng(len(lengths)).integers(0, 256, sum(lengths) + sum(gaps) + 1, np.uint8)
    ends = np.cumsum(np.array(gaps, np.int64) + np.array(lengths, np.int64))
    starts = ends - np.array(lengths, np.int64)
    wanted = [body[start:end].tobytes() for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return Spans(body, starts, ends), wanted


ROWS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5)), max_size=60)
ALIKE = st.builds(
    lambda n, length, gap: [(length, gap)] * n, st.integers(0, 9), st.integers(0, 9), st.integers(0, 3)
)


@given(st.one_of(ROWS, ALIKE), st.integers(0, 3), st.booleans())
def test_spans_arrive_as_they_are(rows: list[tuple[int, int]], apart: int, is_backwards: bool) -> None:
    found, wanted = stretches([length for length, _ in rows], [gap for _, gap in rows])
    if is_backwards:
        found = Spans(found.body, found.starts[::-1], found.ends[::-1])
        wanted = wanted[::-1]
    lengths = found.lengths
    at = np.cumsum(lengths + apart) - lengths
    target = np.zeros(int(lengths.sum()) + apart * len(rows) + 1, np.uint8)
    spans.copy_spans(target, at, found)
    placed = zip(at.tolist(), wanted, strict=True)
    assert all(target[start : start + len(each)].tobytes() == each for start, each in placed)
    assert np.count_nonzero(target) <= sum(map(len, wanted)), "nothing is written beside them"
    body, ends = spans.joined(found)
    assert (body.tobytes(), ends.tolist()) == (b"".join(wanted), np.cumsum(lengths).tolist())


@pytest.mark.parametrize("mean", [4, 100])
def test_many_lengths_are_copied_alike_whether_short_or_long(mean: int) -> None:
    lengths = np.random.default_rng(3).integers(0, 2 * mean, 500).tolist()
    found, wanted = stretches(lengths, [1] * 500)
    assert spans.joined(found)[0].tobytes() == b"".join(wanted)
