"""The audit on Spark: were all events delivered exactly once and in order, by ledgers of any size?

It comes to the verdict of the single-process audit (docs/proof.md), which reads all ledgers into memory. The
queries are in `plan`, as text; this module runs them. The driver holds one row for each subscriber, and the
report.

    run(Path("run-7"))                    # a session of its own
    audit(spark, gather(Path("run-7")))   # a session of yours
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.errors import UnknownFormatError
from tidemark.message.types import Path as FieldPath
from tidemark.spark.audit import ledger_lines, ledgers
from tidemark.spark.audit import plan as audit_plan
from tidemark.spark.audit.ledgers import LedgerFile, LedgerPart, LedgerSet, LedgerSubscription
from tidemark.spark.audit.report import PERCENTILES, AuditReport, Latency, SubscriberAccount
from tidemark.spark.audit.selectors import (
    SeenFields,
    SelectorGroup,
    decide,
    paths,
    selector_groups,
    translated,
)
from tidemark.spark.engine.tasks import frame_of_tasks
from tidemark.spark.page_parts import Histogram

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


#: About how much of the ledgers a task gets after a shuffle.
SHUFFLED_BYTES = 64 << 20
#: Rows that a window holds in memory, of all that one subscriber has of one pubend. With Spark's own bound,
#: and with intermediate results in memory instead of on disk, a JVM of 1 GB could not audit five million
#: lines.
WINDOW_ROWS_MAX = 250_000
_PARTITIONS = "spark.sql.shuffle.partitions"
_WINDOW = "spark.sql.windowExec.buffer.spill.threshold"


def run(directory: Path, master: str = "local[*]") -> AuditReport:
    """The audit of all ledgers in a directory. Raises TidemarkError if it cannot come to a verdict."""
    from tidemark.spark.engine.session import quiet_session

    gathered = ledgers.gather(directory)
    with quiet_session("tidemark audit", master) as spark:
        return audit(spark, gathered)


def audit(spark: SparkSession, gathered: LedgerSet) -> AuditReport:
    """The audit of the ledgers that `ledgers.gather` found.

    An event that is still under way counts as lost, so publishers and subscribers should be idle first.
    """
    size_bytes = sum(
        part.size_bytes
        for ledger in (*gathered.publishers, *gathered.subscribers)
        for part in ledgers.parts(ledger)
    )
    with _settings(spark, -(-size_bytes // SHUFFLED_BYTES)):
        one = _AuditRun(spark, gathered.subscriptions)
        one.read(gathered.publishers, gathered.subscribers)
        return one.report(gathered.idle)


@contextmanager
def _settings(spark: SparkSession, partitions_min: int) -> Iterator[None]:
    """Set what the session needs for ledgers of this size, for a `with` block."""
    before = {name: spark.conf.get(name) for name in (_PARTITIONS, _WINDOW)}
    # Spark itself reduces the number of partitions where there is less to do, but never raises it.
    spark.conf.set(_PARTITIONS, max(int(before[_PARTITIONS] or 0), partitions_min))
    spark.conf.set(_WINDOW, WINDOW_ROWS_MAX)
    try:
        yield
    finally:
        for name, value in before.items():
            assert value is not None
            spark.conf.set(name, value)


class _AuditRun:
    """One audit. Tables that several queries read are computed once and checkpointed on the executors' disks.

    `persist` would not help where a query has the same table twice: Spark then gives new columns to what
    comes from Python, does not recognise the table, and computes it again. The checkpoints are on disk, since
    sorting needs all the memory there is.
    """

    def __init__(self, spark: SparkSession, subscriptions: Sequence[LedgerSubscription]) -> None:
        self._spark = spark
        self._subscriptions = subscriptions
        self._groups = selector_groups(subscriptions)

    def read(self, publishers: Sequence[LedgerFile], subscribers: Sequence[LedgerFile]) -> None:
        """Read the ledgers and find out what became of each event."""
        named = paths(self._groups)
        written = _checkpointed(self._lines(publishers, named))
        seen = self._value_types(written, publishers, named)
        self._received = _checkpointed(self._lines(subscribers, ()))
        self._value_types(self._received, subscribers, ())
        lines = self._matched(written.where(audit_plan.OF_PUBLISHERS), SeenFields(seen))
        logged = self._sql(
            audit_plan.LOGGED,
            published=self._sql(audit_plan.PUBLISHED, lines=lines),
            delivered=self._sql(audit_plan.DELIVERED, lines=self._received),
            last_acked=self._sql(audit_plan.LAST_ACKED, lines=written.where(audit_plan.OF_PUBLISHERS)),
        )
        bounded = self._sql(audit_plan.BOUNDED, logged=logged)
        expected = audit_plan.expected(self._groups, self._subscriptions)
        self._due = _checkpointed(bounded.selectExpr("*", f"{expected} AS expected").drop("matched"))
        self._ordered = _checkpointed(self._compared())

    def _compared(self) -> DataFrame:
        subscribed = audit_plan.subscribed(self._subscriptions)
        query = audit_plan.COMPARED.replace("{subscribed}", subscribed)
        compared = self._sql(query, lines=self._received, due=self._due)
        judged = self._sql(audit_plan.JUDGED, compared=compared.mapInArrow(_settled, _SETTLED))
        return self._sql(audit_plan.ORDERED, judged=judged)

    def _lines(self, of: Sequence[LedgerFile], named: Sequence[FieldPath]) -> DataFrame:
        """The lines of ledgers as rows; each task reads its own parts."""
        parts = [part for ledger in of for part in ledgers.parts(ledger)]
        shares = ledgers.packed(parts)
        schema = ", ".join(f"{name} {type_}" for name, type_ in ledger_lines.columns(named).items())
        read = _PartReader(shares, named)
        return frame_of_tasks(self._spark, len(shares), read, schema)

    def _value_types(
        self, lines: DataFrame, of: Sequence[LedgerFile], named: Sequence[FieldPath]
    ) -> dict[FieldPath, list[str]]:
        """field -> the types of its values. Raises UnknownFormatError if a line cannot be read."""
        row = self._sql(audit_plan.value_types(named), lines=lines).collect()[0]
        if row["broken"] is not None:
            path = of[row["broken"]["ledger"]].path
            reason = f"{row['broken']['reason']} (in the line at {row['broken']['at']})"
            raise UnknownFormatError(reason, path=str(path))
        return {
            path: [
                kind for kind in ledger_lines.VALUE_COLUMNS if row[ledger_lines.value_column(number, kind)]
            ]
            for number, path in enumerate(named)
        }

    def _matched(self, lines: DataFrame, fields: SeenFields) -> DataFrame:
        """The lines, with the numbers of the selector groups that each publication matches."""
        sql = {group.number: translated(group, fields) for group in self._groups}
        exact = {number: condition for number, condition in sql.items() if condition is not None}
        found = lines.selectExpr(*ledger_lines.COLUMNS, f"{audit_plan.matched(exact)} AS matched")
        left = [group for group in self._groups if group.number not in exact]
        if not left:
            return found
        schema = ", ".join(f"{name} {type_}" for name, type_ in ledger_lines.COLUMNS.items())
        decided = found.mapInArrow(
            _SelectorEvaluator(left), f"{schema}, matched array<int>, decided array<int>"
        )
        return decided.selectExpr(*ledger_lines.COLUMNS, "concat(matched, decided) AS matched")

    def report(self, idle: list[str]) -> AuditReport:
        """Run the queries that count, and make the report; `idle` are subscribers that never subscribed.

        Raises ConfigError if an event is acknowledged that no ledger says was to be published.
        """
        totals = self._sql(audit_plan.TOTALS, due=self._due).collect()[0]
        if totals["unpublished"] is not None:
            raise ledgers.unpublished(totals["unpublished"])
        missing = self._sql(audit_plan.MISSING, due=self._due, ordered=self._ordered)
        lost = self._sql(audit_plan.LOST, lines=self._received, missing=missing)
        accounts = {
            each.ledger: SubscriberAccount(each.subscriber, each.topic, each.where)
            for each in self._subscriptions
        }
        summary = {
            row["ledger"]: row for row in self._sql(audit_plan.SUMMARY, ordered=self._ordered).collect()
        }
        for ledger, account in accounts.items():
            _count_events(account, summary.get(ledger))
        self._count_gaps(accounts, lost)
        if not all(account.is_clean for account in accounts.values()):
            for row in self._sql(audit_plan.FAULT_KEYS, ordered=self._ordered, lost=lost).collect():
                accounts[row["ledger"]].keys.setdefault(row["fault"], []).append(row["key"])
        everything = summary.get(None)
        latency = _latency(everything)
        return AuditReport(
            published=totals["published"],
            acknowledged=totals["acknowledged"],
            accounts=list(accounts.values()),
            idle=idle,
            latency=latency,
            latencies=None if latency is None else self._latencies(),
            deliveries=self._deliveries(everything),
        )

    def _count_gaps(self, accounts: dict[int, SubscriberAccount], lost: DataFrame) -> None:
        for row in self._sql(audit_plan.GAPS_BY_REASON, lines=self._received).collect():
            if (account := accounts.get(row["ledger"])) is not None:
                account.gaps += row["gaps"]
                account.reasons[row["reason"]] = row["gaps"], 0
        for row in self._sql(audit_plan.MISSING_BY_REASON, lost=lost).collect():
            account = accounts[row["ledger"]]
            account.matched += row["events"]
            if row["reason"] is None:
                account.lost += row["events"]
            else:
                account.in_gaps += row["events"]
                account.reasons[row["reason"]] = account.reasons[row["reason"]][0], row["events"]

    def _latencies(self) -> Histogram:
        rows = self._sql(audit_plan.LATENCY_BARS, ordered=self._ordered).collect()
        counts = {row["bar"]: row["events"] for row in rows}
        bars = range(min(counts), max(counts) + 1)
        edges = [2 ** (bar / audit_plan.BARS_A_DOUBLING) / 1e3 for bar in (*bars, bars.stop)]
        return Histogram(edges, [counts.get(bar, 0) for bar in bars])

    def _deliveries(self, everything: Any) -> Histogram | None:
        if everything is None or everything["first_tick"] is None:
            return None
        column = "tick" if everything["first_time"] is None else "time"
        base, upto = everything[f"first_{column}"], everything[f"last_{column}"]
        query = audit_plan.delivery_bars(column, base, upto)
        counts = {row["bar"]: row["events"] for row in self._sql(query, ordered=self._ordered).collect()}
        bars = range(audit_plan.DELIVERY_BARS)
        edges = [base + (upto - base) * bar / len(bars) for bar in (*bars, bars.stop)]
        return Histogram(edges, [counts.get(bar, 0) for bar in bars])

    def _sql(self, query: str, **tables: DataFrame) -> DataFrame:
        return self._spark.sql(query, **tables)


class _PartReader:
    """Run by tasks: the lines of the ledger parts that belong to the task of a number."""

    def __init__(self, shares: list[list[LedgerPart]], named: Sequence[FieldPath]) -> None:
        self._shares = shares
        self._named = named

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        return ledger_lines.read(self._shares[number], self._named)


class _SelectorEvaluator:
    """Run by tasks: decides with the reference evaluator for selectors that have no exact Spark SQL."""

    def __init__(self, left: list[SelectorGroup]) -> None:
        self._left = left

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return decide(batches, self._left, "decided")


_SETTLED = (
    "ledger int, at bigint, key string, pubend string, tick bigint, time bigint, publisher string, "
    "sequence bigint, published_time bigint, is_right boolean"
)


def _settled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run by tasks: decide whether the fields that arrived are those that were published."""
    return map(ledger_lines.settled, batches)


def _checkpointed(frame: DataFrame) -> DataFrame:
    from pyspark.storagelevel import StorageLevel

    return frame.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)


def _count_events(account: SubscriberAccount, row: Any) -> None:
    """Put the counts of a subscriber's ledger into its account; `row` is None if it has no event."""
    if row is None:
        return
    account.matched = account.delivered = row["delivered"]
    account.duplicated, account.wrong = row["duplicated"], row["wrong"]
    account.out_of_order = row["out_of_order"]
    account.latency = _latency(row)


def _latency(row: Any) -> Latency | None:
    if row is None or not row["latencies"]:
        return None
    percentiles = dict(zip(PERCENTILES, row["percentiles"], strict=True))
    return Latency(row["latencies"], row["least"], percentiles, row["most"])
