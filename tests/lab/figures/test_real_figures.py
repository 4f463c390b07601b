"""The figures that only real processes have: judged from tables by hand, and run once in small."""

from __future__ import annotations

import asyncio

import pytest

from tidemark.lab.bench.processes.harness import wait_until
from tidemark.lab.figures.dsn02.overlay import PUBENDS
from tidemark.lab.figures.dsn02.real import RealFailures
from tidemark.lab.figures.dsn03 import auto_acknowledge, client_rates, scaling
from tidemark.lab.figures.dsn03.figures import phases_table, returns_table
from tidemark.lab.figures.experiment import Figure, Tables
from tidemark.lab.figures.scalability import hot_cold, workers, writes
from tidemark.lab.figures.scalability.variant_broker import CUT_THROUGH, QUEUED, UVLOOP
from tidemark.lab.figures.table import Table


def held(figure: Figure, tables: Tables) -> list[bool | None]:
    assert figure.draw(tables)
    return [finding.holds for finding in figure.compare(tables)]


# DSN'03, figure 4.


def scaled(cost: dict[tuple[str, int], float], phb: float = 1.0) -> Tables:
    """Every host delivers 1,000 events in 10 s for `cost[layout, away]` seconds of CPU; 0.5 if not given."""
    table = scaling.cpu_table()
    for layout, behind in scaling.LAYOUTS.items():
        for away in (0, 1):
            cpu = cost.get((layout, away), 0.5)
            if behind:
                table.add(layout, behind, away, "phb", 0, phb * behind, 10, 0, 0)
            for at in range(max(1, behind)):
                name = f"shb{at + 1}" if behind else "phb"
                table.add(layout, max(1, behind), away, name, 1, cpu, 10, 1_000, 3)
    return {scaling.CPU: table}


def test_capacity_is_what_hosts_deliver_for_their_cpu() -> None:
    tables = scaled({("1 SHB", 0): 0.25})
    assert scaling.capacity(tables, "1 SHB", 0) == 4_000
    assert scaling.capacity(tables, "4 SHBs", 1) == 8_000
    assert scaling.idle(tables, "2 SHBs", 0) == pytest.approx(0.8)


def test_scaling_holds_where_every_host_adds_its_own() -> None:
    assert held(scaling.FIGURE, scaled({}, phb=0.2)) == [True] * 5
    assert held(scaling.FIGURE, scaled({("4 SHBs", 0): 1.0}, phb=0.2))[0] is False
    assert held(scaling.FIGURE, scaled({("4 SHBs", 1): 1.0}, phb=0.2))[1:3] == [False, False]
    assert held(scaling.FIGURE, scaled({}, phb=2.0))[3] is False
    assert held(scaling.FIGURE, scaled({("1 broker", 0): 1.0}))[4] is False


# DSN'03, figure 8.


def crashed(shb_while_catching_up: float) -> Tables:
    """The host is down from 10 to 30 s, subscribers return at 32 s and catch up in 2 s."""
    phases, returns = phases_table(), returns_table()
    for phase, at in (("down", 10), ("up", 30), ("delivered", 32), ("returned", 32), ("end", 50)):
        phases.add(phase, at)
    returns.add("s1", 10.0, 32.0, 2.0)
    received = Table(client_rates.RECEIVED, ("time_s", "group", "events"))
    busy = Table(client_rates.BUSY, ("time_s", "broker", "cpu_s"))
    points = [(0, 0.0, 0.0), (10, 1_000.0, 4.0), (32, 1_000.0, 5.0)]
    points += [
        (35, 3_600.0, 5.0 + 3 * shb_while_catching_up),
        (50, 5_100.0, 11.0 + 3 * shb_while_catching_up),
    ]
    for at, events, cpu in points:
        for group in range(client_rates.GROUPS):
            received.add(at, group, events)
        busy.add(at, "shb", cpu)
        busy.add(at, "phb", at * 0.2)
    return {each.name: each for each in (phases, returns, received, busy)}


def test_a_crash_is_judged_by_what_subscribers_get_and_who_is_busy() -> None:
    assert held(client_rates.FIGURE, crashed(0.9)) == [True, True, True]
    assert held(client_rates.FIGURE, crashed(0.4)) == [True, True, False]


# DSN'03, section 5.2.


def test_many_subscribers_are_to_share_transactions() -> None:
    table = auto_acknowledge.rates_table()
    table.add(25, 10.0, 10_000, 2.0)
    table.add(200, 10.0, 19_000, 2.0)
    assert held(auto_acknowledge.FIGURE, {auto_acknowledge.RATES: table}) == [True, True]
    table.add(200, 10.0, 1_000, 9.0)
    assert held(auto_acknowledge.FIGURE, {auto_acknowledge.RATES: table}) == [False, False]


# Scalability, figures 2 to 4.


def test_writes_are_judged_by_how_many_subscribers_fill_a_core() -> None:
    table = writes.rates_table()
    # A tenth of a core without subscribers, and a core with 900 and 450 of them; overloaded with 2,000.
    for count, got in ((100, 25.0), (200, 25.0), (300, 24.5), (2_000, 12.0)):
        for kind, full, waited in ((CUT_THROUGH, 900, 0), (QUEUED, 450, 5_000)):
            cores = min(1.0, 0.1 + 0.9 * count / full)
            table.add(kind, count, 10.0, 6 * 10 * got, count * got * 10, 10 * cores, waited)
    tables = {writes.RATES: table}
    found = [round(writes.supported(tables, kind)) for kind in (CUT_THROUGH, QUEUED)]
    assert found == [900, 450]
    assert held(writes.FIGURE, tables) == [True, True, True]


def test_sockets_are_judged_by_what_cold_ones_cost() -> None:
    table = hot_cold.cpu_table()
    for kind, more in (("poll", 4.0), ("epoll", 0.5), (UVLOOP, 0.3)):
        table.add(kind, 0, 10.0, 80_000, 2.0, 1.0)
        table.add(kind, 4_000, 10.0, 84_000, 2.0 + more, 1.0 + more / 2)
    assert held(hot_cold.FIGURE, {hot_cold.CPU: table}) == [True, True]


def test_workers_are_judged_by_the_busiest() -> None:
    table = workers.cpu_table()
    table.add(1, "w1", 12, 900, 4.0, 10.0)
    for at, cpu in enumerate((1.5, 2.0)):
        table.add(2, f"w{at}", 6, 450, cpu, 10.0)
    for at in range(3):
        table.add(3, f"w{at}", 4, 300, 1.5, 10.0)
    assert workers.supported({workers.CPU: table})[1].tolist() == [30, 60, 80]
    assert held(workers.FIGURE, {workers.CPU: table}) == [True, True]


# Small runs.


@pytest.mark.slow
@pytest.mark.open_broker(reason="the clients of a crowd speak plain frames, to a broker that is open")
def test_a_crowd_counts_what_it_gets_whatever_its_broker_runs_on() -> None:
    table = writes.rates_table()
    asyncio.run(writes.measured(table, QUEUED, 6, writes.CrowdEffort((6,), 0.3, 0.1)))
    assert table.numbers("delivered")[0] > 0
    assert table.numbers("queued_most")[0] > 0
    sockets = hot_cold.cpu_table()
    asyncio.run(hot_cold.measured(sockets, "poll", 10, hot_cold.SocketsEffort(4, 10, 0.3, 0.1)))
    assert sockets.numbers("delivered")[0] > 0


@pytest.mark.slow
def test_a_broker_alone_is_measured_while_subscribers_come_and_go() -> None:
    table = scaling.cpu_table()
    asyncio.run(scaling.measured(table, "1 broker", scaling.QUICK, away=True))
    assert table.words("broker") == ["phb"]
    assert table.numbers("delivered")[0] > 0
    assert table.numbers("catchups")[0] > 0


@pytest.mark.slow
def test_every_event_is_acknowledged_by_itself() -> None:
    table = auto_acknowledge.rates_table()
    asyncio.run(auto_acknowledge.measured(table, 2, auto_acknowledge.AutoEffort((2,), 0.3, 0.1)))
    assert table.numbers("consumed")[0] > 0


@pytest.mark.slow
def test_on_real_processes_a_host_asks_for_what_a_stalled_link_has_lost() -> None:
    with RealFailures(40, hosts=("s1",)) as world:
        world.stall_link("b1", "s1")
        before = dict(world.published)
        assert wait_until(lambda: all(world.published[each] > before[each] + 3 for each in PUBENDS))
        world.fail_link("b1", "s1")
        world.finish()
    assert {*world.latency.words("host")} == {"s1"}
    assert "s1" in world.nacks.words("broker")
