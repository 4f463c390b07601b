"""Estimates: the few statistics from which findings are computed."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np

from tidemark.lab.figures.table import Numbers


@dataclass(frozen=True, slots=True)
class FittedLine:
    """y = at_zero + slope * x, and the share of the variance of y that it explains."""

    slope: float
    at_zero: float
    explained: float

    def reaches(self, y: float) -> float | None:
        """Returns the x at which the line reaches y; None if it does not rise."""
        return (y - self.at_zero) / self.slope if self.slope > 0 else None


def fitted(x: Numbers, y: Numbers) -> FittedLine:
    """Returns the line with the least squared error."""
    slope, at_zero = np.polyfit(x, y, 1)
    rest, total = ((y - at_zero - slope * x) ** 2).sum(), ((y - y.mean()) ** 2).sum()
    return FittedLine(float(slope), float(at_zero), float(1 - rest / total) if total else 1.0)


def rates(time: Numbers, value: Numbers) -> Numbers:
    """Returns how fast a value grows between each sample and the next."""
    return np.diff(value) / np.diff(time)


def slope_between(time: Numbers, value: Numbers, begin: float, end: float) -> float:
    """Returns how fast a value grew from `begin` to `end`; 0 if that is no time."""
    if end <= begin:
        return 0.0
    low, high = np.interp([begin, end], time, value)
    return float((high - low) / (end - begin))


def median_interval(values: Numbers, doubt: float = 0.05) -> tuple[float, float]:
    """Returns an interval that contains the median with probability 1 - `doubt`; infinite for few values.

    The interval follows from the ranks of the values: no distribution is assumed.
    """
    ordered, count = np.sort(values), len(values)
    below, rank = 0.0, 0
    while below + comb(count, rank) / 2**count <= doubt / 2:
        below += comb(count, rank) / 2**count
        rank += 1
    if not rank:
        return float("-inf"), float("inf")
    return float(ordered[rank - 1]), float(ordered[count - rank])


def median_error(values: Numbers) -> float:
    """Returns the standard error of the median of values that scatter about it; a few outliers do not count.

    The scatter is taken from the median distance to the median, as if the values were normally distributed.
    """
    scatter = 1.4826 * float(np.median(abs(values - np.median(values))))
    return float(np.sqrt(np.pi / 2)) * scatter / float(np.sqrt(len(values)))


def quantile(values: Numbers, part: float) -> float:
    """Returns the quantile; NaN without values."""
    return float(np.quantile(values, part)) if len(values) else float("nan")
