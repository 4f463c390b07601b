"""Network: links between machines that delay, lose, repeat and reorder frames, and go up and down.

Hello, Links, Ways, Interest, Unfollow, Claim and Topic travel as over TCP: in order and, while the link is
up, without loss. Every other frame may be lost, repeated or overtaken, and the protocol has to survive that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tidemark.sim.world.engine import Action, Engine
from tidemark.wire.frames import Claim, Hello, Interest, Links, PeerFrame, Topic, Unfollow, Ways

#: Frames that arrive in order and, while the link is up, without loss.
RELIABLE_FRAMES = (Hello, Links, Ways, Interest, Unfollow, Claim, Topic)


@dataclass(frozen=True, slots=True)
class LinkFaults:
    """How links fail: chances are per frame, delays in microseconds."""

    delay_min: int = 100
    delay_max: int = 5_000
    loss: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0


class Network:
    """All links. A link's `session` changes when it goes down: frames of an old session never arrive."""

    def __init__(
        self,
        engine: Engine,
        chance: Random,
        observe: Callable[[str, str, PeerFrame], None],
        deliver: Callable[[str, str, PeerFrame], None],
    ) -> None:
        """`observe` sees every frame that is sent, `deliver` those that arrive."""
        self._engine = engine
        self._chance = chance
        self._observe = observe
        self._deliver = deliver
        self.faults = LinkFaults()
        self._session: dict[frozenset[str], int] = {}
        #: (sender, receiver) -> the arrival time of the last frame that must not be overtaken
        self._arrival: dict[tuple[str, str], int] = {}
        #: (sender, receiver) of directions that carry nothing for now
        self._clogged: set[tuple[str, str]] = set()
        #: (sender, receiver) -> arrivals of reliable frames that wait until the direction works again
        self._stuck: dict[tuple[str, str], list[Action]] = {}
        self.sent: dict[str, int] = {}

    def cut(self, a: str, b: str) -> None:
        """End the session of a link: frames on the way are lost."""
        pair = frozenset((a, b))
        self._session[pair] = self._session.get(pair, 0) + 1

    def clog(self, sender: str, receiver: str) -> None:
        """From now on nothing arrives in this direction, while the other direction works."""
        self._clogged.add((sender, receiver))

    def unclog(self, sender: str, receiver: str) -> None:
        """Let the direction work again; reliable frames that were held arrive first."""
        self._clogged.discard((sender, receiver))
        for arrive in self._stuck.pop((sender, receiver), []):
            arrive()

    def send(self, sender: str, receiver: str, frame: PeerFrame) -> None:
        """Put a frame on the link."""
        faults = self.faults
        self._observe(sender, receiver, frame)
        kind = type(frame).__name__
        self.sent[kind] = self.sent.get(kind, 0) + 1
        is_reliable = isinstance(frame, RELIABLE_FRAMES)
        if not is_reliable and self._chance.random() < faults.loss:
            return
        copies = 2 if not is_reliable and self._chance.random() < faults.repeat else 1
        for _ in range(copies):
            self._schedule(
                sender, receiver, frame, in_order=is_reliable or self._chance.random() >= faults.reorder
            )

    def _schedule(self, sender: str, receiver: str, frame: PeerFrame, *, in_order: bool) -> None:
        pair = frozenset((sender, receiver))
        session = self._session.get(pair, 0)
        at = self._engine.now + self._chance.randint(self.faults.delay_min, self.faults.delay_max)
        if in_order:
            at = max(at, self._arrival.get((sender, receiver), 0))
            self._arrival[sender, receiver] = at

        def arrive() -> None:
            if self._session.get(pair, 0) != session:
                return
            if (sender, receiver) not in self._clogged:
                self._deliver(sender, receiver, frame)
            elif isinstance(frame, RELIABLE_FRAMES):
                self._stuck.setdefault((sender, receiver), []).append(arrive)

        self._engine.at(at, arrive)
