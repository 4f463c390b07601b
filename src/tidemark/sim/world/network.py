"""Network: links between machines that delay, lose, repeat and reorder frames, and go up and down.

Hello, Links, Ways, Interest, Unfollow, Claim and Topic travel as over TCP: in order and, while the link is
up, without loss. Every other frame may be lost, repeated or overtaken, and the protocol has to survive that.
What travels together travels as the most reliable of it.

A link may have a bandwidth. Each of its directions then carries one frame at a time, and what waits leaves in
the order, and is dropped by the bound, of a real connection (`broker.outgoing`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import cast

from tidemark.broker.outgoing import HistoryQueue, is_history, undroppable
from tidemark.sim.world.engine import Action, Engine
from tidemark.wire.codec import encode, size_of
from tidemark.wire.frames import (
    Claim,
    Frame,
    Hello,
    Interest,
    Links,
    PeerFrame,
    Topic,
    Unfollow,
    Ways,
)
from tidemark.wire.peer_layouts import singly

#: Frames that arrive in order and, while the link is up, without loss.
RELIABLE_FRAMES = (Hello, Links, Ways, Interest, Unfollow, Claim, Topic)


def _is_reliable(frame: PeerFrame) -> bool:
    """Whether a frame, or one of those in it, must not be lost."""
    return any(isinstance(each, RELIABLE_FRAMES) for each in singly(frame))


@dataclass(frozen=True, slots=True)
class LinkFaults:
    """How links fail: chances are per frame, delays in microseconds."""

    delay_min: int = 100
    delay_max: int = 5_000
    loss: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0


@dataclass(frozen=True, slots=True)
class LinkRate:
    """How much a direction of a link carries, and how many bytes of a class may wait for it."""

    bytes_per_second: int
    queue_bytes_max: int = 16 << 20


@dataclass(slots=True)
class _Direction:
    """One direction of a link with a bandwidth: what waits, and whether a frame is being sent."""

    live: deque[tuple[PeerFrame, int]] = field(default_factory=deque)
    live_bytes: int = 0
    history: HistoryQueue[tuple[PeerFrame, int]] = field(default_factory=HistoryQueue)
    is_busy: bool = False
    #: bytes that have been sent
    gone: int = 0

    def put(self, frame: PeerFrame, size: int, bytes_max: int) -> bool:
        """Let `frame` wait; returns False if it is dropped instead, because too much waits."""
        if is_history(frame):
            for part in self.history.rest(frame, self.gone):
                if self.history.held_bytes > bytes_max:
                    return False
                size = size if part is frame else size_of(encode(part))
                self.history.put(part, (part, size), size)
            return True
        kept: Frame | None = frame
        if self.live_bytes > bytes_max:
            kept = undroppable(frame)
        if kept is not None:
            size = size if kept is frame else size_of(encode(kept))
            self.live.append((cast(PeerFrame, kept), size))
            self.live_bytes += size
            self.history.tell(kept, self.gone + self.live_bytes)
        return kept is frame

    def take(self) -> tuple[PeerFrame, int] | None:
        """Remove and return the frame that leaves next; None if none waits."""
        if self.live and not self.history.is_owed:
            frame, size = self.live.popleft()
            self.live_bytes -= size
            self.history.passed(size)
            return frame, size
        return self.history.take(self.gone) if self.history else None


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
        #: the rate of every link, and of (sender, receiver) for those with another; None: without bound
        self.rate: LinkRate | None = None
        self.rates: dict[tuple[str, str], LinkRate] = {}
        self._directions: dict[tuple[str, str], _Direction] = {}
        #: (sender, receiver) -> bytes that have left, of links with a bandwidth, and frames dropped
        self.carried: dict[tuple[str, str], int] = {}
        self.dropped = 0
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
        for ends in ((a, b), (b, a)):
            self._directions.pop(ends, None)

    def clog(self, sender: str, receiver: str) -> None:
        """From now on nothing arrives in this direction, while the other direction works."""
        self._clogged.add((sender, receiver))

    def unclog(self, sender: str, receiver: str) -> None:
        """Let the direction work again; reliable frames that were held arrive first."""
        self._clogged.discard((sender, receiver))
        for arrive in self._stuck.pop((sender, receiver), []):
            arrive()

    def drop_answers(self, sender: str, receiver: str, pubend: str) -> None:
        """Answers that tell of a pubend, and that wait in this direction, are not wanted any more."""
        direction = self._directions.get((sender, receiver))
        if direction is not None:
            direction.history.drop(pubend)

    def waiting_us(self) -> int:
        """Return how many microseconds it takes at the most until all that waits for a link has left."""
        return max(
            (
                (direction.live_bytes + direction.history.bytes) * 1_000_000 // rate.bytes_per_second
                for ends, direction in self._directions.items()
                if (rate := self.rates.get(ends, self.rate)) is not None
            ),
            default=0,
        )

    def send(self, sender: str, receiver: str, frame: PeerFrame) -> None:
        """Put a frame on the link, or let it wait until the link has sent what is before it."""
        for each in singly(frame):
            self._observe(sender, receiver, each)
        for each in singly(frame):
            kind = type(each).__name__
            self.sent[kind] = self.sent.get(kind, 0) + 1
        rate = self.rates.get((sender, receiver), self.rate)
        if rate is None:
            self._carry(sender, receiver, frame)
            return
        direction = self._directions.setdefault((sender, receiver), _Direction())
        self.dropped += not direction.put(frame, size_of(encode(frame)), rate.queue_bytes_max)
        if not direction.is_busy:
            self._send_next(sender, receiver, direction, rate)

    def _send_next(self, sender: str, receiver: str, direction: _Direction, rate: LinkRate) -> None:
        """Send the frame that is next, if there is one; the next after it leaves when it has left."""
        taken = direction.take()
        direction.is_busy = taken is not None
        if taken is None:
            return
        frame, size = taken

        def left() -> None:
            if self._directions.get((sender, receiver)) is direction:
                self.carried[sender, receiver] = self.carried.get((sender, receiver), 0) + size
                direction.gone += size
                self._carry(sender, receiver, frame)
                self._send_next(sender, receiver, direction, rate)

        self._engine.after(size * 1_000_000 // rate.bytes_per_second, left)

    def _carry(self, sender: str, receiver: str, frame: PeerFrame) -> None:
        faults = self.faults
        is_reliable = _is_reliable(frame)
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
            elif _is_reliable(frame):
                self._stuck.setdefault((sender, receiver), []).append(arrive)

        self._engine.at(at, arrive)
