"""Strings and bytes of a whole batch compared with constants and each other, without copying them first.

Every row is body[start:end] (`Spans`). Nothing is decoded: the order of UTF-8 bytes is the order of code
points, and the bytes of a character occur only where that character stands. Rows are read through windows,
arrays whose item i is body[i : i + width]: one fancy index gathers that many bytes of each row. Windows are
numpy strings, which ignore NULs at the end, so they are compared only where both sides have the same length.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.matching.vectors.arithmetic import Signs, signs
from tidemark.message.batches.columns import Bools, Bytes, Ints, Spans

Words = NDArray[np.uint64]

#: Constants are compared in blocks of this many bytes, each block only in rows that equal all blocks before.
BLOCK_BYTES = 64
#: Pairs of rows that are equal for this many bytes are compared as Python bytes, one pair at a time, so that
#: no array gets as wide as the longest row.
HEAD_BYTES = 64
#: Rows that fill less than one in this many bytes of their body are copied into a new body before a search.
SPARSE = 8

#: _KEPT[n]: the mask of the first n bytes of a big-endian word.
_KEPT = np.array([(1 << 64) - (1 << 64 - 8 * n) for n in range(9)], np.uint64)


def encode(text: str) -> bytes:
    """The bytes of a constant. A lone surrogate, which no event has, keeps its place in the order."""
    return text.encode("utf-8", "surrogatepass")


def windows(body: Bytes, width: int) -> NDArray[np.bytes_]:
    """window[i] = body[i : i + width], without a copy."""
    shape = (max(0, len(body) - width + 1),)
    return np.ndarray(shape, f"S{width}", np.ascontiguousarray(body), strides=(1,))


def select(spans: Spans, rows: Any) -> Spans:
    """Some of the rows, by mask or index."""
    return Spans(spans.body, spans.starts[rows], spans.ends[rows])


def equal(spans: Spans, constant: bytes) -> Bools:
    """spans[row] = constant -> equal[row]."""
    return _with_constant_at(spans.body, spans.lengths == len(constant), spans.starts, constant)


def starts_with(spans: Spans, prefix: bytes) -> Bools:
    """spans[row] starts with prefix -> starts[row]."""
    return _with_constant_at(spans.body, spans.lengths >= len(prefix), spans.starts, prefix)


def ends_with(spans: Spans, suffix: bytes) -> Bools:
    """spans[row] ends with suffix -> ends[row]."""
    places = spans.ends - len(suffix)
    return _with_constant_at(spans.body, spans.lengths >= len(suffix), places, suffix)


class ByteSet:
    """A set of constants: one sorted array for each length among them."""

    def __init__(self, constants: Iterable[bytes]) -> None:
        lengths: dict[int, list[bytes]] = {}
        for constant in sorted(set(constants)):
            lengths.setdefault(len(constant), []).append(constant)
        self._has_empty = 0 in lengths
        self._sorted = [np.array(same, f"S{n}") for n, same in sorted(lengths.items()) if n]

    def holds(self, spans: Spans) -> Bools:
        """spans[row] is one of the constants -> held[row]."""
        lengths = spans.lengths
        held = (lengths == 0) if self._has_empty else np.zeros(len(spans), np.bool_)
        for constants in self._sorted:
            width = constants.dtype.itemsize
            rows = np.flatnonzero(lengths == width)
            if len(rows):
                values = windows(spans.body, width)[spans.starts[rows]]
                held[rows] = constants.take(constants.searchsorted(values), mode="clip") == values
        return held


def order(spans: Spans, constant: bytes) -> Signs:
    """spans[row] <=> constant -> sign[row]."""
    result = signs(spans.lengths, len(constant))
    rest, rows = spans, np.arange(len(spans))
    for offset in range(0, len(constant), 8):
        word = np.uint64(int.from_bytes(constant[offset : offset + 8].ljust(8, b"\0"), "big"))
        mine = words(rest, offset)
        decided = mine != word
        result[rows[decided]] = signs(mine[decided], word)
        rest, rows = select(rest, ~decided), rows[~decided]
        if not len(rows):
            break
    return result


def equal_rows(left: Spans, right: Spans) -> Bools:
    """left[row] = right[row] -> equal[row]."""
    same: Bools = left.lengths == right.lengths
    rows = np.flatnonzero(same)
    same[rows] = order_rows(select(left, rows), select(right, rows)) == 0
    return same


def order_rows(left: Spans, right: Spans) -> Signs:
    """left[row] <=> right[row] -> sign[row]."""
    result = signs(left.lengths, right.lengths)
    shorter = np.minimum(left.lengths, right.lengths)
    rows = np.flatnonzero(shorter)
    for offset in range(0, HEAD_BYTES, 8):
        mine, other = words(select(left, rows), offset), words(select(right, rows), offset)
        decided = mine != other
        result[rows[decided]] = signs(mine[decided], other[decided])
        # Where the words are equal and the shorter row ends in them, the longer row is greater, even if it
        # goes on with NULs only. That is what `result` has already.
        rows = rows[~decided & (shorter[rows] > offset + 8)]
        if not len(rows):
            break
    if len(rows):
        pairs = zip(*(compacted(select(side, rows)).tolist() for side in (left, right)), strict=True)
        result[rows] = [(a > b) - (a < b) for a, b in pairs]
    return result


def words(spans: Spans, offset: int) -> Words:
    """word[row]: the 8 bytes from `offset` on as a big-endian number, with zeros beyond the row's end."""
    body = spans.body if len(spans.body) >= 8 else np.pad(spans.body, (0, 8))
    wanted = spans.starts + offset
    # A word that would reach beyond the end of the body is read earlier and shifted into place.
    places = np.minimum(wanted, len(body) - 8)
    word = windows(body, 8)[places].view(">u8").astype(np.uint64)
    word <<= ((wanted - places) << 3).view(np.uint64)
    word &= _KEPT[np.clip(spans.ends - wanted, 0, 8)]
    return word


def compacted(spans: Spans) -> Spans:
    """The same rows in a body that holds few other bytes."""
    if not len(spans):
        return spans
    lengths = spans.lengths
    first, last = int(spans.starts.min()), int(spans.ends.max())
    ends = np.cumsum(lengths)
    if int(ends[-1]) * SPARSE > last - first:
        return Spans(spans.body[first:last], spans.starts - first, spans.ends - first)
    starts = ends - lengths
    index = np.arange(int(ends[-1])) + np.repeat(spans.starts - starts, lengths)
    return Spans(spans.body[index], starts, ends)


def continues_with(body: Bytes, places: Ints, constant: bytes) -> Bools:
    """found[k]: body[places[k] :] starts with the constant, for which there must be room at each place."""
    piece = constant[:BLOCK_BYTES]
    if not piece:
        return np.ones(len(places), np.bool_)
    found: Bools = windows(body, len(piece))[places] == np.array([piece], f"S{len(piece)}")
    for offset in range(BLOCK_BYTES, len(constant), BLOCK_BYTES):
        piece = constant[offset : offset + BLOCK_BYTES]
        rows = np.flatnonzero(found)
        if not len(rows):
            break
        block = windows(body, len(piece))[places[rows] + offset]
        found[rows] = block == np.array([piece], f"S{len(piece)}")
    return found


def _with_constant_at(body: Bytes, has_room: Bools, places: Ints, constant: bytes) -> Bools:
    rows = np.flatnonzero(has_room)
    if len(rows) and constant:
        has_room[rows] = continues_with(body, places[rows], constant)
    return has_room
