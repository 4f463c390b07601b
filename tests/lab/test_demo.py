"""The demo, told quickly: real processes, and an exit code that comes from the ledgers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidemark.lab import demo, ledger


@pytest.mark.chaos
def test_the_demo_ends_with_sums_that_come_out_even(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.run(as_json=True, events=1_200, rate=800) == 0
    shown = capsys.readouterr()
    sums = json.loads(shown.out)
    assert sums["ok"]
    assert sums["published"] == sums["acknowledged"] == 1_200
    assert sums["matched"] == sums["delivered"] > 1_200
    faults = ("lost", "duplicated", "out_of_order", "wrong", "gaps")
    assert [sums[name] for name in faults] == [0] * len(faults)
    assert len(sums["subscribers"]) == len(demo.SELECTORS)
    for line in ("leaves", "crashes (SIGKILL)", "the broker is killed (SIGKILL)", "returns"):
        assert line in shown.err


def test_a_demo_that_goes_wrong_says_so_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lost = ledger.Audit(2, 2, [ledger.Account("everything", "", matched=2, delivered=1, lost=["desk-1"])])
    monkeypatch.setattr(demo.Demo, "tell", lambda _: lost)
    monkeypatch.setattr(demo.tempfile, "mkdtemp", lambda **_: str(tmp_path))
    assert demo.run(events=2) == 1
    assert "NOT exactly once" in capsys.readouterr().out
