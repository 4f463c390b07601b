"""The arrays of the index."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidemark.matching.index.arrays import FEW, FEW_ROWS, distinct, few_looked_up

#: Rows with few or many different numbers, fewer or more than those that are looked at one by one.
NUMBERS = st.integers(1, 2 * FEW).flatmap(
    lambda different: st.lists(st.integers(0, different - 1), max_size=2 * FEW_ROWS)
)


@given(NUMBERS)
def test_distinct_has_each_number_once_in_order(numbers: list[int]) -> None:
    assert distinct(np.array(numbers, np.uint32)) == sorted(set(numbers))


@given(NUMBERS)
def test_rows_with_few_known_words_get_the_numbers_of_their_words(numbers: list[int]) -> None:
    words = np.array([numbers, numbers[::-1]], np.uint64)
    rows = [words[:, row].tobytes() for row in range(len(numbers))]
    known = {word: number for number, word in enumerate(dict.fromkeys(rows), 1)}
    found = few_looked_up(words, known)
    is_few = len(known) <= FEW and len(numbers) >= FEW_ROWS
    assert (found is not None) == is_few
    assert found is None or found.tolist() == [known[word] for word in rows]
