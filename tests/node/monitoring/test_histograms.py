"""A histogram of many values at a time counts as one that takes them one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidemark.node.monitoring.histograms import BatchHistogram

BOUNDS = (0.001, 0.01, 0.1)
NOW = 1_000_000


def counted(histogram: BatchHistogram) -> tuple[list[tuple[str, float]], float]:
    samples = histogram.family().samples
    buckets = [(each.labels["le"], each.value) for each in samples if each.name.endswith("_bucket")]
    (total,) = [each.value for each in samples if each.name.endswith("_sum")]
    return buckets, total


def test_a_value_counts_up_to_its_bound_and_in_all_above() -> None:
    histogram = BatchHistogram("t_seconds", "", BOUNDS)
    histogram.add(1_000)
    histogram.add(1_001)
    histogram.add(5_000_000)
    assert counted(histogram) == ([("0.001", 1), ("0.01", 2), ("0.1", 2), ("+Inf", 3)], 5.002001)


def test_what_lies_in_the_future_of_a_clock_counts_as_now() -> None:
    histogram = BatchHistogram("t_seconds", "", BOUNDS)
    histogram.add_since(NOW, np.array([NOW + 5, NOW + 9]))
    histogram.add_since(NOW, np.array([NOW + 5]))
    assert counted(histogram) == ([("0.001", 3), ("0.01", 3), ("0.1", 3), ("+Inf", 3)], 0.0)


@given(st.integers(1, 50), st.integers(-100, NOW))
def test_ticks_that_follow_each_other_count_as_single_ones_do(count: int, newest: int) -> None:
    together, singly = BatchHistogram("t_seconds", "", BOUNDS), BatchHistogram("t_seconds", "", BOUNDS)
    ticks = np.arange(NOW - newest - count + 1, NOW - newest + 1)
    together.add_since(NOW, ticks)
    for tick in ticks.tolist():
        singly.add(NOW - tick)
    assert counted(together) == counted(singly)


@given(st.lists(st.sets(st.integers(-2_000, 2 * NOW), min_size=1, max_size=20), max_size=5))
def test_a_batch_counts_as_its_events_do(batches: list[set[int]]) -> None:
    together, singly = BatchHistogram("t_seconds", "", BOUNDS), BatchHistogram("t_seconds", "", BOUNDS)
    for ages in batches:
        together.add_since(NOW, NOW - np.array(sorted(ages, reverse=True)))
        for age in ages:
            singly.add(age)
    assert counted(together) == counted(singly)
