"""Frames to bytes, and the layout that a frame's header announces.

Encoding raises WireError for a frame that the receiver would refuse: a frame over the limits of `wire.limits`
is an error of the sender and is never sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from struct import error as StructError  # noqa: N812  # an exception, named like one

from tidemark.errors import WireError
from tidemark.message.batches.batch import Buffer
from tidemark.wire import client_layouts, peer_layouts
from tidemark.wire.frames import (
    Ack,
    Claim,
    Describe,
    Frame,
    Heard,
    Knowledge,
    PeerFrame,
    Refused,
    Subscribe,
    Together,
    Topic,
    Yielded,
)
from tidemark.wire.layouts import HEADER, HEADER_BYTES, FrameLayout, FrameSteps, key_of
from tidemark.wire.limits import TOGETHER_BYTES_MAX, TOGETHER_MAX
from tidemark.wire.moving import layouts as moving_layouts
from tidemark.wire.moving.frames import Leave, Left
from tidemark.wire.peer_layouts import MERGED
from tidemark.wire.security import layouts as security_layouts
from tidemark.wire.tails import Tail, copied_tail

#: Gives the pieces of a frame's bytes.
Encode = Callable[[Frame], list[Buffer]]

_TOGETHER = key_of(64)
#: Frames of a Together that are read in one step.
STEP_PARTS = 128


def _write_together(frame: Together) -> list[Buffer]:
    """The buffers of a Together: those of its frames, one after the other."""
    _check_number(len(frame.frames))
    pieces: list[Buffer] = []
    for each in frame.frames:
        _check_merged(each)
        pieces += _WRITERS[type(each)](each)
    size = size_of(pieces)
    if size + HEADER_BYTES > TOGETHER_BYTES_MAX:
        raise WireError(f"{size} bytes do not fit into a frame of {TOGETHER_BYTES_MAX}")
    return [HEADER.pack(size, _TOGETHER, 0), *pieces]


def _read_together(data: Buffer, at: int, end: int, tail: Tail) -> Together:  # noqa: ARG001  # as all layouts
    """The Together that _write_together wrote; each batch in it gets a buffer of its own."""
    frames: list[PeerFrame] = []
    while at < end:
        at = _read_part(data, at, end, frames)
    _check_number(len(frames))
    return Together(tuple(frames))


def _read_part(data: Buffer, at: int, end: int, frames: list[PeerFrame]) -> int:
    """Add the frame at data[at] to `frames`; return where the next one begins."""
    _check_number(len(frames) + 1)
    size, key, flags = HEADER.unpack_from(data, at)
    at += HEADER_BYTES
    layout = layout_of(key, flags)
    if at + size > end:
        raise WireError(f"the {layout.frame.__name__} in it reaches beyond it")
    if layout.frame not in MERGED:
        raise WireError(f"{layout.frame.__name__} travels by itself")
    frames.append(layout.read(data, at, at + size, copied_tail))  # type: ignore[arg-type]  # in MERGED
    _check_merged(frames[-1])
    after: int = at + size
    return after


def _together_in_steps(data: Buffer, at: int, end: int) -> FrameSteps | None:
    """The steps for a Together of more than STEP_PARTS frames, which is rare."""
    first = at
    for _ in range(STEP_PARTS):
        if end - at < HEADER_BYTES:
            return None
        at += HEADER_BYTES + HEADER.unpack_from(data, at)[0]
    return _parts_in_steps(data, first, end) if at < end else None


def _parts_in_steps(data: Buffer, at: int, end: int) -> FrameSteps:
    frames: list[PeerFrame] = []
    while at < end:
        at = _read_part(data, at, end, frames)
        if not len(frames) % STEP_PARTS:
            yield None
    _check_number(len(frames))
    return Together(tuple(frames))


def _check_number(count: int) -> None:
    if not 1 <= count <= TOGETHER_MAX:
        raise WireError(f"it has {count} frames, and 1 to {TOGETHER_MAX} go together")


def _check_merged(frame: PeerFrame) -> None:
    if type(frame) not in MERGED or (isinstance(frame, Knowledge) and not frame.first):
        raise WireError(f"this {type(frame).__name__} travels by itself")


#: every layout there is
LAYOUTS = (
    *peer_layouts.LAYOUTS,
    *client_layouts.LAYOUTS,
    *security_layouts.LAYOUTS,
    *moving_layouts.LAYOUTS,
    FrameLayout(
        Together,
        _TOGETHER,
        _write_together,
        _read_together,
        TOGETHER_BYTES_MAX,
        steps=_together_in_steps,
    ),
)
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
    if version > 5:
        return encode
    older = {
        5: _encode_for_version_5,
        4: _encode_for_version_4,
        3: _encode_for_version_4,
        2: _encode_for_version_2,
    }
    changed = older.get(version, _encode_for_version_1)

    def encode_for_older(frame: Frame) -> list[Buffer]:
        # Most frames are events, which no version has changed.
        return changed(frame) if type(frame) in _CHANGED_FOR_CLIENTS else encode(frame)

    return encode_for_older


def encoder_for_link(version: int) -> Encode:
    """Return what encodes frames for a broker that speaks this version of the protocol between brokers."""
    if version > 7:
        return encode
    older = {7: _encode_for_link_7, 6: _encode_for_link_6, 5: _encode_for_link_5, 4: _encode_for_link_4}
    return older.get(version, _encode_for_link_3)


def _encode_for_link_7(frame: Frame) -> list[Buffer]:
    """Brokers of version 7 do not hear who makes a publisher leave."""
    return encode(replace(frame, owner="") if type(frame) is Leave and frame.owner else frame)


def _encode_for_link_6(frame: Frame) -> list[Buffer]:
    """Brokers of version 6 do not hear whose a subscription is."""
    if type(frame) is Together:
        return encode(Together(tuple(map(_without_owner, frame.frames))))
    return _encode_for_link_7(_without_owner(frame) if isinstance(frame, Claim) else frame)


def _without_owner(frame: PeerFrame) -> PeerFrame:
    return replace(frame, owner="") if isinstance(frame, Claim) and frame.owner else frame


def _encode_for_link_5(frame: Frame) -> list[Buffer]:
    """Brokers of version 5 know nothing of publishers that move: those behind them wait."""
    return [] if type(frame) in (Leave, Left) else _encode_for_link_6(frame)


def _encode_for_link_4(frame: Frame) -> list[Buffer]:
    """Brokers of version 4 know no generations: they keep every schema, and do not hear of removals."""
    if type(frame) is Topic and frame.generation:
        return encode(replace(frame, generation=0)) if frame.schemas else []
    return _encode_for_link_5(frame)


def _encode_for_link_3(frame: Frame) -> list[Buffer]:
    """Brokers of version 3 get frames singly; a claim that is for one broker they tell to all."""
    if type(frame) is Together:
        return [piece for each in frame.frames for piece in _encode_for_link_3(each)]
    if type(frame) is Yielded:
        return []
    if type(frame) is Claim and frame.to:
        frame = replace(frame, to="")
    if type(frame) is Heard and frame.lost:
        frame = replace(frame, lost=0)
    return _encode_for_link_4(frame)


#: frames that the functions below change for clients of some older version
_CHANGED_FOR_CLIENTS = frozenset((Ack, Describe, Refused, Subscribe, Topic))


def _encode_for_version_5(frame: Frame) -> list[Buffer]:
    """Clients of version 5 know no generations: a topic that is removed they can read, and not write."""
    if type(frame) is Topic and frame.generation:
        frame = replace(frame, generation=0)
    return encode(frame)


def _encode_for_version_4(frame: Frame) -> list[Buffer]:
    """Readers of version 4 know no last broker in a Subscribe, and get credit in frames of its own."""
    if type(frame) is Subscribe and frame.last:
        frame = replace(frame, last="")
    if type(frame) is Ack and frame.credits:
        granted = [piece for each in frame.credits for piece in encode(each)]
        bare = replace(frame, credits=())
        return granted + (encode(bare) if bare.tokens or bare.ticket else [])
    return _encode_for_version_5(frame)


def _encode_for_version_2(frame: Frame) -> list[Buffer]:
    """Readers of version 2 know no shapes in a Describe; they answer with the whole topic."""
    if type(frame) is Describe and frame.shapes:
        frame = replace(frame, shapes=())
    return _encode_for_version_4(frame)


def _encode_for_version_1(frame: Frame) -> list[Buffer]:
    """Readers of version 1 give a connection up over the addresses of a refusal, so they get none."""
    if type(frame) is Refused and frame.addresses:
        frame = replace(frame, addresses=())
    return _encode_for_version_2(frame)


def size_of(pieces: Iterable[Buffer]) -> int:
    """The number of bytes in all the buffers."""
    return sum(map(len, pieces))


def kinds_in(pieces: Iterable[Buffer]) -> Iterator[tuple[str, int]]:
    """Yield the kind and the bytes of each frame in the pieces that were encoded, and of those in a Together.

    A Together counts for its header alone. Every frame begins with a piece of its own.
    """
    left, kind, size = 0, "", 0
    for piece in pieces:
        if not left:
            size, key, _ = HEADER.unpack_from(piece)
            kind = _LAYOUT_OF_KEY[key].frame.__name__
            size = left = HEADER_BYTES + (size if key != _TOGETHER else 0)
        left -= len(piece)
        if not left:
            yield kind, size


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
