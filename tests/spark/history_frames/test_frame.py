"""History on Spark: the archive and the live tail as one DataFrame, no event twice, none missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from tests.live_node import LiveNode, live_node
from tidemark import sync
from tidemark.errors import ConfigError, SelectorError
from tidemark.spark import history
from tidemark.spark.archive.archive import Archive
from tidemark.spark.archive.reader import Snapshot, snapshot
from tidemark.spark.history_frames import frame as frame_module
from tidemark.spark.history_frames.frame import tail, to_tick
from tidemark.spark.history_frames.scan import HistoryQuery, TableScan
from tidemark.spark.history_frames.table_function import HistoryCall, register
from tidemark.spark.topic_columns import make_topic_columns
from tidemark.ticks import TICK_MAX, TICK_MIN, CheckpointToken
from tidemark.wire.answers import PubendStatus

TRADE = "[symbol: string, price: double, qty: int?, leg: [venue: string, n: int]?]"


def value(n: int) -> dict[str, Any]:
    leg = {"venue": f"V{n % 2}", "n": n} if n % 3 else None
    return {"symbol": f"S{n % 5}", "price": n / 2, "qty": n if n % 2 else None, "leg": leg}


class Place:
    """A broker with an archive that covers a part of what it has."""

    def __init__(self, node: LiveNode, tm: sync.Client, path: Path) -> None:
        self.url = node.url
        self.path = path / "archive"
        tm.create_topic("trades.us", TRADE)
        tm.create_topic("trades.fx", "[price: string, pair: string]")
        tm.subscribe("trades.us", durable="holds").close()
        self.ticks: list[int] = []
        #: tick and key of each event of the topic `keyed`
        self.keyed: list[tuple[int, str | bytes]] = []
        with Archive(node.url, self.path) as archive:
            for first in (0, 40):
                self.publish(tm, first)
                archive.round()
        tm.create_topic("trades.us", TRADE.replace("]?]", ", fee: double?]?, late: long?]"))
        self.publish(tm, 80, late=7)

    def publish(self, tm: sync.Client, first: int, **more: Any) -> None:
        values = [value(n) | more for n in range(first, first + 40)]
        self.ticks += [tick for tick in tm.publish_many("trades.us", values) if tick is not None]
        tm.publish("trades.fx", {"price": f"p{first}", "pair": "EURUSD"})
        for key in ("", f"k{first}", "größe", b"\xff"):
            tick = tm.publish("keyed", {"price": first}, key=key)
            assert tick is not None
            self.keyed.append((tick, key))
        tm.publish("trades.open", {"price": first, "n": 1})
        tm.publish("trades.open", {"price": f"o{first}"})
        tm.publish("other", {"price": first})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    path = tmp_path_factory.mktemp("history")
    with live_node(path, **{"retention.archive": "true"}) as node, sync.connect(node.url) as tm:
        yield Place(node, tm, path)


@pytest.mark.spark
def test_archive_and_tail_are_one_history(spark: Any, place: Place) -> None:
    frame = history(spark, "trades.us", broker=place.url, archive=place.path)
    rows = frame.orderBy("_tick").collect()
    assert [row["_tick"] for row in rows] == place.ticks
    for n, row in enumerate(rows):
        wanted = value(n)
        assert (row["symbol"], row["price"], row["qty"]) == (wanted["symbol"], wanted["price"], wanted["qty"])
        assert (row["leg"] and row["leg"]["n"]) == (wanted["leg"] and wanted["leg"]["n"])
        assert row["late"] == (7 if n >= 80 else None)
    archived = history(spark, "trades.us", archive=place.path, columns=["_tick"])
    assert [row[0] for row in archived.orderBy("_tick").collect()] == place.ticks[:80]


@pytest.mark.spark
def test_what_is_archived_and_released_while_history_is_planned_is_no_gap(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        live_node(tmp_path, **{"retention.archive": "true"}) as node,
        sync.connect(node.url) as tm,
        Archive(node.url, tmp_path / "archive") as archive,
    ):
        tm.create_topic("numbers", "[n: int]")
        ticks = tm.publish_many("numbers", [{"n": n} for n in range(5)])
        archive.round()
        ticks += tm.publish_many("numbers", [{"n": n} for n in range(5)])
        last = max(tick for tick in ticks if tick is not None)

        def moved_on(path: Path) -> Snapshot:
            """The archive as it was, which has gone on and the broker with it before anybody looks again."""
            found = snapshot(path)
            archive.round()
            while (tm.ask("pubends")[0]["lost"] or TICK_MIN) < last:
                sleep(0.01)
            return found

        monkeypatch.setattr(frame_module, "snapshot", moved_on)
        frame = history(spark, "numbers", broker=node.url, archive=tmp_path / "archive", columns=["_tick"])
        assert sorted(row[0] for row in frame.collect()) == ticks


@pytest.mark.spark
def test_a_selector_chooses_in_the_archive_as_at_the_broker(spark: Any, place: Place) -> None:
    def ticks(selector: str, **more: Any) -> list[int]:
        frame = history(
            spark, "trades.us", selector, broker=place.url, archive=place.path, columns=["_tick"], **more
        )
        return [row[0] for row in frame.orderBy("_tick").collect()]

    every = list(enumerate(place.ticks))
    assert ticks("symbol = 'S1' AND price > 10") == [tick for n, tick in every if n % 5 == 1 and n / 2 > 10]
    assert ticks("leg.venue = 'V1' OR qty IS NULL") == [tick for n, tick in every if n % 2 == 0 or n % 3]
    since, until = place.ticks[60], place.ticks[100]
    assert ticks("price >= 0", since=since, until=until) == place.ticks[60:100]


@pytest.mark.spark
def test_key_and_time_are_the_same_in_the_archive_as_at_the_broker(spark: Any, place: Place) -> None:
    moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=place.ticks[60])
    expected: dict[str, Callable[[int, str | bytes], bool]] = {
        "_key = 'k40'": lambda _, key: key == "k40",
        "_key LIKE 'gr_%'": lambda _, key: key == "größe",
        "_key IS NULL": lambda _, key: key in ("", b"\xff"),
        "NOT _key > 'k'": lambda _, key: key == "größe",
        f"_time >= TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S.%f}Z'": lambda tick, _: tick >= place.ticks[60],
        "_time IS NULL OR _key IN ('k0', 'k80')": lambda _, key: key in ("k0", "k80"),
    }
    for selector, is_wanted in expected.items():
        frame = history(spark, "keyed", selector, broker=place.url, archive=place.path, columns=["_tick"])
        found = [row[0] for row in frame.orderBy("_tick").collect()]
        assert found == [tick for tick, key in place.keyed if is_wanted(tick, key)], selector


@pytest.mark.spark
def test_topics_of_a_pattern_are_read_by_what_they_have_in_common(spark: Any, place: Place) -> None:
    frame = history(spark, "trades.*", broker=place.url, archive=place.path)
    rows = frame.where("_topic <> 'trades.us'").select("_topic", "price", "n").orderBy("_tick").collect()
    assert [tuple(row) for row in rows] == [
        each
        for n in (0, 40, 80)
        for each in (
            ("trades.fx", f'"p{n}"', None),
            ("trades.open", str(n), 1),
            ("trades.open", f'"o{n}"', None),
        )
    ]
    assert frame.count() == len(place.ticks) + 9


@pytest.mark.spark
def test_what_sql_cannot_ask_the_matcher_does(spark: Any, place: Place) -> None:
    selector = "price = 'o40' OR n = 1 OR unheard_of = 3"
    frame = history(spark, "trades.*", selector, broker=place.url, archive=place.path)
    prices = [row["price"] for row in frame.orderBy("_tick").collect()]
    assert prices == ["0", "40", '"o40"', "80"]


def test_files_that_cannot_have_it_are_passed_over(place: Place) -> None:
    taken = snapshot(place.path)

    def files(selector: str, base: int = TICK_MIN, upto: int = TICK_MAX) -> int:
        topic_columns = make_topic_columns(taken.topics.described, "trades.us", selector, None, gaps=False)
        return len(TableScan(taken, "trades", taken.topics, HistoryQuery(topic_columns, base, upto)).files)

    assert files("") == 2
    assert files("price > 30") == 1
    assert files("price < 1 OR price BETWEEN 2.5 AND 3") == 1
    assert files("price > 10 OR symbol = 'S1'") == 2
    assert files("symbol = 'T'") == 0
    assert files("symbol LIKE 'S%'") == 2
    assert files("price + 1 > 1000") == 2
    assert files("", base=place.ticks[50]) == 1
    assert files("", upto=place.ticks[10]) == 1


def test_the_tail_begins_where_the_archive_ends() -> None:
    def pubend(name: str, lost: int | None = None) -> PubendStatus:
        return PubendStatus(name, 100, 90, lost, None, None, 0, 0)

    start, end = tail([pubend("a"), pubend("b"), pubend("c", lost=7)], CheckpointToken({"a": 40}), 5, 95)
    assert dict(start) == {"a": 40, "b": 5, "c": 7}
    assert dict(end) == {"a": 95, "b": 95, "c": 95}
    assert tail([pubend("a")], CheckpointToken({"a": 90}), TICK_MIN, TICK_MAX) == (
        CheckpointToken(),
        CheckpointToken(),
    )


def test_times_are_ticks() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert to_tick("2026-01-01T00:00:00Z") == to_tick(at) == to_tick(to_tick(at))
    assert to_tick(at + timedelta(microseconds=1)) == to_tick(at) + 1
    with pytest.raises(ConfigError, match="no time"):
        to_tick("yesterday")
    with pytest.raises(ConfigError, match="no zone"):
        to_tick("2026-01-01T00:00:00")


def test_a_mistake_is_said_before_spark_starts(place: Place) -> None:
    with pytest.raises(ConfigError, match="broker, an archive"):
        history(None, "trades")  # no session is needed to refuse
    with pytest.raises(ConfigError, match="no topic matches"):
        history(None, "nothing", archive=place.path)
    with pytest.raises(SelectorError):
        history(None, "trades.us", "prize > 1", archive=place.path)


@pytest.mark.spark
def test_a_plan_shows_what_is_read_and_what_is_pushed_into_parquet(
    spark: Any, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = history(spark, "trades.us", "price > 30", archive=place.path)
    late = frame.where("_time > timestamp'2026-01-01 00:00:00Z'").select("price")
    late.explain(True)
    shown = capsys.readouterr().out
    assert "tidemark history of trades.us, selector [price > 30]: 1 of 2 files" in shown
    late.explain("formatted")
    shown = capsys.readouterr().out
    assert "GreaterThan(`price@3`,30.0)" in shown
    assert "GreaterThan(`_time@tick`," in shown
    assert "ReadSchema: struct<_topic:string,_time@tick:timestamp,price@3:double>" in shown
    assert late.count() == frame.count()


@pytest.mark.spark
def test_history_is_a_table_function_of_sql(spark: Any, place: Place) -> None:
    register(spark)
    asked = f"tidemark_history('trades.us', selector => 'price > 10', archive => '{place.path}')"
    rows = spark.sql(f"SELECT _tick, price, leg.venue AS venue FROM {asked} ORDER BY _tick").collect()
    found = history(spark, "trades.us", "price > 10", archive=place.path).orderBy("_tick").collect()
    assert [(row["_tick"], row["price"]) for row in rows] == [(row["_tick"], row["price"]) for row in found]
    assert [row["venue"] for row in rows] == [row["leg"] and row["leg"]["venue"] for row in found]
    with pytest.raises(Exception, match="takes selector, since, until"):
        spark.sql("SELECT * FROM tidemark_history('trades.us', where => 'price > 10')").collect()


def test_a_call_of_the_table_function_has_the_rows_of_archive_and_broker(place: Place) -> None:
    def ticks(**given: Any) -> list[int]:
        call = HistoryCall.of("trades.us", columns="_tick", **given)
        return [tick for batch in call.batches() for tick in batch.column(0).to_pylist()]

    archive = str(place.path)
    assert ticks(archive=archive) == place.ticks[:80]
    assert ticks(archive=archive, broker=place.url) == place.ticks
    since, until = place.ticks[60], place.ticks[100]
    assert ticks(archive=archive, broker=place.url, since=since, until=until) == place.ticks[60:100]
    assert ticks(archive=archive, since=since, until=until) == place.ticks[60:80]
    # Arithmetic is tested event by event.
    assert ticks(archive=archive, selector="price + 1 > 31") == ticks(archive=archive, selector="price > 30")
    with pytest.raises(ConfigError, match="needs a broker, an archive, or both"):
        HistoryCall.of("trades.us")
