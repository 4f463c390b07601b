"""Every range has a cell, and the arrays agree with the arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemark.matching.index.trie.grid import LEVEL_MAX, LEVEL_STEP, Grid, grid_for
from tidemark.matching.index.trie.probes import Probes

KEYS = st.one_of(st.integers(1, 2**64 - 1), st.integers(0, 62).map(lambda bit: (1 << bit) + 1))


@settings(derandomize=True, deadline=None, max_examples=500)
@given(KEYS, KEYS)
@example(2**63 - 1, 2**63)
@example(2, 2**64 - 2)
def test_both_ends_of_a_range_lie_in_its_cell(one: int, other: int) -> None:
    low, high = min(one, other), max(one, other)
    grid = grid_for(low, high)
    if grid is None:
        assert low == 1 or high == 2**64 - 1 or high - low >= 2 ** (LEVEL_MAX - LEVEL_STEP)
    else:
        assert grid.cell(low) == grid.cell(high)
        assert grid.level == 0 or 1 << grid.level <= (high - low) << LEVEL_STEP + 1 or grid.level == 2


@settings(derandomize=True, deadline=None, max_examples=300)
@given(KEYS, st.integers(0, 12), st.integers(0, 1), st.integers(-1, 1), st.integers(-1, 1))
def test_a_range_fills_its_cell_when_nothing_else_is_in_it(
    key: int, level: int, moved: int, earlier: int, later: int
) -> None:
    grid = Grid(level, moved if level else 0)
    half = grid.moved << level >> 1
    first = (grid.cell(key) << level) - half
    last = first + (1 << level) - 1
    assert grid.cell(first) == grid.cell(last) == grid.cell(key)
    low, high = first + earlier, last + later
    if 0 < low <= key <= high < 2**64 - 1 and grid.cell(low) == grid.cell(high):
        assert grid.fills(low, high) == (level == 0 or (low, high) == (first, last))


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.lists(KEYS, min_size=1, max_size=5), st.integers(0, LEVEL_MAX + 1), st.integers(0, 1))
def test_probes_compute_the_cells_of_their_grid(keys: list[int], level: int, moved: int) -> None:
    grid = Grid(level, moved if level else 0)
    probes = Probes()
    node = probes.of_node.create()
    probe = probes.add_cell(node, 3, grid)
    cells = probes.cells(np.full(len(keys), probe), np.array(keys, np.uint64))
    assert cells.tolist() == [grid.cell(key) for key in keys]


def test_a_probe_lives_as_long_as_it_has_cells() -> None:
    probes = Probes()
    node = probes.of_node.create()
    grid = Grid(8, 1)
    probe = probes.add_cell(node, 3, grid)
    assert probes.add_cell(node, 3, grid) == probe
    assert probes.cells_in_use(probe) == 2
    probes.remove_cell(probe)
    assert probes.of_node.of(node).tolist() == [probe]
    probes.remove_cell(probe)
    assert probes.of_node.of(node).tolist() == []
    assert probes.get(node, 3, grid) is None


@pytest.mark.parametrize(("low", "high"), [(1, 100), (100, 2**64 - 1)])
def test_a_range_with_an_open_end_has_no_cell(low: int, high: int) -> None:
    assert grid_for(low, high) is None
