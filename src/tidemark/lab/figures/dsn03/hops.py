"""DSN'03, section 5: the latency of an event over five hops, and the share of logging in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tidemark.broker.overlay.layout import Layout
from tidemark.lab.figures.experiment import Comparison, Figure, Panel, PlotSeries, Tables, setting
from tidemark.lab.figures.simulated_overlay import SETTLE_S, STEADY, ObservedSubscriber, SimulatedOverlay
from tidemark.lab.figures.table import Table, mean_by
from tidemark.sim.swarm.plan import WorldPlan
from tidemark.wire.frames import ClientFrame, Deliver, Published

METHOD = """
A chain of six brokers with a publisher at the first and a subscriber of everything at each: the event crosses
none to five links. Links take 1 ms, the ways of clients 0.2 ms, a sync up to 20 ms; computing takes no time.
Logging is what the publisher waits for its acknowledgement, without the ways. In the paper a sync took longer
than everything else too.
"""
HOPS = 5
CHAIN = tuple(f"b{number}" for number in range(HOPS + 1))
#: Milliseconds of a client's frame to its broker, or back.
CLIENT_MS = 0.2
#: In the paper: milliseconds over five hops, and how many of them were logging.
PAPER_MS, PAPER_LOGGING_MS = 50, 44


def measure(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Publish at a steady rate; every latency and every acknowledgement is a row."""
    seconds, rate = (3.0, 20) if quick else (60.0, 50)
    parents = dict(zip(CHAIN, (None, *CHAIN), strict=False))
    plan = WorldPlan(Layout.of_tree(parents, {"p": CHAIN[0]}), STEADY, topics=("t.x",))
    overlay = SimulatedOverlay(plan)
    latencies = Table("latencies", ("hops", "ms"))
    logging = Table("logging", ("ms",))
    overlay.listen(lambda *_: None, partial(_acknowledged, overlay, logging), lambda *_: None)

    def heard(subscriber: ObservedSubscriber, frame: Deliver) -> None:
        for at, late in overlay.latencies(frame):
            if at >= SETTLE_S:
                latencies.add(CHAIN.index(subscriber.machine), late * 1e3)

    for broker in CHAIN:
        made = overlay.subscriber(f"at-{broker}", broker)
        made.on_deliver = heard
        made.come()
    overlay.publisher("p", CHAIN[0], 1 / rate)
    overlay.run(SETTLE_S + seconds)
    say(f"{overlay.now:.0f} simulated seconds")
    overlay.finish()
    return [latencies, logging, setting(events_a_second=rate, seconds=seconds, hops=HOPS)]


def _acknowledged(overlay: SimulatedOverlay, logging: Table, broker: str, frame: ClientFrame) -> None:
    """The broker is about to send an acknowledgement: its event took this long from the publisher's hands."""
    if broker == CHAIN[0] and isinstance(frame, Published):
        at = overlay.published.get(f"{frame.publisher}/{frame.sequence}")
        if at is not None and at >= SETTLE_S:
            logging.add((overlay.now - at) * 1e3 - CLIENT_MS)


def _draw(tables: Tables) -> Sequence[Panel]:
    whole = mean_by(tables["latencies"], "hops", "ms")
    log = float(tables["logging"].numbers("ms").mean())
    lines = [
        PlotSeries("from publisher to subscriber", *whole, "marked"),
        PlotSeries("of it logging", whole[0], np.full_like(whole[0], log)),
    ]
    return [Panel("mean latency", "hops", "ms", lines)]


def _compare(tables: Tables) -> Sequence[Comparison]:
    hops, means = mean_by(tables["latencies"], "hops", "ms")
    log = float(tables["logging"].numbers("ms").mean())
    share, a_hop = log / means[-1], (means[-1] - means[0]) / (hops[-1] - hops[0])
    p99 = float(np.quantile(tables["latencies"].where(hops=HOPS).numbers("ms"), 0.99))
    return [
        Comparison(
            f"an event takes {PAPER_MS} ms over five hops, and {PAPER_LOGGING_MS} of them are logging",
            f"{means[-1]:.1f} ms (p99 {p99:.1f}), of which {log:.1f} are logging: {share:.0%}",
            bool(share > 0.5),
        ),
        Comparison(
            "because it is logged only once: each hop adds no more than its link takes",
            f"{a_hop:.2f} ms a hop, of links of 1 ms",
            bool(a_hop < 1.5),
        ),
    ]


FIGURE = Figure("hops", "Latency over five hops", "DSN'03, section 5", _draw, _compare)
