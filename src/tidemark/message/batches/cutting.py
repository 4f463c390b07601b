"""Cutting rows into stretches of bounded size, so that no batch that is made of them is too large."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tidemark.message.batches.columns import Ints


def stretches(reach: Ints, bytes_max: int) -> Iterator[slice]:
    """Yield slices of neighbouring rows of at most `bytes_max` bytes, in order; a larger row stands alone.

    reach[row]: the bytes of all rows up to and including this one.
    """
    first = used = 0
    while first < len(reach):
        last = max(first + 1, int(np.searchsorted(reach, used + bytes_max, side="right")))
        yield slice(first, last)
        first, used = last, int(reach[last - 1])
