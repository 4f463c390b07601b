"""The layouts of the frames between brokers, and of the frames that brokers and clients share.

Kinds 1 to 15 are for brokers and clients, 16 to 31 and 64 on for brokers only.
"""

from __future__ import annotations

from struct import Struct

from tidemark.errors import WireError
from tidemark.message.batches.batch import Buffer
from tidemark.message.generations import GENERATION_MAX
from tidemark.ticks import Range
from tidemark.wire.fields import (
    ECHO,
    EPOCH,
    FLAG,
    INCARNATION,
    NAME,
    RANGES,
    SEQUENCE,
    SHORT,
    TICK,
    TICK_OR_ENDLESS,
    TOPIC_SELECTOR,
    VERSION,
    at_end,
    check_number,
    check_position,
    checked_flag,
    integer,
    many,
    maybe,
    read_name,
    read_ranges,
    text,
    together,
    write_name,
    write_ranges,
)
from tidemark.wire.frames import (
    AckExpected,
    Claim,
    Fetch,
    Heard,
    Hello,
    Interest,
    Knowledge,
    LinkGrade,
    Links,
    Nack,
    Overlay,
    PeerFrame,
    Ping,
    Pong,
    Release,
    ReleaseRow,
    Together,
    Topic,
    Unfollow,
    Ways,
    Yielded,
)
from tidemark.wire.layouts import HEADER, FrameLayout, check_end, key_of, record
from tidemark.wire.limits import (
    HANDSHAKE_BYTES_MAX,
    NEIGHBOURS_MAX,
    OVERLAY_BYTES_MAX,
    OVERLAY_VERSION_MAX,
    PUBENDS_MAX,
    ROWS_MAX,
    SCHEMA_BYTES_MAX,
    SCHEMAS_MAX,
    VERSION_MAX,
    WANTED_MAX,
)
from tidemark.wire.tails import Tail, check_ticks, write_with_batch

#: The kinds of frames that may travel in a Together.
MERGED = frozenset(
    (Links, Ways, Interest, Unfollow, Knowledge, Nack, AckExpected, Release, Heard, Claim, Yielded, Fetch)
)


def singly(frame: PeerFrame) -> tuple[PeerFrame, ...]:
    """Return the frames of a Together, or the one frame that `frame` is."""
    return frame.frames if isinstance(frame, Together) else (frame,)


_KNOWLEDGE = key_of(17)
_NO_RANGES = write_ranges(())
#: the header, then base, upto, lost, version and first
_KNOWLEDGE_HEAD = Struct("<IHHqqqqB")
_KNOWLEDGE_NUMBERS = Struct("<qqqqB")


def write_knowledge(frame: Knowledge) -> list[Buffer]:
    """The buffers of a Knowledge: numbers, pubend, damaged ranges, batch."""
    damaged = write_ranges(frame.damaged) if frame.damaged else _NO_RANGES
    numbers = (frame.base, frame.upto, frame.lost, frame.version, frame.first)
    return write_with_batch(
        _KNOWLEDGE_HEAD, _KNOWLEDGE, numbers, write_name(frame.pubend) + damaged, frame.batch
    )


def read_knowledge(data: Buffer, start: int, end: int, tail: Tail) -> Knowledge:
    """The Knowledge that write_knowledge wrote."""
    base, upto, lost, version, first = _KNOWLEDGE_NUMBERS.unpack_from(data, start)
    pubend, at = read_name(data, start + _KNOWLEDGE_NUMBERS.size)
    damaged, at = read_ranges(data, at, end)
    check_number("version", version, 0, VERSION_MAX)
    check_position("lost", lost)
    if damaged:
        _check_within(damaged, base, upto)
    batch = tail(data, start, at, end)
    check_ticks(batch, base, upto)
    return Knowledge(pubend, base, upto, lost, checked_flag(first), version, batch, damaged)


def _check_within(ranges: tuple[Range, ...], base: int, upto: int) -> None:
    if ranges[0][0] < base or ranges[-1][1] > upto:
        raise WireError(f"damaged ranges reach beyond ({base}, {upto}]")


_CLAIM = key_of(27)
_CLAIM_HEAD = together(dict, {"epoch": EPOCH, "settled": FLAG, "name": NAME, "broker": NAME})


def write_claim(frame: Claim) -> list[Buffer]:
    """The buffers of a Claim: a claim without an owner is the same as it was before there were owners."""
    ends = (frame.to, frame.owner) if frame.owner else (frame.to,) if frame.to else ()
    payload = b"".join((_CLAIM_HEAD.write(frame), *map(write_name, ends)))
    return [HEADER.pack(len(payload), _CLAIM, 0) + payload]


def read_claim(data: Buffer, at: int, end: int, tail: Tail) -> Claim:  # noqa: ARG001  # as all layouts
    """The Claim that write_claim wrote."""
    values, at = _CLAIM_HEAD.read(data, at, end)
    for name in ("to", "owner"):
        if at != end:
            values[name], at = NAME.read(data, at, end)
    check_end(at, end)
    return Claim(**values)


_TOPOLOGY = text(OVERLAY_BYTES_MAX, what="a topology")
_SCHEMA = text(SCHEMA_BYTES_MAX, what="a schema")
_ROW = together(
    ReleaseRow,
    {
        "sequence": SEQUENCE,
        "released": TICK_OR_ENDLESS,
        "delivered": TICK_OR_ENDLESS,
        "asks": FLAG,
        "host": NAME,
    },
)
_GRADE = together(LinkGrade, {"grade": SHORT, "peer": NAME})

LAYOUTS = (
    record(Ping, 1, stamp=ECHO),
    record(Pong, 2, stamp=ECHO),
    record(
        Topic,
        3,
        topic=NAME,
        is_open=FLAG,
        schemas=many(_SCHEMA, SCHEMAS_MAX, what="versions of a schema"),
        generation=at_end(integer(0, GENERATION_MAX), 0),
    ),
    # The layout of Hello never changes: the versions in it decide which layouts the other frames have.
    record(
        Hello,
        16,
        incarnation=INCARNATION,
        oldest=SHORT,
        newest=SHORT,
        broker=NAME,
        frame_bytes_max=HANDSHAKE_BYTES_MAX,
    ),
    FrameLayout(Knowledge, _KNOWLEDGE, write_knowledge, read_knowledge),
    record(Nack, 18, layout_version=2, version=VERSION, pubend=NAME, ranges=RANGES),
    FrameLayout(Claim, _CLAIM, write_claim, read_claim),
    record(Yielded, 65, epoch=EPOCH, name=NAME, to=NAME),
    record(AckExpected, 19, tick=TICK, pubend=NAME),
    record(Release, 20, layout_version=2, pubend=NAME, rows=many(_ROW, ROWS_MAX, what="rows of a release")),
    record(
        Interest,
        21,
        layout_version=2,
        version=VERSION,
        pubend=NAME,
        wanted=maybe(many(TOPIC_SELECTOR, WANTED_MAX, what="lines of an interest")),
    ),
    record(Unfollow, 22, version=VERSION, pubend=NAME),
    record(Links, 23, sequence=SEQUENCE, broker=NAME, up=many(NAME, NEIGHBOURS_MAX, what="neighbours")),
    record(
        Ways,
        28,
        unreachable=many(NAME, PUBENDS_MAX, what="pubends"),
        grades=many(_GRADE, NEIGHBOURS_MAX, what="grades of links"),
    ),
    record(Heard, 24, sequence=SEQUENCE, pubend=NAME, host=NAME, lost=at_end(TICK, 0)),
    record(Overlay, 25, version=integer(0, OVERLAY_VERSION_MAX), digest=NAME, text=_TOPOLOGY),
)
