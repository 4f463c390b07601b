"""Other ways to roam than in MOPS, and subscribers that want a part of the events: its future work."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from random import Random

import numpy as np

from tidemark.broker.publishing.pubend import PubendPolicy
from tidemark.lab.figures.experiment import Comparison, Figure, Panel, PlotSeries, Tables, setting
from tidemark.lab.figures.mops.persistence import PersistenceApproach
from tidemark.lab.figures.mops.queueing import QueueApproach
from tidemark.lab.figures.mops.roaming import (
    KINDS,
    OPEN_TO_ALL,
    PARENTS,
    Approach,
    Mobility,
    RoamingRun,
    RoamingTables,
    anywhere,
)
from tidemark.lab.figures.table import Numbers, Table
from tidemark.sim.swarm.workers import in_order

METHOD = """
As for the figures of MOPS, with as many subscribers as the paper has at the most, who roam in other ways.
They go *anywhere*, as in the paper; *next door*, to a broker that has a link to the last one or to a
neighbour of it; or *home*, to their first broker four times out of five. With *selective* subscriptions each
subscriber wants a quarter of the events and goes anywhere. Queues exist only for subscribers of everything.
Whoever comes home finds its queue there, which makes for no message between brokers: that is where queues are
at their best. What Tidemark says does not depend on where subscribers go. With selective subscriptions a
broker still receives nearly everything as soon as it has several subscribers.
"""
QUEUES, TIDEMARK = "queues", "tidemark"
SELECTIVE = "selective"
QUARTERS = tuple(f"kind = '{kind}'" for kind in "abcd")
HOME_SHARE = 0.8


def next_door(chance: Random, been: list[str]) -> str:
    """Go to a broker that has a link to the last one, or a link to the same one as that."""
    if not been:
        return chance.choice(OPEN_TO_ALL)
    last = been[-1]
    near = [each for each in OPEN_TO_ALL if each != last and _is_near(each, last)]
    return chance.choice(near)


def _is_near(a: str, b: str) -> bool:
    return b == PARENTS[a] or a == PARENTS[b] or PARENTS[a] == PARENTS[b]


def home(chance: Random, been: list[str]) -> str:
    """Go to the first broker most of the time, else to any other."""
    is_home = been and chance.random() < HOME_SHARE
    return been[0] if is_home else chance.choice(OPEN_TO_ALL)


MODELS: dict[str, Mobility] = {"anywhere": anywhere, "next door": next_door, "home": home}
#: (model or SELECTIVE, approach, subscribers, run, seconds)
Case = tuple[str, str, int, int, float]


def cases(quick: bool) -> list[Case]:
    """Returns all cases."""
    subscribers, runs, seconds = (6, 1, 6.0) if quick else (35, 2, 60.0)
    pairs = [(model, approach) for model in MODELS for approach in (QUEUES, TIDEMARK)]
    return [
        (model, approach, subscribers, run, seconds)
        for model, approach in [*pairs, (SELECTIVE, TIDEMARK)]
        for run in range(runs)
    ]


def played(case: Case) -> RoamingTables:
    """Run one case; called in a process of its own."""
    model, name, subscribers, run, seconds = case
    approach: Approach = QueueApproach()
    if name == TIDEMARK:
        wanted = QUARTERS if model == SELECTIVE else ("",)
        approach = PersistenceApproach(TIDEMARK, PubendPolicy(), wanted)
    return RoamingRun(approach, subscribers, run, seconds, MODELS.get(model, anywhere)).play()


def measure(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Measure both approaches with each way to roam."""
    chosen = cases(quick)
    messages = Table("messages", ("model", "approach", "run", *KINDS))
    waits = Table("waits", ("model", "run", "what", "number", "p50_ms", "p99_ms"))
    wrong = Table("deliveries", ("model", "approach", "run", "expected", "missed", "repeated"))
    with closing(in_order(played, chosen, 1 if quick else os.cpu_count() or 1)) as outcomes:
        for (model, approach, _, run, _), found in zip(chosen, outcomes, strict=True):
            sums = [
                found.brokers.numbers(f"received_{kind}").mean()
                + found.brokers.numbers(f"sent_{kind}").mean()
                for kind in KINDS
            ]
            messages.add(model, approach, run, *sums)
            wrong.add(model, approach, run, *found.deliveries.rows[0][3:])
            if approach == TIDEMARK:
                for row in found.waits.rows:
                    waits.add(model, run, *row[3:])
            say(f"{model}, {approach}, run {run + 1}")
    _, _, subscribers, _, seconds = chosen[0]
    runs = max(each[3] for each in chosen) + 1
    return [messages, waits, wrong, setting(subscribers=subscribers, seconds_a_run=seconds, runs=runs)]


def _all(tables: Tables, model: str, approach: str) -> float:
    """Returns all messages a broker and second."""
    table = tables["messages"].where(model=model, approach=approach)
    return float(sum(table.numbers(kind).mean() for kind in KINDS))


def _notifications(tables: Tables, model: str) -> float:
    return float(tables["messages"].where(model=model, approach=TIDEMARK).numbers("notification").mean())


def _bars(values: Sequence[float]) -> tuple[Numbers, Numbers]:
    return np.arange(float(len(values))), np.array(values)


def _draw(tables: Tables) -> Sequence[Panel]:
    lines = [
        PlotSeries(approach, *_bars([_all(tables, model, approach) for model in MODELS]), "marked")
        for approach in (QUEUES, TIDEMARK)
    ]
    axis = ", ".join(f"{at} {model}" for at, model in enumerate(MODELS))
    return [Panel("all messages", axis, "messages a second and broker", lines)]


def _compare(tables: Tables) -> Sequence[Comparison]:
    findings = []
    for model in MODELS:
        ours, queues = _all(tables, model, TIDEMARK), _all(tables, model, QUEUES)
        moves = tables["waits"].where(model=model, what="move").numbers("p50_ms")
        findings.append(
            Comparison(
                f"{model}: Tidemark takes at most a quarter more messages than queues",
                f"{ours:.1f} a broker and second against {queues:.1f}; who moves waits "
                f"{moves.mean():.0f} ms at the median",
                ours <= 1.25 * queues,
                "Whoever comes home finds its queue there, which makes for no message between brokers. "
                "Tidemark says as much as ever, since its logs are where events are published: to say less, "
                "events would have to be kept where they are expected to be wanted.",
            )
        )
    part, whole = _notifications(tables, SELECTIVE), _notifications(tables, "anywhere")
    deliveries = tables["deliveries"].where(approach=TIDEMARK)
    missed = int(deliveries.numbers("missed").sum() + deliveries.numbers("repeated").sum())
    return [
        *findings,
        Comparison(
            "who wants a quarter makes for fewer notifications than who wants everything, by a third",
            f"{part:.1f} a broker and second against {whole:.1f}",
            part < whole * 2 / 3,
        ),
        Comparison("everybody gets what it wants, once", f"{missed} missed or repeated", missed == 0),
    ]


FIGURE = Figure("models", "Other ways to roam", "MOPS, future work", _draw, _compare, is_ours=True)
