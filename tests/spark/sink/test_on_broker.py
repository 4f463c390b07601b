"""The sink's two halves, tasks and commit, against a real broker; no JVM."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import DoubleType, IntegerType, StringType, StructField, StructType

from tests.live_node import LiveNode, live_node
from tidemark import sync
from tidemark.errors import ConfigError, NotConnectedError, RefusedError, SchemaError
from tidemark.message.batches.batch import EventBatch
from tidemark.message.schema import Schema
from tidemark.spark.locations import folder_at
from tidemark.spark.options import sink_options
from tidemark.spark.sink.dead_letters import LETTER
from tidemark.spark.sink.sink import Sink, SinkQuery, checked_sink
from tidemark.spark.sink.staging import StagedFile
from tidemark.ticks import TICK_MAX, TICK_MIN

ROWS = StructType([StructField("n", IntegerType(), False), StructField("text", StringType())])


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LiveNode]:
    with live_node(tmp_path, **{"retention.archive": "true"}) as node:
        with sync.connect(node.url) as tm:
            tm.create_topic("numbers", "[n: int, text: string?]")
        yield node


def sink(node: LiveNode, path: Path, schema: StructType = ROWS, **given: str) -> Sink:
    options = sink_options(
        {
            "broker": node.url,
            "topic": "numbers",
            "staging": str(path / "staging"),
            "retrySeconds": "10",
            **given,
        }
    )
    made = checked_sink(options, schema, False, is_streaming=True)
    return pickle.loads(pickle.dumps(made))  # type: ignore[no-any-return]  # as it comes to a task


def query_of(made: Sink) -> SinkQuery:
    assert made.options.staging is not None
    return SinkQuery("query", folder_at(made.options.staging))


def stage(made: Sink, partition: int, numbers: range) -> StagedFile:
    records = pa.RecordBatch.from_pydict({"n": list(numbers), "text": [f"k{n}" for n in numbers]})
    return made.stage(
        query_of(made), partition, iter([records.cast(pa.schema([("n", pa.int32()), ("text", pa.string())]))])
    )


def published(node: LiveNode, topic: str = "numbers") -> list[tuple[int, bytes]]:
    """The number and key of every event, in the order of the log."""
    found = []
    with sync.connect(node.url) as tm:
        schemas = {schema.fingerprint: schema for schema in tm.schemas(topic)}
        for pubend in tm.ask("pubends"):
            at = TICK_MIN
            while True:
                fetched = tm._fetch(pubend["pubend"], at, TICK_MAX, topic)
                batch = fetched.batch
                for row in range(0 if batch is None else batch.count):
                    assert batch is not None
                    schema = schemas[batch.shapes[int(batch.prelude("shape")[row])].fingerprint]
                    found.append((schema.decode(batch.message(row))["n"], batch.key(row)))
                if fetched.upto >= pubend["position"]:
                    break
                at = fetched.upto
    return found


def test_rows_are_published_once_whatever_comes_again(node: LiveNode, tmp_path: Path) -> None:
    made = sink(node, tmp_path, key="text")
    lost_attempt = stage(made, 0, range(10))  # a copy of a slow task, whose report Spark does not take
    made.commit(query_of(made), 0, [stage(made, 1, range(10, 20)), stage(made, 0, range(10))])
    made.commit(query_of(made), 0, [stage(made, 0, range(19, -1, -1))])
    made.commit(query_of(made), 1, [stage(made, 0, range(20, 25))])
    assert published(node) == [(n, f"k{n}".encode()) for n in range(25)]
    assert query_of(made).staging.folder.read(lost_attempt.name) is not None


def test_a_broker_that_restarts_during_the_commit_gets_the_rest(node: LiveNode, tmp_path: Path) -> None:
    made = sink(node, tmp_path)
    parts = [stage(made, index, range(index * 5, index * 5 + 5)) for index in range(40)]

    def restart() -> None:
        node.stop()
        node.start()

    timer = threading.Timer(0.05, restart)
    timer.start()
    made.commit(query_of(made), 0, parts)
    timer.join()
    assert [n for n, _ in published(node)] == list(range(200))


def test_a_commit_that_finds_no_broker_fails_and_is_completed_later(node: LiveNode, tmp_path: Path) -> None:
    made = sink(node, tmp_path, retrySeconds="0.3", pubend="main")
    parts = [stage(made, 0, range(5))]
    node.stop()
    with pytest.raises(NotConnectedError, match=r"no answer for 0.3 s"):
        made.commit(query_of(made), 0, parts)
    query_of(made).staging.discard(parts)  # Spark's abort
    node.start()
    made.commit(query_of(made), 0, [stage(made, 0, range(4, -1, -1))])
    assert [n for n, _ in published(node)] == list(range(5))


def test_a_broker_that_lost_its_disk_is_not_taken_for_the_same(node: LiveNode, tmp_path: Path) -> None:
    made = sink(node, tmp_path)
    made.commit(query_of(made), 0, [stage(made, 0, range(5))])
    with live_node(tmp_path / "other") as other:
        with sync.connect(other.url) as tm:
            tm.create_topic("numbers", "[n: int, text: string?]")
        moved = sink(other, tmp_path)
        with pytest.raises(RefusedError, match=r"has lost its disk, or is another one.* remove .*query"):
            moved.commit(query_of(moved), 1, [stage(moved, 0, range(5, 9))])
        assert published(other) == []


def test_columns_that_do_not_fit_are_refused_before_anything_runs(node: LiveNode, tmp_path: Path) -> None:
    wrong = StructType([StructField("n", DoubleType()), StructField("extra", StringType())])
    with pytest.raises(SchemaError, match=r"no events of 'numbers': extra: .*; n: Arrow's double is not int"):
        sink(node, tmp_path, wrong)
    with pytest.raises(ConfigError, match="mode append"):
        checked_sink(sink_options({"broker": node.url, "topic": "numbers"}), ROWS, True)
    with pytest.raises(ConfigError, match=r"outputMode: complete .* foreachBatch"):
        checked_sink(sink_options({"broker": node.url, "topic": "numbers"}), ROWS, True, is_streaming=True)
    assert published(node) == []


def test_a_topic_that_nobody_declared_becomes_open_with_the_columns_as_a_shape(
    node: LiveNode, tmp_path: Path
) -> None:
    made = sink(node, tmp_path, topic="fresh", key="text")
    made.commit(query_of(made), 0, [stage(made, 0, range(3))])
    assert published(node, "fresh") == [(n, f"k{n}".encode()) for n in range(3)]
    with sync.connect(node.url) as tm:
        (described,) = [each for each in tm.ask("topics") if each["topic"] == "fresh"]
    assert described["open"]
    assert described["schemas"] == [Schema.parse("[n: int, text: string?]").text]


@pytest.mark.parametrize("to", ["numbers.bad", "directory"])
def test_rows_that_do_not_fit_are_told_with_their_reason_once(
    node: LiveNode, tmp_path: Path, to: str
) -> None:
    where = str(tmp_path / "bad") if to == "directory" else to
    made = sink(node, tmp_path, onError="deadletter", deadLetter=where)
    rows = pa.record_batch(
        {"n": pa.array([1, None, 3, None, 5], pa.int32()), "text": ["a", "b", None, "d", "e"]}
    )
    part = pickle.loads(pickle.dumps(made)).stage(query_of(made), 0, iter([rows]))
    made.commit(query_of(made), 0, [part])
    made.commit(query_of(made), 0, [pickle.loads(pickle.dumps(made)).stage(query_of(made), 0, iter([rows]))])
    made.commit(query_of(made), 1, [stage(made, 0, range(6, 9))])
    assert [n for n, _ in published(node)] == [1, 3, 5, 6, 7, 8]
    if to == "directory":
        (file,) = (tmp_path / "bad").iterdir()
        letters = [json.loads(line) for line in file.read_text().splitlines()]
    else:
        with sync.connect(node.url) as tm:
            batch = tm._fetch("main", TICK_MIN, TICK_MAX, to).batch
        assert batch is not None
        letters = [LETTER.decode(batch.message(row)) for row in range(batch.count)]
    assert [json.loads(each["row"]) for each in letters] == [
        {"n": None, "text": "b"},
        {"n": None, "text": "d"},
    ]
    assert all(each["topic"] == "numbers" and "missing" in each["reason"] for each in letters)


def test_a_topic_of_other_events_is_none_of_dead_letters(node: LiveNode, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="deadLetter: 'numbers' is no topic of"):
        sink(node, tmp_path, onError="deadletter", deadLetter="numbers")
    with pytest.raises(ConfigError, match="belong together"):
        sink(node, tmp_path, onError="deadletter")


def test_a_commit_goes_on_where_it_was_when_the_broker_was_lost(
    node: LiveNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sink(node, tmp_path, retrySeconds="0.2")
    parts = [stage(made, index, range(index * 5, index * 5 + 5)) for index in range(12)]
    begun: list[int] = []
    publish = sync.Client._publish_each

    def lose(
        client: sync.Client,
        batches: Iterator[EventBatch],
        sequence: int,
        published: Callable[[EventBatch], None],
    ) -> None:
        """Four batches are taken and three of them acknowledged, longer after the start than is retried."""
        begun.append(sequence)
        publish(client, islice(batches, 3), sequence, published)
        publish(client, islice(batches, 1), sequence + 15, lambda _: None)
        time.sleep(0.25)
        raise NotConnectedError("lost")

    monkeypatch.setattr(sync.Client, "_publish_each", lose)
    with pytest.raises(NotConnectedError, match=r"no answer for 0.2 s"):
        made.commit(query_of(made), 0, parts)
    # All but the last time something was acknowledged, so that the broker was waited for again.
    assert begun == [1, 16, 31, 46, 61]
    monkeypatch.setattr(sync.Client, "_publish_each", publish)
    made.commit(query_of(made), 0, [])
    assert [n for n, _ in published(node)] == list(range(60))
