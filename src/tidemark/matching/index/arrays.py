"""Arrays for the tables of the index: growing them, and reading many regions of one at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]
Words = NDArray[np.uint64]
Ids = NDArray[np.uint32]

_Scalar = TypeVar("_Scalar", bound=np.generic)

_FREED_BYTES_KEPT = 1 << 24
#: Rows that have at most so many different words are looked up word by word, if there are so many rows.
FEW = 6
FEW_ROWS = 32


def grown(array: NDArray[_Scalar], size: int) -> NDArray[_Scalar]:
    """`array` itself if it has room for `size` items, else a copy of at least twice its length.

    The items behind the copied ones are zero.
    """
    if size <= len(array):
        return array
    longer = np.zeros(max(size, 2 * len(array)), array.dtype)
    longer[: len(array)] = array
    return longer


def spread(starts: Index, counts: Index) -> tuple[Index, Index]:
    """starts[region], counts[region] -> owner[item], position[item] of every item, region after region.

    owner[item] is the index of the item's region, position[item] its index in the array.
    """
    ends = counts.cumsum()
    owner = np.arange(len(counts)).repeat(counts)
    position = (starts - ends + counts).take(owner)
    position += np.arange(len(owner))
    return owner, position


def keep_freed_memory() -> None:
    """Make the C library keep the freed memory of arrays, rather than return it to the operating system.

    glibc returns freed blocks above a threshold, and raises the threshold for good when a larger block is
    freed. Freeing one such block, never touched, made batches with 25,000 matches take half the time. With
    other C libraries it has no effect.
    """
    np.empty(_FREED_BYTES_KEPT, np.uint8)


def few_looked_up(words: Words, numbers: Mapping[bytes, int]) -> Ids | None:
    """words[:, row] -> number[row], if the rows have few different words and all are in `numbers`; else None.

    It takes a few array operations for each of the different words, and nothing for a row.
    """
    count = words.shape[1]
    found, is_done = np.zeros(count, np.uint32), np.zeros(count, np.bool_)
    at = 0
    for _ in range(FEW if count >= FEW_ROWS else 0):
        number = numbers.get(words[:, at].tobytes())
        if number is None:
            return None
        chosen = words[0] == words[0, at] if len(words) else np.ones(count, np.bool_)
        for each in words[1:]:
            chosen &= each == each[at]
        np.putmask(found, chosen, number)  # a quarter of the time that an index by a mask takes
        is_done |= chosen
        at = int(is_done.argmin())
        if is_done[at]:
            return found
    return None


def distinct(numbers: Ids) -> list[int]:
    """Each of the numbers once, in ascending order.

    It takes a few array operations for each of them while they are few, and else time for each row.
    """
    found: list[int] = []
    is_left = np.ones(len(numbers), np.bool_)
    for _ in range(FEW if len(numbers) >= FEW_ROWS else 0):
        at = int(is_left.argmax())
        if not is_left[at]:
            return sorted(found)
        found.append(int(numbers[at]))
        is_left &= numbers != numbers[at]
    return sorted(set(numbers.tolist()))
