"""BatchHistogram: how many values there were up to each bound, for values that come many at a time.

A histogram of Prometheus takes one value at a time. This one takes all events of a batch with one or two
searches, or with one array operation where the batch spans several buckets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import inf

import numpy as np
from prometheus_client.metrics_core import HistogramMetricFamily

from tidemark.message.batches.columns import Ints

MICROSECONDS = 1_000_000


class BatchHistogram:
    """Durations, kept in microseconds and told in seconds."""

    def __init__(self, name: str, about: str, bounds_seconds: Sequence[float]) -> None:
        self._name = name
        self._about = about
        self._bounds_seconds = tuple(bounds_seconds)
        self._bounds = [round(bound * MICROSECONDS) for bound in bounds_seconds]
        #: counts[at]: values above bounds[at - 1] and up to bounds[at]; the last are above all bounds
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0

    def add(self, duration_us: int) -> None:
        """Count one duration; one below 0, of clocks that disagree, counts as 0."""
        duration_us = max(duration_us, 0)
        self._counts[bisect_left(self._bounds, duration_us)] += 1
        self._sum += duration_us

    def add_since(self, now: int, ticks: Ints) -> None:
        """Count for each of these ticks, which ascend and differ, how long before `now` it was."""
        count, first, last = len(ticks), int(ticks[0]), int(ticks[-1])
        if last - first == count - 1 and last <= now:
            # The ticks of a batch that was published at once follow each other, so two of them tell all.
            at = bisect_left(self._bounds, now - first)
            if at == bisect_left(self._bounds, now - last):
                self._counts[at] += count
                self._sum += count * (2 * now - first - last) // 2
                return
        durations = np.maximum(now - ticks, 0)
        self._sum += int(durations.sum())
        found = np.bincount(np.searchsorted(self._bounds, durations), minlength=len(self._counts))
        for at in np.flatnonzero(found).tolist():
            self._counts[at] += int(found[at])

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each bound in seconds, the last one inf, with how many values are at most that."""
        yield from zip((*self._bounds_seconds, inf), accumulate(self._counts), strict=True)

    def family(self) -> HistogramMetricFamily:
        """Return what Prometheus is told."""
        family = HistogramMetricFamily(self._name, self._about)
        buckets = [
            ("+Inf" if bound == inf else str(float(bound)), count) for bound, count in self.cumulative()
        ]
        family.add_metric([], buckets, self._sum / MICROSECONDS)
        return family
