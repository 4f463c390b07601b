"""The experiments of DSN'02 and DSN'03, small: what the protocol does shows in their tables."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tidemark.broker.overlay.routing import Routing
from tidemark.lab.figures import idle
from tidemark.lab.figures.dsn02 import figures as dsn02
from tidemark.lab.figures.dsn02 import overhead
from tidemark.lab.figures.dsn02.overlay import HOSTS, PUBENDS, RELAYS, SimulatedFailures, layout_of
from tidemark.lab.figures.dsn03 import figures as dsn03
from tidemark.lab.figures.dsn03 import simulated as dsn03_simulated
from tidemark.lab.figures.experiment import Figure, Tables
from tidemark.lab.figures.table import Table


def by_name(tables: Sequence[Table]) -> Tables:
    return {table.name: table for table in tables}


def held(figure: Figure, tables: Tables) -> list[bool | None]:
    return [finding.holds for finding in figure.compare(tables)]


def quiet(_: str) -> None:
    pass


def test_who_was_away_catches_up_and_holds_release_and_nothing_else() -> None:
    tables = by_name(dsn03_simulated.coming_and_going(True, quiet))
    catches_up, takes_as_long = held(dsn03.FIGURE_5, tables)
    assert catches_up
    assert not takes_as_long
    assert held(dsn03.FIGURE_6, tables) == [True, True, True]


def test_after_a_crash_delivery_goes_on_where_it_was_and_release_waits_for_the_subscribers() -> None:
    tables = by_name(dsn03_simulated.crash(True, quiet))
    # Releases are reported once a second: too coarse for how far they were held back in so short a run.
    still, _, steeper, _, released, _ = held(dsn03.FIGURE_7, tables)
    assert (still, steeper, released) == (True, True, True)
    assert len(tables[dsn03.RETURNS].rows) == dsn03_simulated.CRASH_QUICK.subscribers


def one_relay() -> SimulatedFailures:
    return SimulatedFailures(layout_of(("b1",)), 40)


def two_relays() -> SimulatedFailures:
    return SimulatedFailures(layout_of(), 40)


def ways(pubend: str) -> set[str]:
    """The relays that a pubend comes through, to any host."""
    layout = layout_of(pubends=[pubend])
    up = frozenset(frozenset(link) for link in layout.all_links())
    doors = [Routing(layout, "p1").door(pubend, cell, up) for cell in ("relays", *HOSTS)]
    return {end for door in doors if door is not None for end in door if end in RELAYS}


def test_two_pubends_of_the_papers_overlay_come_through_each_relay() -> None:
    assert [ways(pubend) for pubend in PUBENDS] == [{"b1"}, {"b1"}, {"b2"}, {"b2"}]


def test_when_a_link_fails_its_host_asks_on_the_other_and_nobody_else_notices() -> None:
    effort = dsn02.PhaseDurations(40, before=1, stalled=1, down=2, after=2)
    tables = by_name(dsn02.link_fails(two_relays(), effort))
    assert held(dsn02.FIGURE_6, tables) == [True, True, True, True]


@pytest.mark.slow
def test_when_a_relay_crashes_the_other_asks_once_for_what_all_hosts_lost() -> None:
    effort = dsn02.PhaseDurations(40, before=1, stalled=2.75, down=4, after=2)
    tables = by_name(dsn02.relay_crashes(two_relays(), effort))
    assert held(dsn02.FIGURE_7, tables)[:4] == [True, True, True, True]
    rates = dsn02.rates_table()
    dsn02.add_rate(rates, effort, list(tables.values()))
    assert held(dsn02.FIGURE_7_RATES, {dsn02.RATES: rates}) == [True, True]
    nacks = tables["nacks"]
    nacks.rows += nacks.where(broker="b2").rows
    assert held(dsn02.FIGURE_7, tables)[2] is False  # had it asked twice


@pytest.mark.slow
def test_nacks_are_consolidated_also_where_every_host_takes_its_own_ways() -> None:
    effort = dsn02.PhaseDurations(40, before=1, stalled=1, down=2, after=2)
    pubends = ("q1", "q2", "q3", "q4")
    assert any(len(ways(pubend)) > 1 for pubend in pubends)
    tables = by_name(dsn02.relay_crashes(SimulatedFailures(layout_of(pubends=pubends), 40), effort))
    assert held(dsn02.FIGURE_7, tables)[2]


def test_when_the_publishers_broker_is_back_all_hosts_ask_for_what_it_could_not_send() -> None:
    effort = dsn02.PhaseDurations(40, before=1, stalled=0.5, down=2, after=3)
    tables = by_name(dsn02.publisher_crashes(two_relays(), effort, RELAYS))
    assert held(dsn02.FIGURE_8, tables) == [True, True, True, True]


@pytest.mark.slow
def test_without_a_second_relay_a_stalled_link_holds_up_those_behind_it_and_nobody_else() -> None:
    effort = dsn02.PhaseDurations(40, before=1, stalled=0.5, down=2, after=2)
    tables = by_name(dsn02.link_fails(one_relay(), effort))
    _, asks, is_normal, others = held(dsn02.FIGURE_6, tables)
    assert not asks
    assert not is_normal
    assert others


def test_without_a_second_relay_a_crash_holds_up_everybody() -> None:
    effort = dsn02.PhaseDurations(40, before=1, stalled=0.5, down=1, after=2)
    tables = by_name(dsn02.relay_crashes(one_relay(), effort))
    assert max(tables["latency"].numbers("latency_ms")) > 1_000
    assert set(tables["nacks"].words("broker")) == {"b1", *HOSTS}


@pytest.mark.slow
def test_idle_links_carry_no_more_than_their_bound_however_many_subscribers_there_are() -> None:
    tables = by_name(idle.measure(True, quiet))
    assert held(idle.FIGURE, tables) == [True, True, True, True]
    chatty = Table(idle.LINKS, tables[idle.LINKS].columns, list(tables[idle.LINKS].rows))
    chatty.add(4, "b1", "p1", "Nack", 7.0, 500.0)
    assert held(idle.FIGURE, {**tables, idle.LINKS: chatty}) == [False, False, False, False]


@pytest.mark.slow
def test_real_brokers_are_measured_while_every_event_is_checked() -> None:
    table = overhead.cpu_table()
    asyncio.run(overhead.rounds(table, overhead.OverheadEffort(100, 4, 0.2, 2), quiet))
    assert table.words("broker") == ["phb", "shb"] * len(overhead.MODES) * 2
    first, second = (table.where(repetition=each, broker="phb").words("mode") for each in (0, 1))
    assert (first, second) == ([*overhead.MODES], [*first[1:], first[0]])
    assert min(table.numbers("events")) > 0
