"""BatchHistogram: how many values there were up to each bound, for values that come many at a time.

A histogram of Prometheus takes one value at a time. This one takes all events of a batch with one or two
searches, or with one array operation where the batch spans several buckets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

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
        """Count for each of these ticks, in any order, how long before `now` it was."""
        count = len(ticks)
        if count == 1:
            self.add(now - int(ticks[0]))
            return
        first, last = max(now - int(ticks.max()), 0), max(now - int(ticks.min()), 0)
        low, high = bisect_left(self._bounds, first), bisect_left(self._bounds, last)
        durations = np.maximum(now - ticks, 0)
        self._sum += int(durations.sum())
        if low == high:
            self._counts[low] += count
            return
        found = np.bincount(np.searchsorted(self._bounds, durations), minlength=len(self._counts))
        for at in range(low, high + 1):
            self._counts[at] += int(found[at])

    def family(self) -> HistogramMetricFamily:
        """Return what Prometheus is told."""
        family = HistogramMetricFamily(self._name, self._about)
        buckets: list[tuple[str, float]] = []
        upto = 0
        for bound, count in zip((*self._bounds_seconds, float("inf")), self._counts, strict=True):
            upto += count
            buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), upto))
        family.add_metric([], buckets, self._sum / MICROSECONDS)
        return family
