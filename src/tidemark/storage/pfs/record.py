"""A record of the PFS: what one flush adds to the log stream of one pubend.

    record := format u8 | base i64 | back, span, rows, first set, new sets | [head] | [least, width u8] |
              [set] | ticks | sets | lengths | long steps, sizes, members, present
    head   := group bits, blocks records | [group bits, base i64, span, rows]    of the block before, if any

A record has the match set of each tick in `(base, base + span]`; a tick that is not listed is silence for
every subscriber of that time. `ticks` are steps from the tick before. They have one byte each, where 255
stands for one of the long steps, which come later; or, where that takes less, all of them as many bytes as
the longest needs. `sets` are numbers that count from 0 in each block, as wide as the largest in the record
needs; where all rows have the same one there is no column, but the one `set`. A set is defined in the record
that names it first. `lengths` are the bytes of each event: what it has beyond the `least` of the record, in
`width` bytes, and no column if all have the same. All other numbers are varints; members are differences
within their set. A record with `back` 0 is the head of a block and sums up the block before it, so that
recovery reads one record for each block.

Format 1, of version 0.1.0, has no lengths. In formats 1 and 2 there are no long steps, and `sets` is always
a column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidemark.errors import DecodeError
from tidemark.message.batches.batch import Buffer
from tidemark.storage.pfs.varints import pack, put, take, unpack
from tidemark.ticks import Tick, Ticks

#: Subscribers, or groups of them, ascending; also set numbers of a block.
Ids = NDArray[np.uint32]
Index = NDArray[np.int64]
Steps = NDArray[np.uint64]

FORMAT = 3
FORMAT_WITHOUT_LONG_STEPS = 2
#: The format of version 0.1.0, whose records have no lengths.
FORMAT_WITHOUT_LENGTHS = 1
_WIDTHS = ("<u1", "<u2", "<u4", "<u8")
#: In a column of steps, the byte that stands for a long step.
_LONG = 255
#: In place of the width of the column of sets: there is none, since all rows have the same set.
_SAME_SET = 3
#: Lengths have at most 32 bits: the widths in _WIDTHS up to the third, counted from 1.
LENGTH_WIDTH_MAX = 3
LENGTH_MAX = 2**32 - 1
SET_MAX = 2**32 - 1
_START = Struct("<Bq")
_BASE = Struct("<q")
_NONE: Ids = np.zeros(0, np.uint32)


@dataclass(frozen=True, slots=True)
class Summary:
    """What is known of a block without reading it."""

    #: how many records the block has
    records: int
    base: Tick
    upto: Tick
    rows: int
    #: `present` holds subscribers shifted right by so many bits
    group_bits: int
    #: every group that is in one of the block's sets
    present: Ids


@dataclass(frozen=True, slots=True)
class BlockHead:
    """What only the first record of a block says."""

    group_bits: int
    #: the summary of the block before this one; None if there is none
    before: Summary | None


class Definitions(NamedTuple):
    """Match sets one after the other: sizes[set], and the members of all of them."""

    sizes: Index
    members: Ids


@dataclass(frozen=True, slots=True)
class PfsRecord:
    """A record, decoded."""

    #: how many records of its block precede it
    back: int
    base: Tick
    upto: Tick
    #: ticks[row] in `(base, upto]`, and sets[row], the number of the tick's match set
    ticks: Ticks
    sets: Ids
    #: lengths[row], the bytes of the event; None if the record does not say
    lengths: Ids | None
    #: how many sets the earlier records of the block define; `new` are the ones that follow
    first_set: int
    new: Definitions
    #: present when back is 0
    head: BlockHead | None


def encode(record: PfsRecord) -> list[bytes]:
    """Returns the record as pieces to be written one after the other."""
    assert (record.back == 0) == (record.head is not None)
    steps = _differences(record.ticks, record.base)
    sets, form = record.sets, FORMAT if record.lengths is not None else FORMAT_WITHOUT_LENGTHS
    step_width, set_width = _width(steps), _width(sets)
    long_steps = np.zeros(0, np.uint64)
    if form == FORMAT:
        step_width, long_steps = _shortened(steps, step_width)
        set_width = _SAME_SET if len(sets) and (sets == sets[0]).all() else set_width
    out = bytearray(_START.pack(form << 4 | step_width << 2 | set_width, record.base))
    for number in (record.back, record.upto - record.base, len(record.ticks), record.first_set):
        put(out, number)
    put(out, len(record.new.sizes))
    if record.head is not None:
        _put_head(out, record.head)
    lengths = b""
    if record.lengths is not None and len(record.lengths):
        lengths = _put_lengths(out, record.lengths)
    if form == FORMAT and set_width == _SAME_SET:
        put(out, int(sets[0]))
        sets, set_width = _NONE, 0
    before = record.head.before if record.head else None
    present = before.present if before else _NONE
    sizes = record.new.sizes.astype(np.uint64)
    members = _gaps(record.new)
    varints = (long_steps, sizes, members, _gaps(Definitions(np.array([len(present)]), present)))
    return [
        bytes(out),
        steps.astype(_WIDTHS[step_width]).tobytes(),
        sets.astype(_WIDTHS[set_width]).tobytes(),
        lengths,
        pack(np.concatenate(varints)),
    ]


def _shortened(steps: Steps, width: int) -> tuple[int, Steps]:
    """Return the place in _WIDTHS of the column of steps, and the long steps in it.

    The steps are changed: one that does not fit into a byte of its own becomes _LONG.
    """
    is_long = steps >= _LONG
    longs = steps[is_long]
    if width and len(steps) + len(pack(longs)) > len(steps) << width:
        return width, np.zeros(0, np.uint64)
    steps[is_long] = _LONG
    return 0, longs


def decode(data: Buffer) -> PfsRecord:
    """Returns the record in `data`. Raises DecodeError if there is none, or one of a later version."""
    if len(data) < _START.size:
        raise DecodeError("a record of the PFS is cut off")
    form, base = _START.unpack_from(data)
    if form >> 4 not in (FORMAT_WITHOUT_LENGTHS, FORMAT_WITHOUT_LONG_STEPS, FORMAT):
        raise DecodeError(f"a record of the PFS is in format {form >> 4}; this version reads format {FORMAT}")
    at = _START.size
    back, at = take(data, at)
    span, at = take(data, at)
    rows, at = take(data, at)
    first_set, at = take(data, at)
    new_sets, at = take(data, at)
    head, at = _take_head(data, at) if back == 0 else (None, at)
    step_width, set_width, is_newest = form >> 2 & 3, form & 3, form >> 4 == FORMAT
    has_lengths = form >> 4 != FORMAT_WITHOUT_LENGTHS
    least, width, at = _take_lengths(data, at) if has_lengths and rows else (0, 0, at)
    only_set: int | None = None
    if is_newest and set_width == _SAME_SET:
        only_set, at = take(data, at)
    column, at = _column(data, at, rows, _WIDTHS[step_width])
    if only_set is None:
        sets, at = _column(data, at, rows, _WIDTHS[set_width])
    else:
        sets = np.full(rows, _checked_set(only_set), np.uint32)
    lengths: Ids | None = np.full(rows, least, np.uint32) if has_lengths else None
    if lengths is not None and width:
        beyond, at = _column(data, at, rows, _WIDTHS[width - 1])
        lengths += beyond.astype(np.uint32)
    numbers, steps = unpack(memoryview(data)[at:]), column.astype(np.uint64)
    if is_newest and step_width == 0:
        longs = np.flatnonzero(column == _LONG)
        if len(numbers) < len(longs):
            raise DecodeError("the long steps of a record of the PFS are cut off")
        steps[longs], numbers = numbers[: len(longs)], numbers[len(longs) :]
    new, present = _definitions(numbers, new_sets)
    ticks = (steps.cumsum() + np.uint64(base % 2**64)).view(np.int64)
    if head is not None and head.before is not None:
        head = BlockHead(head.group_bits, replace(head.before, present=present))
    return PfsRecord(back, base, base + span, ticks, sets.astype(np.uint32), lengths, first_set, new, head)


def _checked_set(number: int) -> int:
    if number > SET_MAX:
        raise DecodeError(f"a record of the PFS names the set {number}")
    return number


def _differences(ticks: Ticks, base: Tick) -> Steps:
    """Returns each tick minus the one before, the first minus `base`; modulo 2**64, so any two ticks work."""
    if len(ticks) == 0:
        return np.zeros(0, np.uint64)
    unsigned = ticks.view(np.uint64)
    return np.diff(unsigned, prepend=np.uint64(base % 2**64))


def _width(values: NDArray[np.unsignedinteger]) -> int:
    """Returns the place in _WIDTHS of the narrowest width that holds all values."""
    largest = int(values.max()) if len(values) else 0
    return next(place for place in range(4) if largest < 1 << (8 << place))


def _gaps(sets: Definitions) -> NDArray[np.uint64]:
    """Returns each member minus the one before in its set; the first of a set as it is."""
    members = sets.members.astype(np.int64)
    if len(members) == 0:
        return np.zeros(0, np.uint64)
    gaps = np.diff(members, prepend=0)
    starts = (sets.sizes.cumsum() - sets.sizes)[sets.sizes > 0]
    gaps[starts] = members[starts]
    assert (np.delete(gaps, starts) > 0).all(), "the members of a set ascend"
    return gaps.astype(np.uint64)


def _put_head(out: bytearray, head: BlockHead) -> None:
    put(out, head.group_bits)
    before = head.before
    put(out, before.records if before else 0)
    if before:
        put(out, before.group_bits)
        out += _BASE.pack(before.base)
        put(out, before.upto - before.base)
        put(out, before.rows)


def _take_head(data: Buffer, at: int) -> tuple[BlockHead, int]:
    """Returns the head without `present` of the block before, and where it ends. Raises DecodeError."""
    group_bits, at = take(data, at)
    records, at = take(data, at)
    if records == 0:
        return BlockHead(group_bits, None), at
    bits_before, at = take(data, at)
    if at + _BASE.size > len(data):
        raise DecodeError("the head of a block is cut off")
    (base,) = _BASE.unpack_from(data, at)
    span, at = take(data, at + _BASE.size)
    rows, at = take(data, at)
    return BlockHead(group_bits, Summary(records, base, base + span, rows, bits_before, _NONE)), at


def _put_lengths(out: bytearray, lengths: Ids) -> bytes:
    """Put the least length, and how wide the column of the others is, which is returned."""
    least = int(lengths.min())
    beyond = lengths - np.uint32(least)
    width = 1 + _width(beyond) if beyond.any() else 0
    put(out, least)
    out.append(width)
    return beyond.astype(_WIDTHS[width - 1]).tobytes() if width else b""


def _take_lengths(data: Buffer, at: int) -> tuple[int, int, int]:
    """Returns the least length, the width of the column, and where both end. Raises DecodeError."""
    least, at = take(data, at)
    if at >= len(data) or data[at] > LENGTH_WIDTH_MAX or least > LENGTH_MAX:
        raise DecodeError("the lengths of a record of the PFS are cut off, or too large")
    return least, data[at], at + 1


def _column(data: Buffer, at: int, rows: int, width: str) -> tuple[NDArray[np.unsignedinteger], int]:
    """Returns `rows` numbers at `at`, and where they end. Raises DecodeError if they are cut off."""
    dtype = np.dtype(width)
    if rows * dtype.itemsize > len(data) - at:
        raise DecodeError("a column of the PFS is cut off")
    return np.frombuffer(data, dtype, rows, at), at + rows * dtype.itemsize


def _definitions(numbers: NDArray[np.uint64], new_sets: int) -> tuple[Definitions, Ids]:
    """Returns the new sets, and the groups after them: those present in the block before.

    Raises DecodeError.
    """
    sizes = numbers[:new_sets].astype(np.int64)
    stop = new_sets + int(sizes.sum())
    if len(sizes) < new_sets or (sizes < 0).any() or stop > len(numbers):
        raise DecodeError("the definitions of a record of the PFS do not add up")
    totals = numbers[new_sets:stop].cumsum()
    starts = sizes.cumsum() - sizes
    before = np.concatenate((np.zeros(1, np.uint64), totals))[starts]
    members = (totals - before.repeat(sizes)).astype(np.uint32)
    return Definitions(sizes, members), numbers[stop:].cumsum().astype(np.uint32)
