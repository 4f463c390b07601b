"""The slow path: conditions on fields that have no array, one row at a time.

The value of a `dynamic` field, a list, a tuple or a variant may be of another type in every event, so the
reference evaluator decides a condition on one, a row at a time. It is called for the smallest condition that
needs it, and only for rows in which every field of the condition is present and which no cheaper condition
has decided yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from tidemark.matching.forms.domains import instant
from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.tree import Compare, FieldRef, In, Like
from tidemark.matching.vectors import decimals, strings
from tidemark.matching.vectors.predicates import Cost, Inputs, Predicate, both
from tidemark.message.batches.columns import Bools, Column, Decimals, Ints, Spans
from tidemark.message.types import Atomic, Kind, Path


def hold_rows(node: Compare | In | Like | FieldRef, paths: Sequence[Path], truth: bool) -> Predicate:
    """The predicate that the condition is `truth`. It is unknown wherever one of `paths` is NULL."""

    def run(inputs: Inputs) -> Bools:
        asked = inputs.wanted
        for path in paths:
            asked = both(asked, present(inputs.columns[path]))
        rows = np.arange(inputs.count) if asked is None else np.flatnonzero(asked)
        fields = [python_values(inputs.columns[path], rows) for path in paths]
        events = (dict(zip(paths, values, strict=True)) for values in zip(*fields, strict=True))
        result = np.zeros(inputs.count, np.bool_)
        result[rows] = [evaluate(node, event.get) is truth for event in events]
        return result

    return Predicate(run, Cost.PYTHON)


def present(column: Column) -> Bools | None:
    """present[row]: the field is not NULL; None when it is NULL in no row."""
    if column.valid is not None or isinstance(column.type, Atomic):
        return column.valid
    assert isinstance(column.values, Sequence)
    return np.fromiter((value is not None for value in column.values), np.bool_, len(column.values))


def python_values(column: Column, rows: Ints) -> list[Any]:
    """The values of some rows, in all of which the field is valid, as the evaluator takes them."""
    values = column.values
    if isinstance(values, Spans):
        items = strings.compacted(strings.select(values, rows)).tolist()
        is_text = column.type == Atomic(Kind.STRING)
        return [str(item, "utf-8") for item in items] if is_text else items
    if isinstance(values, Decimals):
        taken = Decimals(values.low[rows], values.high[rows], values.scale)
        return list(decimals.exact_values(taken))
    if not isinstance(values, np.ndarray):
        return [values[row] for row in rows.tolist()]
    if column.type == Atomic(Kind.TIMESTAMP):
        return [_instant(value) for value in values[rows].tolist()]
    return list(values[rows].tolist())


def _instant(micros: int) -> datetime | None:
    """The datetime of a number of microseconds; None beyond the years that Python has."""
    try:
        return instant(micros)
    except OverflowError:
        return None
