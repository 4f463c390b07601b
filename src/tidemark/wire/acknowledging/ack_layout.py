"""The layout of Ack, which one client may fill with tens of thousands of ticks.

A broker reads a long one in steps (`FrameLayout.steps`). Without a ticket each step gives an Ack of its own
to handle, since nothing is promised of such tokens together; with a ticket they are kept all or none, so the
whole Ack comes with the last step.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from struct import Struct

from tidemark.errors import WireError
from tidemark.message.batches.batch import Buffer
from tidemark.ticks import CheckpointToken
from tidemark.wire.acknowledging.token_reader import TokenReader
from tidemark.wire.fields import (
    NAME,
    at_end,
    check_count,
    check_number,
    integer,
    many,
    read_name,
    together,
    write_name,
    write_token,
)
from tidemark.wire.frames import Ack, Credit
from tidemark.wire.layouts import (
    HEADER_BYTES,
    STEPS_BYTES_MIN,
    FrameLayout,
    FrameSteps,
    check_end,
    key_of,
)
from tidemark.wire.limits import (
    ACK_BYTES_MAX,
    ACK_ITEMS_MAX,
    ACKS_MAX,
    CREDIT_BYTES_MAX,
    TICKET_MAX,
)
from tidemark.wire.tails import Tail

#: Subscribers, ticks and credits that are read in one step, about; a single token may have more.
STEP_ITEMS = 512

_KEY = key_of(42)
_HEAD, _NUMBERS, _U32 = Struct("<IHHqI"), Struct("<qI"), Struct("<I")
#: bytes of the smallest entry of an Ack: an empty name and an empty token
_ENTRY_BYTES_MIN = 6
_CREDIT = together(Credit, {"bytes": integer(1, CREDIT_BYTES_MAX), "name": NAME})
_CREDITS = at_end(many(_CREDIT, ACKS_MAX, what="credits of an Ack"))


def write_ack(frame: Ack) -> list[Buffer]:
    """The buffer of an Ack: ticket, count, then each subscriber and its token, then credit if any."""
    tokens = frame.tokens
    if len(tokens) > ACKS_MAX:
        raise WireError(f"{len(tokens)} subscribers in one Ack are over the limit of {ACKS_MAX}")
    _check_distinct(tokens)
    _check_items(len(tokens) + sum(len(token) for _, token in tokens) + len(frame.credits))
    parts = b"".join([write_name(name) + write_token(token) for name, token in tokens])
    parts += _CREDITS.write(frame.credits)
    size = _HEAD.size + len(parts)
    if size > ACK_BYTES_MAX:
        raise WireError(f"{size} bytes of an Ack are over the limit of {ACK_BYTES_MAX}")
    _check_ticket(frame.ticket)
    return [_HEAD.pack(size - HEADER_BYTES, _KEY, 0, frame.ticket, len(tokens)) + parts]


def read_ack(data: Buffer, start: int, end: int, tail: Tail) -> Ack:  # noqa: ARG001
    """The Ack that write_ack wrote."""
    steps = _read(data, start, end, is_whole=True)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            whole: Ack = done.value
            return whole


def read_ack_in_steps(data: Buffer, start: int, end: int) -> FrameSteps | None:
    """The steps for the Ack that write_ack wrote, which give it in parts if it has no ticket."""
    return _read(data, start, end, is_whole=False) if end - start >= STEPS_BYTES_MIN else None


def _read(data: Buffer, start: int, end: int, *, is_whole: bool) -> Generator[Ack | None, None, Ack]:
    ticket, count = _NUMBERS.unpack_from(data, start)
    _check_ticket(ticket)
    is_whole = is_whole or ticket > 0
    at = start + _NUMBERS.size
    check_count(count, ACKS_MAX, _ENTRY_BYTES_MIN, end - at, "subscribers of an Ack")
    reader, names = TokenReader(), set[str]()
    tokens: list[tuple[str, CheckpointToken]] = []
    items, stop = count, STEP_ITEMS
    for number in range(count):
        name, at = read_name(data, at)
        token, at = reader.read(data, at, end)
        tokens.append((name, token))
        names.add(name)
        items += len(token)
        # Those that were read, and their ticks.
        if items - count + number >= stop:
            stop = items - count + number + STEP_ITEMS
            _check_items(items)
            _check_none_twice(len(names), number + 1)
            yield None if is_whole else Ack(tuple(tokens))
            tokens = tokens if is_whole else []
    _check_items(items)
    _check_none_twice(len(names), count)
    granted: list[Credit] = []
    if at < end:
        (number,) = _U32.unpack_from(data, at)
        at += _U32.size
        _check_items(items + number)
        check_count(number, ACKS_MAX, _CREDIT.bytes_min, end - at, "credits of an Ack")
        for each in range(number):
            credit, at = _CREDIT.read(data, at, end)
            granted.append(credit)
            if each % STEP_ITEMS == STEP_ITEMS - 1:
                yield None if is_whole else Ack(tuple(tokens), 0, tuple(granted))
                tokens, granted = (tokens, granted) if is_whole else ([], [])
    check_end(at, end)
    return Ack(tuple(tokens), ticket, tuple(granted))


def _check_items(items: int) -> None:
    """WireError if an Ack has so many subscribers, ticks and credits that it keeps a broker for long."""
    if items > ACK_ITEMS_MAX:
        raise WireError(f"an Ack has at most {ACK_ITEMS_MAX} subscribers, ticks and credits together")


def _check_ticket(ticket: int) -> None:
    check_number("ticket", ticket, 0, TICKET_MAX)


def _check_distinct(tokens: Sequence[tuple[str, CheckpointToken]]) -> None:
    _check_none_twice(len({name for name, _ in tokens}), len(tokens))


def _check_none_twice(different: int, count: int) -> None:
    if different < count:
        raise WireError("an Ack names a subscriber twice: merge its tokens")


ACK = FrameLayout(Ack, _KEY, write_ack, read_ack, ACK_BYTES_MAX, steps=read_ack_in_steps)
