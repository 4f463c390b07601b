"""Figures 6, 7 and 8 of DSN'02: a link stalls and fails, a relay crashes, the publishers' broker crashes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from tidemark.lab.figures.dsn02.overlay import HOSTS, LATENCY, NACKS, FailingOverlay
from tidemark.lab.figures.estimates import quantile
from tidemark.lab.figures.experiment import Comparison, Figure, Panel, PlotSeries, Tables, setting
from tidemark.lab.figures.table import Numbers, Table
from tidemark.ticks import RangeSet

PHASES, RATES = "phases", "rates"
#: Everything is normal within this many seconds after a failure is noticed or a broker is up again.
SOON_S = 1.0
#: Latency is normal up to this many times its value before.
NORMAL = 2.0
SHARED_CORES = (
    "On real processes all brokers and clients share the cores of one machine: what s1 and b2 do when the "
    "failure is noticed takes processor time for which s2 has to wait, a few tens of milliseconds at the "
    "most. Brokers on machines of their own would not wait for each other."
)
#: Nacks are consolidated when a relay nacks at most this many times what it must.
CONSOLIDATED = 1.1


@dataclass(frozen=True, slots=True)
class PhaseDurations:
    """How long each phase lasts, in seconds."""

    events_a_second: int
    before: float
    stalled: float
    down: float
    after: float


LINK = PhaseDurations(100, before=4, stalled=2.5, down=3, after=3)
RELAY = PhaseDurations(100, before=4, stalled=2.75, down=30, after=6)
PUBLISHER = PhaseDurations(100, before=4, stalled=0.5, down=20, after=6)


def link_fails(world: FailingOverlay, effort: PhaseDurations) -> Sequence[Table]:
    """Figure 6: the link b1-s1 carries nothing for a while, then goes down."""
    phases = _PhaseLog(world)
    world.run(world.now + effort.before)
    phases.begin("stalled")
    world.stall_link("b1", "s1")
    world.run(world.now + effort.stalled)
    phases.begin("down")
    world.fail_link("b1", "s1")
    world.run(world.now + effort.down)
    phases.begin("up")
    world.mend_link("b1", "s1")
    world.run(world.now + effort.after)
    return phases.end(effort)


def relay_crashes(world: FailingOverlay, effort: PhaseDurations) -> Sequence[Table]:
    """Figure 7: b1 does nothing for a while, crashes, and is started again."""
    return _crash(world, effort, "b1", lambda: world.stall("b1", effort.stalled + 1))


def rates_table() -> Table:
    """Returns the table of what was nacked when a relay crashed, at each rate; hosts_ms is their average."""
    return Table(RATES, ("events_a_second", "lost_ms", "hosts_ms", "relay_ms", "perfect_ms"))


def add_rate(rates: Table, effort: PhaseDurations, found: Sequence[Table]) -> None:
    """Add a run of `relay_crashes` to the table of rates."""
    tables = {table.name: table for table in found}
    stalled, down, up = (_phase(tables, name) for name in ("stalled", "down", "up"))
    lost = len(set(_nacks(tables, stalled, up, broker="s1").words("pubend"))) * (down - stalled) * 1e3
    hosts = float(np.mean([_nacked(tables, host, stalled, up) for host in HOSTS]))
    relay, perfect = _nacked(tables, "b2", stalled, up), _perfect(tables, "b2", stalled, up)
    rates.add(effort.events_a_second, lost, hosts, relay, perfect)


def publisher_crashes(
    world: FailingOverlay, effort: PhaseDurations, relays: Sequence[str]
) -> Sequence[Table]:
    """Figure 8: p1 crashes and is started again; it could not send the last events that it had logged."""

    def stall() -> None:
        for relay in relays:
            world.stall_link("p1", relay)

    def mend() -> None:
        for relay in relays:
            world.mend_link("p1", relay)

    return _crash(world, effort, "p1", stall, mend)


def _crash(
    world: FailingOverlay,
    effort: PhaseDurations,
    broker: str,
    stall: Callable[[], None],
    mend: Callable[[], None] = lambda: None,
) -> Sequence[Table]:
    phases = _PhaseLog(world)
    world.run(world.now + effort.before)
    phases.begin("stalled")
    stall()
    world.run(world.now + effort.stalled)
    phases.begin("down")
    world.crash(broker)
    mend()
    world.run(world.now + effort.down)
    phases.begin("up")
    world.restart(broker)
    phases.begin("ready")
    world.run(world.now + effort.after)
    return phases.end(effort)


class _PhaseLog:
    """Notes when each phase begins, and returns all tables at the end."""

    def __init__(self, world: FailingOverlay) -> None:
        self._world = world
        self._table = Table(PHASES, ("phase", "time_s"))
        self.begin("start")

    def begin(self, phase: str) -> None:
        """Note that a phase begins now."""
        self._table.add(phase, self._world.now)

    def end(self, effort: PhaseDurations) -> Sequence[Table]:
        """End the run and check it; returns all tables."""
        self.begin("end")
        self._world.finish()
        said = setting(
            events_a_second=effort.events_a_second, stalled_seconds=effort.stalled, down_seconds=effort.down
        )
        return [self._world.latency, self._world.nacks, self._table, said]


# Numbers from the tables.


def _phase(tables: Tables, name: str) -> float:
    return float(tables[PHASES].where(phase=name).numbers("time_s")[0])


def _latency(tables: Tables, host: str, begin: float, end: float) -> Numbers:
    """Returns latency[event] in ms of the events published from `begin` to `end`."""
    table = tables[LATENCY].where(host=host)
    published = table.numbers("published_s")
    return table.numbers("latency_ms")[(published >= begin) & (published < end)]


def _nacks(tables: Tables, begin: float, end: float, **wanted: str) -> Table:
    """Returns the nacks from `begin` to `end`."""
    table = tables[NACKS].where(**wanted)
    during = [begin <= time < end for time in table.numbers("time_s")]
    return Table(NACKS, table.columns, list(compress(table.rows, during)))


def _nacked(tables: Tables, broker: str, begin: float, end: float) -> float:
    """Returns the sum of the ranges that a broker nacked from `begin` to `end`, in tick ms."""
    return float(_nacks(tables, begin, end, broker=broker).numbers("range_ms").sum())


def _ranges(nacks: Table) -> dict[str, RangeSet]:
    """Returns pubend -> all ticks that were nacked, in microseconds."""
    ranges: dict[str, RangeSet] = {}
    bases, lengths = nacks.numbers("base_ms"), nacks.numbers("range_ms")
    for pubend, base, length in zip(nacks.words("pubend"), bases, lengths, strict=True):
        ranges.setdefault(pubend, RangeSet()).add(round(base * 1e3), round((base + length) * 1e3))
    return ranges


def _perfect(tables: Tables, relay: str, begin: float, end: float) -> float:
    """Returns the ticks that a relay was asked for and had to nack itself, each tick once, in tick ms.

    Ticks that the relay was asked for and knew are left out: consolidation did not save those nacks.
    """
    wanted = _ranges(_nacks(tables, begin, end, to=relay))
    passed = _ranges(_nacks(tables, begin, end, broker=relay))
    shared = [ticks.intersection(passed.get(pubend, RangeSet())) for pubend, ticks in wanted.items()]
    return sum(each.ticks() for each in shared) / 1e3


def _normal(tables: Tables, host: str = "s1") -> float:
    """Returns the 99th percentile of the latency before the failure, in ms."""
    return quantile(_latency(tables, host, _phase(tables, "start"), _phase(tables, "stalled")), 0.99)


def _is_normal_again(tables: Tables, since: float) -> tuple[str, bool]:
    usual, later = _normal(tables), quantile(_latency(tables, "s1", since, _phase(tables, "end")), 0.99)
    return f"{later:.0f} ms afterwards, {usual:.0f} ms before", later <= NORMAL * usual


def _draw(tables: Tables, brokers: Sequence[str], hosts: Sequence[str]) -> Sequence[Panel]:
    spans = [
        (_phase(tables, "stalled"), _phase(tables, "down"), "stalled"),
        (_phase(tables, "down"), _phase(tables, "up"), "down"),
    ]
    latencies = []
    for host in hosts:
        table = tables[LATENCY].where(host=host)
        time, latency = table.numbers("published_s"), table.numbers("latency_ms")
        latencies.append(PlotSeries(host, time, latency, "points"))
    nacks = []
    for broker in brokers:
        table = tables[NACKS].where(broker=broker)
        nacks.append(
            PlotSeries(broker, table.numbers("time_s"), table.numbers("range_ms").cumsum(), "points")
        )
    return [
        Panel("latency", "time of publishing (s)", "ms", latencies, spans),
        Panel("ranges nacked so far", "time (s)", "tick ms", nacks, spans),
    ]


# Figure 6.


def _compare_link(tables: Tables) -> Sequence[Comparison]:
    stalled, down, up = (_phase(tables, name) for name in ("stalled", "down", "up"))
    worst = float(_latency(tables, "s1", stalled, down).max(initial=0))
    nacked = _nacked(tables, "s1", stalled, up)
    others = float(_latency(tables, "s2", stalled, up).max(initial=0))
    usual = float(_latency(tables, "s2", _phase(tables, "start"), stalled).max(initial=0))
    said, is_normal = _is_normal_again(tables, down + SOON_S)
    lasted = (down - stalled) * 1e3
    return [
        Comparison(
            "what was lost on the stalled link comes when the failure is noticed: 2.5 s late at the most",
            f"{worst:,.0f} ms late at the most; the link was stalled for {lasted:,.0f} ms",
            0 < worst <= lasted + SOON_S * 1e3,
        ),
        Comparison("s1 asks for it over the other path", f"it nacked {nacked:,.0f} tick ms", nacked > 0),
        Comparison("then the latency is normal again, with the link still down", said, is_normal),
        Comparison(
            "the latency at s2 is not affected",
            f"at the most {others:.0f} ms, {usual:.0f} ms before",
            others <= NORMAL * usual,
            SHARED_CORES,
        ),
    ]


# Figure 7.


def _compare_relay(tables: Tables) -> Sequence[Comparison]:
    stalled, down, up, end = (_phase(tables, name) for name in ("stalled", "down", "up", "end"))
    of_hosts = np.array([_nacked(tables, host, stalled, up) for host in HOSTS])
    of_relay, perfect = _nacked(tables, "b2", stalled, up), _perfect(tables, "b2", stalled, up)
    asked = set(_nacks(tables, stalled, up, broker="s1").words("pubend"))
    lasted = (down - stalled) * 1e3
    lost = len(asked) * lasted
    again = float(sum(_nacked(tables, host, up, end) for host in HOSTS))
    said, is_normal = _is_normal_again(tables, down + SOON_S)
    return [
        Comparison(
            "the hosts nack almost the same: what they lost was the same",
            f"between {of_hosts.min():,.0f} and {of_hosts.max():,.0f} tick ms",
            bool(0 < of_hosts.max() <= 1.1 * of_hosts.min()),
        ),
        Comparison(
            "5,500 tick ms each: two pubends, each for the 2,750 ms that b1 was stalled",
            f"{of_hosts.mean():,.0f} tick ms; {len(asked)} pubends times {lasted:,.0f} ms is {lost:,.0f}",
            bool(lost and abs(of_hosts.mean() / lost - 1) <= 0.2),
            "The less the better: real hosts notice by its silence that b1 is stalled, before its time is "
            "over, and take the streams from b2 from then on.",
        ),
        Comparison(
            "b2 consolidates almost perfectly: it asks once for what all of them ask for",
            f"b2 nacked {of_relay:,.0f} tick ms for {of_hosts.sum():,.0f} of theirs together; each tick of "
            f"both, once, is {perfect:,.0f}: {of_relay / max(perfect, 1):.3f} times perfect",
            0 < of_relay <= CONSOLIDATED * perfect,
        ),
        Comparison("the latency is normal again as soon as the crash is noticed", said, is_normal),
        Comparison(
            "nothing is nacked when b1 is back",
            f"{again:,.0f} tick ms, by all hosts together",
            again == 0,
        ),
    ]


def _times(tables: Tables) -> tuple[Numbers, Numbers, Numbers]:
    """Returns rate[run], nacked by a host / lost[run], and nacked by the relay / perfect[run]."""
    table = tables[RATES]
    lost, hosts, relay, perfect = (
        table.numbers(f"{each}_ms") for each in ("lost", "hosts", "relay", "perfect")
    )
    return table.numbers("events_a_second"), hosts / lost, relay / perfect


def _draw_rates(tables: Tables) -> Sequence[Panel]:
    rate, hosts, relay = _times(tables)
    lines = [
        PlotSeries("a host, of what it lost", rate, hosts, "marked"),
        PlotSeries("b2, of what is perfect", rate, relay, "marked"),
    ]
    return [Panel("nacked until b1 is back", "events a second", "times", lines)]


def _compare_rates(tables: Tables) -> Sequence[Comparison]:
    rate, hosts, relay = _times(tables)
    said = [f"{each:,.0f}" for each in rate]
    return [
        Comparison(
            "b2 asks once for what all hosts ask for, whatever the rate of events",
            _listed(said, [f"{each:.3f} times" for each in relay]),
            bool((relay <= CONSOLIDATED).all()),
        ),
        Comparison(
            "the hosts ask once for what they lost, whatever the rate of events",
            _listed(said, [f"{each:.2f} times" for each in hosts]),
            bool((abs(hosts - 1) <= 0.2).all()),
        ),
    ]


def _listed(rates: Sequence[str], values: Sequence[str]) -> str:
    return "; ".join(f"with {rate} a second {value}" for rate, value in zip(rates, values, strict=True))


# Figure 8.


def _compare_publisher(tables: Tables) -> Sequence[Comparison]:
    stalled, down, up, ready, end = (
        _phase(tables, name) for name in ("stalled", "down", "up", "ready", "end")
    )
    meanwhile = sum(_nacked(tables, host, down, up) for host in HOSTS)
    after = [_nacked(tables, host, up, end) for host in HOSTS]
    late = float(_latency(tables, "s1", stalled, down).max(initial=0))
    said, is_normal = _is_normal_again(tables, ready + SOON_S)
    return [
        Comparison("nothing is nacked while p1 is down", f"{meanwhile:,.0f} tick ms", meanwhile == 0),
        Comparison(
            "what it had logged and could not send comes when it is back",
            f"{late / 1e3:.1f} s late at the most; it was down for {up - down:.1f} s",
            late / 1e3 >= up - down,
        ),
        Comparison(
            "it says how far it had logged, and all hosts nack",
            f"{sum(each > 0 for each in after)} of {len(HOSTS)} did, {max(after):,.0f} tick ms at the most",
            all(each > 0 for each in after),
        ),
        Comparison(
            f"the latency is normal again soon: {SOON_S:g} s after p1 takes connections",
            f"{said}; p1 took them {ready - up:.1f} s after its start",
            is_normal,
            "Whoever has lost p1 calls it again within a second of its start, clients as well as brokers. "
            "Then what was published meanwhile has to be caught up with, longer on a busy machine.",
        ),
    ]


def _figure(
    number: int, title: str, brokers: Sequence[str], hosts: Sequence[str], compare: Compare
) -> Figure:
    name, source = f"figure-{number}", f"DSN'02, figure {number}"
    return Figure(name, title, source, lambda tables: _draw(tables, brokers, hosts), compare)


Compare = Callable[[Tables], Sequence[Comparison]]
FIGURE_6 = _figure(6, "A link stalls and fails", ("s1",), ("s1", "s2"), _compare_link)
FIGURE_7 = _figure(7, "A relay crashes", ("s1", "s2", "b2"), ("s1",), _compare_relay)
FIGURE_7_RATES = Figure(
    "figure-7-rates",
    "A relay crashes, at several rates of events",
    "DSN'02, figure 7",
    _draw_rates,
    _compare_rates,
    is_ours=True,
)
FIGURE_8 = _figure(8, "The publisher hosting broker crashes", ("s1",), ("s1",), _compare_publisher)
