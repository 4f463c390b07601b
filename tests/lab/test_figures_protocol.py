"""The experiments of DSN'02 and DSN'03, small: what the protocol does shows in their tables."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidemark.lab.figures import dsn02, dsn03, dsn03sim, overhead
from tidemark.lab.figures.experiment import Figure, Tables
from tidemark.lab.figures.overlay import PUBENDS, SimOverlay, parents_of
from tidemark.lab.figures.simstage import STEADY
from tidemark.lab.figures.table import Table
from tidemark.sim.plan import Plan


def by_name(tables: Sequence[Table]) -> Tables:
    return {table.name: table for table in tables}


def held(figure: Figure, tables: Tables) -> list[bool | None]:
    return [finding.holds for finding in figure.judge(tables)]


def quiet(_: str) -> None:
    pass


def test_who_was_away_catches_up_and_holds_release_and_nothing_else() -> None:
    tables = by_name(dsn03sim.coming_and_going(True, quiet))
    catches_up, takes_as_long = held(dsn03.FIGURE_5, tables)
    assert catches_up
    assert not takes_as_long
    assert held(dsn03.FIGURE_6, tables) == [True, True, True]


def test_after_a_crash_delivery_goes_on_where_it_was_and_release_waits_for_the_subscribers() -> None:
    tables = by_name(dsn03sim.crash(True, quiet))
    still, _, steeper, held_back, released, _ = held(dsn03.FIGURE_7, tables)
    assert (still, steeper, held_back, released) == (True, True, True, True)
    assert len(tables[dsn03.RETURNS].rows) == dsn03sim.CRASH_QUICK.subscribers


def one_relay(events_a_second: float) -> SimOverlay:
    plan = Plan(parents_of(("b1",)), dict.fromkeys(PUBENDS, "p1"), STEADY, topics=("t.x",))
    return SimOverlay(plan, events_a_second)


def test_when_the_publishers_broker_is_back_all_hosts_ask_for_what_it_could_not_send() -> None:
    effort = dsn02.Effort(40, before=1, stalled=0.5, down=2, after=3)
    tables = by_name(dsn02.publisher_crashes(one_relay(40), effort, ["b1"]))
    assert held(dsn02.FIGURE_8, tables) == [True, True, True, True]


def test_without_a_second_relay_a_stalled_link_holds_up_those_behind_it_and_nobody_else() -> None:
    effort = dsn02.Effort(40, before=1, stalled=0.5, down=2, after=2)
    tables = by_name(dsn02.link_fails(one_relay(40), effort))
    _, asks, is_normal, others = held(dsn02.FIGURE_6, tables)
    assert not asks
    assert not is_normal
    assert others


def test_a_crashed_relay_shows_in_latency_and_nacks() -> None:
    effort = dsn02.Effort(40, before=1, stalled=0.5, down=1, after=2)
    tables = by_name(dsn02.relay_crashes(one_relay(40), effort))
    assert max(tables["latency"].numbers("latency_ms")) > 1_000
    assert set(tables["nacks"].words("broker")) == {"b1", "s1", "s2", "s3", "s4", "s5"}
    assert len(dsn02.FIGURE_7.judge(tables)) == 5


def test_real_brokers_are_measured_while_every_event_is_checked() -> None:
    table = overhead.cpu_table()
    asyncio.run(overhead.measured(table, "durable", 0, overhead.Effort(100, 4, 0.2, 1)))
    assert table.words("broker") == ["phb", "shb"]
    assert min(table.numbers("events")) > 0
