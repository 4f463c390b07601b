"""What the chaos tests share: how a broker is started, and what is expected of the ledgers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.ports import free_ports
from tidemark.lab.processes.ledger import Audit
from tidemark.lab.processes.process_harness import ManagedBroker, ManagedProcess, ProcessHarness, wait_for
from tidemark.spark.audit.audit import audit
from tidemark.spark.audit.ledgers import gather

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def started(harness: ProcessHarness, **settings: str) -> ManagedBroker:
    """A broker process that listens, at one port in all its lives."""
    broker = harness.broker(**{"broker__listen": f"127.0.0.1:{free_ports(1)[0]}", **settings})
    broker.start()
    return broker


def both_gave_up(times: int, *parts: ManagedProcess) -> None:
    """Wait until each process has found `times` times that the broker does not answer."""

    def gave_up() -> bool:
        return all(part.log.read_text().count("has not answered for") >= times for part in parts)

    wait_for(gave_up, lambda: f"somebody waits for ever: {[part.last_line for part in parts]}")


def assert_exact(found: Audit, published: int) -> None:
    """All events were acknowledged; every subscriber got those that match it once, in order, without gaps."""
    assert (found.published, found.acknowledged) == (published, published)
    assert found.is_clean, found.as_dict()
    assert found.total("gaps") == 0
    assert all(account.delivered == account.matched > 0 for account in found.accounts)


def assert_audit_is_exact(spark: SparkSession, ledgers: Path, published: int) -> None:
    """As `assert_exact`, of all ledgers in a directory, by the audit on Spark."""
    found = audit(spark, gather(ledgers)).as_dict()
    assert found["ok"], found
    assert (found["published"], found["acknowledged"], found["gaps"]) == (published, published, 0)
    assert found["idle"] == []
    assert all(each["delivered"] == each["matched"] > 0 for each in found["subscribers"]), found
