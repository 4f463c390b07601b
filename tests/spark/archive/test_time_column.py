"""The time of events as a column: new tables have it, older tables get it for what is written later."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tests.spark.archive.small_archive import SCHEMA, SmallArchive
from tidemark.spark.archive.layout import HEADERS, TIME, ArchiveLayout, fields_of, laid_out
from tidemark.spark.archive.reader import snapshot
from tidemark.spark.archive.table import ArchiveTable
from tidemark.spark.history_frames.scan import HistoryQuery, TableScan
from tidemark.spark.topic_columns import make_topic_columns
from tidemark.ticks import TICK_MAX, TICK_MIN

FIELDS = list(fields_of(SCHEMA).items())


def test_a_table_of_before_gets_the_column_once(tmp_path: Path) -> None:
    before = ArchiveTable.to_write(tmp_path, "news", ArchiveLayout().extended(FIELDS))
    assert TIME.name not in before.layout.schema.names
    after = ArchiveTable.to_write(tmp_path, "news", before.layout.timed())
    assert sorted(after.layout.schema.names) == sorted([*HEADERS.names, TIME.name, "n", "kind"])
    assert after.layout.timed() is not None
    assert len(after.layout.timed().changes(after.layout)) == 0
    assert after.layout.extended(FIELDS).schema == after.layout.schema


def test_rows_of_an_older_file_get_their_time_when_they_are_written_again() -> None:
    layout = ArchiveLayout().extended(FIELDS).timed()
    table = laid_out({"_tick": pa.array([1_000_000, 2_500_000])}, 2, layout)
    assert table.column(TIME.name).cast(pa.int64()).to_pylist() == [1_000_000, 2_500_000]
    assert table.column("_topic").null_count == 2


def test_no_field_lies_in_the_column() -> None:
    layout = ArchiveLayout().timed()
    grown = layout.extended([("_time@tick", pa.int64()), ("_time", pa.timestamp("us", tz="UTC"))])
    assert grown.column_of("_time@tick", pa.int64()) == "_time%40tick"
    assert grown.column_of("_time", pa.timestamp("us", tz="UTC")) == "_time"


def test_history_computes_the_time_of_files_that_lack_it(tmp_path: Path) -> None:
    made = SmallArchive(tmp_path)
    made.round({"a": 19}, {"a": [("news.local", 10, 1, 1)]})
    taken = snapshot(tmp_path)
    columns = make_topic_columns(taken.topics.described, "news.local", "", ["_time"], gaps=False)
    scan = TableScan(taken, "news", taken.topics, HistoryQuery(columns, TICK_MIN, TICK_MAX))
    assert [read.columns for read in scan.reads()] == [["timestamp_micros(`_tick`) AS `_time`"]]
