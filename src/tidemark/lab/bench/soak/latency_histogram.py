"""LatencyHistogram: how long events took, by the time at which they should have been sent.

A bucket is as wide as a 64th of what it holds, or narrower: a percentile is at most 1.6% above the true one.
Events are counted by slices of time, so that what happened around a kill can be told from the rest.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

#: Microseconds up to which every value has a bucket of its own.
_EXACT = 128
_PARTS = 64
#: Values above 2**36 microseconds (19 hours) count as that.
_LARGEST_BITS = 36
BUCKETS = _EXACT + (_LARGEST_BITS - 7) * _PARTS


def bucket_of(microseconds: NDArray[np.int64]) -> NDArray[np.int64]:
    """bucket[value]"""
    values = np.clip(microseconds, 0, (1 << _LARGEST_BITS) - 1)
    # frexp is exact: an int64 below 2**53 is a float.
    bits = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    shift = np.maximum(bits - 7, 0)
    return np.where(shift == 0, values, _EXACT + (shift - 1) * _PARTS + (values >> shift) - _PARTS)


def upper_bound(bucket: int) -> int:
    """Returns the largest number of microseconds in a bucket."""
    if bucket < _EXACT:
        return bucket
    shift, part = divmod(bucket - _EXACT, _PARTS)
    return ((part + _PARTS + 1) << (shift + 1)) - 1


class LatencyHistogram:
    """Counts of events by slice of time and bucket."""

    def __init__(self, slices: int) -> None:
        self._counts = np.zeros((slices, BUCKETS), np.int32)

    def add(self, slices: NDArray[np.int64], microseconds: NDArray[np.int64]) -> None:
        """Count events: slices[event], microseconds[event]. Slices beyond the last count as the last."""
        np.add.at(self._counts, (np.clip(slices, 0, len(self._counts) - 1), bucket_of(microseconds)), 1)

    def counts(self, slices: Iterable[int] | None = None) -> NDArray[np.int64]:
        """count[bucket] of some slices, by default of all."""
        chosen = self._counts if slices is None else self._counts[list(slices)]
        counts: NDArray[np.int64] = chosen.sum(axis=0, dtype=np.int64)
        return counts


def percentile(counts: NDArray[np.int64], part: float) -> float:
    """Returns the microseconds within which a `part` of the events came; 0 if there are none."""
    total = int(counts.sum())
    if not total:
        return 0.0
    wanted = max(1, int(np.ceil(part * total)))
    return float(upper_bound(int(np.searchsorted(np.cumsum(counts), wanted))))
