"""The fields that frames are made of: how each is written, and read without trusting the bytes.

A field's `read` gets the buffer, the offset of the field and the end of the frame, and returns the value and
the offset of the next field. It may read beyond the end by the few bytes of a number or a name, since the
frame's layout checks afterwards that all fields together took exactly the frame's bytes. Before `read`
touches or allocates anything larger it compares the length or count with the bytes that remain.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Any

from tidemark.errors import TokenError, WireError
from tidemark.message.batches.batch import Buffer
from tidemark.message.topic_selector import TopicSelector
from tidemark.message.visible import control_problem, visible
from tidemark.ticks import TICK_FIRST, TICK_LAST, TICK_MAX, CheckpointToken, Range, is_position
from tidemark.wire.limits import (
    CREDIT_BYTES_MAX,
    EPOCH_MAX,
    INCARNATION_MAX,
    NAME_BYTES_MAX,
    RANGES_MAX,
    SECONDS_MAX,
    SELECTOR_BYTES_MAX,
    SELECTOR_CHARACTERS_MAX,
    SEQUENCE_MAX,
    STAMP_MAX,
    TICKET_MAX,
    TOKEN_PUBENDS_MAX,
    VERSION_MAX,
)

#: Items of a long field that are read in one step.
STEP_ITEMS = 256
#: Encoded names that are kept, since the same few thousand names are written again and again.
NAMES_KEPT_MAX = 16_384

_U8 = Struct("<B")
_U16 = Struct("<H")
_U32 = Struct("<I")
_I64 = Struct("<q")
_RANGE = Struct("<qq")

#: bytes of the smallest entry of a token: an empty name and a tick
_ENTRY_BYTES_MIN = _U16.size + _I64.size


#: A value and the offset of the next field, read in steps of about a millisecond, with None after each.
FieldSteps = Generator[None, None, tuple[Any, int]]


@dataclass(frozen=True, slots=True)
class WireField:
    """How values of one kind are written and read. Both raise WireError for a value that is not allowed."""

    write: Callable[[Any], bytes]
    #: `read(data, at, end)` -> the value at data[at], and the offset of the next field
    read: Callable[[Buffer, int, int], tuple[Any, int]]
    #: the bytes of the smallest value
    bytes_min: int
    #: reads the same as `read` in steps; None if that takes no time worth mentioning
    steps: Callable[[Buffer, int, int], FieldSteps] | None = None


# Text.


@lru_cache(NAMES_KEPT_MAX)
def write_name(name: str) -> bytes:
    """The length of a name in 2 bytes and its UTF-8; WireError if it is over NAME_BYTES_MAX bytes."""
    raw = _utf8(name)
    problem = control_problem(name)
    if problem is not None:
        raise WireError(f"the name {visible(name[:40])!r}: {problem}")
    if len(raw) > NAME_BYTES_MAX:
        raise WireError(
            f"the name {name[:40]!r}... has {len(raw)} bytes; at most {NAME_BYTES_MAX} are allowed"
        )
    return _U16.pack(len(raw)) + raw


def read_name(data: Buffer, at: int) -> tuple[str, int]:
    """The name at data[at], and the offset of the next field."""
    (size,) = _U16.unpack_from(data, at)
    if size > NAME_BYTES_MAX:
        raise WireError(f"a name of {size} bytes is over the limit of {NAME_BYTES_MAX}")
    at += 2
    name = str(data[at : at + size], "utf-8")
    if not name.isprintable() and (problem := control_problem(name)) is not None:
        raise WireError(problem)
    return name, at + size


def text(bytes_max: int, *, what: str) -> WireField:
    """The field of a longer text: its length in 4 bytes and its UTF-8. `what` names it in errors."""

    def write(value: str) -> bytes:
        raw = _utf8(value)
        if len(raw) > bytes_max:
            raise WireError(f"{what} of {len(raw)} bytes is over the limit of {bytes_max}")
        return _U32.pack(len(raw)) + raw

    def read(data: Buffer, at: int, end: int) -> tuple[str, int]:
        (size,) = _U32.unpack_from(data, at)
        at += _U32.size
        if size > min(bytes_max, end - at):
            raise WireError(f"{what} claims {size} bytes; {end - at} are left and {bytes_max} allowed")
        return str(data[at : at + size], "utf-8"), at + size

    return WireField(write, read, _U32.size)


def _write_selector(selector: str) -> bytes:
    if len(selector) > SELECTOR_CHARACTERS_MAX:
        raise WireError(
            f"a selector of {len(selector)} characters is over the limit of {SELECTOR_CHARACTERS_MAX}"
        )
    raw = _utf8(selector)
    return _U16.pack(len(raw)) + raw


def _read_selector(data: Buffer, at: int, end: int) -> tuple[str, int]:
    (size,) = _U16.unpack_from(data, at)
    at += _U16.size
    if size > min(SELECTOR_BYTES_MAX, end - at):
        raise WireError(f"a selector claims {size} bytes; {end - at} are left")
    selector = str(data[at : at + size], "utf-8")
    if len(selector) > SELECTOR_CHARACTERS_MAX:
        raise WireError(
            f"a selector of {len(selector)} characters is over the limit of {SELECTOR_CHARACTERS_MAX}"
        )
    return selector, at + size


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise WireError(f"{value[:40]!r} is not Unicode text: half a surrogate has no UTF-8") from error


# Numbers.


def integer(low: int, high: int) -> WireField:
    """The field of an int64 from `low` to `high`."""
    return _number(_I64, low, high)


def check_number(what: str, value: int, low: int, high: int) -> None:
    """WireError unless `value` is from `low` to `high`; `what` names it in the error."""
    if not low <= value <= high:
        raise WireError(f"{what} is {value}, which is outside {low} to {high}")


def check_position(what: str, tick: int) -> None:
    """WireError unless `tick` is a position in a stream: a real tick, or TICK_MIN for its very beginning."""
    if not is_position(tick):
        raise WireError(f"{what} is {tick}, which is no tick: they are from {TICK_FIRST} to {TICK_LAST}")


def _tick(*, or_endless: bool) -> WireField:
    """The field of a position in a stream; TICK_MAX is allowed only where it stands for "without an end"."""

    def checked(value: int) -> int:
        if not (or_endless and value == TICK_MAX):
            check_position("it", value)
        return value

    def write(value: int) -> bytes:
        return _I64.pack(checked(value))

    def read(data: Buffer, at: int, end: int) -> tuple[int, int]:  # noqa: ARG001  # as all fields
        (value,) = _I64.unpack_from(data, at)
        return checked(value), at + _I64.size

    return WireField(write, read, _I64.size)


def _number(layout: Struct, low: int, high: int) -> WireField:
    def checked(value: int) -> int:
        if not low <= value <= high:
            raise WireError(f"the number {value} is outside {low} to {high}")
        return value

    def write(value: int) -> bytes:
        return layout.pack(checked(value))

    def read(data: Buffer, at: int, end: int) -> tuple[int, int]:  # noqa: ARG001  # as all fields
        (value,) = layout.unpack_from(data, at)
        return checked(value), at + layout.size

    return WireField(write, read, layout.size)


def read_flag(data: Buffer, at: int, end: int) -> tuple[bool, int]:  # noqa: ARG001  # as all fields
    """The truth value of the byte at data[at], which must be 0 or 1, and the offset of the next field."""
    return checked_flag(data[at] if at < len(data) else 2), at + 1


def checked_flag(value: int) -> bool:
    """The truth value of a byte; WireError unless it is 0 or 1."""
    if value > 1:
        raise WireError("a flag is neither 0 nor 1, or is not there")
    return value == 1


# Ranges and tokens.


def write_ranges(ranges: Sequence[Range]) -> bytes:
    """The count of ranges, then base and upto of each; WireError if there are more than RANGES_MAX."""
    if len(ranges) > RANGES_MAX:
        raise WireError(f"{len(ranges)} ranges are over the limit of {RANGES_MAX}: send several frames")
    _check_ends(ranges)
    return _U32.pack(len(ranges)) + b"".join([_RANGE.pack(base, upto) for base, upto in ranges])


def read_ranges(data: Buffer, at: int, end: int) -> tuple[tuple[Range, ...], int]:
    """The ranges at data[at], and the offset of the next field.

    WireError unless they are in order, none is empty or overlaps another, and all are of real ticks.
    """
    (count,) = _U32.unpack_from(data, at)
    at += _U32.size
    if not count:
        return (), at
    check_count(count, RANGES_MAX, _RANGE.size, end - at, "ranges")
    stop = at + _RANGE.size * count
    ranges: tuple[Range, ...] = tuple(_RANGE.iter_unpack(data[at:stop]))
    before = ranges[0][0]
    for base, upto in ranges:
        if not before <= base < upto:
            raise WireError(f"the range ({base}, {upto}] is empty, out of order or overlaps the one before")
        before = upto
    _check_ends(ranges)
    return ranges, stop


def _check_ends(ranges: Sequence[Range]) -> None:
    """WireError unless ranges that are in order begin and end at positions: then so do those between."""
    if ranges:
        for tick in (*ranges[0], ranges[-1][1]):
            check_position("the end of a range", tick)


def write_token(token: CheckpointToken) -> bytes:
    """The count of pubends, then name and tick of each; WireError if there are too many."""
    if len(token) > TOKEN_PUBENDS_MAX:
        raise WireError(f"a token of {len(token)} pubends is over the limit of {TOKEN_PUBENDS_MAX}")
    parts = [_U32.pack(len(token))]
    for pubend, tick in token.items():
        parts += (write_name(pubend), _I64.pack(tick))
    return b"".join(parts)


def read_token(data: Buffer, at: int, end: int) -> tuple[CheckpointToken, int]:
    """The token at data[at], whose pubends may be in any order, and the offset of the next field."""
    (count,) = _U32.unpack_from(data, at)
    at += _U32.size
    check_count(count, TOKEN_PUBENDS_MAX, _ENTRY_BYTES_MIN, end - at, "pubends of a token")
    ticks: dict[str, int] = {}
    for _ in range(count):
        pubend, at = read_name(data, at)
        (ticks[pubend],) = _I64.unpack_from(data, at)
        at += _I64.size
    if len(ticks) < count:
        raise WireError("a token names a pubend twice")
    # A name that was read has all that a pubend's name has to have, but that it may be empty.
    if "" not in ticks and all(TICK_FIRST <= tick <= TICK_LAST for tick in ticks.values()):
        return CheckpointToken.of_checked(dict(sorted(ticks.items()))), at
    try:
        return CheckpointToken(ticks), at
    except TokenError as error:
        raise WireError(f"a token is malformed: {error}") from error


# Fields made of other fields.


def check_count(count: int, count_max: int, bytes_min: int, remaining: int, what: str) -> None:
    """WireError if `count` items are too many, or cannot fit: each takes at least `bytes_min` bytes."""
    if count > count_max or count * bytes_min > remaining:
        raise WireError(f"{count} {what} are claimed; {remaining} bytes are left and {count_max} allowed")


def many(item: WireField, count_max: int, *, what: str) -> WireField:
    """The field of a tuple of items: their count, then each of them. `what` names them in errors."""

    def write(values: Sequence[Any]) -> bytes:
        if len(values) > count_max:
            raise WireError(f"{len(values)} {what} are over the limit of {count_max}")
        return _U32.pack(len(values)) + b"".join([item.write(value) for value in values])

    def read(data: Buffer, at: int, end: int) -> tuple[tuple[Any, ...], int]:
        (count,) = _U32.unpack_from(data, at)
        at += _U32.size
        check_count(count, count_max, item.bytes_min, end - at, what)
        values = []
        for _ in range(count):
            value, at = item.read(data, at, end)
            values.append(value)
        return tuple(values), at

    def steps(data: Buffer, at: int, end: int) -> FieldSteps:
        (count,) = _U32.unpack_from(data, at)
        at += _U32.size
        check_count(count, count_max, item.bytes_min, end - at, what)
        values = []
        for number in range(1, count + 1):
            value, at = item.read(data, at, end)
            values.append(value)
            if not number % STEP_ITEMS:
                yield
        return tuple(values), at

    return WireField(write, read, _U32.size, steps)


def together(make: Callable[..., Any], parts: dict[str, WireField]) -> WireField:
    """The field of a value with attributes: a field for each, in this order. `make(**values)` reads it."""

    def write(value: Any) -> bytes:
        return b"".join([part.write(getattr(value, name)) for name, part in parts.items()])

    def read(data: Buffer, at: int, end: int) -> tuple[Any, int]:
        values = {}
        name = ""
        try:
            for name, part in parts.items():
                values[name], at = part.read(data, at, end)
        except WireError as error:
            raise WireError(f"{name}: {error}") from error
        return make(**values), at

    def steps(data: Buffer, at: int, end: int) -> FieldSteps:
        values = {}
        name = ""
        try:
            for name, part in parts.items():
                if part.steps is None:
                    values[name], at = part.read(data, at, end)
                else:
                    values[name], at = yield from part.steps(data, at, end)
        except WireError as error:
            raise WireError(f"{name}: {error}") from error
        return make(**values), at

    has_steps = any(part.steps is not None for part in parts.values())
    bytes_min = sum(part.bytes_min for part in parts.values())
    return WireField(write, read, bytes_min, steps if has_steps else None)


def at_end(items: WireField, empty: Any = ()) -> WireField:
    """A tuple, a text or a number that is the last field of a frame; an empty one, or 0, takes no bytes.

    So a frame without any is the same as it was before the field was added.
    """

    def write(values: Any) -> bytes:
        return items.write(values) if values else b""

    def read(data: Buffer, at: int, end: int) -> tuple[Any, int]:
        return items.read(data, at, end) if at != end else (empty, at)

    def steps(data: Buffer, at: int, end: int) -> FieldSteps:
        assert items.steps is not None
        return (yield from items.steps(data, at, end)) if at != end else (empty, at)

    return WireField(write, read, 0, None if items.steps is None else steps)


def maybe(item: WireField) -> WireField:
    """The field of a value or None: the flag 0 for None, or the flag 1 and the value."""

    def write(value: Any) -> bytes:
        return b"\x00" if value is None else b"\x01" + item.write(value)

    def read(data: Buffer, at: int, end: int) -> tuple[Any, int]:
        there, at = read_flag(data, at, end)
        return item.read(data, at, end) if there else (None, at)

    def steps(data: Buffer, at: int, end: int) -> FieldSteps:
        assert item.steps is not None
        there, at = read_flag(data, at, end)
        return (yield from item.steps(data, at, end)) if there else (None, at)

    return WireField(write, read, 1, None if item.steps is None else steps)


def _in_one_step(
    read: Callable[[Buffer, int, int], tuple[Any, int]],
) -> Callable[[Buffer, int, int], FieldSteps]:
    """The steps of a field that is long enough for a step of its own."""

    def steps(data: Buffer, at: int, end: int) -> FieldSteps:
        found = read(data, at, end)
        yield
        return found

    return steps


NAME = WireField(write_name, lambda data, at, end: read_name(data, at), _U16.size)  # noqa: ARG005  # as all fields
SELECTOR = WireField(_write_selector, _read_selector, _U16.size)
FLAG = WireField(lambda value: _U8.pack(bool(value)), read_flag, 1)
TICK = _tick(or_endless=False)
#: a tick, or TICK_MAX for one that never comes
TICK_OR_ENDLESS = _tick(or_endless=True)
TICKET = integer(0, TICKET_MAX)
#: what a Ping carries, by which its sender knows the answer again
ECHO = integer(-TICKET_MAX, TICKET_MAX)
BYTES = integer(0, CREDIT_BYTES_MAX)
SECONDS = integer(0, SECONDS_MAX)
INCARNATION = integer(0, INCARNATION_MAX)
VERSION = integer(0, VERSION_MAX)
SEQUENCE = integer(0, SEQUENCE_MAX)
STAMP = integer(0, STAMP_MAX)
EPOCH = integer(0, EPOCH_MAX)
FINGERPRINT = _number(Struct("<Q"), 0, 2**64 - 1)
SHORT = _number(_U16, 0, 0xFFFF)
RANGES = WireField(write_ranges, read_ranges, _U32.size, _in_one_step(read_ranges))
TOKEN = WireField(write_token, read_token, _U32.size, _in_one_step(read_token))
TOPIC_SELECTOR = together(TopicSelector, {"pattern": NAME, "selector": SELECTOR})
