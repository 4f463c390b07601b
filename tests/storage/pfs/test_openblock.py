"""The open block numbers match sets itself, whatever numbers its caller has for them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.storage.pfs import openblock
from tidemark.storage.pfs.openblock import OpenBlock
from tidemark.storage.pfs.record import Ids

#: Numbers of a caller within the table, at its end and beyond it.
NUMBERS = st.sampled_from([1, 2, 3, 500, 65_535, 65_536, 65_537, 4_000_000_000])
ROWS = st.lists(NUMBERS, min_size=1, max_size=40)


def members(number: int) -> Ids:
    """The set of a number: two subscribers, and nobody else has the same."""
    return np.array([number % 97, 100 + number % 89], np.uint32)


def added(block: OpenBlock, numbers: list[int]) -> int:
    """Add a row for each number behind the last one; returns how many rows there was room for."""
    first = block.upto + 1
    ticks = np.arange(first, first + len(numbers))
    lengths = np.full(len(numbers), 7, np.uint32)
    return block.add(int(ticks[-1]), ticks, np.array(numbers, np.uint32), lengths, members)


def sets_of(block: OpenBlock) -> list[list[int]]:
    """The subscribers of each row."""
    columns = block.columns()
    ends = [0, *columns.ends.tolist()]
    return [columns.members[ends[each] : ends[each + 1]].tolist() for each in columns.sets.tolist()]


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_every_row_has_the_subscribers_of_its_number(groups: list[list[int]]) -> None:
    block = OpenBlock(0, 0)
    for numbers in groups:
        assert added(block, numbers) == len(numbers)
    rows = [number for numbers in groups for number in numbers]
    assert sets_of(block) == [members(number).tolist() for number in rows]
    assert len(block.columns().ends) == len({tuple(members(number).tolist()) for number in rows})


@given(ROWS)
def test_sets_are_defined_in_the_order_of_their_first_rows(numbers: list[int]) -> None:
    block = OpenBlock(0, 0)
    added(block, numbers)
    firsts = block.columns().sets[[numbers.index(each) for each in dict.fromkeys(numbers)]]
    assert firsts.tolist() == sorted(firsts.tolist())


def test_a_record_ends_before_the_first_row_whose_set_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openblock, "RECORD_MEMBERS_MAX", 4)
    block = OpenBlock(0, 0)
    assert added(block, [1, 1, 2, 1, 3, 2, 3]) == 4
    assert block.upto == 4
    assert sets_of(block) == [members(number).tolist() for number in (1, 1, 2, 1)]
