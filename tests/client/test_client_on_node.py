"""The client and a real broker: the same promises over sockets, disks and crashes."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import tidemark
from tests.live_node import config_at
from tests.waiting import PATIENCE_SECONDS, bounded
from tidemark.message import BatchBuilder, Schema, Shape
from tidemark.node.node import Node
from tidemark.ticks import CheckpointToken
from tidemark.wire import questions
from tidemark.wire.answers import TOPICS


@bounded
async def test_a_question_of_administrators_fetches_all_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "PAGE_ITEMS_MAX", 3)
    node = await Node.start(config_at(tmp_path / "data"))
    async with tidemark.connect(f"tidemark://{node.address}") as tm:
        for number in range(8):
            await tm.create_topic(f"topic.{number}", "[n: int]")
        assert [each.topic for each in await tm.ask(TOPICS)] == [f"topic.{number}" for number in range(8)]
        page = await tm.ask("topics", limit=2, after="topic.5")
        assert [each["topic"] for each in page["items"]] == ["topic.6", "topic.7"]
        assert page["next"] is None
    await node.stop()


@bounded
async def test_what_is_published_comes_to_those_who_want_it(tmp_path: Path) -> None:
    node = await Node.start(config_at(tmp_path / "data"))
    async with tidemark.connect(f"tidemark://{node.address}") as tm:
        await tm.create_topic("trades", "[symbol: string, price: double]")
        async with tm.subscribe("trades", where="price > 10", durable="audit") as sub:
            ticks = await tm.publish_many(
                "trades", [{"symbol": "ACME", "price": float(n)} for n in range(20)]
            )
            got = [await sub.next(PATIENCE_SECONDS) for _ in range(9)]
            assert [each.tick for each in got if isinstance(each, tidemark.Event)] == ticks[11:]
        with pytest.raises(tidemark.RefusedError, match="price") as caught:
            await tm.subscribe("trades", where="prize > 10")
        assert caught.value.code == "selector"
        async with tm.subscribe("trades", where="price > 10", durable="audit") as sub:
            assert sub.checkpoint["main"] >= ticks[-1] if ticks[-1] is not None else False
        await tm.unsubscribe("audit")
        with pytest.raises(tidemark.RefusedError):
            await tm.unsubscribe("audit")
    await node.stop()


@bounded
async def test_a_shape_that_was_added_to_an_open_topic_is_there_for_selectors_and_batches(
    tmp_path: Path,
) -> None:
    node = await Node.start(config_at(tmp_path / "data"))
    async with tidemark.connect(f"tidemark://{node.address}") as tm:
        await tm.create_topic("notes", "[price: double]", is_open=True)
        async with tm.subscribe("notes", where="price > 10") as sub:
            schema = Schema.parse("[price: double]")
            builder = BatchBuilder()
            for price in (1.0, 11.0):
                builder.add(Shape("notes", schema.fingerprint), schema.encode({"price": price}))
            await tm.publish_batch(builder.build())
            await tm.publish("notes", {"price": 12.0, "note": "another shape"})
            got = [await sub.next(PATIENCE_SECONDS) for _ in range(2)]
            assert [each["price"] for each in got if isinstance(each, tidemark.Event)] == [11.0, 12.0]
        with pytest.raises(tidemark.RefusedError, match="has events that do not fit this schema"):
            await tm.create_topic("notes", "[price: long]")
    await node.stop()


@bounded
async def test_exactly_once_into_a_database_while_the_broker_crashes(tmp_path: Path) -> None:
    """The broker is cut off three times in the middle; the application restarts with it, on its own token."""
    total = 300
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE got (tick INTEGER PRIMARY KEY, n INTEGER)")
    store = tidemark.SqliteCheckpoints(database)
    store.create()

    async def consume(url: str, upto: int) -> None:
        """An application that stores what it gets until it has that many, then dies."""
        async with tidemark.connect(url) as tm:
            sub = await tm.subscribe("t", durable="d", checkpoint=store.load("d"))
            while database.execute("SELECT count(*) FROM got").fetchone()[0] < upto:
                event = await anext(sub)
                assert isinstance(event, tidemark.Event), event
                with database:
                    database.execute("INSERT INTO got VALUES (?, ?)", (event.tick, event["n"]))
                    store.save("d", sub.checkpoint)
                await sub.ack(sub.checkpoint)

    node = await Node.start(config_at(tmp_path / "data"))
    url = f"tidemark://{node.address}"
    async with tidemark.connect(url) as tm:
        await tm.create_topic("t", "[n: int]")
        async with tm.subscribe("t", durable="d", checkpoint=None) as sub:
            store.save("d", CheckpointToken(sub.checkpoint))
            database.commit()

        async def produce() -> None:
            for n in range(total):
                await tm.publish("t", {"n": n})

        producer = asyncio.create_task(produce())
        for upto in (total // 4, total // 2, total * 3 // 4, total):
            await consume(url, upto)
            if upto < total:
                await node.fail_stop()
                node = await Node.start(config_at(tmp_path / "data", broker__listen=str(node.address)))
        await producer
    await node.stop()
    rows = database.execute("SELECT n FROM got ORDER BY tick").fetchall()
    assert [n for (n,) in rows] == list(range(total))
    database.close()


@bounded
async def test_the_examples_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = await Node.start(config_at(tmp_path / "data"))
    examples = Path(__file__).parents[2] / "examples"
    url = f"tidemark://{node.address}"
    space: dict[str, Any] = {"__name__": "example"}
    exec(compile((examples / "quickstart.py").read_text(), "quickstart.py", "exec"), space)
    await space["main"](url)
    await node.stop()
    assert capsys.readouterr().out.count("received") == 2


@bounded
async def test_a_pubend_is_read_in_bulk(tmp_path: Path) -> None:
    node = await Node.start(config_at(tmp_path / "data"))
    async with tidemark.connect(f"tidemark://{node.address}") as tm:
        await tm.create_topic("trades", "[symbol: string, price: double]")
        async with tm.subscribe("trades", durable="holds"):
            events = [{"symbol": "ACME", "price": float(n)} for n in range(500)]
            ticks = await tm.publish_many("trades", events)
            first = ticks[0]
            assert first is not None
            (pubend,) = await tm.ask("pubends")
            got, at = 0, first - 1
            while at < pubend["position"]:
                answer = await tm._fetch(
                    "main", at, pubend["position"], "trades", "price < 100", bytes_max=4096
                )
                got += answer.batch.count if answer.batch is not None else 0
                at = answer.upto
            assert got == 100
        with pytest.raises(tidemark.RefusedError, match="no pubend"):
            await tm._fetch("nowhere", 0, 1)
    await node.stop()
