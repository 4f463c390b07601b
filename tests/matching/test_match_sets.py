"""Match sets: a set has one number, however the digests of a batch are looked up."""

from __future__ import annotations

import numpy as np
import pytest

from tidemark.matching.index import match_sets
from tidemark.matching.index.arrays import Ids, Index
from tidemark.matching.index.match_sets import Digests, MatchSets


def interned(sets: MatchSets, digests: Digests) -> tuple[list[int], dict[int, list[int]]]:
    """The number of each row, and the members of each number; the members of a set follow from its digest."""

    def members_of(wanted: list[int]) -> tuple[Index, Ids]:
        found = [[int(digests[0, row]), int(digests[1, row])] for row in wanted]
        return np.array([len(each) for each in found]), np.array(found, np.uint32).ravel()

    numbers = sets.intern(digests, members_of).tolist()
    return numbers, {number: sets.members(number).tolist() for number in set(numbers)}


def digests_of(rows: int, different: int, seed: int) -> Digests:
    """Two words for each row, of so many different pairs."""
    chosen = np.random.default_rng(seed).integers(1, different + 1, rows).astype(np.uint64)
    return np.stack((chosen, chosen + np.uint64(1_000)))


@pytest.mark.parametrize("different", [7, 100, 2_000])
def test_numbers_do_not_depend_on_how_many_rows_are_looked_up(
    different: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [digests_of(1_500, different, seed) for seed in range(3)]
    quick = MatchSets()
    found = [interned(quick, batch) for batch in batches]
    monkeypatch.setattr(match_sets, "DISTINCT_ROWS", 1 << 30)
    plain = MatchSets()
    assert found == [interned(plain, batch) for batch in batches]


def test_sets_that_share_the_first_word_of_their_digests_are_told_apart() -> None:
    digests = digests_of(1_000, 10, 1)
    digests[0] = 5
    numbers, members = interned(MatchSets(), digests)
    assert len(members) == 10
    for row, number in enumerate(numbers):
        assert members[number] == [5, int(digests[1, row])]
