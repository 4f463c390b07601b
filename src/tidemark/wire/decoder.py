"""FrameDecoder: the bytes of a connection, as they arrive, to whole frames.

The decoder trusts nothing: whatever the bytes are, it returns frames or raises WireError, in time and memory
proportional to what has arrived. Small frames that arrive in one read are decoded in place. A frame that
arrives in parts is gathered in a buffer that grows with what arrives; the frame's batch then keeps that
buffer as its own. Frames of one kind that follow one another are read as one, and a long frame is read in
steps, if their layouts can do that and the owner of the decoder wants it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from struct import error as StructError  # noqa: N812  # an exception, named like one
from typing import Any

from tidemark.errors import WireError
from tidemark.message.batches.batch import Buffer
from tidemark.wire.codec import layout_of
from tidemark.wire.frames import Frame
from tidemark.wire.layouts import (
    HEADER,
    HEADER_BYTES,
    STEPS_BYTES_MIN,
    FrameLayout,
    FrameSteps,
    ReadInSteps,
)
from tidemark.wire.limits import FRAME_BYTES_MAX, HANDSHAKE_BYTES_MAX
from tidemark.wire.tails import Tail, copied_tail, owned_tail

#: The first bytes of a frame, up to so many, are put before what follows, so that the frame can be joined
#: with frames after it.
CUT_JOINED_BYTES_MAX = 64 << 10
#: kind of frame -> how many there were, and their bytes with headers; kinds that are not in it do not count
FrameTally = Mapping[type[Any], list[int]]


class FrameDecoder:
    """The receiving end of one connection. After a WireError every further call raises the same error."""

    def __init__(
        self,
        bytes_max: int = HANDSHAKE_BYTES_MAX,
        frames_max: int = sys.maxsize,
        *,
        joins: bool = False,
        divides: bool = False,
    ) -> None:
        """`joins`: frames that stand for several are returned where a layout makes them.

        `divides`: a long frame is read in steps where a layout has some, one in each call of `feed`, and may
        be returned as several.
        """
        #: The largest frame that is accepted, header included. The owner raises it when the handshake is
        #: done, and then calls `feed(b"")` to get frames that had arrived together with the handshake.
        self.bytes_max = bytes_max
        #: the first bytes of the one frame whose end has not arrived
        self._cut = bytearray()
        #: size of that frame with its header; 0 while its header is not complete
        self._cut_bytes = 0
        #: The most frames that one call of `feed` returns; what follows waits for `feed(b"")`.
        self.frames_max = frames_max
        self._joins = joins
        self._divides = divides
        #: the steps of the long frame that is being read, and its bytes; None and 0 between long frames
        self._steps: FrameSteps | None = None
        self._steps_bytes = 0
        #: what `feed` has returned is counted here; the owner of the decoder may share it and change it
        self.tally: FrameTally = {}
        #: bytes that arrived together with the handshake and wait until bytes_max is raised, or that follow
        #: frames_max frames
        self._held = b""
        self._error: str | None = None

    @property
    def waiting_bytes(self) -> int:
        """The bytes that have arrived of frames not returned yet; 0 between frames."""
        return len(self._cut) + len(self._held) + self._steps_bytes

    @property
    def has_more(self) -> bool:
        """Whether `feed(b"")` may return further frames."""
        return bool(self._held) or self._steps is not None

    @property
    def held_bytes(self) -> int:
        """The memory of what has arrived of frames not returned yet."""
        return self._cut.__sizeof__() + len(self._held) + self._steps_bytes

    def feed(self, data: Buffer) -> list[Frame]:
        """The frames that `data` completes, in order; WireError if the bytes are not frames.

        The caller may reuse `data` afterwards: the decoder keeps a copy of what it still needs.
        """
        if self._error is not None:
            raise WireError(self._error)
        if self._held:
            data, self._held = self._held + bytes(data), b""
        try:
            if self._steps is not None:
                self._held = bytes(data)
                return self._next_step()
            return self._frames(data)
        except WireError as error:
            self._error = str(error)
            self._cut.clear()
            self._end_steps()
            raise

    def _frames(self, data: Buffer) -> list[Frame]:
        frames: list[Frame] = []
        if self._cut and self._is_cut_joined(data):
            self._cut += data
            data, self._cut, self._cut_bytes = self._cut, bytearray(), 0
        at = self._finish_cut(data, frames) if self._cut else 0
        if self._steps is not None:
            self._held = bytes(memoryview(data)[at:])
            return self._next_step()
        available = len(data)
        while available - at >= HEADER_BYTES:
            size, key, flags = HEADER.unpack_from(data, at)
            if size + HEADER_BYTES > self.bytes_max:
                self._hold_or_refuse(size + HEADER_BYTES, data, at, bool(frames))
                return frames
            layout = layout_of(key, flags)
            if size + HEADER_BYTES > layout.bytes_max:
                raise _too_large_of_kind(layout, size + HEADER_BYTES)
            start = at + HEADER_BYTES
            end = start + size
            if end > available:
                self._cut_bytes = HEADER_BYTES + size
                break
            if self._is_long(layout, data, at, end):
                self._held = bytes(memoryview(data)[at if frames else end :])
                if frames:
                    return frames
                self._begin_steps(layout, bytes(memoryview(data)[at:end]))
                return self._next_step()
            together = None
            if end < available and self._joins and layout.join is not None:
                together = layout.join(data, at, available, min(self.bytes_max, layout.bytes_max))
            if together is not None:
                frame, end, number = together
            else:
                frame, number = _read(layout, data, start, end, copied_tail), 1
            frames.append(frame)
            self._count(layout, number, end - at)
            at = end
            if len(frames) >= self.frames_max and at < available:
                self._held = bytes(memoryview(data)[at:])
                return frames
        if at < available:
            self._cut += memoryview(data)[at:]
        return frames

    def _is_cut_joined(self, data: Buffer) -> bool:
        """Whether the incomplete frame is small, ends in `data`, and may be joined with what follows it."""
        if not self._joins or len(self._cut) > CUT_JOINED_BYTES_MAX:
            return False
        return 0 < self._cut_bytes - len(self._cut) < len(data)

    def _finish_cut(self, data: Buffer, frames: list[Frame]) -> int:
        """Add `data` to the frame that is not complete, and that frame to `frames` once it is.

        Returns how many bytes of `data` belong to that frame.
        """
        cut = self._cut
        at = 0
        if not self._cut_bytes:
            at = min(HEADER_BYTES - len(cut), len(data))
            cut += memoryview(data)[:at]
            if len(cut) < HEADER_BYTES:
                return at
            self._cut_bytes = self._checked_header(cut)
        taken = min(self._cut_bytes - len(cut), len(data) - at)
        cut += memoryview(data)[at : at + taken]
        if len(cut) == self._cut_bytes:
            self._cut, self._cut_bytes = bytearray(), 0
            _, key, flags = HEADER.unpack_from(cut)
            layout = layout_of(key, flags)
            if self._is_long(layout, cut, 0, len(cut)):
                self._begin_steps(layout, cut)
            else:
                frames.append(_read(layout, cut, HEADER_BYTES, len(cut), owned_tail))
                self._count(layout, 1, len(cut))
        return at + taken

    def _count(self, layout: FrameLayout, number: int, size: int) -> None:
        if (count := self.tally.get(layout.frame)) is not None:
            count[0] += number
            count[1] += size

    def _is_long(self, layout: FrameLayout, data: Buffer, at: int, end: int) -> bool:
        """Whether the frame in data[at:end] is read in steps."""
        if not self._divides or layout.steps is None or end - at < STEPS_BYTES_MIN:
            return False
        return layout.steps(data, at + HEADER_BYTES, end) is not None

    def _begin_steps(self, layout: FrameLayout, data: Buffer) -> None:
        """Read the one frame in `data`, which is long, in steps from now on."""
        assert layout.steps is not None
        self._count(layout, 1, len(data))
        self._steps = _in_steps(layout, layout.steps, data)
        self._steps_bytes = len(data)

    def _next_step(self) -> list[Frame]:
        """Take one step; return the frame that it gives, if any."""
        assert self._steps is not None
        try:
            frame = next(self._steps)
        except StopIteration as done:
            self._end_steps()
            return [done.value]
        return [] if frame is None else [frame]

    def _end_steps(self) -> None:
        self._steps, self._steps_bytes = None, 0

    def _checked_header(self, cut: bytearray) -> int:
        size, key, flags = HEADER.unpack_from(cut)
        if size + HEADER_BYTES > self.bytes_max:
            raise self._too_large(size + HEADER_BYTES)
        layout = layout_of(key, flags)
        if size + HEADER_BYTES > layout.bytes_max:
            raise _too_large_of_kind(layout, size + HEADER_BYTES)
        return int(size) + HEADER_BYTES

    def _hold_or_refuse(self, frame_bytes: int, data: Buffer, at: int, has_frames: bool) -> None:
        # A sender need not wait after its Hello. Its next frame may arrive in the same read, and whether that
        # frame is too large is decided once the owner has seen the Hello and raised bytes_max.
        if not has_frames or frame_bytes > FRAME_BYTES_MAX:
            raise self._too_large(frame_bytes)
        self._held = bytes(memoryview(data)[at:])

    def _too_large(self, frame_bytes: int) -> WireError:
        return WireError(
            f"a frame of {frame_bytes} bytes is over the limit of {self.bytes_max}: either the other side is "
            "not a Tidemark broker or client, or its frames must be smaller"
        )


def _too_large_of_kind(layout: FrameLayout, frame_bytes: int) -> WireError:
    kind = layout.frame.__name__
    return WireError(
        f"a frame {kind} of {frame_bytes} bytes is over the limit of {layout.bytes_max}: send less in each"
    )


def _read(layout: FrameLayout, data: Buffer, start: int, end: int, tail: Tail) -> Frame:
    try:
        return layout.read(data, start, end, tail)
    except (WireError, StructError, UnicodeDecodeError) as error:
        raise _damaged(layout, error) from error


def _in_steps(layout: FrameLayout, steps: ReadInSteps, data: Buffer) -> FrameSteps:
    try:
        found = steps(data, HEADER_BYTES, len(data))
        assert found is not None
        return (yield from found)
    except (WireError, StructError, UnicodeDecodeError) as error:
        raise _damaged(layout, error) from error


def _damaged(layout: FrameLayout, error: Exception) -> WireError:
    what = str(error)
    if not isinstance(error, WireError):
        what = "text is not UTF-8" if isinstance(error, UnicodeDecodeError) else "it ends within a field"
    return WireError(f"the frame {layout.frame.__name__} is damaged: {what}")
