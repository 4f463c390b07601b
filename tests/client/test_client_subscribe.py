"""Subscribing through a client: events, batches, gaps, flow control, and the end of it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import numpy as np
import pytest

import tidemark
from tests.client.connected import START, connected, declare, numbers, publish
from tests.client.fake_broker import FIRST_TICK, FakeBroker
from tests.waiting import PATIENCE_SECONDS, bounded, until
from tidemark.client.client import Client
from tidemark.errors import ClientError, RefusedError
from tidemark.message import BatchBuilder, Schema, Shape
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Credit, Describe, Subscribe, Subscribed, Unsubscribe

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@connected
async def test_an_event_has_its_fields_and_where_it_stands(broker: FakeBroker, tm: Client) -> None:
    await tm.create_topic("trades", "[symbol: string, price: double, note: string?]")
    async with tm.subscribe("trades", where="price > 10", durable="audit", checkpoint=None) as sub:
        tick = await tm.publish("trades", {"symbol": "ACME", "price": 10.5, "note": None}, key="k")
        event = await sub.next(PATIENCE_SECONDS)
        assert isinstance(event, tidemark.Event)
        assert (event.topic, event.pubend, event.tick, event.key) == ("trades", "p1", tick, b"k")
        assert event.value == {"symbol": "ACME", "price": 10.5, "note": None}
        assert (event["price"], event["note"], event.get("note", "-")) == (10.5, None, "-")
        assert event.get("nothing", 3) == 3
        assert event.time.timestamp() == pytest.approx(event.tick / 1e6)
        assert (event.priority, event.publisher.startswith("publisher-")) == (4, True)
        assert event.checkpoint == sub.checkpoint == CheckpointToken({"p1": event.tick})
        with pytest.raises(KeyError, match="price"):
            _ = event["prize"]
    (frame,) = broker.of(Subscribe)
    assert (frame.pattern, frame.selector, frame.durable) == ("trades", "price > 10", True)


@connected
async def test_an_event_that_cannot_be_decoded_is_a_gap(broker: FakeBroker, tm: Client) -> None:
    await tm.create_topic("t", "[text: string]")
    async with tm.subscribe("t", durable="d", checkpoint=None, gaps=True) as sub:
        builder = BatchBuilder()
        schema = Schema.parse("[text: string]")
        for text in (b"one", b"t\xffo", b"three"):
            builder.add(Shape("t", schema.fingerprint), schema.encode({"text": "xxx"})[:-3] + text[:3])
        last = broker.append("p1", builder.build())
        first = await sub.next(PATIENCE_SECONDS)
        assert isinstance(first, tidemark.Event)
        assert first["text"] == "one"
        gap = await sub.next(PATIENCE_SECONDS)
        assert isinstance(gap, tidemark.Gap)
        assert (gap.reason, gap.base, gap.upto) == ("damaged", last - 2, last - 1)
        third = await sub.next(PATIENCE_SECONDS)
        assert isinstance(third, tidemark.Event)
        assert third["text"] == "thr"


@bounded
async def test_a_batch_is_columns_and_arrow_and_events() -> None:
    async with (
        FakeBroker() as broker,
        tidemark.connect(broker.url) as tm,
        tm.subscribe("m.>", durable="d", checkpoint=None) as sub,
    ):
        values = [{"n": n, "name": f"é{n}", **({"x": 0.5} if n % 2 else {})} for n in range(6)]
        await tm.publish_many("m.a", values)
        async for batch in sub.batches():
            assert isinstance(batch, tidemark.Batch)
            assert batch.column("n").tolist() == list(range(len(batch)))
            assert batch.column("name").tolist() == [f"é{n}" for n in range(len(batch))]
            assert [event.value for event in batch] == values[: len(batch)]
            assert batch.checkpoint == CheckpointToken({"p1": batch.upto}) == sub.checkpoint
            assert batch.ticks[-1] == batch.upto
            if len(batch) > 1:
                column = batch.column("x")
                assert isinstance(column, np.ma.MaskedArray)
                assert column.mask.tolist() == [n % 2 == 0 for n in range(len(batch))]
            assert batch.to_arrow().column("_topic").to_pylist() == ["m.a"] * len(batch)
            break


@connected
async def test_a_batch_of_several_topics_has_the_fields_of_all(tm: Client) -> None:
    await tm.create_topic("m.a", "[n: int, a: string]")
    await tm.create_topic("m.b", "[n: long, b: decimal(9,2)?, at: timestamp]")
    acks = [
        tm.publish("m.a", {"n": 1, "a": "x"}),
        tm.publish("m.b", {"n": 2, "b": None, "at": EPOCH}),
    ]
    await asyncio.gather(*acks)
    async with tm.subscribe("m.*", durable="d", checkpoint=START) as sub:
        batch = await anext(sub.batches())
        assert isinstance(batch, tidemark.Batch)
        assert batch.column("n").tolist() == [1, 2]
        assert batch.column("a").tolist() == ["x", None]
        assert batch.column("at").dtype == np.dtype("M8[us]")


@connected
async def test_iterating_event_by_event_may_go_on_by_batches(broker: FakeBroker, tm: Client) -> None:
    await declare(tm)
    async with tm.subscribe("t", durable="d", ack="auto") as sub:
        await publish(tm, 0, 5)
        assert await numbers(sub, 2) == [0, 1]
        batch = await anext(sub.batches())
        assert isinstance(batch, tidemark.Batch)
        assert batch.column("n").tolist() == [2, 3, 4]
        assert [event["n"] for event in batch] == [2, 3, 4]
        assert batch.base == int(broker.events["p1"][0].ticks[1])
    assert broker.subscribers["d"].acked["p1"] == batch.upto


@bounded
async def test_unknown_schemas_are_asked_for_before_events_are_handed_out() -> None:
    async with (
        FakeBroker() as broker,
        tidemark.connect(broker.url) as one,
        tidemark.connect(broker.url) as two,
        two.subscribe(">") as sub,
    ):
        await one.create_topic("a", "[n: int]")
        await one.publish("a", {"n": 1})
        assert await numbers(sub, 1) == [1]
        await one.create_topic("a", "[n: int, more: string?]")
        await one.publish("a", {"n": 2, "more": "x"})
        event = await sub.next(PATIENCE_SECONDS)
        assert isinstance(event, tidemark.Event)
        assert event.value == {"n": 2, "more": "x"}
        assert len(broker.of(Describe)) == 2


@connected
async def test_silence_advances_the_token_without_an_event(broker: FakeBroker, tm: Client) -> None:
    await declare(tm)
    async with tm.subscribe("t", durable="d") as sub:
        await tm.publish("other", {"n": 1})
        upto = broker.silence()
        await until(lambda: sub.checkpoint == CheckpointToken({"p1": upto}))
        await until(lambda: broker.subscribers["d"].acked["p1"] == upto)


@connected
async def test_a_gap_is_told_and_a_token_passes_it(broker: FakeBroker, tm: Client) -> None:
    await declare(tm)
    await publish(tm, 0, 3)
    broker.lost["p1"] = upto = int(broker.events["p1"][0].ticks[1])
    async with tm.subscribe("t", durable="d", checkpoint=START, gaps=True) as sub:
        gap = await sub.next(PATIENCE_SECONDS)
        assert gap == tidemark.Gap("p1", FIRST_TICK, upto, "released", CheckpointToken({"p1": upto}))
        assert await numbers(sub, 1) == [2]


@bounded
async def test_a_wrong_selector_and_a_taken_name_are_refused() -> None:
    async with FakeBroker() as broker, tidemark.connect(broker.url) as one:
        await declare(one)
        with pytest.raises(RefusedError, match="no field") as caught:
            await one.subscribe("t", where="bad > 1")
        assert (caught.value.what, caught.value.code) == ("subscribe", "selector")
        sub = await one.subscribe("t", durable="d")
        with pytest.raises(ClientError, match="open in this client"):
            await one.subscribe("t", durable="d")
        waiting = asyncio.ensure_future(anext(sub))
        async with tidemark.connect(broker.url) as two, two.subscribe("t", durable="d"):
            with pytest.raises(RefusedError) as caught:
                await waiting
            assert caught.value.code == "taken"


@connected
async def test_arguments_that_cannot_be_meant_are_refused_at_once(tm: Client) -> None:
    for wrong in (
        {"checkpoint": START},
        {"ack": "client"},
        {"durable": ""},
        {"durable": "d", "ack": "sometimes"},
    ):
        with pytest.raises(ClientError):
            tm.subscribe("t", **wrong)


@connected
async def test_credit_comes_back_in_large_steps(broker: FakeBroker, tm: Client) -> None:
    await tm.create_topic("t", "[n: int, pad: bytes]")
    async with tm.subscribe("t", durable="d", window_bytes_max=100_000) as sub:
        for first in range(0, 200, 10):
            await tm.publish_many("t", [{"n": n, "pad": bytes(1_000)} for n in range(first, first + 10)])
        seen = 0
        async for batch in sub.batches():
            seen += len(batch) if isinstance(batch, tidemark.Batch) else 0
            if seen == 200:
                break
        delivered = sum(len(batch.body) for batch in broker.events["p1"])
        await until(lambda: len(broker.of(Credit)) >= 3)
        assert [frame.bytes >= 50_000 for frame in broker.of(Credit)][:3] == [True, True, True]
        assert sum(frame.bytes for frame in broker.of(Credit)) <= delivered
        assert broker.of(Subscribe)[0].credit == 100_000


@connected
async def test_closing_ends_iteration_and_keeps_a_durable_subscription(
    broker: FakeBroker, tm: Client
) -> None:
    durable, other = await tm.subscribe("t", durable="d"), await tm.subscribe("t")
    waiting = [asyncio.ensure_future(sub.next()) for sub in (durable, other)]
    await asyncio.sleep(0.01)
    await durable.close()
    await other.close()
    assert await asyncio.gather(*waiting) == [None, None]
    await until(lambda: broker.of(Unsubscribe))
    assert [frame.name for frame in broker.of(Unsubscribe)] == [other.name]
    await tm.unsubscribe("d")
    assert "d" not in broker.subscribers
    async with tm.subscribe("t", durable="e") as sub:
        await sub.unsubscribe()
    assert not broker.subscribers


@connected
async def test_a_changed_selector_is_told_without_starting_over(broker: FakeBroker, tm: Client) -> None:
    await declare(tm)
    async with tm.subscribe("t", durable="d") as sub:
        await publish(tm, 0, 2)
        await until(lambda: sub._session.inbox._entries)
        since = CheckpointToken({"p1": 5_000})
        broker.sessions[0].send(Subscribed("d", START, since))
        await until(lambda: sub._session.since == since)
        assert await numbers(sub, 2) == [0, 1]


@bounded
async def test_closing_ends_what_waits_until_the_broker_says_what_a_topic_is() -> None:
    async with FakeBroker() as broker:
        async with tidemark.connect(broker.url) as tm:
            await declare(tm)
            await publish(tm, 0, 2)
        tm = await tidemark.connect(broker.url)
        sub = await tm.subscribe("t", durable="d", checkpoint=START)
        broker.is_deaf = True
        reading, creating = asyncio.ensure_future(sub.next()), asyncio.ensure_future(tm.create_topic("u"))
        await until(lambda: {"t", "u"} <= tm._topics._asked.keys())
        await tm.close(0.0)
        assert await reading is None
        with pytest.raises(tidemark.ClosedError):
            await creating
        with pytest.raises(tidemark.ClosedError):
            await tm._topics.describe("t")
