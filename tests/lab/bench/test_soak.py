"""A soak measures from when an event was due, tells calm from disturbed time, and finds everything exact."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.lab.bench import run
from tidemark.lab.bench.processes import harness
from tidemark.lab.bench.soak import benchmark
from tidemark.lab.bench.soak.latency_histogram import (
    BUCKETS,
    LatencyHistogram,
    bucket_of,
    percentile,
    upper_bound,
)


@given(st.integers(0, (1 << 36) - 1))
def test_a_bucket_is_at_most_a_64th_above_what_it_holds(value: int) -> None:
    bucket = int(bucket_of(np.array([value]))[0])
    assert 0 <= bucket < BUCKETS
    assert value <= upper_bound(bucket) <= value + value // 64
    if bucket:
        assert upper_bound(bucket - 1) < value


def test_values_out_of_bounds_count_as_the_smallest_and_the_largest() -> None:
    assert bucket_of(np.array([-5, 1 << 50])).tolist() == [0, BUCKETS - 1]


def test_percentiles_are_those_of_the_slices_that_are_asked_for() -> None:
    histogram = LatencyHistogram(3)
    histogram.add(np.zeros(9_999, np.int64), np.full(9_999, 100))
    histogram.add(np.array([1, 9]), np.array([50_000, 70_000]))
    calm = histogram.counts([0])
    assert percentile(calm, 0.9999) == percentile(calm, 1.0) == 100
    everything = histogram.counts()
    assert int(everything.sum()) == 10_001
    assert percentile(everything, 0.9999) == pytest.approx(50_000, rel=1 / 64)
    assert percentile(everything, 1.0) == pytest.approx(70_000, rel=1 / 64), "beyond the last slice"
    assert percentile(histogram.counts([]), 0.5) == 0


def test_a_slice_of_time_that_a_disturbance_touches_is_not_calm() -> None:
    watch = benchmark.Watch(disturbed=[(2.5, 4.0), (7.9, 8.1)])
    assert watch.calm_slices(10, 1.0) == [0, 1, 4, 5, 6, 9]
    assert watch.calm_slices(5, 2.0) == [0, 2]


def test_long_runs_have_longer_slices() -> None:
    assert benchmark.lasting(10).slice_seconds == 1
    assert benchmark.lasting(24 * 60).slice_seconds == 24
    assert benchmark.lasting(1e9).seconds == 60 * benchmark.MINUTES_MAX


@pytest.mark.slow
def test_a_soak_with_a_kill_and_a_return_is_exact(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(harness.DIRECTORY, str(tmp_path))
    tiny = benchmark.SoakEffort(
        7.0,
        rate=200.0,
        subscribers=4,
        kill_seconds=1.0,
        leave_seconds=0.5,
        away_seconds=0.3,
        look_seconds=0.1,
    )
    monkeypatch.setattr(benchmark, "QUICK", tiny)
    out = StringIO()
    assert run("soak", json_output=True, quick=True, out=out) == 0
    found = {
        (line["case"], line["metric"]): line["value"] for line in map(json.loads, out.getvalue().splitlines())
    }
    published = next(value for (_, metric), value in found.items() if metric == "published")
    delivered = next(value for (_, metric), value in found.items() if metric.startswith("delivered"))
    assert delivered == published == found["all", "deliveries measured"]
    assert next(value for (_, metric), value in found.items() if metric.startswith("kills")) >= 1
    assert not list(tmp_path.iterdir()), "a bench removes its files"
