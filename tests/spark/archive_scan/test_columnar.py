"""The archive read as columns has the same rows as the archive read as events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.live_node import live_node
from tidemark import sync
from tidemark.errors import TranslationError
from tidemark.message.topic_selector import TopicSelector
from tidemark.spark.archive.archive import Archive
from tidemark.spark.archive.reader import Snapshot, read, snapshot
from tidemark.spark.archive_scan.columnar import ColumnarReader
from tidemark.spark.archive_scan.slices import slices
from tidemark.spark.topic_columns import TopicColumnReader, TopicColumns, make_topic_columns
from tidemark.ticks import TICK_MAX, TICK_MIN

FIRST = "[symbol: string, price: double, qty: int?, leg: [venue: string, size: int?]]"
SECOND = "[symbol: string, price: double, qty: int?, leg: [venue: string, size: int?], note: string?]"
OTHER = "[symbol: string, code: long]"


def trade(number: int, **more: Any) -> dict[str, Any]:
    price = nan if number % 11 == 0 else number / 4
    leg = {"venue": f"V{number % 4}", "size": None if number % 3 else number}
    return {
        "symbol": f"S{number % 5}",
        "price": price,
        "qty": number if number % 2 else None,
        "leg": leg,
    } | more


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three rounds: one version of a topic; two versions and another topic; the second version."""
    path = tmp_path_factory.mktemp("columnar")
    with live_node(path, **{"retention.archive": "true"}) as node, sync.connect(node.url) as tm:
        with Archive(node.url, path / "archive") as archive:
            tm.create_topic("m.trades", FIRST)
            tm.publish_many("m.trades", [trade(number) for number in range(40)])
            assert archive.round()
            tm.publish_many("m.trades", [trade(number) for number in range(40, 50)])
            tm.create_topic("m.others", OTHER)
            tm.publish_many("m.others", [{"symbol": f"S{number}", "code": number} for number in range(20)])
            tm.create_topic("m.trades", SECOND)
            tm.publish_many("m.trades", [trade(number, note=f"n{number}") for number in range(50, 60)])
            assert archive.round()
            tm.publish_many("m.trades", [trade(number, note=None) for number in range(60, 90)])
            assert archive.round()
        yield path / "archive"


def columns_of(
    archived: Snapshot, pattern: str, selector: str = "", names: Sequence[str] | None = None
) -> TopicColumns:
    return make_topic_columns(archived.topics.described, pattern, selector, names, gaps=False)


def by_columns(archived: Snapshot, columns: TopicColumns, base: int, upto: int) -> list[pa.RecordBatch]:
    reader = ColumnarReader(columns, archived)
    wanted = [TopicSelector(columns.pattern, columns.selector)]
    found = []
    for part in slices(archived, "main", [(base, upto)], wanted, 1):
        assert reader.can_read(part)
        found += list(reader.read(part))
    return found


def by_events(archived: Snapshot, columns: TopicColumns, base: int, upto: int) -> list[pa.RecordBatch]:
    reader = TopicColumnReader(columns, lambda: archived.topics.described)
    chosen = [reader.chosen(batch) for batch in read(archived.path, "main", base, upto, columns.pattern)]
    return [reader.records("main", batch) for batch in chosen if batch is not None]


def texts(batches: Sequence[pa.RecordBatch]) -> list[str]:
    """Rows as text, in which NaN is like itself."""
    return [repr(row) for batch in batches for row in batch.to_pylist()]


SELECTORS = [
    "",
    "price > 5",
    "NOT price > 5",
    "symbol = 'S1' AND qty > 20",
    "symbol LIKE 'S_' AND price BETWEEN 3 AND 9",
    "qty IS NULL OR price <> 2.5",
    "leg.size > 10",
    "leg.venue IN ('V1', 'V2')",
    "_topic = 'm.trades' AND qty < 30",
    "price > 1000",
]


@pytest.mark.parametrize("selector", SELECTORS)
def test_it_has_the_rows_that_the_events_have(archive: Path, selector: str) -> None:
    archived = snapshot(archive)
    columns = columns_of(archived, "m.trades", selector)
    upto = archived.state.covered["main"]
    expected = by_events(archived, columns, TICK_MIN, upto)
    found = by_columns(archived, columns, TICK_MIN, upto)
    assert texts(found) == texts(expected)
    assert all(batch.schema == expected[0].schema for batch in found)
    assert bool(found) == (selector != "price > 1000")


@pytest.mark.parametrize(
    ("pattern", "selector", "names"),
    [
        ("m.*", "", None),
        ("m.*", "symbol = 'S1'", ["symbol", "_topic", "_tick"]),
        ("m.*", "qty > 3", ["price"]),
        ("m.others", "code > 3", ["_time", "code"]),
        ("m.trades", "price > 5", ["note", "_publisher"]),
        ("m.trades", "", ["_pubend"]),
    ],
)
def test_patterns_and_columns_and_ranges(
    archive: Path, pattern: str, selector: str, names: list[str] | None
) -> None:
    archived = snapshot(archive)
    columns = columns_of(archived, pattern, selector, names)
    upto = archived.state.covered["main"]
    ticks = [tick for batch in by_events(archived, columns_of(archived, "m.*"), TICK_MIN, upto)
             for tick in batch.column("_tick").to_pylist()]  # fmt: skip
    for base, end in [(TICK_MIN, upto), (ticks[7], ticks[70]), (ticks[45], ticks[46]), (upto - 1, upto)]:
        found = by_columns(archived, columns, base, end)
        assert texts(found) == texts(by_events(archived, columns, base, end))


def test_what_has_no_such_test_is_read_as_events(archive: Path) -> None:
    archived = snapshot(archive)
    for selector in ("price + 1 > 5", "qty = price", "_key = 'a'"):
        with pytest.raises(TranslationError):
            ColumnarReader(columns_of(archived, "m.trades", selector), archived)


def test_files_that_bounds_exclude_are_in_no_slice(archive: Path) -> None:
    archived = snapshot(archive)
    upto = archived.state.covered["main"]

    def files(pattern: str, selector: str) -> int:
        wanted = [TopicSelector(pattern, selector)]
        found = slices(archived, "main", [(TICK_MIN, upto)], wanted, 64 << 20)
        return sum(len(some) for part in found for some in part.files.values())

    assert files("m.trades", "") == 3
    assert files("m.trades", "qty < 30") == 1
    assert files("m.trades", "qty > 1000") == 0
    assert files("m.others", "") == 1
    first = archived.files["m"][0]
    assert files("m.trades", f"_tick <= {first.ticks[1]}") == 1


def test_a_file_with_raw_messages_or_of_another_tool_is_not_read_as_columns(archive: Path) -> None:
    archived = snapshot(archive)
    reader = ColumnarReader(columns_of(archived, "m.trades"), archived)
    file = archived.files["m"][0]
    for changed in (replace(file, nulls={**file.nulls, "_raw": 1}), replace(file, nulls={}),
                    replace(file, name="part-1.parquet")):  # fmt: skip
        other = replace(archived, files={"m": (changed,)})
        (part, *_) = slices(other, "main", [(TICK_MIN, TICK_MAX)], [TopicSelector("m.trades", "")], 64 << 20)
        assert not reader.can_read(replace(part, gone=()))


def test_only_the_columns_asked_for_are_read(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archived = snapshot(archive)
    asked: list[str] = []
    plain = pq.ParquetFile.read_row_group

    def noting(self: Any, group: int, columns: list[str]) -> pa.Table:
        asked.extend(columns)
        return plain(self, group, columns=columns)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", noting)
    file = archived.files["m"][0]
    by_columns(archived, columns_of(archived, "m.trades", "", ["qty"]), TICK_MIN, file.ticks[1])
    assert asked == ["qty"]
    asked.clear()
    by_columns(archived, columns_of(archived, "m.trades", "symbol = 'S9'", ["qty"]), TICK_MIN, file.ticks[1])
    assert asked == []
    by_columns(archived, columns_of(archived, "m.trades", "symbol = 'S1'", ["qty"]), TICK_MIN, file.ticks[1])
    assert asked == ["symbol", "qty"]
