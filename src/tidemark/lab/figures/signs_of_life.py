"""SignsOfLife: the Pings and Pongs that real links would carry beside what a simulated overlay says.

The simulator's links need none, since the simulator knows which of them work. Here each side of each link is
judged by the class that judges real ones (`wire.liveness`), as often and with the settings that are set by
default. What a side says so is heard after the delay of a steady link, and taken at once by its kernel.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark.broker.outgoing import is_question
from tidemark.lab.figures.simulated_overlay import STEADY, SimulatedOverlay
from tidemark.node.config.settings import LinksSection
from tidemark.sim.swarm.plan import SECOND
from tidemark.wire.frames import PeerFrame, Ping, Pong
from tidemark.wire.liveness.liveness import Liveness

DELAY_S = STEADY.delay_max / SECOND


class SignsOfLife:
    """The signs of life on all links of a simulated overlay. Give it every frame between brokers."""

    def __init__(self, overlay: SimulatedOverlay, said: Callable[[str, str, PeerFrame], None]) -> None:
        """`said` is called with each sign: who says it, who hears it, and the frame."""
        self._overlay = overlay
        self._said = said
        settings = LinksSection()
        self._ping, self._idle = settings.ping / SECOND, settings.idle / SECOND
        #: (a broker, its neighbour) -> what the broker knows of the neighbour
        self._sides: dict[tuple[str, str], Liveness] = {}
        overlay.every(self._ping / 2, self._sweep)

    def passed(self, sender: str, receiver: str, frame: PeerFrame) -> None:
        """A broker has said something to another one."""
        now = self._overlay.now
        self._side(sender, receiver).say(now, is_question=is_question(frame))
        self._overlay.at(now + DELAY_S, lambda: self._heard(receiver, sender))

    def _side(self, broker: str, peer: str) -> Liveness:
        for ends in ((broker, peer), (peer, broker)):
            if ends not in self._sides:
                self._sides[ends] = Liveness(self._overlay.now)
        return self._sides[broker, peer]

    def _heard(self, broker: str, peer: str) -> None:
        self._side(broker, peer).hear(self._overlay.now)

    def _sweep(self) -> None:
        now = self._overlay.now
        for (broker, peer), side in list(self._sides.items()):
            if side.should_ask(now, self._ping, self._idle):
                self._say(broker, peer, Ping(0))
                side.ask(now, 0)
                self._overlay.at(now + DELAY_S, lambda a=peer, b=broker: self._say(a, b, Pong(0)))  # type: ignore[misc]
            elif side.should_speak(now, self._idle):
                self._say(broker, peer, Pong(0))

    def _say(self, sender: str, receiver: str, frame: PeerFrame) -> None:
        self._said(sender, receiver, frame)
        self.passed(sender, receiver, frame)
