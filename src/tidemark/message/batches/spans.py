"""Copying many stretches of bytes at once, and cutting rows into stretches of bounded size.

A window view has a row for every byte of a buffer: row `at` is the `width` bytes that start there. Fancy
indexing of its rows copies whole stretches, not single bytes, so stretches of one length are copied at memory
speed; if they also lie at even distances, as in rows of one size, a strided view needs no index. Stretches of
mixed lengths are copied one length at a time while there are few lengths, else byte by byte if they are
short, and one by one if they are long.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tidemark.message.batches.columns import Bytes, Ints, Spans

#: More different lengths than this, and grouping by length costs more than it saves.
_LENGTHS_MAX = 16
#: Spans of more different lengths are copied byte by byte up to this mean length.
_SHORT_BYTES_MAX = 16


def windows(body: Bytes, width: int) -> Bytes:
    """view[at] is body[at : at + width]."""
    return np.ndarray((max(0, len(body) - width + 1), width), np.uint8, body, strides=(1, 1))


def copy_spans(target: Bytes, at: Ints, spans: Spans) -> None:
    """Copy the bytes of each span to target[at[row] :]; the places in `target` do not overlap."""
    lengths = spans.lengths
    if not len(lengths):
        return
    if (lengths == lengths[0]).all():
        _copy_alike(target, at, spans, int(lengths[0]))
        return
    distinct = np.unique(lengths)
    if len(distinct) > _LENGTHS_MAX:
        is_short = int(lengths.sum()) <= _SHORT_BYTES_MAX * len(lengths)
        (_copy_bytes if is_short else _copy_one_by_one)(target, at, spans)
        return
    for length in distinct.tolist():
        if length == 0:
            continue
        rows = lengths == length
        windows(target, length)[at[rows]] = windows(spans.body, length)[spans.starts[rows]]


def _copy_alike(target: Bytes, at: Ints, spans: Spans, length: int) -> None:
    """Copy spans that all have this length."""
    if length == 0:
        return
    even = _even_rows(spans.body, spans.starts, length)
    put_rows(target, at, windows(spans.body, length)[spans.starts] if even is None else even)


def put_rows(target: Bytes, at: Ints, rows: Bytes) -> None:
    """Copy the bytes rows[row] to target[at[row] :]; the places in `target` do not overlap."""
    count, length = rows.shape
    if not count or not length:
        return
    into = _even_rows(target, at, length)
    if into is None:
        windows(target, length)[at] = rows
    else:
        into[...] = rows


def _even_rows(body: Bytes, starts: Ints, length: int) -> Bytes | None:
    """rows[row] is body[starts[row] :][:length]; None if the starts do not follow at one distance."""
    distance = int(starts[1] - starts[0]) if len(starts) > 1 else length
    if distance < length or int(starts[-1] - starts[0]) != distance * (len(starts) - 1):
        return None
    if not (np.diff(starts) == distance).all():
        return None
    return np.ndarray((len(starts), length), np.uint8, body, int(starts[0]), (distance, 1))


def _copy_bytes(target: Bytes, at: Ints, spans: Spans) -> None:
    """Copy byte by byte, with an index of each byte: for short spans that is less than the work for a row."""
    lengths = spans.lengths
    ends = np.cumsum(lengths)
    within = np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)
    target[np.repeat(at, lengths) + within] = spans.body[np.repeat(spans.starts, lengths) + within]


def _copy_one_by_one(target: Bytes, at: Ints, spans: Spans) -> None:
    into, source = target.data, spans.body.data
    places = zip(at.tolist(), spans.starts.tolist(), spans.ends.tolist(), strict=True)
    for place, start, end in places:
        into[place : place + end - start] = source[start:end]


def joined(spans: Spans) -> tuple[Bytes, Ints]:
    """A new buffer with all spans end to end, and ends[row]: where each one ends in it."""
    ends = np.cumsum(spans.lengths)
    body = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    copy_spans(body, ends - spans.lengths, spans)
    return body, ends


def stretches(reach: Ints, bytes_max: int) -> Iterator[slice]:
    """Yield slices of neighbouring rows of at most `bytes_max` bytes, in order; a larger row stands alone.

    reach[row]: the bytes of all rows up to and including this one.
    """
    first = used = 0
    while first < len(reach):
        last = max(first + 1, int(np.searchsorted(reach, used + bytes_max, side="right")))
        yield slice(first, last)
        first, used = last, int(reach[last - 1])
