"""The layouts of the frames between a client and its broker. Their kinds are 32 to 63."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812  # an exception, named like one

from tidemark.errors import DecodeError, WireError
from tidemark.message.batches.batch import Buffer, batch_names_bytes
from tidemark.message.batches.run import BatchRun
from tidemark.wire.acknowledging.ack_layout import ACK
from tidemark.wire.fields import (
    BYTES,
    FINGERPRINT,
    FLAG,
    INCARNATION,
    NAME,
    SECONDS,
    SELECTOR,
    SHORT,
    STAMP,
    TICK,
    TICK_OR_ENDLESS,
    TICKET,
    TOKEN,
    TOPIC_SELECTOR,
    at_end,
    check_number,
    check_position,
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
    Acked,
    Answer,
    Ask,
    Connect,
    Credit,
    Deliver,
    Describe,
    Fetch,
    Fetched,
    Gap,
    Lease,
    Leased,
    Line,
    Offer,
    Publish,
    Published,
    Pushing,
    Recall,
    Recalled,
    RecallMore,
    RecallOver,
    Refused,
    Rest,
    Resume,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
    Welcome,
)
from tidemark.wire.layouts import HEADER, HEADER_BYTES, FrameLayout, check_end, key_of, record
from tidemark.wire.limits import (
    ADDRESSES_MAX,
    ARGUMENTS_BYTES_MAX,
    CREDIT_BYTES_MAX,
    HANDSHAKE_BYTES_MAX,
    JOINED_BYTES_MAX,
    JOINED_MAX,
    JSON_BYTES_MAX,
    LINES_MAX,
    LONG_ARGUMENTS_BYTES_MAX,
    PUBENDS_MAX,
    PUBLISH_BYTES_MAX,
    PUBLISH_NAMES_BYTES_MAX,
    REASON_BYTES_MAX,
    RECALLS_MAX,
    SEQUENCE_MAX,
    SHAPES_ASKED_MAX,
    TICKET_MAX,
)
from tidemark.wire.tails import ALIGNMENT_BYTES, Tail, check_ticks, write_with_batch

#: What a Publish has before its batch, with its header, at most: a number, two names and padding.
_PUBLISH_FIELDS_BYTES = 1 << 10
_PUBLISH, _PUBLISHED, _DELIVER, _CREDIT, _FETCHED, _RECALLED = (
    key_of(kind) for kind in (36, 37, 40, 44, 50, 53)
)

# Each struct is there twice: with the header for writing, without it for reading.
_ONE_HEAD, _ONE = Struct("<IHHq"), Struct("<q")
_TWO_HEAD, _TWO = Struct("<IHHqq"), Struct("<qq")
_THREE_HEAD, _THREE = Struct("<IHHqqq"), Struct("<qqq")
_FOUR_HEAD, _FOUR = Struct("<IHHqqqq"), Struct("<qqqq")


def write_publish(frame: Publish) -> list[Buffer]:
    """The buffers of a Publish: sequence, pubend, publisher, batch."""
    names = write_name(frame.pubend) + write_name(frame.publisher)
    _check_sequence(frame.sequence, frame.batch.count)
    if len(frame.batch.data) > PUBLISH_BYTES_MAX:
        size = len(frame.batch.data)
        raise WireError(f"a batch of {size} bytes is over the limit of {PUBLISH_BYTES_MAX} in one Publish")
    _check_names(frame.batch.names_bytes)
    return write_with_batch(_ONE_HEAD, _PUBLISH, (frame.sequence,), names, frame.batch)


def read_publish(data: Buffer, start: int, end: int, tail: Tail) -> Publish:
    """The Publish that write_publish wrote."""
    (sequence,) = _ONE.unpack_from(data, start)
    pubend, at = read_name(data, start + _ONE.size)
    publisher, at = read_name(data, at)
    _check_names(batch_names_bytes(data, at + (start - at) % ALIGNMENT_BYTES))
    batch = tail(data, start, at, end)
    if batch is None:
        raise WireError("there is no batch to publish")
    _check_sequence(sequence, batch.count)
    return Publish(pubend, publisher, sequence, batch)


def join_publishes(data: Buffer, at: int, available: int, bytes_max: int) -> tuple[Publish, int, int] | None:
    """One Publish for several of one publisher that go on without a gap, as a JoinFrames.

    What is damaged or does not go on is left to `read_publish`, which says what is wrong.
    """
    if not _is_publish(data, at + HEADER_BYTES + HEADER.unpack_from(data, at)[0], available):
        return None
    start = at + HEADER_BYTES
    try:
        (sequence,) = _ONE.unpack_from(data, start)
        pubend, after = read_name(data, start + _ONE.size)
        publisher, after = read_name(data, after)
    except (WireError, StructError, UnicodeDecodeError):
        return None
    padding = (start - after) % ALIGNMENT_BYTES
    fields = after - start + padding
    view, run, following = memoryview(data), BatchRun(JOINED_BYTES_MAX), sequence
    names = view[start + _ONE.size : start + fields].tobytes()
    while len(run.counts) < JOINED_MAX and _is_publish(data, at, available):
        start = at + HEADER_BYTES
        end = start + HEADER.unpack_from(data, at)[0]
        is_whole = start + fields < end <= min(available, at + bytes_max)
        if not is_whole or _ONE.unpack_from(data, start)[0] != following:
            break
        if view[start + _ONE.size : start + fields] != names or not run.take(view, start + fields, end):
            break
        following += run.counts[-1]
        at = end
    is_sound = sequence >= 1 and following <= SEQUENCE_MAX and not any(names[len(names) - padding :])
    if len(run.counts) < 2 or not is_sound or run.names_bytes > PUBLISH_NAMES_BYTES_MAX:
        return None
    try:
        return Publish(pubend, publisher, sequence, run.batch(), tuple(run.counts)), at, len(run.counts)
    except DecodeError:
        return None


def _is_publish(data: Buffer, at: int, available: int) -> bool:
    """Return whether a header of a Publish is at data[at]."""
    return available - at >= HEADER_BYTES and HEADER.unpack_from(data, at)[1:] == (_PUBLISH, 0)


def _check_names(size: int) -> None:
    """Check how much a batch names, before all of it is read."""
    if size > PUBLISH_NAMES_BYTES_MAX:
        raise WireError(
            f"{size} bytes of topics, schemas and publishers that one batch names are over the limit of "
            f"{PUBLISH_NAMES_BYTES_MAX}: publish it in parts"
        )


def _check_sequence(sequence: int, count: int) -> None:
    """Check the number of the first of `count` events, such that the last has a successor too."""
    check_number("sequence", sequence, 1, SEQUENCE_MAX - count)


def write_published(frame: Published) -> list[Buffer]:
    """The buffer of a Published: sequence, tick, pubend, publisher. One with parts is a frame for each."""
    names = write_name(frame.pubend) + write_name(frame.publisher)
    check_number("sequence", frame.sequence, 0, SEQUENCE_MAX)
    if frame.parts:
        return [_write_parts(frame, names)]
    return write_with_batch(_TWO_HEAD, _PUBLISHED, (frame.sequence, frame.tick), names, None)


def _write_parts(frame: Published, names: bytes) -> bytes:
    """The frames that a Published with parts stands for, one after the other."""
    before = sum(frame.parts)
    check_number("sequence", frame.sequence - before, 0, SEQUENCE_MAX)
    sequence, tick = frame.sequence - before, frame.tick - before
    size = _TWO_HEAD.size - HEADER_BYTES + len(names)
    pieces: list[bytes] = []
    for count in frame.parts:
        sequence, tick = sequence + count, tick + count
        pieces += (_TWO_HEAD.pack(size, _PUBLISHED, 0, sequence, tick), names)
    return b"".join(pieces)


def read_published(data: Buffer, start: int, end: int, tail: Tail) -> Published:  # noqa: ARG001
    """The Published that write_published wrote."""
    sequence, tick = _TWO.unpack_from(data, start)
    pubend, at = read_name(data, start + _TWO.size)
    publisher, at = read_name(data, at)
    check_end(at, end)
    # The sequence is 0 in the answer to a publisher that has moved here before any of its events was logged.
    check_number("sequence", sequence, 0, SEQUENCE_MAX)
    check_position("tick", tick)
    return Published(pubend, publisher, sequence, tick)


def write_deliver(frame: Deliver) -> list[Buffer]:
    """The buffers of a Deliver: base, upto, subscriber, pubend, batch."""
    names = write_name(frame.name) + write_name(frame.pubend)
    return write_with_batch(_TWO_HEAD, _DELIVER, (frame.base, frame.upto), names, frame.batch)


def read_deliver(data: Buffer, start: int, end: int, tail: Tail) -> Deliver:
    """The Deliver that write_deliver wrote."""
    base, upto = _TWO.unpack_from(data, start)
    name, at = read_name(data, start + _TWO.size)
    pubend, at = read_name(data, at)
    batch = tail(data, start, at, end)
    check_ticks(batch, base, upto)
    return Deliver(name, pubend, base, upto, batch)


def _check_ticket(ticket: int) -> None:
    check_number("ticket", ticket, 0, TICKET_MAX)


def _check_arguments(frame: Ask) -> None:
    """WireError if the arguments are longer than those of this question ever are."""
    bytes_max = LONG_ARGUMENTS_BYTES_MAX.get(frame.what, ARGUMENTS_BYTES_MAX)
    # A character has at most 4 bytes.
    if 4 * len(frame.arguments) > bytes_max and len(frame.arguments.encode()) > bytes_max:
        raise WireError(f"arguments of {frame.what!r} are over the limit of {bytes_max} bytes")


def write_credit(frame: Credit) -> list[Buffer]:
    """The buffer of a Credit: bytes, subscriber."""
    check_number("bytes", frame.bytes, 1, CREDIT_BYTES_MAX)
    return write_with_batch(_ONE_HEAD, _CREDIT, (frame.bytes,), write_name(frame.name), None)


def read_credit(data: Buffer, start: int, end: int, tail: Tail) -> Credit:  # noqa: ARG001
    """The Credit that write_credit wrote."""
    (granted,) = _ONE.unpack_from(data, start)
    name, at = read_name(data, start + _ONE.size)
    check_end(at, end)
    check_number("bytes", granted, 1, CREDIT_BYTES_MAX)
    return Credit(name, granted)


def _check_gap(frame: Gap) -> None:
    if frame.base > frame.upto:
        raise WireError(f"({frame.base}, {frame.upto}] is not a range")


def write_fetched(frame: Fetched) -> list[Buffer]:
    """The buffers of a Fetched: ticket, base, upto, lost, pubend, damaged ranges, batch."""
    numbers = (frame.ticket, frame.base, frame.upto, frame.lost)
    names = write_name(frame.pubend) + write_ranges(frame.damaged)
    return write_with_batch(_FOUR_HEAD, _FETCHED, numbers, names, frame.batch)


def read_fetched(data: Buffer, start: int, end: int, tail: Tail) -> Fetched:
    """The Fetched that write_fetched wrote."""
    ticket, base, upto, lost = _FOUR.unpack_from(data, start)
    pubend, at = read_name(data, start + _FOUR.size)
    damaged, at = read_ranges(data, at, end)
    batch = tail(data, start, at, end)
    check_ticks(batch, base, upto)
    check_position("lost", lost)
    _check_ticket(ticket)
    return Fetched(ticket, pubend, base, upto, lost, batch, damaged)


def _check_fetch(frame: Fetch) -> None:
    if frame.base > frame.upto:
        raise WireError(f"({frame.base}, {frame.upto}] is not a range")


def write_recalled(frame: Recalled) -> list[Buffer]:
    """The buffers of a Recalled: ticket, base, upto, ranges that the archive does not have, batch."""
    numbers = (frame.ticket, frame.base, frame.upto)
    return write_with_batch(_THREE_HEAD, _RECALLED, numbers, write_ranges(frame.gone), frame.batch)


def read_recalled(data: Buffer, start: int, end: int, tail: Tail) -> Recalled:
    """The Recalled that write_recalled wrote."""
    ticket, base, upto = _THREE.unpack_from(data, start)
    gone, at = read_ranges(data, start + _THREE.size, end)
    batch = tail(data, start, at, end)
    check_ticks(batch, base, upto)
    _check_ticket(ticket)
    if gone and (gone[0][0] < base or gone[-1][1] > upto):
        raise WireError(f"what is gone reaches beyond ({base}, {upto}]")
    return Recalled(ticket, base, upto, batch, gone)


def _check_recall(frame: Recall) -> None:
    at = frame.base
    for line in frame.lines:
        if not at <= line.base < line.upto <= frame.upto:
            raise WireError(f"the lines of a recall do not follow one another within ({at}, {frame.upto}]")
        at = line.upto
    if frame.base >= frame.upto or not frame.lines:
        raise WireError(f"nothing is recalled of ({frame.base}, {frame.upto}]")


_LINE = together(Line, {"base": TICK, "upto": TICK, "wanted": TOPIC_SELECTOR})
_JSON = text(JSON_BYTES_MAX, what="a JSON text")
_REASON = text(REASON_BYTES_MAX, what="a reason")
_ARGUMENTS = text(max(LONG_ARGUMENTS_BYTES_MAX.values()), what="a JSON text")
_PUBENDS = many(NAME, PUBENDS_MAX, what="pubends")
_SHAPES = many(FINGERPRINT, SHAPES_ASKED_MAX, what="shapes of a topic")
_ADDRESSES = many(NAME, ADDRESSES_MAX, what="addresses")

LAYOUTS = (
    # The layout of Connect never changes: the versions in it decide which layouts the other frames have.
    record(Connect, 32, oldest=SHORT, newest=SHORT, client=NAME, frame_bytes_max=HANDSHAKE_BYTES_MAX),
    record(
        Welcome,
        33,
        incarnation=INCARNATION,
        version=SHORT,
        broker=NAME,
        pubends=_PUBENDS,
        frame_bytes_max=HANDSHAKE_BYTES_MAX,
    ),
    record(Refused, 34, what=NAME, name=NAME, code=NAME, reason=_REASON, addresses=at_end(_ADDRESSES)),
    record(Describe, 35, topic=NAME, shapes=at_end(_SHAPES)),
    FrameLayout(
        Publish,
        _PUBLISH,
        write_publish,
        read_publish,
        PUBLISH_BYTES_MAX + _PUBLISH_FIELDS_BYTES,
        join_publishes,
    ),
    FrameLayout(Published, _PUBLISHED, write_published, read_published),
    record(
        Subscribe,
        38,
        credit=BYTES,
        stamp=STAMP,
        durable=FLAG,
        name=NAME,
        pattern=NAME,
        selector=SELECTOR,
        token=maybe(TOKEN),
        last=at_end(NAME, ""),
    ),
    record(Subscribed, 39, name=NAME, token=TOKEN, since=TOKEN),
    FrameLayout(Deliver, _DELIVER, write_deliver, read_deliver),
    record(Gap, 41, base=TICK, upto=TICK, name=NAME, pubend=NAME, check=_check_gap),
    ACK,
    record(Acked, 43, ticket=TICKET),
    FrameLayout(Credit, _CREDIT, write_credit, read_credit),
    record(Unsubscribe, 45, name=NAME),
    record(Unsubscribed, 46, name=NAME),
    record(Ask, 47, ticket=TICKET, what=NAME, arguments=_ARGUMENTS, check=_check_arguments),
    record(Answer, 48, ticket=TICKET, payload=_JSON),
    record(
        Fetch,
        49,
        ticket=TICKET,
        base=TICK,
        upto=TICK_OR_ENDLESS,
        bytes_max=BYTES,
        pubend=NAME,
        pattern=NAME,
        selector=SELECTOR,
        check=_check_fetch,
    ),
    FrameLayout(Fetched, _FETCHED, write_fetched, read_fetched),
    record(Offer, 51, recalls_max=integer(0, RECALLS_MAX)),
    record(
        Recall,
        52,
        ticket=TICKET,
        base=TICK,
        upto=TICK,
        credit=BYTES,
        pubend=NAME,
        lines=many(_LINE, LINES_MAX, what="lines of a recall"),
        check=_check_recall,
    ),
    FrameLayout(Recalled, _RECALLED, write_recalled, read_recalled),
    record(RecallMore, 54, ticket=TICKET, bytes=BYTES),
    record(RecallOver, 55, ticket=TICKET),
    record(Lease, 56, seconds=SECONDS, address=NAME, key=NAME),
    record(Leased, 57, seconds=SECONDS, ticket=NAME),
    record(Rest, 58, seconds=SECONDS),
    record(Pushing, 59, broker=NAME, key=NAME, frame_bytes_max=HANDSHAKE_BYTES_MAX),
    record(Resume, 60, oldest=SHORT, newest=SHORT, ticket=NAME, frame_bytes_max=HANDSHAKE_BYTES_MAX),
)
