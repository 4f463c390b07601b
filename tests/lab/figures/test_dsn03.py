"""Latency over hops and caches while many catch up: what DSN'03 says in passing, in small worlds."""

from __future__ import annotations

import pytest

from tidemark.lab.figures.dsn03 import caches, hops, real_hops
from tidemark.lab.figures.table import Table

pytestmark = pytest.mark.slow


def quiet(_: str) -> None:
    pass


def named(tables: list[Table]) -> dict[str, Table]:
    return {table.name: table for table in tables}


def test_an_event_is_logged_once_and_each_hop_adds_its_link() -> None:
    tables = named(list(hops.measure(True, quiet)))
    assert {*tables["latencies"].numbers("hops")} == {0, 1, 2, 3, 4, 5}
    assert all(finding.holds for finding in hops.FIGURE.compare(tables))
    assert hops.FIGURE.draw(tables)


def test_on_real_processes_each_event_is_noted_behind_every_hop_and_when_it_is_acknowledged() -> None:
    tables = named(list(real_hops.measure(True, quiet)))
    effort = real_hops.QUICK
    events = effort.events_a_second * effort.seconds
    counted = {hops: len(tables["latencies"].where(hops=hops).rows) for hops in range(6)}
    assert counted == dict.fromkeys(range(6), events)
    assert (len(tables["logging"].rows), len(tables["syncs"].rows)) == (events, 2 * effort.syncs)
    assert [each.paper for each in real_hops.FIGURE.compare(tables)]
    assert real_hops.FIGURE.draw(tables)


def test_caches_answer_for_the_broker_of_the_pubend() -> None:
    tables = named(list(caches.measure(True, quiet)))
    findings = caches.FIGURE.compare(tables)
    assert [finding.holds for finding in (findings[0], findings[1], findings[3])] == [True, True, True]
    assert caches.FIGURE.draw(tables)
