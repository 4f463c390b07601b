"""The audit's report: as numbers for scripts, as a page for people, and as an exit code."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkRuntimeError

from tests.spark.audit.ledger_samples import write_ledger
from tests.spark.audit.ledger_witnesses import WITNESSES
from tests.waiting import PATIENCE_SECONDS
from tidemark.cli import main
from tidemark.lab.processes import ledger as single
from tidemark.spark.audit import audit as job
from tidemark.spark.audit.html import page
from tidemark.spark.audit.report import AuditReport, Latency, SubscriberAccount
from tidemark.spark.page_parts import Histogram, bar_chart

LATENCY = Latency(3, 900, {"p50": 1500, "p90": 2000, "p99": 2500, "p999": 2500}, 2500)
GOOD = SubscriberAccount("<good>", "trades", "price < 5 & 'x'", matched=3, delivered=3, latency=LATENCY)
BAD = SubscriberAccount(
    "bad", "trades", "", matched=5, delivered=2, lost=1, wrong=2, gaps=1, in_gaps=2,
    keys={"lost": ["desk-1"], "wrong": ["desk-[2]", "desk-3"]}, reasons={"released": (1, 2)},
)  # fmt: skip
CLEAN = AuditReport(
    3, 3, [GOOD], [], LATENCY, Histogram([0.5, 1, 2, 4], [1, 0, 2]), Histogram([0.0, 5e5, 1e6], [2, 1])
)
FAULTY = AuditReport(9, 8, [GOOD, BAD], ["idler"], None, None, None)


def test_counts_have_the_names_of_the_single_process_audit() -> None:
    alone = single.Audit(3, 3, [single.DetailedAccount("x", "t", "")]).as_dict()
    assert alone.keys() <= CLEAN.as_dict().keys()
    assert alone["subscribers"][0].keys() <= CLEAN.as_dict()["subscribers"][0].keys()


def test_a_report_adds_up() -> None:
    found = json.loads(json.dumps(FAULTY.as_dict()))
    assert (found["ok"], found["matched"], found["lost"], found["wrong"]) == (False, 8, 1, 2)
    assert found["reasons"] == {"released": {"gaps": 1, "in_gaps": 2}}
    assert found["subscribers"][0]["latency"]["p50_ms"] == 1.5
    assert found["latency"] is None


def test_gaps_alone_are_no_fault() -> None:
    assert replace(CLEAN, accounts=[SubscriberAccount("s", "t", "", gaps=3, in_gaps=9)]).is_clean


@pytest.mark.parametrize("report", [CLEAN, FAULTY], ids=["clean", "faulty"])
def test_the_page_needs_nothing_else_and_is_well_formed(report: AuditReport) -> None:
    text = page(report)
    assert not any(word in text for word in ("<script", "http:", "https:", "src=", "@import", "url("))
    assert "&lt;good&gt;" in text
    assert "<good>" not in text
    body = text[text.index("<body>") : text.index("</html>")]
    ET.fromstring(body)


def test_the_page_says_what_is_wrong() -> None:
    assert "Exactly once and in order" in page(CLEAN)
    assert "Not exactly once: 1 lost, 2 wrong" in page(FAULTY)
    for found in ("desk-[2]", "released", "idler"):
        assert found in page(FAULTY)
    assert page(CLEAN).count("<svg") == 2
    assert page(FAULTY).count("<svg") == 0


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=80))
def test_a_chart_has_a_bar_for_every_count_and_stays_in_its_frame(counts: list[int]) -> None:
    bars = Histogram([float(at) for at in range(len(counts) + 1)], counts)
    chart = ET.fromstring(bar_chart(bars, str, "a & b"))
    rects = [each for each in chart.iter() if each.tag == "rect"]
    assert len(rects) == sum(count > 0 for count in counts)
    for rect in rects:
        assert float(rect.attrib["y"]) >= 0
        assert float(rect.attrib["x"]) + float(rect.attrib["width"]) <= 640


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A publisher's and a subscriber's ledger."""
    start = {"what": "subscriber", "subscriber": "s", "topic": "t", "where": "", "start": {}}
    write_ledger(tmp_path / "p.publisher.jsonl", [])
    write_ledger(tmp_path / "s.subscriber.jsonl", [start])
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, report: AuditReport, *arguments: str) -> Any:
    """The command without a JVM: this is what the audit finds."""
    monkeypatch.setattr(job, "run", lambda *_: report)
    return CliRunner().invoke(main, ["pipeline", "audit", *arguments], env={"COLUMNS": "200"})


def test_the_command_shows_a_table_and_exits_by_the_verdict(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = run(monkeypatch, CLEAN, "--ledgers", str(directory))
    assert (clean.exit_code, "exactly once and in order" in clean.output) == (0, True)
    faulty = run(monkeypatch, FAULTY, "--ledgers", str(directory))
    assert faulty.exit_code == 1
    for found in (
        "<good>",
        "bad: wrong: desk-[2], desk-3",
        "gaps because released: 1, with 2 events",
        "idler",
    ):
        assert found in faulty.output


def test_the_command_prints_one_object_and_writes_the_page(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    html = directory / "report.html"
    done = run(monkeypatch, FAULTY, "--ledgers", str(directory), "--json", "--html", str(html))
    assert json.loads(done.output) == json.loads(json.dumps(FAULTY.as_dict()))
    assert html.read_text() == page(FAULTY)


def refused(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """What the command says when it comes to no verdict; it must not have started Spark."""
    monkeypatch.setattr("tidemark.spark.engine.session.session", lambda *_: pytest.fail("Spark is started"))
    done = CliRunner().invoke(main, ["pipeline", "audit", *arguments])
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    return done.output


def test_ledgers_that_are_none_are_no_verdict_and_need_no_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "has no ledger of a publisher" in refused(monkeypatch, "--ledgers", str(tmp_path))
    write_ledger(tmp_path / "p.publisher.jsonl", [])
    assert "has no ledger of a subscriber" in refused(monkeypatch, "--ledgers", str(tmp_path))
    write_ledger(tmp_path / "s.subscriber.jsonl", [])
    assert "has a subscription" in refused(monkeypatch, "--ledgers", str(tmp_path))


def test_bad_options_are_refused_before_spark_starts(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "does not exist" in refused(monkeypatch, "--ledgers", str(directory / "no"))
    page_nowhere = ("--html", str(directory / "no" / "x.html"))
    assert "there is no directory" in refused(monkeypatch, "--ledgers", str(directory), *page_nowhere)


def test_a_spark_that_fails_is_one_line_and_no_verdict(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: str) -> None:
        raise PySparkRuntimeError("\n[NO] there is no such master\n  at java.lang.Thread.run\n")

    monkeypatch.setattr("tidemark.spark.engine.session.session", fail)
    done = CliRunner().invoke(main, ["pipeline", "audit", "--ledgers", str(directory), "--master", "moon"])
    assert done.exit_code == 2
    assert done.output == "Error: Spark (moon) cannot do it: [NO] there is no such master\n"


@pytest.mark.spark
def test_the_command_judges_ledgers_in_a_process_of_its_own(tmp_path: Path) -> None:
    witness = WITNESSES["lost"]
    write_ledger(tmp_path / "w.publisher.jsonl", witness.publisher_lines("w"))
    write_ledger(tmp_path / "w.subscriber.jsonl", witness.subscriber_lines("w")["ws0"])
    arguments = [
        "--ledgers",
        str(tmp_path),
        "--html",
        str(tmp_path / "x.html"),
        "--master",
        "local[1]",
        "--json",
    ]
    command = [sys.executable, "-m", "tidemark", "pipeline", "audit", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["ok"], found["lost"], found["subscribers"][0]["keys"]) == (False, 1, {"lost": ["w-2"]})
    assert "Not exactly once: 1 lost" in (tmp_path / "x.html").read_text()
