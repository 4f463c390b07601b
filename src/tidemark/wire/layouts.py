"""A layout: the kind of a frame, and how its bytes are written and read.

    frame  := header | payload
    header := payload bytes u32 | kind u8 | layout version u8 | flags u16, which are 0

Most layouts are a list of fields (`record`). The few frames that carry events, or that are sent for every
batch of them, have functions of their own, which are faster.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from struct import Struct
from typing import Any

from tidemark.errors import WireError
from tidemark.message.batches.batch import Buffer
from tidemark.wire.fields import WireField, together
from tidemark.wire.frames import Frame
from tidemark.wire.limits import FRAME_BYTES_MAX
from tidemark.wire.tails import Tail

#: payload bytes, key, flags. The key is the kind and the layout version in one number.
HEADER = Struct("<IHH")
HEADER_BYTES = HEADER.size

#: `write(frame)` -> the buffers to send, in order; WireError if the frame is over a limit
WriteFrame = Callable[[Any], list[Buffer]]
#: `read(data, at, end, tail)` -> the frame whose payload is data[at:end]; `tail` reads its batch. WireError
#: if the payload is damaged.
ReadFrame = Callable[[Buffer, int, int, Tail], Frame]


#: `join(data, at, available, bytes_max)` -> one frame that stands for several of this kind, of at most
#: `bytes_max` bytes each, which begin at data[at] and follow one another, where the last of them ends, and
#: how many they are; None if they have to be read one by one. Nothing from data[available] on is looked at.
JoinFrames = Callable[[Buffer, int, int, int], tuple[Frame, int, int] | None]
#: A frame that is read in steps of about a millisecond: with each a frame to handle next, or None when there
#: is none yet, and the last frame in the end. Together they say what the one says that `read` returns.
FrameSteps = Generator[Frame | None, None, Frame]
#: `steps(data, at, end)` -> the steps for the frame whose payload is data[at:end]; None if it is to be read
#: in one piece.
ReadInSteps = Callable[[Buffer, int, int], FrameSteps | None]
#: A frame whose layout has steps is read in one piece if it has fewer bytes, which takes half a millisecond.
STEPS_BYTES_MIN = 8 << 10


@dataclass(frozen=True, slots=True)
class FrameLayout:
    """One version of the bytes of one kind of frame."""

    frame: type[Any]
    key: int
    write: WriteFrame
    read: ReadFrame
    #: the largest frame of this kind, header included
    bytes_max: int = FRAME_BYTES_MAX
    #: reads several frames of this kind as one; None if they are always read one by one
    join: JoinFrames | None = None
    #: reads a long frame of this kind in steps; None if each is read in one piece
    steps: ReadInSteps | None = None


def key_of(kind: int, version: int = 1) -> int:
    """The key of a layout: the number that a header has for its kind and layout version."""
    return version << 8 | kind


def record(
    frame: type[Any],
    kind: int,
    *,
    check: Callable[[Any], None] | None = None,
    frame_bytes_max: int = FRAME_BYTES_MAX,
    layout_version: int = 1,
    **fields: WireField,
) -> FrameLayout:
    """The layout of a frame whose payload is its fields, in the order of the arguments.

    `check` is called with the frame, before writing and after reading, and raises WireError if its values do
    not go together.
    """
    key = key_of(kind, layout_version)
    payload_field = together(frame, fields)

    def write(value: Any) -> list[Buffer]:
        if check is not None:
            check(value)
        payload = payload_field.write(value)
        if HEADER_BYTES + len(payload) > frame_bytes_max:
            raise WireError(f"{len(payload)} bytes do not fit into a frame of {frame_bytes_max}")
        return [HEADER.pack(len(payload), key, 0) + payload]

    def read(data: Buffer, at: int, end: int, tail: Tail) -> Frame:  # noqa: ARG001  # as all layouts
        value, at = payload_field.read(data, at, end)
        check_end(at, end)
        if check is not None:
            check(value)
        made: Frame = value
        return made

    def steps(data: Buffer, at: int, end: int) -> FrameSteps | None:
        return in_steps(data, at, end) if end - at >= STEPS_BYTES_MIN else None

    def in_steps(data: Buffer, at: int, end: int) -> FrameSteps:
        assert payload_field.steps is not None
        value, at = yield from payload_field.steps(data, at, end)
        check_end(at, end)
        if check is not None:
            check(value)
        made: Frame = value
        return made

    has_steps = payload_field.steps is not None
    return FrameLayout(frame, key, write, read, frame_bytes_max, steps=steps if has_steps else None)


def check_end(at: int, end: int) -> None:
    """WireError unless the fields took exactly the bytes of the payload."""
    if at != end:
        raise WireError(f"{end - at} bytes are left over" if at < end else f"{at - end} bytes are missing")
