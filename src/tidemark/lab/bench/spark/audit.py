"""Spark bench, the audit: ledgers of millions of lines with a few faults, and exactly those found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tidemark.lab.bench.report import Section
from tidemark.lab.bench.spark.testbed import SparkTestbed, rate, timed
from tidemark.spark.audit.audit import audit
from tidemark.spark.audit.ledgers import gather
from tidemark.spark.audit.report import AuditReport

#: In the ledger of the first subscriber, one event of this many is missing and one is there twice.
FAULT_EVENTS = 50_000
LOST_AT, TWICE_AT = 17, 29
PRICES = 100
WRITTEN_EVENTS = 20_000


@dataclass(frozen=True, slots=True)
class AuditedSubscriber:
    """A subscriber: its selector, and the same condition as a Python function of the price."""

    name: str
    where: str
    wants: Callable[[int], bool]


SUBSCRIBERS = (
    AuditedSubscriber("all", "", lambda price: price >= 0),
    AuditedSubscriber("half", "price < 50", lambda price: price < 50),
    AuditedSubscriber("quarter", "price < 25 OR price = 1000", lambda price: price < 25),
    AuditedSubscriber("few", "symbol = 'S7' AND price >= 0", lambda price: price == 7),
)


def auditing(testbed: SparkTestbed) -> Iterator[Section]:
    """Yields the section on the audit."""
    events = testbed.effort.events // 2
    directory = testbed.path / "ledgers"
    directory.mkdir()
    lines = write_ledgers(directory, events)
    found: list[AuditReport] = []
    taken = timed(lambda: found.append(audit(testbed.spark, gather(directory))))
    for report in found:
        check(report, events)
    yield Section("audit", rate(f"ledgers of {lines:,} lines", lines, taken, "lines"))


def write_ledgers(directory: Path, events: int) -> int:
    """Write the ledgers of a publisher of `events` events and of SUBSCRIBERS; returns the number of lines."""
    lines = 2 * events
    with (directory / "desk.publisher.jsonl").open("w") as file:
        for first in range(1, events + 1, WRITTEN_EVENTS):
            numbers = range(first, min(first + WRITTEN_EVENTS, events + 1))
            file.writelines(_published(number) for number in numbers)
    for subscriber in SUBSCRIBERS:
        with (directory / f"{subscriber.name}.subscriber.jsonl").open("w") as file:
            file.write(
                f'{{"what": "subscriber", "subscriber": "{subscriber.name}", "topic": "trades.>", '
                f'"where": "{subscriber.where}", "durable": true, "start": {{"main": 0}}}}\n'
            )
            lines += 1
            for number in range(1, events + 1):
                times = _times(subscriber, number)
                lines += times
                if times:
                    file.write(times * _delivered(number, subscriber.name))
    return lines


def check(report: AuditReport, events: int) -> None:
    """Raise AssertionError unless the audit found exactly the faults that were written."""
    matched = sum(
        subscriber.wants(_price(number)) for subscriber in SUBSCRIBERS for number in range(1, events + 1)
    )
    lost = sum(number % FAULT_EVENTS == LOST_AT for number in range(1, events + 1))
    twice = sum(number % FAULT_EVENTS == TWICE_AT for number in range(1, events + 1))
    expected = {"matched": matched, "delivered": matched - lost, "lost": lost, "duplicated": twice}
    expected |= {"out_of_order": 0, "wrong": 0, "gaps": 0, "in_gaps": 0}
    found = {name: report.total(name) for name in expected}
    assert found == expected, f"audit: found {found}, expected {expected}"
    assert report.published == report.acknowledged == events, f"audit: {report.published} published"


def _times(subscriber: AuditedSubscriber, number: int) -> int:
    """Returns how often an event is in the ledger of a subscriber."""
    if not subscriber.wants(_price(number)):
        return 0
    if subscriber.name != "all":
        return 1
    return {LOST_AT: 0, TWICE_AT: 2}.get(number % FAULT_EVENTS, 1)


def _price(number: int) -> int:
    return number * 37 % PRICES


def _fields(number: int) -> str:
    price = _price(number)
    return f'{{"symbol": "S{price}", "price": {price}.0, "qty": {number % 1000}}}'


def _published(number: int) -> str:
    """Returns the two lines of an event: about to be published, and acknowledged."""
    who = f'"publisher": "desk", "sequence": {number}, "key": "desk-{number}"'
    return (
        f'{{"what": "publish", {who}, "pubend": "main", "topic": "trades.equity", '
        f'"fields": {_fields(number)}, "time": {number * 100}}}\n'
        f'{{"what": "outcome", {who}, "outcome": "acked", "tick": {number * 10}}}\n'
    )


def _delivered(number: int, subscriber: str) -> str:
    return (
        f'{{"what": "event", "subscriber": "{subscriber}", "pubend": "main", "tick": {number * 10}, '
        f'"key": "desk-{number}", "topic": "trades.equity", "fields": {_fields(number)}, '
        f'"time": {number * 100 + 500 + number % 997}}}\n'
    )
