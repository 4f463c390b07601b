"""Which files and row groups may have what is wanted, by the least and the greatest values in them.

A selector in normal form is a disjunction of clauses, each of which constrains fields to sets of values. What
no clause can hold in is not read. Nothing that matches is ever left out: a field that lies in several
columns, or whose bounds are unknown, excludes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, cast

from tidemark.errors import SelectorError, TranslationError
from tidemark.matching.forms.clauses import Absent, Clause, Constraint, Interval, OneOf, Present
from tidemark.matching.forms.normal import normalise
from tidemark.matching.selectors.selector import Selector
from tidemark.message.registry import TopicSchemas
from tidemark.message.types import Path
from tidemark.spark.archive.layout import ArchiveLayout
from tidemark.spark.archive_scan.plain_columns import member_types, plain_column

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Headers of selectors, as columns of the archive that have their values.
_HEADERS: dict[Path, str] = {
    ("_tick",): "_tick",
    ("_time",): "_tick",
    ("_topic",): "_topic",
    ("_publisher",): "_publisher",
}


class BoundedRows(Protocol):
    """A file or a row group: how many rows, and what is known of their values."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def bounds(self) -> Mapping[str, tuple[Any, Any]]:
        """column -> its least and greatest value, where known."""

    @property
    def nulls(self) -> Mapping[str, int]:
        """column -> how many rows have none, where known."""


class Pruning:
    """Tests bounds for the events of some topics, all of one table, that a selector matches."""

    def __init__(self, layout: ArchiveLayout, topics: Sequence[TopicSchemas], selector: str) -> None:
        #: topic -> its clauses, of all creations, each of them constraints on columns; a topic that has no
        #: match is not here
        self._clauses: dict[str, list[list[tuple[str, Constraint]]]] = {}
        for topic in topics:
            found = _clauses(layout, topic, selector)
            if found is not None:
                self._clauses.setdefault(topic.topic, []).extend(found)

    def could_have(self, rows: BoundedRows) -> bool:
        """May there be such an event among the rows? False only if their bounds exclude it."""
        topics = rows.bounds.get("_topic")
        return any(
            (topics is None or topics[0] <= topic <= topics[1])
            and any(all(_meets(each, rows, column) for column, each in clause) for clause in clauses)
            for topic, clauses in self._clauses.items()
        )


def _clauses(
    layout: ArchiveLayout, topic: TopicSchemas, selector: str
) -> list[list[tuple[str, Constraint]]] | None:
    try:
        clauses = normalise(Selector.parse(selector, topic.reader, topic.topic).tree, topic.reader)
    except SelectorError:
        # The selector fits some other topic of the pattern: `make_topic_columns` has checked that.
        return None
    return [[]] if clauses is None else [_constraints(layout, topic, clause) for clause in clauses]


def _constraints(layout: ArchiveLayout, topic: TopicSchemas, clause: Clause) -> list[tuple[str, Constraint]]:
    types = member_types(topic.reader.schema)
    found = []
    for path, constraint in clause.constraints:
        column = _HEADERS.get(path)
        if len(path) == 1 and path[0] in types:
            try:
                column = plain_column(layout, topic.versions, path[0], types[path[0]])
            except TranslationError:
                column = None
        if column is not None:
            found.append((column, constraint))
    return found


def _meets(constraint: Constraint, rows: BoundedRows, column: str) -> bool:
    nulls = rows.nulls.get(column)
    if isinstance(constraint, Absent):
        return nulls is None or nulls > 0
    if nulls == rows.rows:
        return False
    found = rows.bounds.get(column)
    if found is None or isinstance(constraint, Present):
        return True
    low, high = _number(found[0]), _number(found[1])
    if isinstance(constraint, OneOf):
        return any(low <= cast(Any, value) <= high for value in constraint.values)
    return _overlaps(constraint, low, high)


def _overlaps(interval: Interval, low: Any, high: Any) -> bool:
    above = interval.low is None or high > interval.low or (high == interval.low and not interval.low_open)
    below = interval.high is None or low < interval.high or (low == interval.high and not interval.high_open)
    return bool(above and below)


def _number(bound: Any) -> Any:
    """Timestamps compare as microseconds, as in constraints."""
    return (bound - _EPOCH) // timedelta(microseconds=1) if isinstance(bound, datetime) else bound
