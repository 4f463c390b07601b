"""The overlay of the experiments of DSN'02, in which links and brokers fail, on simulated time.

p1 hosts the publishers; b1 and b2 are a cell of relays; s1 to s5 host the subscribers, each linked to both
relays. The latency of each event at each subscriber and the ranges that each broker nacks are measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidemark.broker.overlay.layout import MAIN_TREE, Layout, pair
from tidemark.lab.figures.simulated_overlay import SETTLE_S, STEADY, ObservedSubscriber, SimulatedOverlay
from tidemark.lab.figures.table import Table
from tidemark.sim.swarm.plan import SECOND, WorldPlan
from tidemark.wire.frames import Deliver, Nack, PeerFrame
from tidemark.wire.peer_layouts import singly

RELAYS = ("b1", "b2")
HOSTS = ("s1", "s2", "s3", "s4", "s5")
#: By the hash of their names the first two are routed through b1 to all hosts, the others through b2.
PUBENDS = ("q82", "q181", "q62", "q68")
LATENCY, NACKS = "latency", "nacks"


class FailingOverlay(Protocol):
    """An overlay whose links and brokers can be made to fail. Times are seconds since the start."""

    latency: Table
    nacks: Table

    @property
    def now(self) -> float:
        """The time."""

    def run(self, until: float) -> None:
        """Let time pass."""

    def stall_link(self, a: str, b: str) -> None:
        """Let a link carry nothing, without telling its ends."""

    def fail_link(self, a: str, b: str) -> None:
        """Take a link down; both ends notice."""

    def mend_link(self, a: str, b: str) -> None:
        """Bring a link up again."""

    def stall(self, broker: str, seconds: float) -> None:
        """Stop a broker for some seconds, without telling its neighbours."""

    def crash(self, broker: str) -> None:
        """Crash a broker."""

    def restart(self, broker: str) -> None:
        """Start a broker again."""

    def finish(self) -> None:
        """Check that every subscriber got everything once and in order; raises an error otherwise."""


class SimulatedFailures:
    """A `FailingOverlay` in the simulator."""

    def __init__(self, layout: Layout, events_a_second: float) -> None:
        self.latency = Table(LATENCY, ("published_s", "host", "pubend", "latency_ms"))
        #: a row for each range of a nack
        self.nacks = Table(NACKS, ("time_s", "broker", "to", "pubend", "base_ms", "range_ms"))
        self._overlay = SimulatedOverlay(WorldPlan(layout, STEADY, topics=("t.x",)))
        self._overlay.listen(self._between, lambda *_: None, lambda *_: None)
        every = len(layout.pubends) / events_a_second
        for at, pubend in enumerate(layout.pubends):
            self._overlay.publisher(pubend, "p1", every, SETTLE_S / 2 + at * every / len(layout.pubends))
        for host in HOSTS:
            subscriber = self._overlay.subscriber(f"at-{host}", host)
            subscriber.on_deliver = self._heard
            subscriber.come()
        self._overlay.run(SETTLE_S)

    def _between(self, sender: str, receiver: str, frame: PeerFrame) -> None:
        for nack in [each for each in singly(frame) if isinstance(each, Nack)]:
            for base, upto in nack.ranges:
                start = self._overlay.time_of(base) * 1e3
                self.nacks.add(self.now, sender, receiver, nack.pubend, start, (upto - base) / 1e3)

    def _heard(self, subscriber: ObservedSubscriber, frame: Deliver) -> None:
        for published, latency in self._overlay.latencies(frame):
            self.latency.add(published, subscriber.machine, frame.pubend, latency * 1e3)

    @property
    def now(self) -> float:
        """The time."""
        return self._overlay.now

    def run(self, until: float) -> None:
        """Let time pass."""
        self._overlay.run(until)

    def stall_link(self, a: str, b: str) -> None:
        """Let no frame arrive on a link from now on."""
        self._overlay.world.network.clog(a, b)
        self._overlay.world.network.clog(b, a)

    def fail_link(self, a: str, b: str) -> None:
        """Take a link down."""
        self._overlay.world.cut(a, b)

    def mend_link(self, a: str, b: str) -> None:
        """Bring a link up again."""
        self._overlay.world.network.unclog(a, b)
        self._overlay.world.network.unclog(b, a)
        self._overlay.world.mend(a, b)

    def stall(self, broker: str, seconds: float) -> None:
        """Stop the process for some seconds."""
        self._overlay.world.machines[broker].pause(round(seconds * SECOND))

    def crash(self, broker: str) -> None:
        """Crash the machine."""
        self._overlay.world.crash(broker)

    def restart(self, broker: str) -> None:
        """Start the machine again."""
        self._overlay.world.restart(broker)

    def finish(self) -> None:
        """Let the world rest and check it."""
        self._overlay.finish()


def layout_of(
    relays: Sequence[str] = RELAYS, pubends: Sequence[str] = PUBENDS, hosts: Sequence[str] = HOSTS
) -> Layout:
    """Returns p1, a cell of relays, and the hosts, each a cell of its own with a link to every relay."""
    outer = ("p1", *hosts)
    links = frozenset(pair(relay, each) for relay in relays for each in outer)
    cells = {"relays": tuple(relays), **{each: (each,) for each in outer}}
    tree = frozenset(pair("relays", each) for each in outer)
    return Layout(cells, links, dict.fromkeys(pubends, "p1"), {MAIN_TREE: tree})
