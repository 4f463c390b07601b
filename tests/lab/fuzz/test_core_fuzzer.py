"""The fixed part of the fuzzer of the core."""

from __future__ import annotations

import pytest

from tidemark.lab.fuzz.core_fuzzer import CoreFuzzer


@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        # A subscriber that started just before all history was lost: the PFS was asked again and again.
        (1, 1_500),
        (5017, 1_600),
    ],
)
def test_hostile_frames_do_not_disturb_the_core(seed: int, steps: int) -> None:
    report = CoreFuzzer(seed).run(steps)
    assert not report.failure, report.failure
    assert not report.unforeseen
    assert report.delivered >= steps // 20


def test_a_run_follows_from_its_seed() -> None:
    one, same, other = (CoreFuzzer(seed).run(200) for seed in (5, 5, 6))
    assert (one.frames, one.counters) == (same.frames, same.counters)
    assert one.counters != other.counters
