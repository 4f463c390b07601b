"""Reading slices of the archive as record batches: only the columns asked for, only rows that are wanted.

The columns that decide about rows are read first, row group by row group; the others only where a row is
wanted. A row group whose bounds exclude every row is not read at all. Where its bounds prove that all rows
are of the wanted pubend, time and topic, those columns are not read either. Imports no pyspark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.errors import SelectorError, TranslationError
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.selectors.tree import HEADERS as SELECTOR_HEADERS
from tidemark.matching.topics import TopicPattern
from tidemark.message.registry import TopicSchemas
from tidemark.message.schema import Schema
from tidemark.message.types import Path as FieldPath
from tidemark.spark.archive.layout import loose
from tidemark.spark.archive.reader import Snapshot
from tidemark.spark.archive.scan import WantedRange, scan
from tidemark.spark.archive.table import root_of
from tidemark.spark.archive_scan.plain_columns import member_types, plain_column
from tidemark.spark.archive_scan.pruning import Pruning
from tidemark.spark.archive_scan.row_test import RowTest, row_test
from tidemark.spark.archive_scan.slices import Slice
from tidemark.spark.columns import EventColumns
from tidemark.spark.stores.folder import StoredFile
from tidemark.spark.topic_columns import (
    GAP,
    HEADERS,
    TopicColumnReader,
    TopicColumns,
    arrow_columns,
    root_type,
)
from tidemark.ticks import TICK_MIN

#: Rows of a record batch: with fewer, Spark takes them more slowly; with more, not faster.
ROWS_MAX = 32 << 10


@dataclass(frozen=True, slots=True)
class RowGroupBounds:
    """What the footer of a file says about one of its row groups; a `pruning.BoundedRows`."""

    rows: int
    bounds: Mapping[str, tuple[Any, Any]]
    nulls: Mapping[str, int]

    def is_only(self, column: str, value: str) -> bool:
        """Has every row this value?"""
        return self.bounds.get(column) == (value, value) and self.nulls.get(column) == 0


class ColumnarReader:
    """Reads slices with the columns and the selector of one query."""

    def __init__(self, columns: TopicColumns, archived: Snapshot) -> None:
        """Raises TranslationError if a column is converted, or the selector is no test of Arrow columns."""
        self._columns = columns
        self._archived = archived
        self._schema = arrow_columns(columns)
        pattern = TopicPattern.parse(columns.pattern)
        self._tables = {root: _TableColumns(columns, archived, root) for root in archived.roots(pattern)}

    def can_read(self, part: Slice) -> bool:
        """Can the slice be read as columns, in the order of ticks, and is nothing of it gone?"""
        return len(part.files) <= 1 and part.is_columnar and not part.gone

    def read(self, part: Slice) -> Iterator[pa.RecordBatch]:
        """The rows of a slice, in the order of their ticks."""
        base = max(part.base, TICK_MIN if part.released is None else part.released)
        for root, files in part.files.items():
            for file in files:
                yield from self._file(root, file, part.pubend, base, part.upto)

    def _file(
        self, root: str, file: StoredFile, pubend: str, base: int, upto: int
    ) -> Iterator[pa.RecordBatch]:
        table = self._tables[root]
        with file.errors(), file.parquet() as parquet:
            if not self._has_these_types(parquet, table):
                yield from self._events(root, file, pubend, base, upto)
                return
            wanted = _GroupReader(parquet, table, pubend, base, upto)
            for group in range(parquet.num_row_groups):
                rows = wanted.rows(group, self._sources(table))
                if rows is not None:
                    yield from self._records(rows, table, pubend)

    def _sources(self, table: _TableColumns) -> list[str]:
        """The columns of files that the columns of the query are made of."""
        headers = {"_tick": "_tick", "_time": "_tick", "_publisher": "_publisher", "_topic": "_topic"}
        names = [headers.get(name) or table.fields.get(name) for name in self._columns.names]
        if table.only_topic is not None:
            names = [name for name in names if name != "_topic"]
        return list(dict.fromkeys(name for name in names if name is not None))

    def _has_these_types(self, parquet: pq.ParquetFile, table: _TableColumns) -> bool:
        """Has the file the columns in the types that are wanted? One that it lacks is null."""
        held = {field.name: field.type for field in parquet.schema_arrow}
        wanted = {name: table.layout.type_of(name) for name in table.test_columns}
        wanted |= {
            column: self._schema.field(name).type
            for name, column in table.fields.items()
            if column is not None
        }
        return all(loose(held[name]) == loose(item) for name, item in wanted.items() if name in held)

    def _events(
        self, root: str, file: StoredFile, pubend: str, base: int, upto: int
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file that was written when a column had a narrower type: by way of the events."""
        reader = TopicColumnReader(self._columns, lambda: self._archived.topics.described)
        wanted = WantedRange(pubend, base, upto, TopicPattern.parse(self._columns.pattern))
        for batch in scan([file], wanted, self._archived.topics.schemas, self._archived.layouts[root]):
            chosen = reader.chosen(batch)
            if chosen is not None:
                yield reader.records(pubend, chosen)

    def _records(self, rows: pa.Table, table: _TableColumns, pubend: str) -> Iterator[pa.RecordBatch]:
        made = [self._array(field, rows, table, pubend) for field in self._schema]
        yield from pa.table(made, schema=self._schema).to_batches(ROWS_MAX)

    def _array(self, field: pa.Field, rows: pa.Table, table: _TableColumns, pubend: str) -> Any:
        count = rows.num_rows
        match field.name:
            case "_pubend":
                return pa.repeat(pa.scalar(pubend, pa.string()), count)
            case "_topic" if table.only_topic is not None:
                return pa.repeat(pa.scalar(table.only_topic, pa.string()), count)
            case "_time":
                return rows.column("_tick").cast(field.type)
            case name if name == GAP:
                return pa.nulls(count, field.type)
            case name:
                column = name if name in HEADERS else table.fields[name]
                held = None if column is None else rows.column(column)
                return pa.nulls(count, field.type) if held is None else _as(held, field.type)


class _TableColumns:
    """Where one table has the columns of a query, and how its rows are tested."""

    def __init__(self, columns: TopicColumns, archived: Snapshot, root: str) -> None:
        layout = archived.layouts[root]
        pattern = TopicPattern.parse(columns.pattern)
        names = [name for name in archived.topics.names if root_of(name) == root and pattern.matches(name)]
        topics = [each for name in names for each in archived.topics.creations(name)]
        if len(topics) > len(names):
            raise TranslationError("a topic was created more than once: several schemas test its rows")
        versions = [version for topic in topics for version in topic.versions]
        types = member_types(Schema.parse(columns.schema))
        #: field -> the column of the table that has it; None if no event has it
        self.fields = {
            name: plain_column(layout, versions, name, types[name])
            for name in columns.names
            if name not in HEADERS and name != GAP
        }
        self.layout = layout
        #: the topic of all rows that are read, if there is only one
        self.only_topic = names[0] if len(names) == 1 else None
        self.pruning = Pruning(layout, topics, columns.selector)
        #: topic -> the test of its rows, None where all rows are wanted; a topic without a match is not here
        self.tests: dict[str, RowTest | None] = {}
        for topic in topics:
            try:
                selector = Selector.parse(columns.selector, topic.reader, topic.topic)
            except SelectorError:
                continue
            places = _places(archived, root, topic)
            self.tests[topic.topic] = (
                row_test(selector.tree, topic.reader, places) if columns.selector else None
            )

    @property
    def test_columns(self) -> set[str]:
        """The columns that the tests read."""
        return {name for test in self.tests.values() if test is not None for name in test.columns}


def _places(archived: Snapshot, root: str, topic: TopicSchemas) -> Any:
    """A function that says where the fields of a topic lie."""
    columns, types = EventColumns(root_type(topic.reader.schema)), member_types(topic.reader.schema)

    def place(path: FieldPath) -> tuple[str, ...]:
        if len(path) == 1 and path[0] in SELECTOR_HEADERS:
            if path[0] == "_key":
                raise TranslationError("_key: is not text in the archive")
            return ("_tick",) if path[0] == "_time" else path
        first, *rest = columns.column(path)
        found = plain_column(archived.layouts[root], topic.versions, first, types[first])
        if found is None:
            raise TranslationError(f"{first}: has no column yet")
        return (found, *rest)

    return place


class _GroupReader:
    """Reads row groups of one file: the rows of `(base, upto]` of a pubend that the tests choose."""

    def __init__(
        self, parquet: pq.ParquetFile, table: _TableColumns, pubend: str, base: int, upto: int
    ) -> None:
        self._parquet = parquet
        self._table = table
        self._pubend, self._base, self._upto = pubend, base, upto
        self._held = {field.name: field.type for field in parquet.schema_arrow}
        first = parquet.metadata.row_group(0) if parquet.num_row_groups else None
        self._places = (
            {first.column(at).path_in_schema: at for at in range(first.num_columns)}
            if first is not None
            else {}
        )

    def rows(self, group: int, columns: list[str]) -> pa.Table | None:
        """The wanted rows with these columns; None if there are none."""
        there = self._bounds(group)
        pubends, (low, high) = there.bounds.get("_pubend"), there.bounds.get("_tick", (None, None))
        if pubends is not None and not pubends[0] <= self._pubend <= pubends[1]:
            return None
        if low is not None and (high <= self._base or low > self._upto):
            return None
        if not self._table.pruning.could_have(there):
            return None
        asked = self._asked(there)
        deciding = {*asked, *self._table.test_columns}
        tested = self._read(group, sorted(deciding))
        mask = self._mask(tested, asked)
        if mask is not None and not pc.any(mask, min_count=0).as_py():
            return None
        rest = [name for name in columns if name not in deciding]
        found = self._read(group, rest)
        arrays = {name: (tested if name in deciding else found).column(name) for name in columns}
        whole = pa.table(arrays) if arrays else pa.table({"_": pa.nulls(there.rows)})
        return whole if mask is None or pc.all(mask).as_py() else whole.filter(mask)

    def _asked(self, there: RowGroupBounds) -> set[str]:
        """The headers that have to be read to tell which rows are wanted: those that bounds leave open."""
        asked = set()
        if not there.is_only("_pubend", self._pubend):
            asked.add("_pubend")
        low, high = there.bounds.get("_tick", (self._base, self._upto))
        if low <= self._base or high > self._upto:
            asked.add("_tick")
        tests = self._table.tests
        if len(tests) != 1 or not there.is_only("_topic", next(iter(tests))):
            asked.add("_topic")
        return asked

    def _mask(self, tested: pa.Table, asked: set[str]) -> Any:
        masks = []
        if "_pubend" in asked:
            masks.append(pc.equal(tested.column("_pubend"), self._pubend))
        if "_tick" in asked:
            ticks = tested.column("_tick")
            masks += [pc.greater(ticks, self._base), pc.less_equal(ticks, self._upto)]
        if "_topic" in asked:
            masks.append(self._of_topics(tested))
        else:
            (test,) = self._table.tests.values()
            if test is not None:
                masks.append(test(tested))
        return pc.fill_null(reduce(pc.and_kleene, masks), False) if masks else None

    def _of_topics(self, tested: pa.Table) -> Any:
        """The rows of the wanted topics that the tests of those choose."""
        topics = tested.column("_topic")
        free = [name for name, test in self._table.tests.items() if test is None]
        chosen = pc.is_in(topics, pa.array(free, pa.string()))
        for name, test in self._table.tests.items():
            if test is not None:
                chosen = pc.or_kleene(chosen, pc.and_kleene(pc.equal(topics, name), test(tested)))
        return chosen

    def _read(self, group: int, columns: list[str]) -> pa.Table:
        """These columns of a row group; those that the file lacks are null."""
        there = [name for name in columns if name in self._held]
        found = self._parquet.read_row_group(group, columns=there)
        count = self._parquet.metadata.row_group(group).num_rows
        return pa.table(
            {
                name: found.column(name)
                if name in self._held
                else pa.nulls(count, self._table.layout.type_of(name))
                for name in columns
            }
        )

    def _bounds(self, group: int) -> RowGroupBounds:
        metadata = self._parquet.metadata.row_group(group)
        bounds: dict[str, tuple[Any, Any]] = {}
        nulls: dict[str, int] = {}
        for name, at in self._places.items():
            stats = metadata.column(at).statistics
            if stats is None or name not in self._held:
                continue
            if stats.has_null_count:
                nulls[name] = stats.null_count
            if stats.has_min_max and _has_order(self._held[name]):
                bounds[name] = (stats.min, stats.max)
        return RowGroupBounds(metadata.num_rows, bounds, nulls)


def _has_order(item: pa.DataType) -> bool:
    kinds = pa.types
    return bool(kinds.is_integer(item) or kinds.is_string(item) or kinds.is_floating(item))


def _as(held: Any, wanted: pa.DataType) -> Any:
    """The values in the wanted type, which differs at most in what may be null."""
    return held if held.type == wanted else held.cast(wanted)
