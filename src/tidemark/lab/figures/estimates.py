"""Judging: the few statistics that findings are made of."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np

from tidemark.lab.figures.table import Numbers


@dataclass(frozen=True, slots=True)
class FittedLine:
    """y = at_zero + slope * x, and how much of the variance of y that explains."""

    slope: float
    at_zero: float
    explained: float

    def reaches(self, y: float) -> float | None:
        """The x at which it has this value; None if it never gets there."""
        return (y - self.at_zero) / self.slope if self.slope > 0 else None


def fitted(x: Numbers, y: Numbers) -> FittedLine:
    """The line nearest to the points."""
    slope, at_zero = np.polyfit(x, y, 1)
    rest, total = ((y - at_zero - slope * x) ** 2).sum(), ((y - y.mean()) ** 2).sum()
    return FittedLine(float(slope), float(at_zero), float(1 - rest / total) if total else 1.0)


def rates(time: Numbers, value: Numbers) -> Numbers:
    """How fast a value grows between each sample and the next."""
    return np.diff(value) / np.diff(time)


def slope_between(time: Numbers, value: Numbers, begin: float, end: float) -> float:
    """How fast a value grew over a time, from its values at both ends."""
    if end <= begin:
        return 0.0
    low, high = np.interp([begin, end], time, value)
    return float((high - low) / (end - begin))


def median_interval(values: Numbers, doubt: float = 0.05) -> tuple[float, float]:
    """Where the median of what was sampled lies, but for this much doubt; from minus to plus infinity if few.

    By the ranks of the values: nothing is assumed of how they are distributed.
    """
    ordered, count = np.sort(values), len(values)
    below, rank = 0.0, 0
    while below + comb(count, rank) / 2**count <= doubt / 2:
        below += comb(count, rank) / 2**count
        rank += 1
    if not rank:
        return float("-inf"), float("inf")
    return float(ordered[rank - 1]), float(ordered[count - rank])


def quantile(values: Numbers, part: float) -> float:
    """NaN without values."""
    return float(np.quantile(values, part)) if len(values) else float("nan")
