"""MovingPublisher: a publisher that goes from one pubend of a simulated world to another, and back.

It goes at any moment, also while it is on its way, and because its broker is down or being drained. What it
sent over its last connection may arrive long after it has left, or a process of it that stood still until
then sends it again. Before it publishes at another pubend it asks the last one which of its events are there,
as the real client does (`client.publishing.publisher_move`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tidemark.sim.world.publisher import RETRY_US, SimPublisher
from tidemark.wire.frames import ClientFrame, Published, Refused
from tidemark.wire.moving.frames import Come, Leave, Left

#: The longest time between two moves, and the longest time for which a connection that was left lingers.
STAY_US = 700_000
LINGER_US = 600_000
#: After so many microseconds a pubend that has not answered is asked again.
ASK_US = 250_000


@dataclass
class MovingPublisher(SimPublisher):
    """One publisher and its place: `pubend` is where it is, or where it was told that it goes."""

    #: the pubend that it wants to publish to; "" for the one it is at
    _goal: str = ""
    _move: int = 0
    _known: int = 0
    #: the pubend knows that the publisher is there; the pubend has said that it is not
    _is_settled: bool = True
    _is_in_doubt: bool = False
    #: counts connections: frames of earlier ones are not listened to
    _connection: int = 0

    def begin(self, until: int) -> None:
        """Move now and then until that time."""

        def wander() -> None:
            if self.world.engine.now < until:
                self._go()
                self.world.engine.after(self.chance.randint(1, STAY_US), wander)

        self.world.engine.after(self.chance.randint(1, STAY_US), wander)

    def _go(self) -> None:
        """Go to any pubend; what was sent over the last connection may still arrive there."""
        pubends = self.world.layout.pubends
        machine, self._goal = self.machine, self.chance.choice(sorted(pubends))
        self.machine = pubends[self._goal]
        left, self.client = self.client, None
        self._connection += 1
        if left is not None:
            self._linger(left, machine)
        self.connect()

    def _linger(self, left: int, machine: str) -> None:
        """Send what is not acknowledged again later, over the connection that was left or another one."""
        delay = self.chance.choice((1, 1_000, self.chance.randint(1, LINGER_US)))
        batches = [(self.pubend, first, data) for first, data, _ in self._unacknowledged]
        if self.chance.random() < 0.5:
            for batch in batches:
                self.world.engine.after(delay, partial(self._send_over, left, *batch))
            self.world.engine.after(delay + 1_000, partial(self.world.disconnect, left))
        else:
            self.world.disconnect(left)
            self.world.engine.after(delay + LINGER_US, partial(self._wake_up, machine, batches))

    def _wake_up(self, machine: str, batches: list[tuple[str, int, bytes]]) -> None:
        """A former process of the publisher sends what it knows of; it does not hear any answer."""
        if self.world.is_up(machine):
            client = self.world.connect(machine, lambda _: None, lambda: None, self.name)
            for batch in batches:
                self._send_over(client, *batch)
            self.world.engine.after(1_000, partial(self.world.disconnect, client))

    def connect(self) -> None:
        """Connect to the broker of the pubend that it wants to be at."""
        if self.client is None and self.world.is_up(self.machine):
            self._connection += 1
            super().connect()
            self.world.engine.after(ASK_US, partial(self._ask_again, self._connection))
        elif self.client is None:
            self.world.engine.after(RETRY_US, self._retry)

    def _retry(self) -> None:
        if self.client is None and self.chance.random() < 0.5:
            self._goal = self.chance.choice(sorted(self.world.layout.pubends))
            self.machine = self.world.layout.pubends[self._goal]
        self.connect()

    def _ask_again(self, connection: int) -> None:
        if connection == self._connection and self.client is not None:
            if self._is_ready and not self._is_here:
                self._send_all()
            self.world.engine.after(ASK_US, partial(self._ask_again, connection))

    @property
    def _is_here(self) -> bool:
        return self.pubend == (self._goal or self.pubend) and self._is_settled and not self._is_in_doubt

    def _opened(self) -> int:
        number = self._connection
        return self.world.connect(
            self.machine,
            lambda frame: self.receive(frame) if number == self._connection else None,
            lambda: self.disconnected() if number == self._connection else None,
            self.name,
        )

    def receive(self, frame: ClientFrame) -> None:
        """Handle a frame from the broker; ViolationError if a publisher should never get it."""
        match frame:
            case Left():
                self._left(frame)
            case Refused(_, _, "moved", _):
                self._is_in_doubt = True
                self._send_all()
            case Refused(_, _, "draining", _):
                self.world.fault_counts["turned_away"] += 1
                self._go()
            case Published(pubend) if pubend == self.pubend:
                self._is_settled = True
                super().receive(frame)
            case Published():
                pass  # of the pubend that it was at before
            case _:
                super().receive(frame)

    def _left(self, frame: Left) -> None:
        if frame.pubend != self.pubend or frame.move < self._move:
            return
        if frame.to == frame.pubend and (frame.move > self._move or self._is_in_doubt):
            self._move, self._is_settled, self._is_in_doubt = frame.move, True, False
        elif frame.to != frame.pubend and frame.move > self._move:
            self._known = max(self._known, frame.sequence)
            self._acknowledge(frame.sequence)
            self.pubend, self._move = frame.to, frame.move
            self._is_settled = self._is_in_doubt = False
        else:
            return
        self._send_all()

    def _send_all(self) -> None:
        if self.client is None:
            return
        goal = self._goal or self.pubend
        known = max(self._known, self.acknowledged)
        if self.pubend != goal or self._is_in_doubt:
            to = goal if self.pubend != goal else self.pubend
            self.world.to_broker(self.client, Leave(self.pubend, self.name, known, self._move + 1, to))
            return
        if not self._is_settled:
            self.world.to_broker(self.client, Come(self.pubend, self.name, known, self._move))
        super()._send_all()

    def _send(self, first: int, data: bytes) -> None:
        if self.client is not None and self.pubend == (self._goal or self.pubend) and not self._is_in_doubt:
            self._send_over(self.client, self.pubend, first, data)
