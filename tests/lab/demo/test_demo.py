"""The demo, told quickly: real processes, and an exit code that comes from the ledgers."""

from __future__ import annotations

import json
import re
from io import StringIO
from multiprocessing import Pipe
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from rich.console import Console

from tidemark.lab.demo import demo
from tidemark.lab.demo.archived_story import ArchivedStory
from tidemark.lab.demo.spark_audit import SparkAuditProcess, audit_when_asked
from tidemark.lab.demo.story import SELECTORS
from tidemark.lab.processes import ledger
from tidemark.lab.processes.ledger_writers import DurableSubscriberLedger, PublisherLedger
from tidemark.lab.processes.process_harness import ProcessHarness
from tidemark.spark.audit.report import AuditReport
from tidemark.ticks import CheckpointToken


@pytest.mark.chaos
def test_the_demo_ends_with_sums_that_come_out_even(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.run(as_json=True, with_spark=False, events=1_200, rate=800) == 0
    shown = capsys.readouterr()
    sums = json.loads(shown.out)
    assert sums["ok"]
    assert sums["published"] == sums["acknowledged"] == 1_200
    assert sums["matched"] == sums["delivered"] > 1_200
    faults = ("lost", "duplicated", "out_of_order", "wrong", "gaps")
    assert [sums[name] for name in faults] == [0] * len(faults)
    assert len(sums["subscribers"]) == len(SELECTORS)
    for line in ("leaves", "crashes (SIGKILL)", "the broker is killed (SIGKILL)", "returns"):
        assert line in shown.err


class SlowStory(ArchivedStory):
    """A story on a busy machine: in the second before the archive begins, all trades could be published."""

    def _begin_the_archive(self) -> None:
        sleep(1.0)
        super()._begin_the_archive()


@pytest.mark.chaos
def test_a_broker_lets_go_what_is_archived_and_who_was_away_is_healed_from_there(tmp_path: Path) -> None:
    said = StringIO()
    with ProcessHarness(tmp_path) as harness:
        SlowStory(harness, Console(file=said, width=200), events=1_600, rate=800).tell()
    found = harness.audit()
    assert found.published == found.acknowledged == 1_600
    faults = ("lost", "duplicated", "out_of_order", "wrong", "gaps")
    assert [found.total(name) for name in faults] == [0] * len(faults)
    told = re.search(r"letters is healed from the archive: (\d+) of the trades", said.getvalue())
    assert told is not None, said.getvalue()
    assert int(told[1]) > 0
    assert re.search(r"the broker held .* and holds .*; its log took", said.getvalue())


def reported(monkeypatch: pytest.MonkeyPatch, directory: Path, found: ledger.Audit) -> None:
    """The next demo tells no story, and the audit finds this."""
    monkeypatch.setattr(demo, "_told", lambda *_: found.report())
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: str(directory))


def test_a_demo_that_goes_wrong_says_so_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    account = ledger.DetailedAccount("everything", "t", "", matched=2, delivered=1, lost=["desk-1"])
    reported(monkeypatch, tmp_path, ledger.Audit(2, 2, [account]))
    (tmp_path / "broker.log").touch()
    assert demo.run(events=2, with_spark=False) == 1
    said = capsys.readouterr().out
    assert "NOT exactly once" in said
    assert "everything: lost: desk-1" in said
    assert (tmp_path / "broker.log").exists()


@pytest.mark.parametrize(
    "found",
    [
        ledger.Audit(1, 1, [ledger.DetailedAccount("s", "t", "", matched=1, delivered=1)]),
        ledger.Audit(2, 1, [ledger.DetailedAccount("s", "t", "", matched=1, delivered=1)]),
        ledger.Audit(2, 2, [ledger.DetailedAccount("s", "t", "", matched=2, delivered=1, gaps=1, in_gaps=1)]),
    ],
    ids=["too few published", "not all acknowledged", "a gap"],
)
def test_a_demo_in_which_less_happened_than_should_fails_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: ledger.Audit
) -> None:
    reported(monkeypatch, tmp_path, found)
    assert demo.run(events=2, with_spark=False) == 1


def test_a_demo_that_goes_well_leaves_the_ledgers_and_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    reported(monkeypatch, tmp_path, ledger.Audit(2, 2, [ledger.DetailedAccount("s", "t", "", 2, 2)]))
    removed = ("s.subscriber.log", "desk.publisher.allowed")
    for name in ("desk.publisher.jsonl", "s.subscriber.sqlite", demo.PAGE, *removed):
        (tmp_path / name).touch()
    (tmp_path / "broker").mkdir()
    assert demo.run(events=2, with_spark=False) == 0
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"desk.publisher.jsonl", "s.subscriber.sqlite", demo.PAGE}
    said = capsys.readouterr().out
    assert f"the report with plots: {tmp_path / demo.PAGE}" in said
    assert f"tidemark pipeline audit --ledgers {tmp_path}" in said


def test_an_audit_process_that_cannot_audit_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIDEMARK_JAVA", str(tmp_path / "no-java"))
    with (
        SparkAuditProcess(tmp_path / "audit.log") as audit_process,
        pytest.raises(AssertionError, match=r"no audit: .*no-java is no Java that Spark can use"),
    ):
        audit_process.audit(tmp_path, tmp_path / "x.html")


def ledgers_with_a_loss(directory: Path) -> None:
    """Two events are published and acknowledged, and the one that matches was not delivered."""
    ledger = PublisherLedger(directory / "desk.publisher.jsonl", "desk", "main", "trades")
    for each in ledger.intend([{"price": 1.0}, {"price": 2.0}]):
        ledger.settle(each, 100 + each.sequence)
    ledger.close()
    durable = DurableSubscriberLedger(directory / "s.subscriber.sqlite", "s")
    durable.opened("trades", "price > 1", CheckpointToken({"main": 100}))
    durable.close()


def assert_told_of_the_loss(report: AuditReport, html: Path) -> None:
    assert (report.published, report.acknowledged, report.accounts[0].keys) == (2, 2, {"lost": ["desk-2"]})
    assert "Not exactly once: 1 lost" in html.read_text()


@pytest.mark.spark
def test_the_audit_reads_nothing_but_the_ledgers(spark: Any, tmp_path: Path) -> None:
    ledgers_with_a_loss(tmp_path)
    ours, theirs = Pipe()
    ours.send((tmp_path, tmp_path / "x.html"))
    audit_when_asked(spark, theirs)
    assert_told_of_the_loss(ours.recv(), tmp_path / "x.html")


@pytest.mark.spark
@pytest.mark.long
def test_the_audit_process_reads_nothing_but_the_ledgers(tmp_path: Path) -> None:
    ledgers_with_a_loss(tmp_path)
    with SparkAuditProcess(tmp_path / "audit.log") as audit_process:
        report = audit_process.audit(tmp_path, tmp_path / "x.html")
    assert_told_of_the_loss(report, tmp_path / "x.html")
