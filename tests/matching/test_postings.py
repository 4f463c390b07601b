"""Lists in one pool are lists, however they grow, shrink and take each other's place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.matching.index.arrays import spread
from tidemark.matching.index.postings import Postings
from tidemark.matching.index.trie.sorted_postings import WHOLE_LENGTH_MAX, SortedPostings

CHANGES = st.lists(st.tuples(st.sampled_from("aaaaddc"), st.integers(0, 4), st.integers(0, 9)), max_size=150)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(CHANGES)
def test_postings_are_lists(changes: Sequence[tuple[str, int, int]]) -> None:
    postings = Postings()
    model: dict[int, list[int]] = {postings.create(): [] for _ in range(5)}
    for number, (change, which, position) in enumerate(changes):
        held = model[which]
        if change == "a":
            held.append(number)
            assert postings.append(which, number) == len(held)
        elif change == "d" and held:
            item = held.pop(position % len(held))
            assert postings.discard(which, item) == len(held)
        elif change == "c":
            held.clear()
            postings.drop(which)
            assert postings.create() == which
    assert {which: sorted(postings.of(which).tolist()) for which in model} == {
        which: sorted(held) for which, held in model.items()
    }


def test_regions_given_back_are_used_again() -> None:
    postings = Postings()
    which = postings.create()
    for _ in range(50):
        for item in range(100):
            postings.append(which, item)
        postings.clear(which)
    assert len(postings.items) <= 512


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.integers(0, 12)), max_size=120),
    st.integers(0, 13),
)
def test_thresholds_count_what_a_value_reaches(changes: Sequence[tuple[bool, int, int]], asked: int) -> None:
    thresholds = SortedPostings()
    model: dict[int, list[tuple[int, int]]] = {thresholds.create(): [] for _ in range(2)}
    for number, (adds, which, level) in enumerate(changes):
        at_level = [entry for entry in model[which] if entry[0] == level]
        if adds:
            thresholds.insert(which, level, number)
            model[which].append((level, number))
        elif at_level:
            model[which].remove(at_level[0])
            assert thresholds.withdraw(which, *at_level[0]) == len(model[which])
    counts = thresholds.reached(np.array([0, 1]), np.array([asked, asked], np.uint64)).tolist()
    is_exact = max(map(len, model.values())) > WHOLE_LENGTH_MAX
    for which, entries in model.items():
        expected = {number for level, number in entries if level <= asked or not is_exact}
        assert set(thresholds.of(which).tolist()[: counts[which]]) == expected


def test_spread_walks_region_after_region() -> None:
    owner, position = spread(np.array([10, 50, 7]), np.array([2, 0, 3]))
    assert owner.tolist() == [0, 0, 2, 2, 2]
    assert position.tolist() == [10, 11, 7, 8, 9]
