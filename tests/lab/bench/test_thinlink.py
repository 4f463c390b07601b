"""The bench of a thin link: what it says where there are no namespaces, and a small run where there are."""

from __future__ import annotations

import os
import subprocess

import pytest

from tidemark.lab.bench.thinlink import benchmark
from tidemark.lab.bench.thinlink.namespaces import ThinNetwork, problem

REASON = problem()


def test_without_root_the_bench_is_skipped_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    (section,) = benchmark.sections(benchmark.QUICK)
    assert section.title == "skipped: it needs root, for network namespaces"
    assert not section.measurements


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_the_namespaces_are_gone_afterwards_whatever_happens() -> None:
    def fail() -> None:
        with ThinNetwork(1_000_000) as network:
            assert network.near in listed()
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    assert f"tidemark-{os.getpid()}-" not in listed()


@pytest.mark.slow
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_history_and_live_events_cross_a_real_link() -> None:
    effort = benchmark.ThinEffort(10_000_000, 100, 20.0, 30.0)
    (section,) = benchmark.sections(effort)
    found = {each.metric: each.value for each in section.measurements}
    assert found["history that arrived"] == 1.0
    assert found["deaths of the link"] == 0


def listed() -> str:
    return subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
