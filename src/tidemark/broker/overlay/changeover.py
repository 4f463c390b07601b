"""Changeover: a broker that changes to a better way follows both neighbours for a moment (docs/overlay.md).

The neighbour that is followed next is told the interest first. What it passes on waits here until the stream
has reached that place over the old way, and only then is the old way left: so nothing between the two is
missed, and nothing has to be asked for. If the old way never gets there, it is left after a while anyway, and
what is missing is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark.wire.frames import Knowledge

#: Frames of the next neighbour that wait, at the most: one that is so far ahead is followed at once.
WAITING_MAX = 64
#: The same for the bytes of their events.
WAITING_BYTES_MAX = 1 << 20


@dataclass(slots=True)
class Changeover:
    """The change of one pubend's stream to another neighbour."""

    #: the neighbour that is followed next, and the interest version that it was told
    peer: str
    version: int
    #: the monotonic time when it is followed at the latest
    until: int
    #: what it has passed on since, complete for that version
    frames: list[Knowledge] = field(default_factory=list)

    def heard(self, frame: Knowledge) -> None:
        """The next neighbour has passed on first-time knowledge."""
        if frame.version >= self.version:
            self.frames.append(frame)

    def is_due(self, reached: int, now: int) -> bool:
        """Return whether to change over: the old way has `reached` the new one, or it is late."""
        size = sum(len(frame.batch.data) for frame in self.frames if frame.batch is not None)
        if now >= self.until or len(self.frames) > WAITING_MAX or size > WAITING_BYTES_MAX:
            return True
        return bool(self.frames) and self.frames[0].base <= reached
