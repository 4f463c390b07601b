"""PublisherPlace: at which pubend a named publisher is, and how it gets from there to another one.

Events of a named publisher are in the pubend that its first broker hosts. When the client is connected to a
broker that does not host that pubend, the publisher asks the pubend to let it go: Leave, answered by Left,
which says which of its events are there. Then it tells a pubend of the new broker that it comes, and sends
the others there. While nobody answers it waits, since an event that it sent somewhere else could be logged
twice. The moves of a publisher are numbered, so that each pubend knows which of two is the later one. This
module knows no clock and no socket.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.client.publishing.outgoing import PublisherStream
from tidemark.wire import rendezvous
from tidemark.wire.moving.frames import Come, Leave, Left


class PublisherPlace:
    """Where one named publisher is; its stream's pubend is the one that it is at, or goes to."""

    def __init__(self, stream: PublisherStream) -> None:
        self.stream = stream
        #: the number of the move that brought the publisher to its pubend; 0 if it was there from the start
        self._move = 0
        #: pubends have the events up to this one
        self._sequence = 0
        #: the pubend knows that the publisher is there
        self._is_settled = True
        #: the pubend has refused the publisher, which has moved on by what it knows
        self._is_in_doubt = False
        #: the next step was said on this connection, and is not answered
        self._is_said = False

    def next_step(self, hosted: Sequence[str]) -> Leave | Come | None:
        """Return what to say to a broker that hosts these pubends; None if there is nothing to say just now.

        Batches can be sent if the broker hosts the stream's pubend and this returned no Leave.
        """
        stream = self.stream
        if self._is_said or not hosted:
            return None
        known = max(self._sequence, stream.acknowledged)
        if stream.pubend not in hosted or self._is_in_doubt:
            # At the broker of the pubend itself the question is only where the publisher is.
            is_here = stream.pubend in hosted
            to = stream.pubend if is_here else rendezvous.chosen(stream.publisher, hosted)
            self._is_said = True
            return Leave(stream.pubend, stream.publisher, known, self._move + 1, to)
        if self._is_settled:
            return None
        self._is_said = True
        return Come(stream.pubend, stream.publisher, known, self._move)

    def is_ready(self, hosted: Sequence[str]) -> bool:
        """Whether events can be sent to a broker that hosts these pubends, once `next_step` was said."""
        return self.stream.pubend in hosted and not self._is_in_doubt

    def again(self) -> None:
        """Say what is not answered again: the connection is another one, or nobody has answered for long."""
        self._is_said = False

    def doubt(self) -> None:
        """The pubend says that the publisher has moved on: ask it where to."""
        if not self._is_in_doubt:
            self._is_in_doubt, self._is_said = True, False

    def settled(self) -> None:
        """The pubend has acknowledged something: the publisher is there."""
        if not self._is_settled:
            self._is_settled, self._is_said = True, False

    def left(self, frame: Left) -> bool:
        """Take an answer to Leave; return whether there is something else to do after it."""
        stream = self.stream
        if (frame.pubend, frame.publisher) != (stream.pubend, stream.publisher):
            return False
        if frame.to == frame.pubend:
            if frame.move < self._move or (frame.move == self._move and not self._is_in_doubt):
                return False
            # The publisher is there, and has come in a later move than this client knew of.
            self._go(stream.pubend, frame.move, is_settled=True)
            return True
        if frame.move <= self._move:
            return False
        self._sequence = max(self._sequence, frame.sequence)
        self._go(frame.to, frame.move, is_settled=False)
        return True

    def go_anyway(self, pubend: str, after: int, move: int) -> None:
        """Go to a pubend without asking: the application says that the events up to `after` are logged.

        The move gets the number `move`, or the next one if that is higher.
        """
        self._sequence = max(self._sequence, after)
        self._go(pubend, max(move, self._move + 1), is_settled=False)

    def _go(self, pubend: str, move: int, *, is_settled: bool) -> None:
        self.stream.pubend, self._move, self._is_settled = pubend, move, is_settled
        self._is_in_doubt = self._is_said = False
