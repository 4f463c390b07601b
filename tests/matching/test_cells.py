"""The table of cells says what a dict would say, whatever is put into it."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.matching.index.trie import cells as module
from tidemark.matching.index.trie.cells import Cells

KEYS = st.tuples(st.integers(0, 3), st.one_of(st.integers(0, 40), st.integers(0, 2**64 - 1)))


def found(cells: Cells, keys: list[tuple[int, int]]) -> dict[tuple[int, int], int]:
    probes = np.array([probe for probe, _ in keys], np.uint64)
    where, numbers = cells.find(probes, np.array([cell for _, cell in keys], np.uint64))
    return {keys[at]: number for at, number in zip(where.tolist(), numbers.tolist(), strict=True)}


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.lists(st.tuples(st.booleans(), KEYS), max_size=120))
def test_cells_are_a_dict(changes: list[tuple[bool, tuple[int, int]]]) -> None:
    cells, model = Cells(), dict[tuple[int, int], int]()
    for number, (adds, key) in enumerate(changes):
        if key in model:
            assert cells.get(*key) == model[key]
            if not adds:
                cells.remove(*key)
                del model[key]
        elif adds:
            cells.put(*key, number)
            model[key] = number
    assert len(cells) == len(model)
    asked = sorted({key for _, key in changes})
    assert found(cells, asked) == model
    assert {key: cells.get(*key) for key in asked if cells.get(*key) is not None} == model


def test_a_matrix_of_cells_is_asked_at_once() -> None:
    cells = Cells()
    cells.put(7, 30, 1)
    cells.put(9, 30, 2)
    cells.put(9, 31, 3)
    asked = np.array([[30, 31, 30], [30, 31, 32]], np.uint64)
    where, numbers = cells.find(np.array([[7], [9]], np.uint64), asked)
    assert sorted(zip(where.tolist(), numbers.tolist(), strict=True)) == [(0, 1), (2, 1), (3, 2), (4, 3)]


def test_cells_chosen_to_fall_on_the_same_places_are_all_found() -> None:
    """Three that share both places cannot lie in one layout, so the table must change its seed."""
    cells = Cells()
    cells.put(0, 0, 0)
    seed, bits = cells._seed, cells._bits
    groups: dict[tuple[int, int], list[int]] = {}
    for cell in range(1, 2000):
        first, second = module._two_places(module._mark(0, cell), 0, seed, bits)
        groups.setdefault((min(first, second), max(first, second)), []).append(cell)
    chosen = max(groups.values(), key=len)[:5]
    for cell in chosen:
        cells.put(0, cell, cell)
    assert cells._seed != seed
    assert found(cells, [(0, cell) for cell in (0, *chosen)]) == {(0, cell): cell for cell in (0, *chosen)}


def test_cells_of_many_probes_chosen_to_have_one_mark_are_all_found() -> None:
    cells = Cells()
    chosen = [(probe, 12345 ^ (probe * module._SALT & 2**64 - 1)) for probe in range(40)]
    assert len({module._mark(*key) for key in chosen}) == 1
    for number, key in enumerate(chosen):
        cells.put(*key, number)
    assert found(cells, chosen) == {key: number for number, key in enumerate(chosen)}
    assert cells.nbytes <= 16 * 1024


def test_a_crowd_of_neighbours_stays_in_a_table_of_its_size() -> None:
    cells = Cells()
    for cell in range(3000):
        cells.put(cell % 2, cell << 40, cell)
    assert found(cells, [(cell % 2, cell << 40) for cell in range(3000)]) == {
        (cell % 2, cell << 40): cell for cell in range(3000)
    }
    assert cells.nbytes <= 16 * 16384
