"""Copying many stretches of bytes at once.

A window view has a row for every byte of a buffer: row `at` is the `width` bytes that start there. Fancy
indexing of its rows copies whole stretches, not single bytes, so stretches of one length are copied at memory
speed. Stretches of mixed lengths are copied one length at a time while there are few lengths, else one by
one.
"""

from __future__ import annotations

import numpy as np

from tidemark.message.batches.columns import Bytes, Ints, Spans

#: More different lengths than this, and grouping by length costs more than it saves.
_LENGTHS_MAX = 16


def windows(body: Bytes, width: int) -> Bytes:
    """view[at] is body[at : at + width]."""
    return np.ndarray((max(0, len(body) - width + 1), width), np.uint8, body, strides=(1, 1))


def copy_spans(target: Bytes, at: Ints, spans: Spans) -> None:
    """Copy the bytes of each span to target[at[row] :]; the places in `target` do not overlap."""
    lengths = spans.lengths
    distinct = np.unique(lengths)
    if len(distinct) > _LENGTHS_MAX:
        _copy_one_by_one(target, at, spans)
        return
    for length in distinct.tolist():
        if length == 0:
            continue
        rows = slice(None) if len(distinct) == 1 else lengths == length
        windows(target, length)[at[rows]] = windows(spans.body, length)[spans.starts[rows]]


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
