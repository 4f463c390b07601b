"""Idle links: what brokers send each other while there are no events, link by link, and its bound.

A pubend sends silence down its tree once a heartbeat; heartbeats get rarer while there are no events. Silence
waits for company at every broker, and a side that has said nothing for a while says a word. So each way a
link carries about a frame a second at the most, however many pubends and subscribers there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from tidemark.broker.publishing.pubend import PubendPolicy
from tidemark.lab.figures.dsn02.overlay import RELAYS, layout_of
from tidemark.lab.figures.experiment import Comparison, Figure, Panel, PlotSeries, Tables, setting, settings
from tidemark.lab.figures.signs_of_life import SignsOfLife
from tidemark.lab.figures.simulated_overlay import SETTLE_S, STEADY, SimulatedOverlay
from tidemark.lab.figures.table import Table
from tidemark.sim.swarm.plan import SECOND, WorldPlan
from tidemark.wire.codec import encode, size_of
from tidemark.wire.frames import PeerFrame
from tidemark.wire.peer_layouts import singly

METHOD = """
p1 with three pubends, a cell of two relays, three hosts with subscribers of everything; all set by default.
There are events for a while; some time after the last one all that brokers say to each other is counted, as
it is encoded. The simulator's links need no signs of life: those that real links would carry are added by
the class that judges real links, with the settings as they are by default. The bound, for each way of a link:
a frame a second, of 64 bytes for each pubend.
"""
PUBENDS = ("q1", "q2", "q3")
HOSTS = ("s1", "s2", "s3")
LINKS = "links"
#: Frames a second each way of a link, and the bytes of one for each pubend, at the most.
BOUND = 1.0
FRAME_BYTES_MAX = 64
#: Seconds after the last event until heartbeats are at their rarest.
CALM_S = 15.0


class IdleOverlay:
    """A simulated overlay that has had events and is idle now."""

    def __init__(self, subscribers_a_host: int) -> None:
        self._overlay = SimulatedOverlay(
            WorldPlan(layout_of(RELAYS, PUBENDS, HOSTS), STEADY, topics=("t.x",))
        )
        self._signs = SignsOfLife(self._overlay, self._counted)
        self._overlay.listen(self._between, lambda *_: None, lambda *_: None)
        self._frames: Counter[tuple[str, str, str]] = Counter()
        self._bytes: Counter[tuple[str, str, str]] = Counter()
        for pubend in PUBENDS:
            self._overlay.publisher(pubend, "p1", 0.1)
        for host in HOSTS:
            for number in range(subscribers_a_host):
                self._overlay.subscriber(f"{host}-{number}", host).come()
        self._overlay.run(2 * SETTLE_S)
        self._overlay.stop_publishing()
        self._overlay.run(self._overlay.now + CALM_S)

    def _between(self, sender: str, receiver: str, frame: PeerFrame) -> None:
        self._counted(sender, receiver, frame)
        self._signs.passed(sender, receiver, frame)

    def _counted(self, sender: str, receiver: str, frame: PeerFrame) -> None:
        which = sender, receiver, " + ".join(sorted({type(each).__name__ for each in singly(frame)}))
        self._frames[which] += 1
        self._bytes[which] += size_of(encode(frame))

    def counted(self, seconds: float) -> list[tuple[str, str, str, float, float]]:
        """Run for `seconds`; returns (sender, receiver, kind, frames a second, bytes a second)."""
        self._frames.clear()
        self._bytes.clear()
        self._overlay.run(self._overlay.now + seconds)
        return [
            (*which, count / seconds, self._bytes[which] / seconds)
            for which, count in sorted(self._frames.items())
        ]

    def finish(self) -> None:
        """Check that every subscriber got everything once and in order."""
        self._overlay.finish()


def measure(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Measure an idle overlay with few subscribers and one with more."""
    seconds, numbers = (20.0, (1, 4)) if quick else (60.0, (1, 20))
    table = Table(LINKS, ("subscribers", "sender", "receiver", "kind", "frames_a_second", "bytes_a_second"))
    for number in numbers:
        say(f"{number} subscribers at each host, idle for {seconds:g} simulated seconds")
        overlay = IdleOverlay(number)
        for row in overlay.counted(seconds):
            table.add(number, *row)
        overlay.finish()
    said = setting(
        pubends=len(PUBENDS),
        hosts=len(HOSTS),
        seconds=seconds,
        beat_seconds=PubendPolicy().heartbeat_idle / SECOND,
    )
    return [table, said]


def _by_link(tables: Tables, subscribers: int, column: str) -> dict[str, float]:
    """Returns link, with its direction -> the sum of a column over all kinds of frames."""
    table = tables[LINKS].where(subscribers=subscribers)
    found: dict[str, float] = {}
    for a, b, value in zip(
        table.words("sender"), table.words("receiver"), table.numbers(column), strict=True
    ):
        link = f"{a} to {b}"
        found[link] = found.get(link, 0.0) + float(value)
    return found


def _numbers(tables: Tables) -> tuple[int, int]:
    """Returns the smaller and the larger number of subscribers at each host."""
    found = tables[LINKS].numbers("subscribers")
    return int(found.min()), int(found.max())


def _bytes_bound(tables: Tables) -> float:
    """Returns the bound of one way of a link in bytes a second."""
    return BOUND * FRAME_BYTES_MAX * int(settings(tables)["pubends"])


def _compare(tables: Tables) -> Sequence[Comparison]:
    few, many = _numbers(tables)
    frames, size = (_by_link(tables, many, column) for column in ("frames_a_second", "bytes_a_second"))
    busiest, most_bytes = max(frames, key=lambda link: frames[link]), _bytes_bound(tables)
    before = _by_link(tables, few, "frames_a_second")
    most = max(abs(frames[link] - before.get(link, 0.0)) for link in frames)
    kinds = sorted(set(tables[LINKS].words("kind")))
    average = {name: np.mean(list(each.values())) for name, each in (("frames", frames), ("bytes", size))}
    return [
        Comparison(
            f"{BOUND:g} frame a second each way of a link at the most, with everything counted",
            f"{frames[busiest]:.2f} from {busiest}, the busiest; {average['frames']:.2f} on average of the "
            f"{len(frames)} ways",
            frames[busiest] <= BOUND,
        ),
        Comparison(
            f"{most_bytes:g} bytes a second",
            f"{max(size.values()):.0f} at the most, {average['bytes']:.0f} on average",
            max(size.values()) <= most_bytes,
        ),
        Comparison(
            "nothing but silence and signs of life: nobody reports, asks, claims or looks for another way",
            ", ".join(kinds),
            set(kinds) <= {"Knowledge", "Pong"},
        ),
        Comparison(
            "the same however many subscribers there are",
            f"with {many} at each host {most:.2f} frames a second more or less than with {few}, at the most",
            most <= BOUND / 10,
        ),
    ]


def _draw(tables: Tables) -> Sequence[Panel]:
    panels = []
    for column, unit in (("frames_a_second", "frames a second"), ("bytes_a_second", "bytes a second")):
        lines = []
        for number in _numbers(tables):
            found = sorted(_by_link(tables, number, column).values(), reverse=True)
            rank = np.arange(1, len(found) + 1, dtype=np.float64)
            lines.append(PlotSeries(f"{number} subscribers a host", rank, np.array(found), "marked"))
        bound = _bytes_bound(tables) if column.startswith("bytes") else BOUND
        lines.append(PlotSeries("bound", np.array([1.0, len(found)]), np.array([bound, bound])))
        panels.append(Panel("of each way of a link, busiest first", "way", unit, lines))
    return panels


FIGURE = Figure("idle-links", "Idle links", "the overlay", _draw, _compare, is_ours=True)
