"""Within what time a share of the events was delivered, from the numbers of brokers before and now."""

from __future__ import annotations

from math import inf

from tidemark.console.latency import quantile


def numbers(*counts: int) -> dict[str, float]:
    """How many events were delivered within a millisecond, ten, a second, and at all."""
    bounds = ("0.001", "0.01", "1.0", "inf")
    return {f"delivered_within_{bound}": count for bound, count in zip(bounds, counts, strict=True)}


def test_a_quantile_is_the_bound_within_which_that_share_came() -> None:
    grown = [(numbers(5, 5, 5, 5), numbers(65, 95, 105, 105))]
    assert (quantile(grown, 0.5), quantile(grown, 0.9), quantile(grown, 0.99)) == (0.001, 0.01, 1.0)
    assert quantile([(numbers(0, 0, 0, 0), numbers(0, 0, 0, 9))], 0.5) == inf


def test_brokers_count_together_and_one_that_started_again_from_nothing() -> None:
    reports = [(numbers(0, 0, 0, 0), numbers(10, 10, 10, 10)), (numbers(0, 0, 0, 0), numbers(0, 0, 30, 30))]
    assert quantile(reports, 0.5) == 1.0
    assert quantile([(numbers(100, 100, 100, 100), numbers(1, 1, 1, 1)), reports[0]], 0.5) == 0.001


def test_without_deliveries_there_is_none() -> None:
    assert quantile([(numbers(3, 3, 3, 3), numbers(3, 3, 3, 3))], 0.5) is None
    assert quantile([({}, {"events_delivered": 5.0})], 0.5) is None
