"""An event is a mapping, can be pickled and becomes a dataclass; gaps are raised, or handed out as items."""

from __future__ import annotations

import asyncio
import os
import pickle
from dataclasses import dataclass
from typing import Any, cast

import pytest

import tidemark
from tests.client.connected import START, connected, declare, publish
from tests.client.fake_broker import FIRST_TICK, FakeBroker
from tests.waiting import PATIENCE_SECONDS
from tidemark import CheckpointToken, Client, sync


async def first(tm: Client, value: dict[str, Any], schema: str | None = None) -> tidemark.Event:
    """The event that a subscriber of the topic `m` gets when `value` is published."""
    await tm.create_topic("m", schema)
    async with tm.subscribe("m") as sub:
        await tm.publish("m", value, key="k1", priority=7)
        event = await sub.next(PATIENCE_SECONDS)
        assert event is not None
        return event


@connected
async def test_an_event_is_a_mapping_of_its_fields(tm: Client) -> None:
    event = await first(tm, {"symbol": "ACME", "price": 10.5, "legs": {"first": 3}})
    assert dict(event) == {"symbol": "ACME", "price": 10.5, "legs": {"first": 3}} == event.value
    assert len(event) == 3
    assert list(event) == list(event.keys()) == ["symbol", "price", "legs"]
    assert list(event.items()) == list(event.value.items())
    assert list(event.values()) == list(event.value.values())
    assert "symbol" in event
    assert "legs.first" in event
    assert "simbol" not in event
    assert event == {"symbol": "ACME", "price": 10.5, "legs": {"first": 3}}
    assert {**event} == event.value
    assert event != "ACME"


@connected
async def test_two_events_are_equal_if_they_are_the_same_event(tm: Client) -> None:
    await declare(tm)
    async with tm.subscribe("t") as sub:
        await tm.publish_many("t", [{"n": 1}, {"n": 1}])
        one, two = await sub.next(PATIENCE_SECONDS), await sub.next(PATIENCE_SECONDS)
        assert one != two
        assert dict(one or {}) == dict(two or {})
        assert len({one, two, pickle.loads(pickle.dumps(one))}) == 2


@connected
async def test_the_repr_of_an_event_shows_its_fields_in_short(tm: Client) -> None:
    event = await first(tm, {"symbol": "ACME", "text": "x" * 1_000})
    assert repr(event).startswith(f"<Event of m at p1:{event.tick}: symbol='ACME', text='xxx")
    assert len(repr(event)) < 200


@connected
async def test_an_event_of_a_declared_topic_can_be_pickled(tm: Client) -> None:
    await check_pickled(tm, "[symbol: string, price: double?, legs: [first: int]]")


@connected
async def test_an_event_of_an_open_topic_can_be_pickled(tm: Client) -> None:
    await check_pickled(tm, None)


async def check_pickled(tm: Client, schema: str | None) -> None:
    event = await first(tm, {"symbol": "ACME", "price": 10.5, "legs": {"first": 3}}, schema)
    copy = pickle.loads(pickle.dumps(event))
    assert copy == event
    assert copy.value == event.value
    assert copy["legs.first"] == 3
    assert copy.checkpoint == event.checkpoint
    seen = ("topic", "pubend", "tick", "time", "key", "priority", "publisher")
    assert [getattr(copy, name) for name in seen] == [getattr(event, name) for name in seen]
    with pytest.raises(KeyError, match="price"):
        copy["prize"]


@connected
async def test_a_pickled_event_of_an_open_topic_knows_the_fields_of_other_shapes(tm: Client) -> None:
    await tm.create_topic("m")
    async with tm.subscribe("m") as sub:
        await tm.publish("m", {"a": 1})
        await tm.publish("m", {"b": 2})
        events = [await sub.next(PATIENCE_SECONDS), await sub.next(PATIENCE_SECONDS)]
        assert [event["b"] for event in events if event] == [None, 2]
        assert [event["b"] for event in pickle.loads(pickle.dumps(events))] == [None, 2]


@dataclass
class Trade:
    symbol: str
    price: float
    note: str | None = None


@dataclass
class Other:
    volume: int


@connected
async def test_events_are_handed_out_as_instances_of_a_dataclass(tm: Client) -> None:
    await tm.create_topic("trades", Trade)
    async with tm.subscribe("trades", into=Trade, durable="d") as sub:
        await tm.publish("trades", Trade("ACME", 10.5))
        await tm.publish("trades", Trade("EMCA", 11.5, "late"))
        assert [await sub.next(PATIENCE_SECONDS), await sub.next(PATIENCE_SECONDS)] == [
            Trade("ACME", 10.5),
            Trade("EMCA", 11.5, "late"),
        ]
    async with tm.subscribe("trades", into=Other) as misread:
        await tm.publish_many("trades", [Trade("ACME", 10.5), Trade("ACME", 11.5)])
        for _ in range(2):
            with pytest.raises(tidemark.DecodeError, match="volume"):
                await misread.next(PATIENCE_SECONDS)


@connected
async def test_into_is_a_dataclass(tm: Client) -> None:
    for wrong in (dict, 5, Trade("ACME", 1.0)):
        with pytest.raises(tidemark.ClientError, match="into is a dataclass"):
            tm.subscribe("t", into=cast(Any, wrong))


@connected
async def test_a_gap_is_raised_and_the_loop_can_go_on(broker: FakeBroker, tm: Client) -> None:
    await declare(tm)
    await publish(tm, 0, 3)
    broker.lost["p1"] = upto = int(broker.events["p1"][0].ticks[1])
    async with tm.subscribe("t", durable="d", checkpoint=START) as sub:
        with pytest.raises(tidemark.GapError) as raised:
            await anext(aiter(sub))
        error = raised.value
        assert (error.pubend, error.base, error.upto) == ("p1", FIRST_TICK, upto)
        assert error.cause == "released"
        assert "gaps=True" in str(error)
        assert sub.checkpoint == CheckpointToken({"p1": upto})
        async for event in sub:
            assert event["n"] == 2
            break


@connected
async def test_a_gap_is_raised_between_batches(broker: FakeBroker, tm: Client) -> None:
    await declare(tm)
    await publish(tm, 0, 3)
    broker.lost["p1"] = int(broker.events["p1"][0].ticks[1])
    async with tm.subscribe("t", durable="d", checkpoint=START) as sub:
        with pytest.raises(tidemark.GapError):
            await anext(sub.batches())
        assert (await anext(sub.batches())).column("n").tolist() == [2]


def test_a_gap_is_raised_in_a_blocking_loop_and_the_loop_can_go_on(broker: FakeBroker) -> None:
    with sync.connect(broker.url) as tm:
        tm.create_topic("t", "[n: int]")
        tm.publish_many("t", [{"n": n} for n in range(3)])
        broker.lost["p1"] = int(broker.events["p1"][0].ticks[1])
        with tm.subscribe("t", durable="d", checkpoint=START) as sub:
            with pytest.raises(tidemark.GapError):
                next(iter(sub))
            assert next(iter(sub))["n"] == 2


@connected
async def test_iterating_opens_a_subscription(tm: Client) -> None:
    await declare(tm)
    sub = tm.subscribe("t", durable="d")
    reading = asyncio.ensure_future(anext(sub))
    while not sub.checkpoint:
        await asyncio.sleep(0.01)
    await publish(tm, 4, 5)
    assert (await asyncio.wait_for(reading, 10))["n"] == 4
    await sub.close()


def test_a_client_that_was_not_opened_says_how_to_open_it() -> None:
    with pytest.raises(tidemark.ClosedError, match="not open yet: write `async with"):
        tidemark.connect("tidemark://127.0.0.1:1").publish("t", {})


@connected
async def test_a_key_is_text_or_bytes(tm: Client) -> None:
    await declare(tm)
    for wrong in (5, 1.5, ["k"], bytearray(b"k")):
        with pytest.raises(tidemark.EncodeError, match="a key is str or bytes"):
            await tm.publish("t", {"n": 1}, key=cast(Any, wrong))
    with pytest.raises(tidemark.EncodeError, match="a key is str or bytes, not int"):
        await tm.publish("t", {"n": 1}, key=cast(Any, 0))


@connected
async def test_the_text_of_a_token_parses_back(tm: Client) -> None:
    event = await first(tm, {"n": 1})
    assert CheckpointToken.parse(str(event.checkpoint)) == event.checkpoint
    assert CheckpointToken.parse(f"{event.checkpoint}") == event.checkpoint


@connected
async def test_columns_are_fields_and_headers_and_nothing_else(tm: Client) -> None:
    await declare(tm)
    async with tm.subscribe("t") as sub:
        await tm.publish_many("t", [{"n": 1}, {"n": 2}], key="k", priority=7)
        batch = await anext(sub.batches())
        assert batch.column("n").tolist() == [1, 2]
        assert batch.column("_key").tolist() == [b"k", b"k"]
        assert batch.column("_pubend").tolist() == ["p1", "p1"]
        assert batch.column("_priority").tolist() == [7, 7]
        assert batch.column("_time").tolist() == [event.time.replace(tzinfo=None) for event in batch]
        with pytest.raises(KeyError, match="t has no field m"):
            batch.column("m")
        with pytest.raises(KeyError, match="_kye"):
            batch.column("_kye")


@connected
async def test_a_transaction_acknowledges_an_event(broker: FakeBroker, tm: Client) -> None:
    await declare(tm)
    async with tm.subscribe("t", durable="d", ack="transacted") as sub:
        await publish(tm, 0, 3)
        one, two = await sub.next(PATIENCE_SECONDS), await sub.next(PATIENCE_SECONDS)
        assert one is not None
        assert two is not None
        async with tm.transaction() as tx:
            tx.ack(two)
        assert broker.subscribers["d"].acked["p1"] == two.tick
        async with tm.transaction() as tx:
            for wrong in (pickle.loads(pickle.dumps(two)), cast(Any, 5), cast(Any, sub.checkpoint)):
                with pytest.raises(tidemark.ClientError, match="a transaction acknowledges"):
                    tx.ack(wrong)


def test_a_forked_child_is_told_to_open_a_client_of_its_own(broker: FakeBroker) -> None:
    with sync.connect(broker.url) as tm:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # nothing of the test may go on in the child
            try:
                tm.publish("t", {"n": 1})
            except tidemark.ClosedError as error:
                os.write(writing, str(error).encode())
            finally:
                os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        assert b"opened by the parent process" in os.read(reading, 1_000)
        os.close(reading)
        assert tm.ask("status") is not None
