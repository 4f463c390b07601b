"""History leaves topics and ticks alone in files whose bounds prove what their rows are, and only there."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.spark.archive.small_archive import Event, SmallArchive
from tidemark.spark import history
from tidemark.spark.archive.reader import snapshot
from tidemark.spark.archive.table import DataFile
from tidemark.spark.history_frames.scan import HistoryQuery, TableScan
from tidemark.spark.topic_columns import make_topic_columns
from tidemark.ticks import TICK_MAX, TICK_MIN

LOCAL, WORLD = "news.local", "news.world"
#: a file each: one topic, both, the other, the first again
ROUNDS = [
    [(LOCAL, tick) for tick in range(10, 15)],
    [(LOCAL, 20), (WORLD, 21), (LOCAL, 22), (WORLD, 23)],
    [(WORLD, tick) for tick in range(30, 35)],
    [(LOCAL, tick) for tick in range(40, 45)],
]
#: at or beyond the tick 31
SINCE = "_time >= TIMESTAMP '1970-01-01T00:00:00.000031Z'"
EVENTS: list[Event] = [(topic, tick, tick, tick % 3) for some in ROUNDS for topic, tick in some]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scan") / "archive"
    made = SmallArchive(path)
    for number, some in enumerate(ROUNDS, 1):
        ticks = {tick for _, tick in some}
        # Two pubends take turns, so a file has rows of both in the order of neither's ticks alone.
        events = {
            name: [each for each in EVENTS if each[1] in ticks and each[1] % 2 == parity]
            for parity, name in enumerate("ab")
        }
        made.round(dict.fromkeys("ab", 10 * number + 9), events)
    return path


@pytest.fixture(scope="module")
def timed_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive whose first file is from before there was a column of times."""
    path = tmp_path_factory.mktemp("timed") / "archive"
    made = SmallArchive(path)
    for number, some in enumerate(ROUNDS, 1):
        made.round({"a": 10 * number + 9}, {"a": [each for each in EVENTS if each[:2] in some]})
        made.add_time()
    return path


def reads(
    archive: Path, topic: str, selector: str = "", base: int = TICK_MIN, upto: int = TICK_MAX
) -> list[tuple[list[int], str]]:
    """Which rounds are read together, and with which condition."""
    taken = snapshot(archive)
    topic_columns = make_topic_columns(taken.topics.described, topic, selector, None, gaps=False)
    scan = TableScan(taken, "news", taken.topics, HistoryQuery(topic_columns, base, upto))
    return [([each.batches[0] for each in files], condition) for files, condition, _ in scan.reads()]


def test_a_file_of_one_topic_is_not_asked_for_its_topics(archive: Path) -> None:
    assert reads(archive, LOCAL) == [([1, 4], "true"), ([2], "((`_topic` IN ('news.local') AND true))")]
    assert reads(archive, "news.*") == [([1, 2, 3, 4], "true")]
    (mixed, asked), (alone, unasked) = reads(archive, WORLD, "kind = 1")
    assert (mixed, alone) == ([2], [3])
    assert "_topic" in asked
    assert "_topic" not in unasked


def test_a_file_within_the_asked_ticks_is_not_asked_for_its_ticks(archive: Path) -> None:
    assert reads(archive, "news.*", base=9, upto=44) == [([1, 2, 3, 4], "true")]
    assert reads(archive, "news.*", base=10, upto=43) == [
        ([1], "true AND `_tick` > 10L"),
        ([2, 3], "true"),
        ([4], "true AND `_tick` <= 43L"),
    ]
    assert reads(archive, "news.*", base=30, upto=31) == [([3], "true AND `_tick` > 30L AND `_tick` <= 31L")]


def test_a_selector_on_the_time_tests_the_column_where_every_row_of_a_file_has_it(
    timed_archive: Path,
) -> None:
    (first, computed), (others, stored) = reads(timed_archive, "news.*", f"{SINCE} OR kind = 1")
    assert (first, others) == ([1], [2, 3, 4])
    assert "timestamp_micros(`_tick`)" in computed
    assert "`_time@tick`" not in computed
    assert "`_time@tick`" in stored
    assert "_tick`)" not in stored
    # Files that the bounds exclude are not read at all, and nothing is asked of time that is not named.
    assert [each for each, _ in reads(timed_archive, "news.*", SINCE)] == [[3, 4]]
    assert len({condition for _, condition in reads(timed_archive, "news.*", "kind = 1")}) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"bounds": {"_tick": (1, 9)}},
        {"nulls": {}},
        {"nulls": {"_topic": 1}},
        {"bounds": {"_tick": (1, 9), "_topic": ("news.l", "news.local")}},
        {"bounds": {"_tick": (1, 9), "_topic": ("news.local", "news.m")}},
        {"bounds": {"_tick": (1, 9), "_topic": ("news.local", "news.world")}},
    ],
)
def test_bounds_that_are_not_there_or_not_of_topics_that_are_wanted_prove_nothing(
    archive: Path, changed: dict[str, Any]
) -> None:
    taken = snapshot(archive)
    first = taken.files["news"][0]
    changed_file: DataFile = replace(first, **changed)
    doubtful = replace(taken, files={"news": (changed_file,)})
    topic_columns = make_topic_columns(taken.topics.described, LOCAL, "", None, gaps=False)
    ((_, condition, _),) = TableScan(
        doubtful, "news", taken.topics, HistoryQuery(topic_columns, TICK_MIN, TICK_MAX)
    ).reads()
    assert "`_topic` IN ('news.local')" in condition


@pytest.mark.spark
@pytest.mark.parametrize(
    ("topic", "since", "until"),
    [(LOCAL, None, None), (LOCAL, 12, 43), (WORLD, 22, 33), ("news.*", None, None), ("news.*", 22, 41)],
)
def test_every_row_comes_once_whatever_is_left_out(
    spark: Any, archive: Path, topic: str, since: int | None, until: int | None
) -> None:
    frame = history(spark, topic, "kind <> 0", since, until, archive=archive)
    wanted = [
        (name, tick, n)
        for name, tick, n, kind in EVENTS
        if topic in (name, "news.*") and kind and (since or 0) <= tick < (until or 99)
    ]
    assert sorted(map(tuple, frame.select("_topic", "_tick", "n").collect())) == sorted(wanted)


@pytest.mark.spark
def test_rows_by_their_time_are_the_same_with_the_column_and_without_and_parquet_is_asked(
    spark: Any, timed_archive: Path
) -> None:
    frame = history(spark, "news.*", f"{SINCE} OR kind = 1", archive=timed_archive).select("_tick")
    wanted = [tick for _, tick, _, kind in EVENTS if tick >= 31 or kind == 1]
    assert sorted(row[0] for row in frame.collect()) == wanted
    alone = history(spark, "news.*", SINCE, archive=timed_archive).select("n")
    assert sorted(row[0] for row in alone.collect()) == [tick for _, tick, _, _ in EVENTS if tick >= 31]
    plan = alone._jdf.queryExecution().executedPlan().toString()
    assert re.search(r"PushedFilters: \[[^]]*GreaterThanOrEqual\(`_time@tick`,", plan), plan


@pytest.mark.spark
def test_spark_reads_no_column_that_is_not_asked_for(spark: Any, archive: Path) -> None:
    def columns(frame: Any) -> list[str]:
        return re.findall(r"ReadSchema: struct<(.*?)>", frame._jdf.queryExecution().executedPlan().toString())

    by_kind = history(spark, "news.*", archive=archive).groupBy("kind").sum("n")
    assert columns(by_kind) == ["n:int,kind:int"]
    assert columns(history(spark, WORLD, since=24, archive=archive).select("n")) == ["n:int"]
    assert columns(history(spark, WORLD, "kind = 1", since=24, archive=archive).select("_topic", "n")) == [
        "n:int,kind:int"
    ]
    assert sorted(columns(history(spark, LOCAL, archive=archive).select("n"))) == [
        "_topic:string,n:int",
        "n:int",
    ]
