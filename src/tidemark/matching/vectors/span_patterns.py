"""LIKE over a whole batch of strings, on their UTF-8 bytes.

A pattern without `_` is pieces of literal bytes: the first at the start of a row, the last at its end, and
each one between at its leftmost place after the one before (see `matching.selectors.like`). All places of a
piece in the body are found at once, by array comparisons, and each row then takes the first place within it.
That looks at the whole body for each piece, so it is done for the first few pieces only; the rows that have
all of these are then searched for the others one by one, each from where the piece before it ended. So the
time is linear in the bytes, however many pieces there are.
Of a few rows each is searched by itself from the beginning, since array operations would take longer.
A pattern with `_` counts characters, not bytes: rows are chosen by its literal ends with arrays, and the rows
that remain are decoded and matched one by one, each distinct value once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidemark.matching.selectors.like import Pattern
from tidemark.matching.vectors import strings
from tidemark.message.batches.columns import Bools, Bytes, Ints, Spans

#: Bytes of a piece that are compared at every place of the body; the rest is compared where they are equal.
DENSE_BYTES_MAX = 4
#: Pieces that are looked for in the whole body; rows are searched for the pieces after them one by one.
DENSE_PIECES_MAX = 4
#: Up to so many rows are searched one by one.
FEW_ROWS = 4
#: If more bytes than this had to be compared at those places, rows are searched one by one in linear time.
SEARCH_BYTES_MAX = 1 << 24


class SpanPattern:
    """A LIKE pattern compiled for batches."""

    def __init__(self, pattern: str, escape: str = "") -> None:
        self._pattern = Pattern.compile(pattern, escape)
        segments = self._pattern.segments
        self._pieces = [strings.encode(segment.text) for segment in segments]
        self._has_holes = any(segment.wild for segment in segments)
        self._prefix = strings.encode(self._pattern.prefix)
        last = segments[-1]
        self._suffix = strings.encode(last.text[last.wild[-1] + 1 :] if last.wild else last.text)
        # A `_` is one byte in its piece, and no character has fewer bytes.
        self._bytes_min = sum(map(len, self._pieces))

    def matches(self, spans: Spans, wanted: Bools | None = None) -> Bools:
        """spans[row] LIKE pattern -> matched[row]; arbitrary where not wanted."""
        if len(spans) <= FEW_ROWS:
            return np.array([self._matches_one(value) for value in spans.tolist()], np.bool_)
        if len(self._pieces) == 1 and not self._has_holes:
            return strings.equal(spans, self._prefix)
        matched = strings.starts_with(spans, self._prefix)
        if wanted is not None:
            matched &= wanted
        matched &= spans.lengths >= self._bytes_min
        if self._suffix:
            matched &= strings.ends_with(spans, self._suffix)
        if self._has_holes or len(self._pieces) > 2:
            rows = np.flatnonzero(matched)
            rest = strings.select(spans, rows)
            matched[rows] = self._match_each(rest) if self._has_holes else self._match_middle(rest)
        return matched

    def _matches_one(self, value: bytes) -> bool:
        first, last = self._pieces[0], self._pieces[-1]
        if self._has_holes:
            ends = value.startswith(self._prefix) and value.endswith(self._suffix)
            return ends and self._pattern.matches(str(value, "utf-8"))
        if len(self._pieces) == 1:
            return value == first
        at, stop = len(first), len(value) - len(last)
        if at > stop or not value.startswith(first) or not value.endswith(last):
            return False
        for piece in self._pieces[1:-1]:
            place = value.find(piece, at, stop)
            if place < 0:
                return False
            at = place + len(piece)
        return True

    def _match_middle(self, spans: Spans) -> Bools:
        """matched[row] by the pieces between the first and the last, which are known to match."""
        spans = strings.compacted(spans)
        begin, stop = spans.starts + len(self._pieces[0]), spans.ends - len(self._pieces[-1])
        matched = np.ones(len(spans), np.bool_)
        for piece in self._pieces[1:-1][:DENSE_PIECES_MAX]:
            places = find(spans.body, begin, stop, piece)
            matched &= places >= 0
            # A row without this piece does not match; from its end on no other piece is found in it either.
            begin = np.where(places < 0, stop, places + len(piece))
        rest = self._pieces[1:-1][DENSE_PIECES_MAX:]
        rows = np.flatnonzero(matched)
        if rest and len(rows):
            matched[rows] = have_in_turn(spans.body.tobytes(), begin[rows], stop[rows], rest)
        return matched

    def _match_each(self, spans: Spans) -> Bools:
        values = strings.compacted(spans).tolist()
        answers = {value: self._pattern.matches(str(value, "utf-8")) for value in set(values)}
        return np.fromiter(map(answers.__getitem__, values), np.bool_, len(values))


def find(body: Bytes, begin: Ints, stop: Ints, piece: bytes) -> Ints:
    """place[row]: the leftmost place of `piece` in body[begin[row]:stop[row]]; -1 where there is none."""
    candidates = _candidates(body, piece)
    if len(candidates) * len(piece) > SEARCH_BYTES_MAX:
        return _find_each(body, begin, stop, piece)
    if len(piece) > DENSE_BYTES_MAX:
        candidates = candidates[strings.continues_with(body, candidates, piece)]
    if not len(candidates):
        return np.full(len(begin), -1)
    places = candidates.take(candidates.searchsorted(begin), mode="clip")
    places[(places < begin) | (places + len(piece) > stop)] = -1
    return places


def have_in_turn(data: bytes, begin: Ints, stop: Ints, pieces: Sequence[bytes]) -> list[bool]:
    """found[row]: data[begin[row]:stop[row]] has all the pieces, each after the one before it.

    A row's bytes are looked at once: each search begins where the one before it ended, and a row that lacks a
    piece is given up.
    """
    found = []
    for start, end in zip(begin.tolist(), stop.tolist(), strict=True):
        at = start
        for piece in pieces:
            place = data.find(piece, at, end)
            if place < 0:
                break
            at = place + len(piece)
        found.append(place >= 0)
    return found


def _candidates(body: Bytes, piece: bytes) -> Ints:
    """The places in the body, ascending, that have room for the piece and begin with its first bytes."""
    room = max(0, len(body) - len(piece) + 1)
    found = body[:room] == piece[0]
    for offset in range(1, min(len(piece), DENSE_BYTES_MAX)):
        found &= body[offset : room + offset] == piece[offset]
    return np.flatnonzero(found)


def _find_each(body: Bytes, begin: Ints, stop: Ints, piece: bytes) -> Ints:
    data = body.tobytes()
    places = [data.find(piece, low, high) for low, high in zip(begin.tolist(), stop.tolist(), strict=True)]
    return np.array(places, np.int64)
