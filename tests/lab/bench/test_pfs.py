"""The PFS bench compares what it should, and notices a PFS that is wrong."""

from __future__ import annotations

import pytest

from tidemark.lab.bench import run
from tidemark.lab.bench.pfs import benchmark as pfs
from tidemark.storage.pfs import Missed, PersistentFiltering

TINY = pfs.PfsEffort(seconds=7, rounds=1)


def test_the_pfs_writes_less_than_the_paper_allows_and_than_logging() -> None:
    load = pfs._load(TINY, sets=4)
    ours, theirs = pfs._run(pfs._filter, load), pfs._run(pfs._log_seconds, load)
    assert ours.bytes_written * 100 < theirs.bytes_written
    assert ours.bytes_written <= pfs.BYTES_MAX * len(load.ticks)


def test_every_event_matches_the_same_number_of_subscribers() -> None:
    for sets in (4, TINY.seconds * pfs.EVENTS_A_SECOND):
        load = pfs._load(TINY, sets)
        assert {len(load.members_of(number)) for number in load.sets.tolist()} == {pfs.MATCHING}


def test_a_wrong_answer_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pfs, "QUICK", pfs.PfsEffort(seconds=1, rounds=1))
    right = PersistentFiltering.read_many

    def wrong(*arguments: object) -> dict[int, Missed]:
        missed = right(*arguments)  # type: ignore[arg-type]  # passed on as they come
        return missed | {7: Missed(missed[7].ticks[1:], missed[7].upto, None)}

    monkeypatch.setattr(PersistentFiltering, "read_many", wrong)
    assert run("pfs", quick=True) == 1
    assert "what subscriber 7 missed" in capsys.readouterr().err


def test_an_imprecise_pfs_writes_less_and_reports_more() -> None:
    load = pfs._load(TINY, sets=TINY.seconds * pfs.EVENTS_A_SECOND)
    found = {
        (each.case, each.metric): each.value for each in pfs._imprecise(TINY, {"new": load}).measurements
    }
    assert found["new, groups of 1", "events read for one that matched"] == 1
    assert found["new, groups of 8", "events read for one that matched"] > 2
    assert found["new, groups of 8", "written"] < found["new, groups of 1", "written"]
