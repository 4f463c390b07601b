"""Mailbox: what the broker has said to a client that is away, in order.

Silence is no mail: nobody is called for it. It grows in place, a range for each subscription and pubend, and
goes out before what comes next there.
"""

from __future__ import annotations

from contextlib import suppress

from tidemark.errors import WireError
from tidemark.wire.codec import encode, size_of
from tidemark.wire.frames import Deliver, Frame, Gap

#: Counted for each delivery besides its events, which it shares with other clients.
DELIVERY_BYTES = 256


class Mailbox:
    """See above. Whoever puts something in sees to it that `bytes` stays within bounds."""

    __slots__ = ("_frames", "_silence", "bytes")

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        #: (subscriber, pubend) -> silence that was not said, with nothing behind it
        self._silence: dict[tuple[str, str], Deliver] = {}
        self.bytes = 0

    def __bool__(self) -> bool:
        """There is something to call for."""
        return bool(self._frames)

    def put(self, frame: Frame) -> None:
        """The broker has said it."""
        if isinstance(frame, Deliver) and is_silence(frame):
            self._be_silent(frame)
            return
        if isinstance(frame, Deliver | Gap):
            before = self._silence.pop((frame.name, frame.pubend), None)
            if before is not None:
                self._frames.append(before)
        self._frames.append(frame)
        self.bytes += _bytes_of(frame)

    def _be_silent(self, frame: Deliver) -> None:
        which = (frame.name, frame.pubend)
        before = self._silence.get(which)
        if before is not None and before.upto == frame.base:
            frame = Deliver(frame.name, frame.pubend, before.base, frame.upto)
        elif before is not None:
            self._frames.append(before)
        self._silence[which] = frame

    def take(self) -> list[Frame]:
        """All of it, and it is empty."""
        taken = [*self._frames, *self._silence.values()]
        self._frames, self._silence, self.bytes = [], {}, 0
        return taken


def is_silence(frame: Frame) -> bool:
    """Nobody waits for it. An empty range is no silence: it says that a subscription has started."""
    return isinstance(frame, Deliver) and frame.batch is None and frame.upto > frame.base


def _bytes_of(frame: Frame) -> int:
    if isinstance(frame, Deliver) and frame.batch is not None:
        return DELIVERY_BYTES + len(frame.batch.body)
    with suppress(WireError):  # the connection will say what is wrong with it
        return size_of(encode(frame))
    return 0
