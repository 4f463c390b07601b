"""The cells that hold something: (probe, cell) -> number, looked up for a whole batch at a time.

This is a cuckoo hash table: an entry lies in one of the two places that its hash names, so looking up any
number of cells takes the same handful of array operations, hit or miss. A hit is certain: cells of one probe
have different marks, and the probe is compared too.

Subscribers choose the constants, and could choose them so that they fall on the same two places. Then an
insertion fails and the table is laid out anew under another seed, which depends on all that is in the table.
"""

from __future__ import annotations

import numpy as np

from tidemark.matching.index.arrays import Ids, Index, Words

#: Marks an empty place; all probes have lower numbers.
NO_PROBE = 2**32 - 1

_MASK = 2**64 - 1
_SALT, _MIX, _PLACE = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_SMALLEST_BITS = 4
#: An insertion that has displaced this many other entries is taken to be in a cycle.
_PUSHES_MAX = 64
#: Rounds of laying out all entries at once; a layout that needs more is taken to have a cycle.
_ROUNDS_MAX = 500
_TRIES_PER_SIZE = 4


class Cells:
    """The table. It is at most two fifths full, so that nearly every insertion finds a free place at once."""

    def __init__(self) -> None:
        self._seed = _SALT
        self._held = 0
        self._clear(_SMALLEST_BITS)

    def __len__(self) -> int:
        return self._held

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        return self._marks.nbytes + self._probes.nbytes + self._numbers.nbytes

    def find(self, probes: Words, cells: Words) -> tuple[Index, Ids]:
        """The cells that are in the table: where[hit], the index in `cells` flattened, and number[hit].

        The shapes are probes[n] and cells[n], or probes[n, 1] and cells[n, row].
        """
        marks = _marks(probes, cells)
        first, second = _places(marks, probes, self._seed, self._bits)
        at_first = np.flatnonzero(self._marks.take(first) == marks)
        at_second = np.flatnonzero(self._marks.take(second) == marks)
        where = np.concatenate((at_first, at_second))
        place = np.concatenate((first.take(at_first), second.take(at_second)))
        asked = where // max(1, cells.size // max(1, probes.size))
        right = self._probes.take(place) == probes.reshape(-1).take(asked)
        return where[right], self._numbers.take(place[right])

    def get(self, probe: int, cell: int) -> int | None:
        """The number of one cell, or None."""
        place = self._place_of(probe, _mark(probe, cell))
        return None if place is None else int(self._numbers[place])

    def put(self, probe: int, cell: int, number: int) -> None:
        """Add a cell that is not there yet."""
        assert 0 <= probe < NO_PROBE
        mark = _mark(probe, cell)
        self._held += 1
        if 5 * self._held > 2 * len(self._marks):
            self._lay_out(self._bits + 1)
        displaced = self._settle(mark, probe, number)
        while displaced is not None:
            self._lay_out(self._bits if 5 * self._held < len(self._marks) else self._bits + 1)
            displaced = self._settle(*displaced)

    def remove(self, probe: int, cell: int) -> None:
        """Take out a cell that is there."""
        place = self._place_of(probe, _mark(probe, cell))
        assert place is not None
        self._marks[place] = 0
        self._probes[place] = NO_PROBE
        self._held -= 1

    def _place_of(self, probe: int, mark: int) -> int | None:
        for place in _two_places(mark, probe, self._seed, self._bits):
            if self._marks[place] == mark and self._probes[place] == probe:
                return place
        return None

    def _settle(self, mark: int, probe: int, number: int) -> tuple[int, int, int] | None:
        """Insert an entry, moving others to their second place.

        Returns None, or the entry that is left without a place when that goes in circles.
        """
        place = _two_places(mark, probe, self._seed, self._bits)[0]
        for _ in range(_PUSHES_MAX):
            pushed = int(self._marks[place]), int(self._probes[place]), int(self._numbers[place])
            self._marks[place], self._probes[place], self._numbers[place] = mark, probe, number
            if pushed[1] == NO_PROBE:
                return None
            mark, probe, number = pushed
            first, second = _two_places(mark, probe, self._seed, self._bits)
            place = second if place == first else first
        return mark, probe, number

    def _clear(self, bits: int) -> None:
        self._bits = bits
        self._marks: Words = np.zeros(1 << bits, np.uint64)
        self._probes: Ids = np.full(1 << bits, NO_PROBE, np.uint32)
        self._numbers: Ids = np.zeros(1 << bits, np.uint32)

    def _lay_out(self, bits: int) -> None:
        """Move all entries into a table of this size or larger, trying one new seed after the other."""
        held = np.flatnonzero(self._probes != NO_PROBE)
        marks, probes, numbers = self._marks[held], self._probes[held], self._numbers[held]
        self._seed = (self._seed + int(marks.sum(dtype=np.uint64)) + _SALT) & _MASK
        tries = 1
        while (placed := _layout(marks, probes.astype(np.uint64), self._seed, bits)) is None:
            self._seed = (self._seed * _MIX + _SALT) & _MASK
            bits += tries % _TRIES_PER_SIZE == 0
            tries += 1
        self._clear(bits)
        self._marks[placed], self._probes[placed], self._numbers[placed] = marks, probes, numbers


def _marks(probes: Words, cells: Words) -> Words:
    """The mark of each cell: different for different cells of one probe."""
    marks = cells ^ (probes * np.uint64(_SALT))
    marks ^= marks >> np.uint64(32)
    marks *= np.uint64(_MIX)
    marks ^= marks >> np.uint64(29)
    return marks


def _places(marks: Words, probes: Words, seed: int, bits: int) -> tuple[Index, Index]:
    """The two places of each mark, which are never equal."""
    spun = marks ^ np.uint64(seed)
    spun *= np.uint64(_PLACE)
    spun ^= spun >> np.uint64(31)
    # Cells of two probes may have the same mark; without the probe no seed could separate them.
    spun += probes * np.uint64(_MIX)
    first = (spun >> np.uint64(64 - bits)).view(np.int64)
    spun >>= np.uint64(20)
    spun &= np.uint64((1 << bits) - 1)
    spun |= np.uint64(1)
    return first, spun.view(np.int64) ^ first


def _mark(probe: int, cell: int) -> int:
    mark = cell ^ (probe * _SALT & _MASK)
    mark = (mark ^ mark >> 32) * _MIX & _MASK
    return mark ^ mark >> 29


def _two_places(mark: int, probe: int, seed: int, bits: int) -> tuple[int, int]:
    spun = (mark ^ seed) * _PLACE & _MASK
    spun = (spun ^ spun >> 31) + probe * _MIX & _MASK
    first = spun >> 64 - bits
    return first, first ^ (spun >> 20 & (1 << bits) - 1 | 1)


def _layout(marks: Words, probes: Words, seed: int, bits: int) -> Index | None:
    """A place for each mark, no place taken twice; None when no such layout was found."""
    first, second = _places(marks, probes, seed, bits)
    places = first.copy()
    owner = np.full(1 << bits, -1)
    moving = np.arange(len(marks))
    for _ in range(_ROUNDS_MAX):
        wanted = places[moving]
        evicted = owner[wanted]
        owner[wanted] = moving
        won = owner[wanted] == moving
        evicted = evicted[won]
        moving = np.concatenate((moving[~won], evicted[evicted >= 0]))
        if len(moving) == 0:
            return places
        places[moving] = first[moving] ^ second[moving] ^ places[moving]
    return None
