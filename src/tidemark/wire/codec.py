"""Frames to bytes, and the layout that a frame's header announces.

Encoding raises WireError for a frame that the receiver would refuse: a frame over the limits of `wire.limits`
is an error of the sender and is never sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from struct import error as StructError  # noqa: N812  # an exception, named like one

from tidemark.errors import WireError
from tidemark.message.batches.batch import Buffer
from tidemark.wire import client_layouts, peer_layouts
from tidemark.wire.frames import Describe, Frame, Refused
from tidemark.wire.layouts import FrameLayout
from tidemark.wire.security import layouts as security_layouts

#: Gives the pieces of a frame's bytes.
Encode = Callable[[Frame], list[Buffer]]

#: every layout there is
LAYOUTS = (*peer_layouts.LAYOUTS, *client_layouts.LAYOUTS, *security_layouts.LAYOUTS)
_WRITERS = {layout.frame: layout.write for layout in LAYOUTS}
#: key in a header -> layout
_LAYOUT_OF_KEY: dict[int, FrameLayout] = {layout.key: layout for layout in LAYOUTS}
_KINDS = {layout.key & 0xFF for layout in LAYOUTS}

assert len(_LAYOUT_OF_KEY) == len(LAYOUTS)


def encode(frame: Frame) -> list[Buffer]:
    """The buffers to write, in order; WireError if the frame is over a limit.

    A batch is the last one: its own buffer, not a copy. The caller must not change it before it is sent.
    """
    try:
        return _WRITERS[type(frame)](frame)
    except WireError as error:
        raise WireError(f"this {type(frame).__name__} cannot be sent: {error}") from error
    except StructError as error:
        raise WireError(f"this {type(frame).__name__} cannot be sent: a number is no int64") from error


def encoder_for(version: int) -> Encode:
    """Return what encodes frames for another side that speaks this version of the protocol."""
    if version > 2:
        return encode
    return _encode_for_version_2 if version == 2 else _encode_for_version_1


def _encode_for_version_2(frame: Frame) -> list[Buffer]:
    """Readers of version 2 know no shapes in a Describe; they answer with the whole topic."""
    if type(frame) is Describe and frame.shapes:
        frame = replace(frame, shapes=())
    return encode(frame)


def _encode_for_version_1(frame: Frame) -> list[Buffer]:
    """Readers of version 1 give a connection up over the addresses of a refusal, so they get none."""
    if type(frame) is Refused and frame.addresses:
        frame = replace(frame, addresses=())
    return _encode_for_version_2(frame)


def size_of(pieces: Iterable[Buffer]) -> int:
    """The number of bytes in all the buffers."""
    return sum(map(len, pieces))


def layout_of(key: int, flags: int) -> FrameLayout:
    """The layout that the key and flags of a header announce; WireError if this side does not know it."""
    layout = _LAYOUT_OF_KEY.get(key)
    if layout is None:
        kind, version = key & 0xFF, key >> 8
        if kind in _KINDS:
            raise WireError(
                f"a frame of kind {kind} has the layout version {version}, which is not known here"
            )
        raise WireError(f"there is no frame of kind {kind}: is the other side a Tidemark broker or client?")
    if flags:
        raise WireError(
            f"the frame {layout.frame.__name__} has the flags {flags:#06x}, which are not known here"
        )
    return layout
