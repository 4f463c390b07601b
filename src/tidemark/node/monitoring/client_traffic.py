"""ClientTraffic: what a broker and all its clients have said to each other, by the kind of frame.

Counting costs two additions for a frame that is sent, and for a run of publishes that is read at once; how
many events are in a frame makes no difference. Single clients are not told apart, so that the numbers are few
however many clients there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from tidemark.wire.answers import FrameCount
from tidemark.wire.decoder import FrameTally
from tidemark.wire.frames import ClientFrame, Frame, Published


class ClientTraffic:
    """The counts of one broker, since it started."""

    def __init__(self) -> None:
        #: shared with the decoder of every connection at whose other end no broker is, which counts here
        self.received: FrameTally = _tally()
        self._sent: FrameTally = _tally()

    def say(self, frame: Frame, size: int) -> None:
        """A frame of `size` bytes leaves for a client, or for a broker that is not known yet."""
        if (count := self._sent.get(type(frame))) is not None:
            count[0] += (type(frame) is Published and len(frame.parts)) or 1
            count[1] += size

    def all(self) -> Iterator[tuple[str, str, FrameCount]]:
        """Yield the direction, the kind and the count of all frames that there were."""
        for direction, tally in (("received", self.received), ("sent", self._sent)):
            for kind, count in tally.items():
                if count[0]:
                    yield direction, kind.__name__, FrameCount(*count)


def _tally() -> dict[type[Any], list[int]]:
    return {kind: [0, 0] for kind in get_args(ClientFrame)}
