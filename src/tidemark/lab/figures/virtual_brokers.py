"""Virtual brokers: what the connection to a process with two brokers carries, in two layouts and with one.

In the papers a physical broker may be several virtual ones, and what goes to several of them travels in one
message. Here a tree reaches the second broker of a process through the first (docs/decisions/21).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tidemark.broker.overlay.layout import Layout
from tidemark.lab.figures.experiment import Comparison, Figure, Panel, PlotSeries, Tables, setting
from tidemark.lab.figures.signs_of_life import SignsOfLife
from tidemark.lab.figures.simulated_overlay import SETTLE_S, STEADY, SimulatedOverlay
from tidemark.lab.figures.table import Table
from tidemark.sim.swarm.plan import WorldPlan
from tidemark.wire.codec import encode, size_of
from tidemark.wire.frames import PeerFrame

METHOD = """
One process has the broker p with two pubends, another has the brokers v1 and v2 with a durable subscriber of
everything each. *Each by itself*: both have a link to p. *One behind the other*: v1 has, and v2 has one to
v1, which is a queue in memory. *One broker*: v1 alone, with both subscribers. Everything that crosses between
the processes is counted, both ways, signs of life included, while there are events and while there are none.
"""
LINKS = "links"
ALONE, APART, BEHIND = "one broker", "each by itself", "one behind the other"
#: name of a layout -> broker -> its parent
LAYOUTS = {
    ALONE: {"p": None, "v1": "p"},
    APART: {"p": None, "v1": "p", "v2": "p"},
    BEHIND: {"p": None, "v1": "p", "v2": "v1"},
}
BUSY, IDLE = "with events", "idle"
PUBENDS = ("q1", "q2")
#: What counts as the same.
ROOM = 0.1
CALM_S = 15.0


class TwoProcesses:
    """A simulated overlay, and what crosses between its two processes."""

    def __init__(self, layout: str, rate: int) -> None:
        parents = LAYOUTS[layout]
        self.overlay = SimulatedOverlay(
            WorldPlan(Layout.of_tree(parents, dict.fromkeys(PUBENDS, "p")), STEADY, topics=("t.x",))
        )
        self._signs = SignsOfLife(self.overlay, self._counted)
        self.overlay.listen(self._between, lambda *_: None, lambda *_: None)
        self._frames = self._bytes = 0
        for pubend in PUBENDS:
            self.overlay.publisher(pubend, "p", len(PUBENDS) / rate)
        for number, host in enumerate(("v1", "v2" if "v2" in parents else "v1")):
            self.overlay.subscriber(f"s{number}", host).come()
        self.overlay.run(2 * SETTLE_S)

    def _between(self, sender: str, receiver: str, frame: PeerFrame) -> None:
        self._counted(sender, receiver, frame)
        self._signs.passed(sender, receiver, frame)

    def _counted(self, sender: str, receiver: str, frame: PeerFrame) -> None:
        if "p" in (sender, receiver):
            self._frames += 1
            self._bytes += size_of(encode(frame))

    def counted(self, seconds: float) -> tuple[float, float]:
        """Run for `seconds`; returns the frames and the bytes a second."""
        self._frames = self._bytes = 0
        self.overlay.run(self.overlay.now + seconds)
        return self._frames / seconds, self._bytes / seconds


def measure(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Measure each layout with events, and idle."""
    seconds, rate = (5.0, 10) if quick else (30.0, 20)
    table = Table(LINKS, ("layout", "phase", "frames_a_second", "bytes_a_second"))
    for layout in LAYOUTS:
        world = TwoProcesses(layout, rate)
        table.add(layout, BUSY, *world.counted(seconds))
        world.overlay.stop_publishing()
        world.overlay.run(world.overlay.now + CALM_S)
        table.add(layout, IDLE, *world.counted(seconds))
        world.overlay.finish()
        say(layout)
    return [table, setting(events_a_second=rate, seconds=seconds, pubends=len(PUBENDS))]


def _of(tables: Tables, layout: str, phase: str, column: str) -> float:
    return float(tables[LINKS].where(layout=layout, phase=phase).numbers(column)[0])


def _draw(tables: Tables) -> Sequence[Panel]:
    at = np.arange(1.0, len(LAYOUTS) + 1)
    return [
        Panel(
            "between the processes",
            ", ".join(LAYOUTS),
            column.replace("_", " "),
            [
                PlotSeries(
                    phase, at, np.array([_of(tables, each, phase, column) for each in LAYOUTS]), "marked"
                )
                for phase in (BUSY, IDLE)
            ],
        )
        for column in ("frames_a_second", "bytes_a_second")
    ]


def _compare(tables: Tables) -> Sequence[Comparison]:
    findings = []
    for phase in (BUSY, IDLE):
        parts, is_same = [], True
        for column, unit in (("frames_a_second", "frames"), ("bytes_a_second", "bytes")):
            alone, apart, behind = (_of(tables, each, phase, column) for each in (ALONE, APART, BEHIND))
            is_same &= behind <= alone * (1 + ROOM)
            parts.append(
                f"{behind:,.1f} {unit} a second; one broker takes {alone:,.1f}, and two by themselves "
                f"{apart:,.1f}"
            )
        findings.append(
            Comparison(
                f"{phase}: what goes to several virtual brokers of a process travels once",
                "; ".join(parts),
                is_same,
            )
        )
    return findings


FIGURE = Figure("virtual-brokers", "Virtual brokers", "DSN'02, virtual brokers", _draw, _compare)
