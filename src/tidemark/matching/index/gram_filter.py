"""GramFilter: which LIKE conditions can be true for some event of a batch, without evaluating each of them.

A pattern such as '%overdue%' is true only of values that have its literal. The last four bytes of it are the
gram of the condition. A batch costs one pass over the bytes of the field, which leaves the conditions whose
gram occurs there, and a search for the literal of each of these. All others are false for every event of the
batch and are not evaluated (docs/decisions/19-selectors-beyond-boxes.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from tidemark.matching.index.arrays import Index
from tidemark.matching.selectors.like import Pattern, Segment
from tidemark.matching.selectors.tree import And, FieldRef, Like, Node
from tidemark.matching.vectors import strings
from tidemark.message.batches.columns import Column, Spans
from tidemark.message.types import Path

GRAM_BYTES = 4
#: Buckets that say quickly of most words of a batch that no gram is equal to them.
_BUCKET_BITS = 16
_MULTIPLIER = np.uint32(0x9E3779B1)

Grams = NDArray[np.uint32]


def literal_of(tree: Node) -> tuple[Path, bytes] | None:
    """A field, and bytes that its value has wherever the condition is true; None if too few are known."""
    if isinstance(tree, And):
        return next((found for found in map(literal_of, tree.operands) if found is not None), None)
    if not isinstance(tree, Like) or tree.negated or not isinstance(tree.operand, FieldRef):
        return None
    segments = Pattern.compile(tree.pattern, tree.escape).segments
    literals = [strings.encode(literal) for segment in segments for literal in _literals(segment)]
    longest = max(literals, key=len, default=b"")
    return None if len(longest) < GRAM_BYTES else (tree.operand.path, longest)


def _literals(segment: Segment) -> Iterator[str]:
    """Yields what stands between the characters of a segment that match anything."""
    begin = 0
    for hole in (*segment.wild, len(segment.text)):
        yield segment.text[begin:hole]
        begin = hole + 1


class _Table:
    """The grams of one field in arrays, as they were when this was made."""

    def __init__(self, literals: dict[int, bytes]) -> None:
        """`literals` has the literal of each condition."""
        # The end of it: what people look for often begins alike.
        ends = b"".join(literal[-GRAM_BYTES:] for literal in literals.values())
        grams: Grams = np.frombuffer(ends, "<u4")
        order = grams.argsort(kind="stable")
        self._literals = literals
        self._grams: Grams = grams[order]
        self._conditions: Index = np.array(list(literals), np.int64)[order]
        self._buckets = np.zeros(1 << _BUCKET_BITS, np.bool_)
        self._buckets[_bucket(self._grams)] = True

    def possible(self, spans: Spans) -> list[int]:
        """The conditions whose literal occurs in the bytes of the rows, or between them."""
        body = np.ascontiguousarray(strings.compacted(spans).body)
        if not len(spans) or len(body) < GRAM_BYTES:
            return []
        words: Grams = np.ndarray((len(body) - GRAM_BYTES + 1,), "<u4", body, strides=(1,))
        found = np.unique(words[self._buckets[_bucket(words)]])
        low, high = self._grams.searchsorted(found), self._grams.searchsorted(found, side="right")
        marks = np.zeros(len(self._grams) + 1, np.int64)
        np.add.at(marks, low, 1)
        np.add.at(marks, high, -1)
        data, literals = body.tobytes(), self._literals
        near: list[int] = self._conditions[marks.cumsum()[:-1] > 0].tolist()
        return [condition for condition in near if literals[condition] in data]


class GramFilter:
    """The conditions that have a literal, by the field that they read."""

    def __init__(self) -> None:
        #: field -> condition -> literal
        self._literals: dict[Path, dict[int, bytes]] = {}
        #: field -> its table, until a condition of the field comes or goes
        self._tables: dict[Path, _Table] = {}

    def add(self, condition: int, path: Path, literal: bytes) -> None:
        """A condition is asked from now on."""
        self._literals.setdefault(path, {})[condition] = literal
        self._tables.pop(path, None)

    def remove(self, condition: int, path: Path) -> None:
        """A condition is no longer asked."""
        del self._literals[path][condition]
        self._tables.pop(path, None)
        if not self._literals[path]:
            del self._literals[path]

    def possible(self, column: Callable[[Path], Column]) -> list[int]:
        """The conditions that may be true for some row of a batch, given its columns by field."""
        possible: list[int] = []
        for path, literals in self._literals.items():
            values = column(path).values
            if not isinstance(values, Spans):
                possible += literals
                continue
            table = self._tables.get(path)
            if table is None:
                table = self._tables[path] = _Table(literals)
            possible += table.possible(values)
        return possible


def _bucket(words: Grams) -> NDArray[np.uint32]:
    """bucket[word]"""
    return words * _MULTIPLIER >> np.uint32(32 - _BUCKET_BITS)
