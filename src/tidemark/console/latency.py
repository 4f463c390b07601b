"""The latency of deliveries between two reports, from the histograms that brokers keep.

A broker tells with its numbers how many events it has delivered within each bound so far, under names such as
`delivered_within_0.001` in seconds. The difference of two reports is a histogram of the time between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

PREFIX = "delivered_within_"


def quantile(
    reports: Iterable[tuple[Mapping[str, float], Mapping[str, float]]], share: float
) -> float | None:
    """Return within how many seconds a share of the events was delivered, of all brokers together.

    `reports` has for each broker its numbers before and now. None if nothing was delivered meanwhile. The
    answer is a bound of the histogram, so the true value is at most that; inf if it is above all bounds.
    """
    grown: dict[float, float] = {}
    for before, now in reports:
        for name, count in now.items():
            if name.startswith(PREFIX):
                bound = float(name.removeprefix(PREFIX))
                # Counters begin at 0 again when a broker restarts.
                grown[bound] = grown.get(bound, 0.0) + max(0.0, count - before.get(name, 0.0))
    total = grown.get(float("inf"), 0.0)
    if not total:
        return None
    return next(bound for bound in sorted(grown) if grown[bound] >= share * total)
