"""The audit on Spark says what the single-process audit says, of ledgers with every kind of fault."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.spark.audit.ledger_samples import Case, make_cases, witnesses_by_name, write, write_ledger
from tests.spark.audit.ledger_witnesses import WITNESSES
from tests.spark.manual import MANUAL, programs
from tidemark.errors import ConfigError, UnknownFormatError
from tidemark.lab.processes import ledger as single
from tidemark.spark.audit.audit import audit
from tidemark.spark.audit.ledgers import gather
from tidemark.spark.audit.report import COUNTS, FAULTS, KEYS_SHOWN_MAX, AuditReport

pytestmark = pytest.mark.spark

CASES = 40


def judged_alone(cases: list[Case], directory: Path) -> single.Audit:
    """The verdict of the single-process audit, which wants files of JSON lines."""
    directory.mkdir()
    publishers = [
        write_ledger(directory / f"{name}.publisher.jsonl", lines)
        for case in cases
        for name, lines in case.publishers.items()
    ]
    subscribers = [
        write_ledger(directory / f"{name}.subscriber.jsonl", lines)
        for case in cases
        for name, lines in case.subscribers.items()
    ]
    return single.audit(sorted(publishers), sorted(subscribers))


def counted(account: Any) -> dict[str, Any]:
    counts = {name: getattr(account, name) for name in COUNTS}
    found = {name: len(value) if isinstance(value, list) else value for name, value in counts.items()}
    return {"subscriber": account.subscriber, "where": account.where} | found


@pytest.fixture(scope="module")
def verdicts(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[AuditReport, single.Audit]:
    """Many worlds in one directory, told apart by their topics: one run of Spark judges them all."""
    directory = tmp_path_factory.mktemp("ledgers")
    random = Random(7)
    cases = make_cases(CASES, random)
    for case in cases:
        write(case, directory, random)
    return audit(spark, gather(directory)), judged_alone(cases, directory / "alone")


def test_both_audits_count_the_same_of_every_subscriber(verdicts: tuple[AuditReport, single.Audit]) -> None:
    report, alone = verdicts
    assert (report.published, report.acknowledged) == (alone.published, alone.acknowledged)
    assert [counted(each) for each in report.accounts] == [counted(each) for each in alone.accounts]
    assert all(alone.total(name) > 5 for name in COUNTS), "the sample has some of everything"
    assert report.idle


def test_the_audit_judges_each_witness_as_a_person_does(verdicts: tuple[AuditReport, single.Audit]) -> None:
    accounts = {account.subscriber: account for account in verdicts[0].accounts}
    for name, witness in witnesses_by_name().items():
        account = accounts[f"{name}s{len(witness.got) - 1}"]
        assert (account.keys, account.in_gaps) == (witness.faults(name), witness.in_gaps), witness


def test_both_audits_name_the_same_events(verdicts: tuple[AuditReport, single.Audit]) -> None:
    report, alone = verdicts
    for mine, theirs in zip(report.accounts, alone.accounts, strict=True):
        for fault in FAULTS:
            named, all_of_them = mine.keys.get(fault, []), getattr(theirs, fault)
            assert len(named) == min(len(all_of_them), KEYS_SHOWN_MAX)
            assert set(named) <= set(all_of_them)


def test_gaps_are_counted_by_reason(verdicts: tuple[AuditReport, single.Audit]) -> None:
    report, alone = verdicts
    reasons = report.reasons()
    assert reasons.keys() == {"lost", "away"}
    assert sum(gaps for gaps, _ in reasons.values()) == alone.total("gaps")
    assert sum(events for _, events in reasons.values()) == alone.total("in_gaps")


def test_latency_is_from_line_to_line(verdicts: tuple[AuditReport, single.Audit]) -> None:
    report, _ = verdicts
    assert report.latency is not None
    assert report.latencies is not None
    assert report.deliveries is not None
    assert 50 <= report.latency.least <= report.latency.percentiles["p50"] <= report.latency.most <= 5000
    assert report.latency.events == report.total("delivered")
    assert sum(report.latencies.counts) == sum(report.deliveries.counts) == report.latency.events
    assert report.latencies.edges[0] <= report.latency.least / 1e3
    assert report.latency.most / 1e3 <= report.latencies.edges[-1]


OPENED = {"what": "subscriber", "subscriber": "s", "topic": "t", "where": "", "start": {}}
ACKED = {"what": "outcome", "publisher": "p", "sequence": 1, "key": "p-1", "outcome": "acked", "tick": 7}


def test_ledgers_in_which_nothing_happened_are_clean(spark: Any, tmp_path: Path) -> None:
    write_ledger(tmp_path / "p.publisher.jsonl", [])
    write_ledger(tmp_path / "s.subscriber.jsonl", [OPENED])
    report = audit(spark, gather(tmp_path))
    assert report.is_clean
    assert (report.published, report.deliveries, report.latency) == (0, None, None)


def test_the_program_of_the_manual_runs(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del spark
    witness = WITNESSES["lost"]
    (tmp_path / "ledgers").mkdir()
    write_ledger(tmp_path / "ledgers" / "w.publisher.jsonl", witness.publisher_lines("w"))
    write_ledger(tmp_path / "ledgers" / "w.subscriber.jsonl", witness.subscriber_lines("w")["ws0"])
    (program,) = programs("The audit")
    exec(compile(program.replace("/tmp/demo", str(tmp_path)), str(MANUAL), "exec"), {})
    assert capsys.readouterr().out.startswith("False 1 Latency(")
    assert "1 lost" in (tmp_path / "audit.html").read_text()


def test_a_line_that_cannot_be_read_is_one_clear_error(spark: Any, tmp_path: Path) -> None:
    write_ledger(tmp_path / "p.publisher.jsonl", [])
    write_ledger(tmp_path / "s.subscriber.jsonl", [OPENED, {"what": "event", "key": "k"}])
    with pytest.raises(
        UnknownFormatError, match=r"s\.subscriber\.jsonl: .*without `pubend` \(in the line at"
    ):
        audit(spark, gather(tmp_path))


def test_an_acknowledgement_of_nothing_is_an_error(spark: Any, tmp_path: Path) -> None:
    write_ledger(tmp_path / "p.publisher.jsonl", [ACKED])
    write_ledger(tmp_path / "s.subscriber.jsonl", [OPENED])
    with pytest.raises(ConfigError, match="'p-1' is acknowledged, but no line says"):
        audit(spark, gather(tmp_path))
