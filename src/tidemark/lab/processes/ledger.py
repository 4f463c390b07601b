"""Reading the ledgers of publishers and subscribers, and the audit in one process that compares them.

Publishers and subscribers are processes that may be killed at any moment. The audit trusts nothing but their
ledgers: every event that was acknowledged to a publisher and matches a subscriber's selector, by the
reference evaluator, must be in that subscriber's ledger exactly once and in order, or in a gap that the
subscriber was told of. docs/proof.md defines the lines of a ledger, so that other programs can compute the
same sums.

`tidemark.spark.audit.audit` does the same on ledgers of any size. Both follow docs/proof.md, share what is
counted and when two values are equal, and a test compares their results. This audit reads all ledgers into
memory and names every event, which suits small ledgers and debugging.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.parser import parse
from tidemark.matching.topics import TopicPattern
from tidemark.spark.audit.ledger_lines import decoded, lookup
from tidemark.spark.audit.ledgers import SQLITE, unpublished
from tidemark.spark.audit.report import COUNTS, FAULTS, KEYS_SHOWN_MAX, AuditReport, SubscriberAccount
from tidemark.ticks.tick import TICK_MAX, TICK_MIN

Line = dict[str, Any]

ACKED = "acked"
UNKNOWN = "unknown"


def read(path: Path) -> Iterator[Line]:
    """Yields the lines of a ledger in order; an incomplete last line, which a crash cut short, is ignored."""
    if path.suffix == SQLITE:
        with closing(sqlite3.connect(path)) as database:
            for (text,) in database.execute("SELECT line FROM ledger ORDER BY n"):
                yield decoded(text)
        return
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield decoded(line.decode())


def export(path: Path, to: Path) -> None:
    """Write a ledger, SQLite or not, as a file of JSON lines."""
    with to.open("w") as file:
        for line in read(path):
            file.write(json.dumps(line) + "\n")


@dataclass(slots=True)
class Publication:
    """An event that a publisher was about to publish, and its outcome."""

    key: str
    publisher: str
    sequence: int
    pubend: str
    topic: str
    fields: Line
    is_acked: bool = False
    #: None when neither an acknowledgement nor a delivery tells it
    tick: int | None = None
    #: the event lies in `(after, upto]`, by its own tick or by those of its publisher's events around it
    after: int = TICK_MIN
    upto: int = TICK_MAX


@dataclass(slots=True)
class DetailedAccount:
    """The audit of one subscriber, with the keys of all faulty events."""

    subscriber: str
    topic: str
    where: str
    #: logged events that the subscriber should get
    matched: int = 0
    #: events in its ledger that it should get, each counted once
    delivered: int = 0
    #: keys of events that it should get and that are neither in its ledger nor in a gap
    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    #: keys of events that were never published, were altered, do not match, or precede its start
    wrong: list[str] = field(default_factory=list)
    #: gaps that the subscriber was told of, and matched events that lie in them
    gaps: int = 0
    in_gaps: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether there is no fault. A gap is none: the subscriber was told of it."""
        return not any(getattr(self, fault) for fault in FAULTS)

    def summary(self) -> SubscriberAccount:
        """Returns the account in numbers, with at most KEYS_SHOWN_MAX keys of each fault."""
        found = SubscriberAccount(self.subscriber, self.topic, self.where)
        for name in COUNTS:
            setattr(found, name, _count(getattr(self, name)))
        for fault in FAULTS:
            if keys := getattr(self, fault):
                found.keys[fault] = keys[:KEYS_SHOWN_MAX]
        return found


@dataclass(slots=True)
class Audit:
    """The result of an audit over all publishers and subscribers."""

    published: int
    acknowledged: int
    accounts: list[DetailedAccount]

    @property
    def is_clean(self) -> bool:
        """Whether every subscriber's account is clean."""
        return all(account.is_clean for account in self.accounts)

    def total(self, what: str) -> int:
        """Sums one count, or the length of one list, over all subscribers."""
        return sum(_count(getattr(account, what)) for account in self.accounts)

    def report(self) -> AuditReport:
        """Returns the result in the form of the audit on Spark, without latency and reasons of gaps."""
        accounts = [account.summary() for account in self.accounts]
        return AuditReport(self.published, self.acknowledged, accounts, [], None, None, None)

    def as_dict(self) -> Line:
        """Returns the result as values that JSON can express."""
        return self.report().as_dict()


def audit(publishers: Iterable[Path], subscribers: Iterable[Path]) -> Audit:
    """Compare the ledgers. Call this when every process has finished: events under way count as lost."""
    publications = read_publishers(publishers)
    received = [list(read(path)) for path in subscribers]
    _learn_ticks(publications, received)
    return Audit(
        published=len(publications),
        acknowledged=sum(each.is_acked for each in publications.values()),
        accounts=[account for lines in received if (account := _account(lines, publications)) is not None],
    )


def read_publishers(paths: Iterable[Path]) -> dict[str, Publication]:
    """Returns key -> publication, in the order of each ledger."""
    found: dict[str, Publication] = {}
    for path in paths:
        found |= _read_publisher(path)
    last: dict[str, int] = {}
    for each in found.values():
        if each.is_acked:
            last[each.publisher] = max(each.sequence, last.get(each.publisher, 0))
    for each in found.values():
        # Sequence numbers have no holes, so an acknowledgement covers all numbers before it.
        each.is_acked = each.sequence <= last.get(each.publisher, 0)
    return found


def _read_publisher(path: Path) -> dict[str, Publication]:
    found: dict[str, Publication] = {}
    for line in read(path):
        if line["what"] == "publish":
            names = ("key", "publisher", "sequence", "pubend", "topic", "fields")
            found[line["key"]] = Publication(*(line[name] for name in names))
        elif line["outcome"] == ACKED:
            if line["key"] not in found:
                raise unpublished(line["key"])
            found[line["key"]].is_acked = True
            found[line["key"]].tick = line["tick"]
    return found


def _learn_ticks(publications: dict[str, Publication], received: Iterable[list[Line]]) -> None:
    """Take ticks of publications from deliveries, which prove that an event is logged, and bound the rest."""
    for lines in received:
        for line in lines:
            if line["what"] == "event" and (known := publications.get(line["key"])) is not None:
                known.is_acked = True
                known.tick = line["tick"] if known.tick is None else known.tick
    last: dict[tuple[str, str], int] = {}
    following: dict[tuple[str, str], int] = {}
    for each in publications.values():
        whose = each.publisher, each.pubend
        each.after = last.get(whose, TICK_MIN) if each.tick is None else each.tick - 1
        last[whose] = each.after if each.tick is None else each.tick
    for each in reversed(publications.values()):
        whose = each.publisher, each.pubend
        each.upto = following.get(whose, TICK_MAX) if each.tick is None else each.tick
        following[whose] = each.upto - 1


def _account(lines: list[Line], publications: Mapping[str, Publication]) -> DetailedAccount | None:
    """Returns the account of one subscriber, or None if its ledger has no start of a subscription."""
    opened = next((line for line in lines if line["what"] == "subscriber"), None)
    if opened is None:
        return None
    account = DetailedAccount(opened["subscriber"], opened["topic"], opened["where"])
    expected = _expected(opened, publications)
    gaps = [line for line in lines if line["what"] == "gap"]
    got = _check_events(account, lines, expected, publications)
    missing = [each for key, each in expected.items() if each.is_acked and key not in got]
    account.matched = len(got) + len(missing)
    account.delivered = len(got)
    account.gaps = len(gaps)
    account.lost = [each.key for each in missing if not _in_gap(each, gaps)]
    account.in_gaps = len(missing) - len(account.lost)
    return account


def _expected(opened: Line, publications: Mapping[str, Publication]) -> dict[str, Publication]:
    """Returns the publications that match a subscription and lie after its start."""
    tree, pattern = parse(opened["where"]), TopicPattern.parse(opened["topic"])
    start: dict[str, int] = opened["start"]
    return {
        key: each
        for key, each in publications.items()
        if each.upto > start.get(each.pubend, TICK_MIN)
        and pattern.matches(each.topic)
        and evaluate(tree, lambda path, each=each: lookup(each.fields, path)) is True  # type: ignore[misc]
    }


def _check_events(
    account: DetailedAccount,
    lines: Iterable[Line],
    expected: Mapping[str, Publication],
    publications: Mapping[str, Publication],
) -> set[str]:
    """Add the faulty events of a ledger to its account; returns the keys of the right ones."""
    got: set[str] = set()
    ticks: dict[str, int] = {}
    sequences: dict[tuple[str, str], int] = {}
    for line in lines:
        if line["what"] != "event":
            continue
        key, pubend, tick = line["key"], line["pubend"], line["tick"]
        if key in got:
            account.duplicated.append(key)
            continue
        published = publications.get(key)
        if published is None or key not in expected or not _is_same(line, published):
            account.wrong.append(key)
            continue
        whose = published.publisher, pubend
        if tick <= ticks.get(pubend, tick - 1) or published.sequence <= sequences.get(whose, 0):
            account.out_of_order.append(key)
        got.add(key)
        ticks[pubend] = max(tick, ticks.get(pubend, tick))
        sequences[whose] = max(published.sequence, sequences.get(whose, 0))
    return got


def _is_same(line: Line, published: Publication) -> bool:
    """Whether a delivered event equals its publication, at the acknowledged tick."""
    return (line["topic"], line["pubend"], line["tick"], line["fields"]) == (
        published.topic,
        published.pubend,
        published.tick,
        published.fields,
    )


def _in_gap(each: Publication, gaps: Iterable[Line]) -> bool:
    """Whether one gap covers the whole range in which the event can lie."""
    return any(
        gap["pubend"] == each.pubend and gap["base"] <= each.after and each.upto <= gap["upto"]
        for gap in gaps
    )


def _count(value: int | list[str]) -> int:
    return value if isinstance(value, int) else len(value)
