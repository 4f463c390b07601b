"""The experiments of DSN'03 on simulated time: one publisher hosting broker, one subscriber hosting broker.

Links and disks take simulated time, computing takes none: the protocol is measured, not the processor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tidemark.broker.overlay.layout import Layout
from tidemark.lab.figures.dsn03.figures import (
    BEHIND_S,
    KINDS,
    PUBENDS,
    Disconnections,
    HostCrash,
    phases_table,
)
from tidemark.lab.figures.dsn03.progress import ProgressSamples
from tidemark.lab.figures.simulated_overlay import SETTLE_S, STEADY, ObservedSubscriber, SimulatedOverlay
from tidemark.lab.figures.table import Table
from tidemark.sim.swarm.plan import WorldPlan
from tidemark.wire import answers
from tidemark.wire.frames import Deliver

DISCONNECTIONS = Disconnections(
    events_a_second=800, subscribers=40, seconds=100, every_seconds=60, away_seconds=5
)
DISCONNECTIONS_QUICK = Disconnections(80, 4, 12, every_seconds=4, away_seconds=1, sample_seconds=0.25)
CRASH = HostCrash(
    events_a_second=800,
    subscribers=40,
    before_seconds=10,
    down_seconds=25,
    after_seconds=10,
    sample_seconds=0.1,
)
CRASH_QUICK = HostCrash(80, 4, 3, down_seconds=3, after_seconds=3)


class TwoBrokers(ProgressSamples):
    """phb and shb with four pubends, subscribers of a quarter of the events each, and samples of progress."""

    def __init__(self, events_a_second: int, subscribers: int, sample_seconds: float) -> None:
        layout = Layout.of_tree({"phb": None, "shb": "phb"}, dict.fromkeys(PUBENDS, "phb"))
        plan = WorldPlan(layout, STEADY, topics=("t.x",))
        self.overlay = SimulatedOverlay(plan)
        super().__init__(lambda tick: self.overlay.time_of(tick) * 1e3)
        #: subscriber that is catching up -> (left, returned)
        self._catching_up: dict[str, tuple[float, float]] = {}
        self._left: dict[str, float] = {}
        every = len(PUBENDS) / events_a_second
        for at, pubend in enumerate(PUBENDS):
            self.overlay.publisher(pubend, "phb", every, SETTLE_S / 2 + at * every / len(PUBENDS))
        for number in range(subscribers):
            kind = KINDS[number % len(KINDS)]
            made = self.overlay.subscriber(f"s{number}", "shb", f"kind = '{kind}'")
            made.on_deliver = self._heard
            made.come()
        self.overlay.run(SETTLE_S)
        self.overlay.ask_repeatedly("shb", answers.STREAMS, sample_seconds, self.sample_delivered)
        self.overlay.every(sample_seconds, self._note_while_down)
        self.overlay.ask_repeatedly("phb", answers.PUBENDS, sample_seconds, self.sample_released)

    def _note_while_down(self) -> None:
        if not self.overlay.world.is_up("shb"):
            self.sample_delivered(self.overlay.now, [])

    def leave(self, subscriber: ObservedSubscriber) -> None:
        """Let a subscriber leave."""
        self._left[subscriber.name] = self.overlay.now
        subscriber.leave()

    def come(self, subscriber: ObservedSubscriber) -> None:
        """Let a subscriber return."""
        subscriber.told.clear()
        self._catching_up[subscriber.name] = self._left[subscriber.name], self.overlay.now
        subscriber.come()

    def _heard(self, subscriber: ObservedSubscriber, _: Deliver) -> None:
        absence = self._catching_up.get(subscriber.name)
        if absence is None or len(subscriber.told) < len(PUBENDS):
            return
        left, returned = absence
        if all(self.overlay.time_of(tick) >= returned for tick in subscriber.told.values()):
            del self._catching_up[subscriber.name]
            self.returns.add(subscriber.name, left, returned, self.overlay.now - returned)

    @property
    def is_catching_up(self) -> bool:
        """Whether some subscriber has not caught up."""
        return bool(self._catching_up)


def coming_and_going(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Figures 5 and 6: subscribers leave in turn, evenly over time."""
    effort = DISCONNECTIONS_QUICK if quick else DISCONNECTIONS
    world = TwoBrokers(effort.events_a_second, effort.subscribers, effort.sample_seconds)
    overlay, end = world.overlay, world.overlay.now + effort.seconds
    for number, leaves, returns in effort.absences(overlay.now):
        overlay.at(leaves, partial(world.leave, overlay.subscribers[number]))
        overlay.at(returns, partial(world.come, overlay.subscribers[number]))
    _run(overlay, end, say)
    overlay.finish()
    return [
        world.progress,
        world.returns,
        effort.setting(),
    ]


def crash(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Figure 7: the subscriber hosting broker is down; subscribers return once its constream has it all."""
    effort = CRASH_QUICK if quick else CRASH
    world = TwoBrokers(effort.events_a_second, effort.subscribers, effort.sample_seconds)
    overlay, phases = world.overlay, phases_table()
    _run(overlay, overlay.now + effort.before_seconds, say)
    phases.add("down", overlay.now)
    for subscriber in overlay.subscribers:
        world.leave(subscriber)
    overlay.world.crash("shb")
    _run(overlay, overlay.now + effort.down_seconds, say)
    phases.add("up", overlay.now)
    overlay.world.restart("shb")
    while world.delivered() < overlay.now - BEHIND_S:
        overlay.run(overlay.now + effort.sample_seconds / 10)
    phases.add("delivered", overlay.now)
    phases.add("returned", overlay.now)
    for subscriber in overlay.subscribers:
        world.come(subscriber)
    while world.is_catching_up:
        overlay.run(overlay.now + effort.sample_seconds)
    _run(overlay, overlay.now + effort.after_seconds, say)
    phases.add("end", overlay.now)
    overlay.finish()
    return [
        world.progress,
        world.returns,
        phases,
        effort.setting(),
    ]


def _run(overlay: SimulatedOverlay, until: float, say: Callable[[str], None]) -> None:
    while overlay.now < until:
        overlay.run(min(until, overlay.now + 10))
        say(f"{overlay.now:.0f} simulated seconds")
