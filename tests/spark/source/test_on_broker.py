"""Scans against a real broker: what drivers plan and tasks read, without a JVM."""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.live_node import LiveNode, live_node
from tests.waiting import eventually
from tidemark import sync
from tidemark.errors import ConfigError, EventsLostError, NotConnectedError, SelectorError
from tidemark.message.batches.batch import EventBatch
from tidemark.message.topic_selector import TopicSelector
from tidemark.spark.archive.archive import Archive
from tidemark.spark.locations import folder_at
from tidemark.spark.options import source_options
from tidemark.spark.source import scan as scan_module
from tidemark.spark.source.archived import SizedRange
from tidemark.spark.source.explaining import explain
from tidemark.spark.source.partitions import NewerEvents, TickRange
from tidemark.spark.source.scan import Planner, SourceScan, topic_columns_of
from tidemark.spark.source.source import StreamReader
from tidemark.spark.topic_columns import TopicColumns, arrow_columns
from tidemark.ticks import TICK_MIN, CheckpointToken
from tidemark.ticks.tick import Range

KEEP = {"retention.archive": "true"}
SCHEMA = "[symbol: string, price: double, legs: *([venue: string, size: int?])*]"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LiveNode]:
    with live_node(tmp_path, **KEEP) as node:
        yield node


@pytest.fixture
def tm(node: LiveNode) -> Iterator[sync.Client]:
    with sync.connect(node.url) as client:
        yield client


def trade(number: int) -> dict[str, Any]:
    return {"symbol": f"S{number % 3}", "price": float(number), "legs": [{"venue": "X", "size": None}]}


def publish(tm: sync.Client, first: int, last: int, topic: str = "trades") -> list[int]:
    ticks = tm.publish_many(topic, [trade(number) for number in range(first, last)])
    assert None not in ticks
    return [tick for tick in ticks if tick is not None]


def scan(node: LiveNode, **given: str) -> SourceScan:
    options = source_options({"broker": node.url, "topic": "trades", "retrySeconds": "10", **given})
    made = SourceScan(options, topic_columns_of(options))
    return pickle.loads(pickle.dumps(made))  # type: ignore[no-any-return]  # as it comes to a task


def rows(scan: SourceScan) -> list[dict[str, Any]]:
    planner = Planner(scan)
    try:
        parts = planner.everything()
    finally:
        planner.close()
    found = [record for part in parts for record in scan.read(part)]
    for record in found:
        assert record.schema == arrow_columns(scan.topic_columns)
    return [row for record in found for row in record.to_pylist()]


def test_rows_have_the_fields_and_headers_of_events(node: LiveNode, tm: sync.Client) -> None:
    tm.create_topic("trades", SCHEMA)
    ticks = publish(tm, 0, 3)
    got = rows(scan(node, selector="price >= 1"))
    assert [row["_tick"] for row in got] == ticks[1:]
    first = got[0]
    assert (first["symbol"], first["price"], first["legs"]) == ("S1", 1.0, [{"venue": "X", "size": None}])
    assert (first["_pubend"], first["_topic"]) == ("main", "trades")
    assert first["_publisher"].startswith("publisher-")
    assert first["_time"].timestamp() == pytest.approx(ticks[1] / 1e6, abs=1e-5)


def test_columns_are_chosen_and_ordered_as_asked(node: LiveNode, tm: sync.Client) -> None:
    tm.create_topic("trades", SCHEMA)
    publish(tm, 0, 1)
    assert list(rows(scan(node, columns="_time,price"))[0]) == ["_time", "price"]
    with pytest.raises(ConfigError, match="no column 'prize': there are symbol, price, legs, _pubend"):
        scan(node, columns="prize")


def test_events_of_older_and_of_newer_versions_are_read_by_one_schema(
    node: LiveNode, tm: sync.Client
) -> None:
    tm.create_topic("trades", "[a: int]")
    tm.publish("trades", {"a": 1})
    tm.create_topic("trades", "[a: int, b: string?]")
    query = scan(node)
    tm.publish("trades", {"a": 2, "b": "x"})
    tm.create_topic("trades", "[a: int, b: string?, c: double?]")
    tm.publish("trades", {"a": 3, "b": "y", "c": 1.0})
    got = [(row["a"], row["b"]) for row in rows(query)]
    assert got == [(1, None), (2, "x"), (3, "y")]
    assert "c" in scan(node).topic_columns.names


def test_a_topic_that_was_created_again_is_read_by_the_schemas_of_each_time(
    node: LiveNode, tm: sync.Client, tmp_path: Path
) -> None:
    tm.create_topic("trades", "[a: int, b: double]")
    with tm.subscribe("trades", durable="holds what is published") as sub:
        pass
    # What the subscription has acknowledged may be let go at any moment.
    start = sub.checkpoint.text()
    tm.publish_many("trades", [{"a": 1, "b": 2.0}, {"a": 4, "b": 2.0}])
    with Archive(node.url, tmp_path / "archive") as archive:
        assert archive.round() is not None
        tm.remove_topic("trades")
        assert [row["a"] for row in rows(scan(node, start=start))] == [1, 4]
        tm.create_topic("trades", "[a: int, b: string]")
        tm.publish_many("trades", [{"a": 3, "b": "x"}, {"a": 5, "b": "y"}])
        assert archive.round() is not None
        tm.publish("trades", {"a": 6, "b": "z"})
        for given in ({}, {"archive": str(tmp_path / "archive")}):
            got = rows(scan(node, start=start, selector="a > 2", **given))
            assert [row["a"] for row in got] == [4, 3, 5, 6]
            assert [str(row["b"]).strip('"') for row in got] == ["2.0", "x", "y", "z"]
            assert [row["a"] for row in rows(scan(node, start=start, selector="b = 'y'", **given))] == [5]


def test_topics_of_a_pattern_are_read_together_where_the_selector_fits(
    node: LiveNode, tm: sync.Client
) -> None:
    tm.create_topic("trades.a", "[price: int]")
    tm.create_topic("trades.b", "[price: double, venue: string]")
    tm.create_topic("trades.c", "[note: string]")
    tm.publish("trades.a", {"price": 7})
    tm.publish("trades.b", {"price": 8.5, "venue": "X"})
    tm.publish("trades.c", {"note": "no price"})
    got = rows(scan(node, topic="trades.>", selector="price > 1"))
    assert [(row["_topic"], row["price"], row["venue"]) for row in got] == [
        ("trades.a", 7.0, None),
        ("trades.b", 8.5, "X"),
    ]
    with pytest.raises(SelectorError, match="prize"):
        scan(node, topic="trades.>", selector="prize > 1")
    with pytest.raises(ConfigError, match="no topic matches 'trade'"):
        scan(node, topic="trade")


def test_batches_of_bounded_size_bring_everything_once(node: LiveNode, tm: sync.Client) -> None:
    tm.create_topic("trades", SCHEMA)
    ticks = publish(tm, 0, 25)
    query = scan(node, selector="price >= 5")
    planner = Planner(query)
    token, got = planner.initial(), []
    planner.stop_at_newest()
    publish(tm, 100, 110)  # came later: not for this run
    sizes = []
    while (end := planner.latest(token, 8)) != token:
        read = [record for part in planner.partitions(token, end) for record in query.read(part)]
        assert CheckpointToken.from_json(end.to_json()) == end
        sizes.append(sum(record.num_rows for record in read))
        got += [tick for record in read for tick in record.column("_tick").to_pylist()]
        token = end
    planner.close()
    assert got == ticks[5:]
    assert sizes == [8, 8, 4]


def test_the_rows_of_a_small_batch_are_held_as_a_task_would_read_them(
    node: LiveNode, tm: sync.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tm.create_topic("trades", SCHEMA)
    publish(tm, 0, 50)
    query = scan(node, selector="price >= 10", origin="true")
    planner = Planner(query)
    try:
        start = planner.initial()
        parts = planner.partitions(start, planner.latest(start, None))
        held = planner.held_rows(parts)
        assert held is not None
        assert pa.Table.from_batches(held) == pa.Table.from_batches(list(query.read(parts[0])))
        assert sum(each.num_rows for each in held) == 40
        # A batch that is larger, or is read by several tasks, is not.
        assert planner.held_rows([*parts, *parts]) is None
        monkeypatch.setattr(scan_module, "HELD_BYTES_MAX", 1)
        publish(tm, 50, 60)
        assert planner.held_rows(planner.partitions(start, planner.newest())) is None
    finally:
        planner.close()
    limited = Planner(scan(node, maxEventsPerTrigger=str(scan_module.HELD_EVENTS_MAX + 1)))
    try:
        assert limited.held_rows(parts) is None
    finally:
        limited.close()


def test_the_end_of_a_large_batch_is_found_while_the_one_before_is_read(
    node: LiveNode, tm: sync.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "PARTITION_EVENTS_MIN", 5)
    tm.create_topic("trades", SCHEMA)
    ticks = publish(tm, 0, 25)
    asked: list[str] = []
    real = Planner._end

    def noted(self: Planner, start: CheckpointToken, events_max: int | None) -> Any:
        asked.append(threading.current_thread().name)
        return real(self, start, events_max)

    monkeypatch.setattr(Planner, "_end", noted)
    planner = Planner(scan(node))
    try:
        start = planner.initial()
        ends = [start := planner.latest(start, 10) for _ in range(3)]
        assert [end["main"] for end in ends] == [ticks[9], ticks[19], ticks[24]]
        assert [name.startswith("tidemark ahead") for name in asked] == [False, True, True]
        # Another batch than the one that was looked for is found as before.
        again = planner.latest(planner.initial(), 10)
        assert planner.latest(again, 4)["main"] == ticks[13]
        # Nothing is looked for beyond what is there.
        ticks += publish(tm, 25, 30)
        assert planner.latest(ends[-1], 10)["main"] == ticks[29]
        planner.stop_at_newest()
        publish(tm, 30, 40)
        assert planner.latest(planner.latest(ends[1], 8), 8)["main"] == ticks[29]
    finally:
        planner.close()


def test_a_reader_holds_rows_only_until_spark_has_taken_them(node: LiveNode, tm: sync.Client) -> None:
    """As Spark's `python_streaming_source_runner` calls it."""
    tm.create_topic("trades", SCHEMA)
    ticks = publish(tm, 0, 5)
    reader: Any = StreamReader(scan(node))
    try:
        for _ in range(2):
            start, end = reader.initialOffset(), reader.latestOffset({}, ReadAllAvailable())
            assert not isinstance(reader, _SimpleStreamReaderWrapper)
            (part,) = reader.partitions(start, end)
            assert isinstance(reader, _SimpleStreamReaderWrapper)
            held = pa.Table.from_batches(reader.getCache(start, end))
            assert held["_tick"].to_pylist() == ticks
            assert not isinstance(reader, _SimpleStreamReaderWrapper)
            assert reader.reportLatestOffset() == end
            # If Spark loses what it has taken, a task reads the same.
            assert pa.Table.from_batches(list(reader.read(part))) == held
    finally:
        reader.stop()


def test_starts_at_a_token_a_time_and_the_latest(node: LiveNode, tm: sync.Client) -> None:
    tm.create_topic("trades", SCHEMA)
    ticks = publish(tm, 0, 5)
    after = CheckpointToken({"main": ticks[1]})
    assert [row["_tick"] for row in rows(scan(node, start=after.text()))] == ticks[2:]
    moment = rows(scan(node))[3]["_time"].isoformat()
    assert [row["_tick"] for row in rows(scan(node, start=moment))] == ticks[3:]
    planner = Planner(scan(node, start="latest"))
    start = planner.initial()
    assert planner.latest(start, None) == start
    later = publish(tm, 5, 7)
    assert planner.latest(start, None) == CheckpointToken({"main": later[-1]})
    planner.close()


def let_go(tm: sync.Client, upto: int, *, events_upto: int | None = None) -> None:
    """Report all events up to a tick as archived, and wait until the broker has released them.

    `events_upto` is the tick of the last of them, if it is another one.
    """
    tm.ask("archived", token=CheckpointToken({"main": upto}).text())
    last = upto if events_upto is None else events_upto
    eventually(lambda: (tm.ask("pubends")[0]["lost"] or TICK_MIN) >= last)


def pass_silence(tm: sync.Client) -> int:
    """Wait until the broker has told silence and released what it may; return how far the silence reaches."""
    before = tm.ask("pubends")[0]["position"]
    eventually(lambda: tm.ask("pubends")[0]["position"] > before)
    return int(tm.ask("pubends")[0]["position"])


def test_a_query_that_has_read_all_events_has_lost_nothing_when_the_silence_behind_them_may_go(
    node: LiveNode, tm: sync.Client
) -> None:
    tm.create_topic("trades", SCHEMA)
    read = CheckpointToken({"main": publish(tm, 0, 2)[-1]})
    let_go(tm, pass_silence(tm), events_upto=read["main"])
    later = publish(tm, 2, 4)
    planner = Planner(scan(node))
    upto = planner.latest(read, None)
    parts = planner.partitions(read, upto)
    planner.close()
    found = [row for part in parts for record in scan(node).read(part) for row in record.to_pylist()]
    assert [row["_tick"] for row in found] == later


def test_a_read_has_lost_nothing_when_the_silence_before_the_first_event_may_go_after_it_was_planned(
    node: LiveNode, tm: sync.Client
) -> None:
    tm.create_topic("trades", SCHEMA)
    silent = pass_silence(tm)
    ticks = publish(tm, 0, 3)
    planner = Planner(scan(node))
    parts = planner.everything()
    planner.close()
    tm.ask("archived", token=CheckpointToken({"main": silent}).text())
    pass_silence(tm)
    found = [row for part in parts for record in scan(node).read(part) for row in record.to_pylist()]
    assert [row["_tick"] for row in found] == ticks


def test_a_gap_stops_a_read_or_is_a_row_of_it(node: LiveNode, tm: sync.Client) -> None:
    tm.create_topic("trades", SCHEMA)
    ticks = publish(tm, 0, 4)
    let_go(tm, ticks[1])
    start = CheckpointToken({"main": ticks[0]}).to_json()
    with pytest.raises(EventsLostError) as caught:
        rows(scan(node, start=start))
    assert (caught.value.base, caught.value.upto) == (ticks[0], ticks[1])
    got = rows(scan(node, start=start, failOnGap="false"))
    assert got[0]["_gap"] == {"base": ticks[0], "upto": ticks[1]}
    assert (got[0]["_pubend"], got[0]["_tick"], got[0]["price"]) == ("main", ticks[1], None)
    assert [(row["_tick"], row["_gap"]) for row in got[1:]] == [(tick, None) for tick in ticks[2:]]
    assert [row["_tick"] for row in rows(scan(node))] == ticks[2:], "the earliest is what is there"


class KeptEvents:
    """An archive in memory: what the broker had up to a tick."""

    def __init__(self, batches: list[EventBatch], upto: int) -> None:
        self._batches, self._upto = batches, upto

    def gaps(self, pubend: str, base: int, upto: int) -> list[Range]:
        assert pubend == "main"
        return [(max(base, self._upto), upto)] if max(base, self._upto) < upto else []

    def read(self, pubend: str, base: int, upto: int, pattern: str) -> Iterator[EventBatch]:
        assert pubend == "main"
        assert pattern in ("trades", ">")
        for batch in self._batches:
            chosen = (batch.ticks > base) & (batch.ticks <= min(upto, self._upto))
            if chosen.any():
                yield batch.take(chosen)

    def reach(self, pubend: str) -> int:
        assert pubend == "main"
        return self._upto

    def parts(self, ranges: Sequence[TickRange], wanted: TopicSelector) -> list[SizedRange]:
        assert wanted.pattern == "trades"
        return [SizedRange(each, 1) for each in ranges]

    def rows(self, ranges: Sequence[TickRange], columns: TopicColumns) -> Iterator[TickRange]:
        assert columns.pattern == "trades"
        return iter(ranges)


def test_what_was_let_go_comes_from_the_archive_without_a_seam(
    node: LiveNode, tm: sync.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tm.create_topic("trades", SCHEMA)
    tm.create_topic("others", SCHEMA)
    ticks = publish(tm, 0, 40)
    publish(tm, 0, 5, topic="others")
    more = publish(tm, 40, 60)
    fetched = tm._fetch("main", TICK_MIN, more[-1])
    assert fetched.batch is not None
    archive = KeptEvents([fetched.batch], ticks[-1] + 3)
    monkeypatch.setattr(
        scan_module, "archive_at", lambda path: archive if path == folder_at(tmp_path) else None
    )
    query = scan(node, selector="price >= 10", archive=str(tmp_path))
    planner = Planner(query)
    before = planner.partitions(planner.initial(), planner.newest())
    for upto in (ticks[20], ticks[-1] + 3):
        let_go(tm, upto, events_upto=min(upto, ticks[-1]))
        assert [row["_tick"] for row in rows(query)] == (ticks + more)[10:]
    # Planned when the broker still had all of it.
    got = [tick for part in before for record in query.read(part) for tick in record["_tick"].to_pylist()]
    assert got == (ticks + more)[10:]
    assert len(planner.everything()) > len(before)
    planner.close()


def test_the_archive_on_disk_continues_in_the_broker(node: LiveNode, tm: sync.Client, tmp_path: Path) -> None:
    tm.create_topic("trades", SCHEMA)
    ticks = publish(tm, 0, 30)
    with Archive(node.url, tmp_path / "archive") as archive:
        assert archive.round() is not None
    let_go(tm, ticks[-1])
    ticks += publish(tm, 30, 40)
    query = scan(node, selector="price >= 10", archive=str(tmp_path / "archive"))
    got = rows(query)
    assert [row["_tick"] for row in got] == ticks[10:]
    assert [row["price"] for row in got] == [float(n) for n in range(10, 40)]
    assert got[0]["legs"] == [{"venue": "X", "size": None}]


def test_a_batch_read_ends_where_it_was_asked_to(node: LiveNode, tm: sync.Client, tmp_path: Path) -> None:
    tm.create_topic("trades", SCHEMA)
    ticks = publish(tm, 0, 10)
    with Archive(node.url, tmp_path / "archive") as archive:
        assert archive.round() is not None
    ticks += publish(tm, 10, 20)
    for last in (5, 14):
        end = CheckpointToken({"main": ticks[last]}).to_json()
        query = scan(node, archive=str(tmp_path / "archive"), end=end)
        assert [row["_tick"] for row in rows(query)] == ticks[: last + 1]
        planner = Planner(query)
        *_, newer = planner.batch()
        planner.close()
        assert isinstance(newer, NewerEvents)
        assert list(query.read_newer(newer)) == []


def test_an_archive_that_is_not_there_is_a_mistake(node: LiveNode, tm: sync.Client, tmp_path: Path) -> None:
    tm.create_topic("trades", SCHEMA)
    with pytest.raises(ConfigError, match=r"archive: there is no directory .*/nowhere: correct it"):
        scan(node, archive=str(tmp_path / "nowhere"))


def test_a_broker_that_comes_back_is_waited_for(node: LiveNode, tm: sync.Client) -> None:
    tm.create_topic("trades", SCHEMA)
    ticks = publish(tm, 0, 3)
    query = scan(node)
    planner = Planner(query)
    start = planner.initial()
    node.stop()
    threading.Timer(0.5, node.start).start()
    end = planner.latest(start, None)
    got = [record for part in planner.partitions(start, end) for record in query.read(part)]
    assert pa.Table.from_batches(got).column("_tick").to_pylist() == ticks
    planner.close()


def test_a_broker_that_stays_away_is_one_clear_line(node: LiveNode, tm: sync.Client) -> None:
    tm.create_topic("trades", SCHEMA)
    publish(tm, 0, 3)
    query = scan(node, retrySeconds="0.3")
    planner = Planner(query)
    start = planner.initial()
    node.stop()
    with pytest.raises(NotConnectedError, match=r"no answer for 0.3 s .* Start the broker") as caught:
        planner.latest(start, None)
    assert "\n" not in str(caught.value)
    planner.close()


def test_a_read_is_explained_before_it_runs(node: LiveNode, tm: sync.Client, tmp_path: Path) -> None:
    tm.create_topic("trades", SCHEMA)
    with Archive(node.url, tmp_path / "archive") as archive:
        for first in (0, 10):
            publish(tm, first, first + 10)
            assert archive.round() is not None
    publish(tm, 20, 30)
    given = {"broker": node.url, "topic": "trades", "archive": tmp_path / "archive", "columns": "price"}
    shown = explain(**given, selector="price >= 15").splitlines()
    assert shown[:3] == ["read of trades", "  selector: price >= 15", "  columns: price"]
    assert re.fullmatch(
        r"  archive: 1 of 2 files, [\d,]+ of [\d,]+ bytes, in 1 partitions, read as columns, .*", shown[3]
    )
    assert "tidemark.spark.history, which lets Spark read, is faster" in shown[4]
    assert shown[5] == "  broker: 1 partitions of 1 pubends"
    assert "read as events (`price + 1 > 15`" in explain(**given, selector="price + 1 > 15")
