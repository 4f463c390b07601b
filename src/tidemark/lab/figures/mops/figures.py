"""Figures 1 to 5 of MOPS: seven brokers, mobile subscribers, queues against persistent notifications.

Queues are implemented as the paper describes them. Tidemark, which also keeps notifications instead of
queues, stands in for the paper's own approach: with its default settings, for which the findings are
computed, and ("calm") with heartbeats that suit so few events, to see what heartbeats cost. Notifications are
counted one by one, also where Tidemark sends several in one frame.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tidemark.broker.publishing.pubend import PubendPolicy
from tidemark.lab.figures.estimates import fitted
from tidemark.lab.figures.experiment import Comparison, Figure, Panel, PlotSeries, Tables, setting
from tidemark.lab.figures.kept_runs import KeptRuns, fingerprint_of_code
from tidemark.lab.figures.mops.persistence import PersistenceApproach
from tidemark.lab.figures.mops.queueing import QueueApproach
from tidemark.lab.figures.mops.roaming import (
    AWAY,
    CONNECTED,
    KINDS,
    OPEN_TO_ALL,
    PARENTS,
    PUBLISH_EVERY_S,
    Approach,
    RoamingRun,
    RoamingTables,
)
from tidemark.lab.figures.table import Numbers, Table, mean_by
from tidemark.sim.swarm.workers import in_order

METHOD = """
Seven brokers in a tree, a publisher at each, and subscribers of everything that come to a random broker and
leave again: the same itinerary for queues, which are as the paper describes them and exist only here, and for
Tidemark, which stands in the place of the paper's persistent notifications. Both in the simulator, on links
of 1 ms. Tidemark is as it is set by default; *calm*, which only figure 5 is about, has heartbeats as rare as
events, and releases expected within 10 s. Events that Tidemark fetches once more for a subscriber that has
come are notifications as well, at every broker that they pass. A queue is handed over from broker to broker
directly, which favours queues. There are five runs of 20 minutes of simulated time, as in the paper. The
paper has up to 35 subscribers; more than that, and *calm*, are ours, with runs of a minute. The delay of a
notification is the time from its publication to its receipt, for which a broker of Tidemark first has to
sync its log, up to 20 ms, and a queue has not: it is in memory, and lost with its broker.
"""
QUEUES, DEFAULT, CALM = "queues", "tidemark", "tidemark, calm"
#: Each publisher publishes every two seconds; heartbeats need not be more frequent.
CALM_POLICY = PubendPolicy(heartbeat=round(PUBLISH_EVERY_S * 1e6), ack_expected=10_000_000)
APPROACHES: dict[str, Callable[[], Approach]] = {
    QUEUES: QueueApproach,
    DEFAULT: lambda: PersistenceApproach(DEFAULT, PubendPolicy()),
    CALM: lambda: PersistenceApproach(CALM, CALM_POLICY),
}
#: Events a second of all publishers together.
RATE = len(PARENTS) / PUBLISH_EVERY_S
#: In the paper: subscribers at which each broker has one; at which the curves part; the gain.
SATURATED, PARTED, GAIN = 15, 7, 0.10
#: The most subscribers in the paper, and the most messages a broker and second that Tidemark is to take then.
PAPER_MOST, MESSAGES_MAX = 35, 60
#: The most notifications that a broker is to receive a second.
RECEIVED_MAX = 4.5
#: What whoever comes to a broker is to wait at the most, at the median, for what it missed.
WAIT_MS_MAX = 100


#: (approach, subscribers, run, seconds)
Case = tuple[str, int, int, float]


@dataclass(frozen=True, slots=True)
class RoamingEffort:
    """The numbers of subscribers, and how many runs of how many seconds each."""

    subscribers: tuple[int, ...]
    #: numbers of subscribers for the calm settings, which only figure 5 is about
    when_calm: tuple[int, ...]
    runs: int
    #: of a run of what the paper has, and of what it has not
    seconds: float
    seconds_of_ours: float

    def cases(self) -> list[Case]:
        """Returns all cases."""
        numbers = {
            approach: self.when_calm if approach == CALM else self.subscribers for approach in APPROACHES
        }
        return [
            (approach, each, run, self._seconds(approach, each))
            for run in range(self.runs)
            for approach in APPROACHES
            for each in numbers[approach]
        ]

    def _seconds(self, approach: str, subscribers: int) -> float:
        is_of_paper = approach != CALM and subscribers <= PAPER_MOST
        return self.seconds if is_of_paper else self.seconds_of_ours


FULL = RoamingEffort((1, 7, 15, 25, 35, 50, 100), (1, 15, 35), 5, 20 * 60, 60)
QUICK = RoamingEffort((1, 6, 15), (1, 15), 1, 6, 6)


def measure(parts: Path, quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Measure all approaches with all numbers of subscribers; finished runs are kept in `parts`."""
    effort = QUICK if quick else FULL
    kept = KeptRuns(parts, fingerprint_of_code())
    cases = effort.cases()
    missing = [case for case in cases if kept.find(_name(case)) is None]
    jobs = 1 if quick else len(os.sched_getaffinity(0))
    with closing(in_order(played, missing, jobs)) as outcomes:
        for case, outcome in zip(missing, outcomes, strict=True):
            kept.keep(_name(case), outcome.tables())
            approach, subscribers, run, _ = case
            say(f"{approach}, {subscribers} subscribers, run {run + 1}")
    tables = RoamingTables()
    for case in cases:
        found = kept.find(_name(case))
        assert found is not None
        tables.add(found)
    runs = setting(
        seconds_a_run=effort.seconds,
        seconds_a_run_of_ours=effort.seconds_of_ours,
        runs=effort.runs,
        publishers=len(PARENTS),
        events_a_second=RATE,
    )
    return [*tables.tables(), runs]


def _name(case: Case) -> str:
    """Returns the name under which the tables of a case are kept."""
    approach, subscribers, run, seconds = case
    return f"{approach.replace(', ', '-')}-{subscribers}-subscribers-{seconds:g}-seconds-{run}"


def played(case: Case) -> RoamingTables:
    """Run one case; called in a process of its own."""
    approach, subscribers, run, seconds = case
    return RoamingRun(APPROACHES[approach](), subscribers, run, seconds).play()


def _average(tables: Tables, approach: str, *columns: str) -> tuple[Numbers, Numbers]:
    """Returns subscribers[n] and the sum of these columns, averaged over all brokers and runs."""
    table = tables["brokers"].where(approach=approach)
    parts = [mean_by(table, "subscribers", column) for column in columns]
    return parts[0][0], np.sum([each[1] for each in parts], axis=0)


def _at(curve: tuple[Numbers, Numbers], subscribers: float) -> float:
    return float(np.interp(subscribers, *curve))


def _most(tables: Tables) -> int:
    """Returns the most subscribers of which the paper speaks too."""
    return min(PAPER_MOST, int(tables["brokers"].numbers("subscribers").max()))


def _curves(
    tables: Tables, columns: Sequence[str], approaches: Sequence[str] = tuple(APPROACHES)
) -> list[PlotSeries]:
    return [PlotSeries(approach, *_average(tables, approach, *columns), "marked") for approach in approaches]


def _both(kind: str) -> tuple[str, str]:
    return f"received_{kind}", f"sent_{kind}"


# Figure 1: connected subscribers.


def _draw_connected(tables: Tables) -> Sequence[Panel]:
    table = tables["brokers"].where(approach=QUEUES)
    lines = [
        PlotSeries(broker, *mean_by(table.where(broker=broker), "subscribers", "connected"), "marked")
        for broker in PARENTS
    ]
    return [Panel("average of a run", "subscribers", "connected", lines)]


def _compare_connected(tables: Tables) -> Sequence[Comparison]:
    table, most = tables["brokers"].where(approach=QUEUES), _most(tables)
    at_most = table.where(subscribers=most)
    root = at_most.where(broker="B1").numbers("connected").mean()
    others = [at_most.where(broker=broker).numbers("connected").mean() for broker in OPEN_TO_ALL]
    average = _at(_average(tables, QUEUES, "connected"), SATURATED)
    return [
        Comparison(
            "nobody connects to B1, and the others share the load evenly",
            f"of {most}, {root:.1f} at B1, {min(others):.2f} to {max(others):.2f} at the others",
            bool(root == 0 and max(others) < 1.5 * min(others)),
        ),
        Comparison(
            f"with {SATURATED} subscribers there is one connected to each broker on average",
            f"{average:.2f}",
            abs(average - 1) <= 0.2,
        ),
        Comparison(
            "everybody gets every notification, once",
            "; ".join(_received(tables, approach) for approach in (QUEUES, DEFAULT)),
            _wrong(tables, DEFAULT) == 0,
        ),
    ]


def _received(tables: Tables, approach: str) -> str:
    table = tables["deliveries"].where(approach=approach)
    expected, missed, repeated = (
        int(table.numbers(each).sum()) for each in ("expected", "missed", "repeated")
    )
    return f"{approach}: {missed} of {expected:,} missed, {repeated} repeated"


def _wrong(tables: Tables, approach: str) -> float:
    table = tables["deliveries"].where(approach=approach)
    return float(table.numbers("missed").sum() + table.numbers("repeated").sum())


# Figure 2: stored notifications.


def _draw_stored(tables: Tables) -> Sequence[Panel]:
    cached = _curves(tables, ["cached_bytes"], [DEFAULT, CALM])
    most = _most(tables)
    over_time = [PlotSeries(approach, *_storage(tables, approach, most), "steps") for approach in APPROACHES]
    return [
        Panel(f"with {most} subscribers, over a run", "time (s)", "events a broker", over_time),
        Panel(
            "that must be kept for somebody", "subscribers", "events a broker", _curves(tables, ["stored"])
        ),
        Panel("that are at hand besides, in memory", "subscribers", "bytes a broker", cached),
    ]


def _storage(tables: Tables, approach: str, subscribers: int) -> tuple[Numbers, Numbers]:
    """Returns time[sample] and stored[sample] of the first run with so many subscribers."""
    table = tables["storage"].where(approach=approach, subscribers=subscribers, run=0)
    return table.numbers("time_s"), table.numbers("stored")


def _compare_stored(tables: Tables) -> Sequence[Comparison]:
    queues, ours, most = (
        _average(tables, QUEUES, "stored"),
        _average(tables, DEFAULT, "stored"),
        _most(tables),
    )
    line, level = fitted(*queues), _at(ours, most)
    crossing = line.reaches(level)
    over_time = _storage(tables, DEFAULT, most)[1]
    third = len(over_time) // 3
    middle, end = over_time[third:-third].mean(), over_time[-third:].mean()
    return [
        Comparison(
            "with queues the number grows linearly with the subscribers",
            f"{line.slope:.3f} a broker for each subscriber; a line explains {line.explained:.1%} of it",
            line.slope > 0 and line.explained > 0.95,
        ),
        Comparison(
            "without, it reaches a maximum and stays there, however many subscribers there are",
            f"{_at(ours, SATURATED):.2f} with {SATURATED} subscribers, {level:.2f} with {most}; of these, "
            f"{middle:.2f} in the middle third of the run, {end:.2f} in the last",
            bool(abs(_at(ours, SATURATED) / level - 1) <= 0.2 and abs(end / middle - 1) <= 0.2),
        ),
        Comparison(
            "with many more subscribers than brokers, queues take more",
            f"{_at(queues, most):.2f} in queues against {level:.2f} with {most} subscribers"
            + (
                ""
                if crossing is None
                else f"; the line of the queues is above it from {max(0.0, crossing):.1f} on"
            ),
            _at(queues, most) > level,
        ),
    ]


# Figure 3: notification messages.


def _draw_notifications(tables: Tables) -> Sequence[Panel]:
    return [
        Panel(way, "subscribers", "messages a second and broker", _curves(tables, [f"{way}_notification"]))
        for way in ("received", "sent")
    ]


def _compare_notifications(tables: Tables) -> Sequence[Comparison]:
    most = _most(tables)
    received = _average(tables, DEFAULT, "received_notification")
    sent = _average(tables, DEFAULT, "sent_notification")
    both = {approach: _average(tables, approach, *_both("notification")) for approach in (QUEUES, DEFAULT)}
    beyond = both[QUEUES][0] >= PARTED
    more = both[QUEUES][1][beyond] / both[DEFAULT][1][beyond]
    sent_more = (_average(tables, QUEUES, "sent_notification")[1] / sent[1])[beyond]
    return [
        Comparison(
            f"the rate of received ones grows up to {SATURATED} subscribers, to the rate of publishing",
            f"{received[1][0]:.2f} with {received[0][0]:.0f}, {_at(received, SATURATED):.2f} with {SATURATED}"
            f" and {_at(received, most):.2f} with {most}; {RATE} a second are published",
            bool(received[1][0] < _at(received, SATURATED)) and abs(_at(received, most) / RATE - 1) <= 0.1,
        ),
        Comparison(
            "the rate of sent ones grows with the subscribers",
            f"from {sent[1][0]:.2f} to {sent[1][-1]:.2f} a second",
            bool((np.diff(sent[1]) > 0).all()),
        ),
        Comparison(
            f"queues make for more from {PARTED} subscribers on: for those who are away, and in hand-overs",
            f"{more.min():.2f} to {more.max():.2f} times as many as Tidemark",
            bool((more > 1).all()),
        ),
        Comparison(
            f"promised here: at most {RECEIVED_MAX} received, however many subscribers there are",
            f"{received[1].max():.2f} at the most, with 1 to {received[0][-1]:.0f} subscribers",
            bool(received[1].max() <= RECEIVED_MAX),
        ),
        Comparison(
            f"promised here: fewer are sent than with queues from {PARTED} subscribers on",
            f"queues send {sent_more.min():.2f} to {sent_more.max():.2f} times as many",
            bool((sent_more > 1).all()),
        ),
    ]


# Figure 4: unsubscriptions.


def _draw_unsubscriptions(tables: Tables) -> Sequence[Panel]:
    return [
        Panel(way, "subscribers", "messages a second and broker", _curves(tables, [f"{way}_unsubscription"]))
        for way in ("received", "sent")
    ]


def _compare_unsubscriptions(tables: Tables) -> Sequence[Comparison]:
    queues = _average(tables, QUEUES, *_both("unsubscription"))
    ours = _average(tables, DEFAULT, *_both("unsubscription"))
    sent, most = _average(tables, QUEUES, "sent_unsubscription"), _most(tables)
    return [
        Comparison(
            "queues make for fewer: who returns to the same broker need not unsubscribe",
            f"with {most} subscribers {_at(queues, most):.2f} a second against {_at(ours, most):.2f}",
            bool((queues[1] <= ours[1]).all()),
            "Fewer are better. A durable subscription of Tidemark stays in its broker's interest while its "
            "subscriber is away, and moves by a claim; the paper's approach unsubscribes whoever leaves.",
        ),
        Comparison(
            "the more subscribers, the fewer are sent: others behind the link still want the events",
            f"queues: {sent[1].max():.3f} at the most, {_at(sent, most):.3f} with {most}",
            _at(sent, most) < sent[1].max() / 2,
        ),
    ]


# Figure 5: all messages.

ALL = tuple(f"{way}_{kind}" for way in ("received", "sent") for kind in KINDS)


def _draw_all(tables: Tables) -> Sequence[Panel]:
    paths = [each for each in ALL if not each.endswith(("control", "silence"))]
    return [
        Panel("all", "subscribers", "messages a second and broker", _curves(tables, ALL)),
        Panel(
            "without control and silence",
            "subscribers",
            "messages a second and broker",
            _curves(tables, paths),
        ),
    ]


def _compare_all(tables: Tables) -> Sequence[Comparison]:
    most = _most(tables)
    queues = _at(_average(tables, QUEUES, *ALL), most)
    findings = []
    for approach, policy in ((DEFAULT, PubendPolicy()), (CALM, CALM_POLICY)):
        ours = _at(_average(tables, approach, *ALL), most)
        idle = _at(_average(tables, approach, *_both("control"), *_both("silence")), most)
        beats = sorted({policy.heartbeat / 1e6, policy.heartbeat_idle / 1e6})
        said = f"heartbeats every {' to '.join(f'{each:g}' for each in beats)} s: "
        said += f"{ours:.1f} a second against {queues:.1f} with queues, "
        said += f"{abs(1 - ours / queues):.0%} {'less' if ours < queues else 'more'}; "
        findings.append(
            Comparison(
                f"queues make for more, 10% with {most} subscribers",
                said + f"{idle:.1f} of them are silence, acknowledgements and releases",
                ours <= queues * (1 - GAIN),
                "Silence moves the checkpoint tokens of subscribers, and acknowledgements and releases let "
                "logs go, which queues do not need, since they are lost with their broker. Without these "
                f"{ours - idle:.1f} messages are left, against {queues:.1f}.",
            )
        )
    return findings + _growth(tables, most)


def _growth(tables: Tables, most: int) -> list[Comparison]:
    """Compare what is promised here: few messages, and no faster growth than with queues."""
    curves = {approach: _average(tables, approach, *ALL) for approach in (QUEUES, DEFAULT)}
    ours = _at(curves[DEFAULT], most)
    findings = [
        Comparison(
            f"promised here: at most {MESSAGES_MAX} messages a broker and second with {most} subscribers",
            f"{ours:.1f}",
            ours <= MESSAGES_MAX,
        )
    ]
    end = int(tables["brokers"].numbers("subscribers").max())
    if end > most:
        grown = {approach: _at(curve, end) / _at(curve, most) for approach, curve in curves.items()}
        findings.append(
            Comparison(
                f"promised here: from {most} to {end} subscribers it grows no faster than with queues",
                f"{grown[DEFAULT]:.2f} times, to {_at(curves[DEFAULT], end):.1f} a second; with queues "
                f"{grown[QUEUES]:.2f} times, to {_at(curves[QUEUES], end):.1f}",
                grown[DEFAULT] <= grown[QUEUES],
            )
        )
    return findings


# Our own: how long whoever comes waits for what it missed.


def _draw_waits(tables: Tables) -> Sequence[Panel]:
    table = tables["waits"].where(approach=DEFAULT)
    kinds = sorted(set(table.words("what")) - {CONNECTED, AWAY})
    return [
        Panel(
            title,
            "subscribers",
            "ms",
            [
                PlotSeries(kind, *mean_by(table.where(what=kind), "subscribers", column), "marked")
                for kind in kinds
            ],
        )
        for title, column in (("p50", "p50_ms"), ("p99", "p99_ms"))
    ]


def _compare_waits(tables: Tables) -> Sequence[Comparison]:
    table = tables["waits"].where(approach=DEFAULT)
    names = {"start": "begins", "return": "returns to its broker", "move": "comes to another broker"}
    findings = []
    for kind, what in names.items():
        found = table.where(what=kind)
        if not found.rows:
            continue
        _, p50 = mean_by(found, "subscribers", "p50_ms")
        _, p99 = mean_by(found, "subscribers", "p99_ms")
        findings.append(
            Comparison(
                f"who {what} has what it missed within {WAIT_MS_MAX} ms at the median, with any number",
                f"p50 {p50.min():.0f} to {p50.max():.0f} ms, p99 {p99.min():.0f} to {p99.max():.0f} ms; "
                f"{int(found.numbers('number').sum()):,} times",
                bool(p50.max() <= WAIT_MS_MAX),
            )
        )
    return findings


# The paper's future work: the delay of notifications.


def _draw_delays(tables: Tables) -> Sequence[Panel]:
    return [
        Panel(
            f"{what}, p50",
            "subscribers",
            "ms",
            [
                PlotSeries(approach, *mean_by(found, "subscribers", "p50_ms"), "marked")
                for approach in (QUEUES, DEFAULT)
                for found in [tables["waits"].where(approach=approach, what=what)]
            ],
        )
        for what in (CONNECTED, AWAY)
    ]


def _compare_delays(tables: Tables) -> Sequence[Comparison]:
    findings = []
    for what, promise in (
        (CONNECTED, f"who is connected has an event within {WAIT_MS_MAX} ms at the median, with any number"),
        (AWAY, "who was away has what it missed no later than with queues, by more than a tenth of a second"),
    ):
        ours, theirs = (
            mean_by(tables["waits"].where(approach=approach, what=what), "subscribers", "p50_ms")[1]
            for approach in (DEFAULT, QUEUES)
        )
        _, slow = mean_by(tables["waits"].where(approach=DEFAULT, what=what), "subscribers", "p99_ms")
        said = (
            f"p50 {ours.min():,.0f} to {ours.max():,.0f} ms, p99 {slow.min():,.0f} to {slow.max():,.0f} ms; "
        )
        said += f"with queues p50 {theirs.min():,.0f} to {theirs.max():,.0f} ms"
        late = ours.max() if what == CONNECTED else (ours - theirs).max()
        findings.append(Comparison(promise, said, bool(late <= WAIT_MS_MAX)))
    return findings


def _figure(
    number: int,
    title: str,
    draw: Callable[..., Sequence[Panel]],
    compare: Callable[..., Sequence[Comparison]],
) -> Figure:
    return Figure(f"figure-{number}", title, f"MOPS, figure {number}", draw, compare)


FIGURES = (
    _figure(1, "Connected subscribers", _draw_connected, _compare_connected),
    _figure(2, "Queued and persistent notifications", _draw_stored, _compare_stored),
    _figure(3, "Received and sent notifications", _draw_notifications, _compare_notifications),
    _figure(4, "Received and sent unsubscriptions", _draw_unsubscriptions, _compare_unsubscriptions),
    _figure(5, "All received and sent messages", _draw_all, _compare_all),
    Figure(
        "waits",
        "How long whoever comes waits for what it missed",
        "MOPS, future work",
        _draw_waits,
        _compare_waits,
        is_ours=True,
    ),
    Figure(
        "delays",
        "Delay of notifications",
        "MOPS, future work",
        _draw_delays,
        _compare_delays,
        is_ours=True,
    ),
)
