"""What every table of the index needs of arrays: to grow, and to walk many regions at once."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]
Words = NDArray[np.uint64]
Ids = NDArray[np.uint32]

_Scalar = TypeVar("_Scalar", bound=np.generic)

_FREED_BYTES_KEPT = 1 << 24


def grown(array: NDArray[_Scalar], size: int) -> NDArray[_Scalar]:
    """`array` itself, or a copy of at least twice its length when it has no room for `size` items.

    What is new is zero.
    """
    if size <= len(array):
        return array
    longer = np.zeros(max(size, 2 * len(array)), array.dtype)
    longer[: len(array)] = array
    return longer


def spread(starts: Index, counts: Index) -> tuple[Index, Index]:
    """starts[region], counts[region] -> owner[item], position[item], region after region."""
    ends = counts.cumsum()
    owner = np.arange(len(counts)).repeat(counts)
    position = (starts - ends + counts).take(owner)
    position += np.arange(len(owner))
    return owner, position


def keep_freed_memory() -> None:
    """Have the C library keep what arrays free, rather than return it to the operating system each time.

    glibc returns what is above a threshold, which it raises for good when it sees a larger block freed. One
    such block, never touched, made batches with 25,000 matches take half the time. Elsewhere it does nothing.
    """
    np.empty(_FREED_BYTES_KEPT, np.uint8)
