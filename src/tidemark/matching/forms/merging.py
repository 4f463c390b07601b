"""Merging boxes: fewer clauses that hold at least what the given ones hold, and little more.

The boxes are sorted, those of one group together, and only neighbours are ever merged, the cheapest pair
first. Sorting puts equal and near boxes side by side, so this finds most of what trying all pairs would find,
in n log n.

A merge costs nothing when the result is one of the two boxes. Otherwise it costs one for every condition that
is dropped, one for every list of values that becomes a range, one for every field but the first on which the
two differ (the corners of the joint box are in neither), and less than one for each gap that a range closes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from tidemark.matching.forms.clause_algebra import make_clause
from tidemark.matching.forms.clauses import Absent, Clause, Constraint, Interval, OneOf, Present
from tidemark.matching.forms.constraints import as_interval, contains, hull, order_key, span
from tidemark.matching.selectors.render import render

#: Values that a merged box lists for one field: their text, three tokens a value, must fit in a selector.
VALUES_MAX = 48

T = TypeVar("T")


def signature(item: Clause) -> Hashable:
    """A key that is equal for boxes whose hull drops none of their conditions."""
    return tuple((path, isinstance(held, Absent)) for path, held in item.constraints), item.residuals


def box_key(item: Clause) -> tuple[Any, ...]:
    """A key that sorts the boxes of one topic: those of one signature together, near ones side by side."""
    paths = tuple((path, isinstance(held, Absent)) for path, held in item.constraints)
    texts = tuple(map(render, item.residuals))
    return paths, texts, tuple(order_key(held) for _, held in item.constraints)


def join(a: Clause, b: Clause) -> tuple[float, Clause]:
    """The cost of the merge, and the least box that covers both."""
    others = dict(b.constraints)
    pairs = {path: (held, others[path]) for path, held in a.constraints if path in others}
    hulls = {path: _hull(*pair) for path, pair in pairs.items()}
    joint = make_clause(
        {path: held for path, held in hulls.items() if held is not None},
        [residual for residual in a.residuals if residual in b.residuals],
    )
    if joint in (a, b):
        return 0.0, joint
    differing = [pair for path, pair in pairs.items() if pair[0] != pair[1] and hulls[path] is not None]
    dropped = _size(a) + _size(b) - 2 * _size(joint)
    return dropped + sum(_loss(*pair) for pair in differing) + max(0, len(differing) - 1), joint


def collapse(
    items: Sequence[T],
    limit: int,
    group_of: Callable[[T], Hashable],
    merge: Callable[[T, T], tuple[float, T]],
) -> list[T]:
    """At most `limit` items, or as few as merging neighbours of one group can make, cheapest merges first.

    `merge` returns the cost of merging two neighbours, and the merged item.
    """
    return _Chain(items, group_of, merge).collapsed(limit)


class _Chain(Generic[T]):
    """Items in a row, and a heap of the pairs of neighbours that can be merged, by cost."""

    def __init__(
        self, items: Sequence[T], group_of: Callable[[T], Hashable], merge: Callable[[T, T], tuple[float, T]]
    ) -> None:
        self._items = list(items)
        self._groups = list(map(group_of, items))
        self._merge = merge
        #: item -> the next and the previous item that is still there; len(items) and -1 at the ends
        self._following = list(range(1, len(items) + 1))
        self._preceding = list(range(-1, len(items) - 1))
        #: item -> merges that it took part in, -1 when it was merged into another
        self._age = [0] * len(items)
        #: cost, left, right, and their ages then; void when an item has another age now
        self._offers: list[tuple[float, int, int, int, int]] = []
        for index in range(len(items)):
            self._offer(index)

    def collapsed(self, limit: int) -> list[T]:
        count = len(self._items)
        while count > limit and self._offers:
            _, left, right, *ages = heappop(self._offers)
            if ages == [self._age[left], self._age[right]]:
                self._take(left, right)
                count -= 1
        return [item for item, age in zip(self._items, self._age, strict=True) if age >= 0]

    def _offer(self, left: int) -> None:
        right = self._following[left] if left >= 0 else len(self._items)
        if right < len(self._items) and self._groups[left] == self._groups[right]:
            cost, _ = self._merge(self._items[left], self._items[right])
            heappush(self._offers, (cost, left, right, self._age[left], self._age[right]))

    def _take(self, left: int, right: int) -> None:
        _, self._items[left] = self._merge(self._items[left], self._items[right])
        self._age[left] += 1
        self._age[right] = -1
        beyond = self._following[left] = self._following[right]
        if beyond < len(self._items):
            self._preceding[beyond] = left
        self._offer(self._preceding[left])
        self._offer(left)


def _hull(a: Constraint, b: Constraint) -> Constraint | None:
    """The hull, but the range of its values where it would list more than VALUES_MAX."""
    least = hull(a, b)
    if isinstance(least, OneOf) and len(least.values) > VALUES_MAX:
        return span(least, least)
    return least


def _loss(a: Constraint, b: Constraint) -> float:
    """The cost of the hull of two constraints; not asked for a pair of IS NULL and a constraint on values."""
    if isinstance(a, Present | Absent) or isinstance(b, Present | Absent) or contains(a, b) or contains(b, a):
        return 0.0
    listed = isinstance(a, OneOf) + isinstance(b, OneOf)
    if listed == 2 and isinstance(_hull(a, b), OneOf):
        return 0.0
    return listed + _gap(as_interval(a), as_interval(b))


def _gap(a: Interval, b: Interval) -> float:
    """The distance of two ranges: 0 when they touch, less than 1 always."""
    for lower, upper in ((a.high, b.low), (b.high, a.low)):
        if lower is not None and upper is not None:
            distance = _distance(lower, upper)
            if distance > 0:
                return distance
    return 0.0


def _distance(lower: Any, upper: Any) -> float:
    """d / (1 + d) for numbers that are d apart; for strings, the more the shorter their common prefix is."""
    if lower >= upper:
        return 0.0
    if isinstance(lower, str | bytes):
        shared = next((i for i, (x, y) in enumerate(zip(lower, upper, strict=False)) if x != y), len(lower))
        return 1 / (2 + shared)
    apart = float(upper) - float(lower)
    return apart / (1 + apart) if apart < 2**53 else 1 - 2**-53


def _size(item: Clause) -> int:
    return len(item.constraints) + len(item.residuals)
