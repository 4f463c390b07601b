"""Mailbox: the frames that wait for a client that is away, in order.

Silence is no reason to call a client. It is kept as one growing range for each subscription and pubend, and
goes out before the next delivery of that subscription and pubend.
"""

from __future__ import annotations

from contextlib import suppress

from tidemark.errors import WireError
from tidemark.wire.codec import encode, size_of
from tidemark.wire.frames import Deliver, Frame, Gap

#: Bytes that a delivery counts for besides its events, whose bytes it shares with other clients.
DELIVERY_BYTES = 256


class Mailbox:
    """The frames of one client. Its owner checks after each `put` that `bytes` is within bounds."""

    __slots__ = ("_frames", "_silence", "bytes")

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        #: (subscription, pubend) -> silence after the last frame kept of that subscription and pubend
        self._silence: dict[tuple[str, str], Deliver] = {}
        self.bytes = 0

    def __bool__(self) -> bool:
        """Whether there is something to call the client for."""
        return bool(self._frames)

    def put(self, frame: Frame) -> None:
        """Keep `frame` until `take`."""
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
        """Returns all frames in order and empties the mailbox."""
        taken = [*self._frames, *self._silence.values()]
        self._frames, self._silence, self.bytes = [], {}, 0
        return taken


def is_silence(frame: Frame) -> bool:
    """Returns whether `frame` only says that there were no events.

    An empty range does not count as silence: it says that a subscription has started.
    """
    return isinstance(frame, Deliver) and frame.batch is None and frame.upto > frame.base


def _bytes_of(frame: Frame) -> int:
    if isinstance(frame, Deliver) and frame.batch is not None:
        return DELIVERY_BYTES + len(frame.batch.body)
    with suppress(WireError):  # a frame that cannot be encoded is reported when the connection sends it
        return size_of(encode(frame))
    return 0
