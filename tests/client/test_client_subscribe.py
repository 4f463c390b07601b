"""Subscribing through a client: events, gaps, batches, tokens, acknowledgements, breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from fake_broker import FIRST_TICK, FakeBroker

import tidemark
from tidemark.client.client import Client
from tidemark.client.subscription import Subscription
from tidemark.errors import ClientError, NotConnectedError, RefusedError, VersionError
from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import (
    Ack,
    Credit,
    Deliver,
    Describe,
    Ping,
    Refused,
    Subscribe,
    Subscribed,
    Unsubscribe,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = CheckpointToken({"p1": FIRST_TICK})


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test

    asyncio.run(bounded())


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def numbers(sub: Subscription, count: int) -> list[int]:
    """The field `n` of that many events."""
    found: list[int] = []
    while len(found) < count:
        event = await sub.next(5)
        assert isinstance(event, tidemark.Event)
        found.append(event["n"])
    return found


async def publish(tm: Client, first: int, last: int) -> None:
    await tm.publish_many("t", [{"n": n} for n in range(first, last)])


async def declare(tm: Client) -> None:
    await tm.create_topic("t", "[n: int]")


def test_an_event_has_its_fields_and_where_it_stands() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            await tm.create_topic("trades", "[symbol: string, price: double, note: string?]")
            async with tm.subscribe("trades", where="price > 10", durable="audit", checkpoint=None) as sub:
                tick = await tm.publish("trades", {"symbol": "ACME", "price": 10.5, "note": None}, key="k")
                event = await sub.next(5)
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

    run(main())


def test_a_batch_is_columns_and_arrow_and_events() -> None:
    async def main() -> None:
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

    run(main())


def test_a_batch_of_several_topics_has_the_fields_of_all() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
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

    run(main())


def test_iterating_event_by_event_may_go_on_by_batches() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
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

    run(main())


def test_unknown_schemas_are_asked_for_before_events_are_handed_out() -> None:
    async def main() -> None:
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
            event = await sub.next(5)
            assert isinstance(event, tidemark.Event)
            assert event.value == {"n": 2, "more": "x"}
            assert len(broker.of(Describe)) == 2

    run(main())


def test_silence_advances_the_token_without_an_event() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            await declare(tm)
            async with tm.subscribe("t", durable="d") as sub:
                await tm.publish("other", {"n": 1})
                upto = broker.silence()
                await until(lambda: sub.checkpoint == CheckpointToken({"p1": upto}))
                await until(lambda: broker.subscribers["d"].acked["p1"] == upto)

    run(main())


def test_a_gap_is_told_and_a_token_passes_it() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            await declare(tm)
            await publish(tm, 0, 3)
            broker.lost["p1"] = upto = int(broker.events["p1"][0].ticks[1])
            async with tm.subscribe("t", durable="d", checkpoint=START) as sub:
                gap = await sub.next(5)
                assert gap == tidemark.Gap("p1", FIRST_TICK, upto, "released", CheckpointToken({"p1": upto}))
                assert await numbers(sub, 1) == [2]

    run(main())


def test_a_durable_subscription_goes_on_after_a_break_without_loss_or_repetition() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            await declare(tm)
            async with tm.subscribe("t", durable="d") as sub:
                await publish(tm, 0, 10)
                assert await numbers(sub, 4) == [0, 1, 2, 3]
                broker.cut()
                await publish(tm, 10, 15)
                await until(lambda: sub.is_subscribed)
                assert await numbers(sub, 11) == list(range(4, 15))
                shown = broker.of(Subscribe)[-1].token
                assert shown == CheckpointToken({"p1": int(broker.events["p1"][0].ticks[2])})

    run(main())


def test_a_subscription_that_is_not_durable_tells_what_it_missed() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm, tm.subscribe("t") as sub:
            await publish(tm, 0, 3)
            assert await numbers(sub, 1) == [0]
            upto = int(broker.events["p1"][0].ticks[-1])
            broker.cut()
            missed = broker.append("p1", EventBatch.parse(bytearray(broker.events["p1"][0].data)))
            await until(lambda: not sub.is_subscribed)
            await until(lambda: sub.is_subscribed)
            await publish(tm, 4, 5)
            # What had arrived is not lost with the connection.
            assert await numbers(sub, 2) == [1, 2]
            gap = await sub.next(5)
            assert gap == tidemark.Gap("p1", upto, missed, "reconnected", sub.checkpoint)
            assert await numbers(sub, 1) == [4]
            names = [frame.name for frame in broker.of(Subscribe)]
            assert len(set(names)) == 2

    run(main())


def test_it_reconnects_to_another_broker() -> None:
    async def main() -> None:
        async with FakeBroker("b1") as one, FakeBroker("b2") as two:
            url = f"tidemark://127.0.0.1:{one.port},127.0.0.1:{two.port}"
            async with tidemark.connect(url) as tm:
                await declare(tm)
                await publish(tm, 0, 4)
                async with tm.subscribe("t", durable="d", checkpoint=START) as sub:
                    assert await numbers(sub, 2) == [0, 1]
                    two.events, two.topics = one.events, one.topics
                    await one.stop()
                    await until(lambda: sub.is_subscribed and tm.broker == "b2")
                    assert await numbers(sub, 2) == [2, 3]

    run(main())


def test_it_goes_where_a_broker_that_is_drained_sends_it() -> None:
    async def main() -> None:
        async with FakeBroker("b1") as one, FakeBroker("b2") as two, tidemark.connect(one.url) as tm:
            await declare(tm)
            await publish(tm, 0, 4)
            async with tm.subscribe("t", durable="d", checkpoint=START) as sub:
                assert await numbers(sub, 2) == [0, 1]
                two.events, two.topics = one.events, one.topics
                advice = f"'b1' is being drained: go to {two.url}"
                (session,) = one.sessions
                session.send(Refused("subscribe", "d", "draining", advice))
                session.send(Refused("connect", "", "draining", advice))
                await until(lambda: tm.link.is_up and sub.is_subscribed and tm.broker == "b2")
                assert await numbers(sub, 2) == [2, 3]
                # It is drained too, and there is nobody else: the first one is tried again.
                (session,) = two.sessions
                session.send(Refused("connect", "", "draining", "'b2' is being drained"))
                await until(lambda: tm.link.is_up and tm.broker == "b1")

    run(main())


def test_a_publisher_learns_that_a_drained_broker_has_not_logged_an_event() -> None:
    async def main() -> None:
        async with FakeBroker("b1") as one, FakeBroker("b2", ("p2",)) as two, tidemark.connect(one.url) as tm:
            await declare(tm)
            await publish(tm, 0, 2)
            advice = f"'b1' is being drained: go to {two.url}"
            one.on_publish = lambda frame: Refused("publish", frame.publisher, "draining", advice)
            with pytest.raises(RefusedError, match="being drained") as caught:
                await publish(tm, 2, 3)
            assert caught.value.code == "draining"
            await until(lambda: tm.link.is_up and tm.broker == "b2")
            await declare(tm)
            await publish(tm, 2, 3)
            assert (one.count("p1"), two.count("p2")) == (2, 1)

    run(main())


def test_automatic_acknowledgement_is_of_what_the_application_came_back_from() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            await declare(tm)
            sub = await tm.subscribe("t", durable="d")
            await publish(tm, 0, 3)
            ticks = broker.events["p1"][0].ticks.tolist()
            await numbers(sub, 2)
            assert sub.checkpoint == CheckpointToken({"p1": ticks[1]})
            await until(lambda: broker.subscribers["d"].acked["p1"] == ticks[0])
            await sub.close()
            assert broker.subscribers["d"].acked["p1"] == ticks[0]
            with suppress(ZeroDivisionError):
                async with tm.subscribe("t", durable="d") as sub:
                    assert await numbers(sub, 1) == [1]
                    _ = 1 / 0
            async with tm.subscribe("t", durable="d") as sub:
                assert await numbers(sub, 1) == [1]
            assert broker.subscribers["d"].acked["p1"] == ticks[1]

    run(main())


def test_acknowledgements_of_many_events_leave_in_few_frames() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            await declare(tm)
            async with tm.subscribe("t", durable="a") as one, tm.subscribe("t", durable="b") as two:
                await publish(tm, 0, 500)
                await asyncio.gather(numbers(one, 500), numbers(two, 500))
                await until(lambda: broker.of(Ack))
                assert len(broker.of(Ack)) <= 3
                assert any(len(frame.tokens) == 2 for frame in broker.of(Ack))

    run(main())


def test_an_application_acknowledges_itself_and_may_wait_for_the_disk() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            await declare(tm)
            async with tm.subscribe("t", durable="d", ack="client") as sub:
                await publish(tm, 0, 4)
                ticks = broker.events["p1"][0].ticks.tolist()
                first = await sub.next(5)
                await numbers(sub, 2)
                await sub.ack(first, sync=True)
                assert broker.subscribers["d"].acked["p1"] == ticks[0]
                await sub.ack(sub.checkpoint)
                await until(lambda: broker.subscribers["d"].acked["p1"] == ticks[2])
                await sub.ack(CheckpointToken({"p1": ticks[0]}), sync=True)
                assert broker.subscribers["d"].acked["p1"] == ticks[2]
                with pytest.raises(ClientError, match="token"):
                    await sub.ack(7)

    run(main())


def test_a_token_that_the_application_keeps_is_never_acknowledged_ahead_of_it() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            await declare(tm)
            await publish(tm, 0, 4)
            ticks = broker.events["p1"][0].ticks.tolist()
            given = CheckpointToken({"p1": ticks[0]})
            async with tm.subscribe("t", durable="d", checkpoint=given) as sub:
                # What it shows it must have stored.
                await until(lambda: broker.subscribers["d"].acked["p1"] == ticks[0])
                assert await numbers(sub, 3) == [1, 2, 3]
                broker.silence()
                await asyncio.sleep(0.12)
                assert broker.subscribers["d"].acked["p1"] == ticks[0]
                await sub.ack(CheckpointToken({"p1": ticks[1]}))
            assert broker.subscribers["d"].acked["p1"] == ticks[1]

    run(main())


def test_a_transaction_acknowledges_all_or_nothing() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            await declare(tm)
            async with (
                tm.subscribe("t", durable="a", ack="transacted") as one,
                tm.subscribe("t", durable="b", ack="transacted") as two,
            ):
                await publish(tm, 0, 2)
                ticks = broker.events["p1"][0].ticks.tolist()
                await numbers(one, 1)
                await numbers(two, 2)
                with suppress(ZeroDivisionError):
                    async with tm.transaction() as tx:
                        tx.ack(one)
                        _ = 1 / 0
                assert not broker.of(Ack) or all(not frame.ticket for frame in broker.of(Ack))
                async with tm.transaction() as tx:
                    tx.ack(one)
                    tx.ack(two)
                (frame,) = [frame for frame in broker.of(Ack) if frame.ticket]
                assert dict(frame.tokens) == {
                    "a": CheckpointToken({"p1": ticks[0]}),
                    "b": CheckpointToken({"p1": ticks[1]}),
                }

    run(main())


def test_a_transaction_survives_a_break() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            await declare(tm)
            async with tm.subscribe("t", durable="a", ack="transacted") as sub:
                await publish(tm, 0, 2)
                await numbers(sub, 2)
                await broker.stop()
                tx = tm.transaction()
                tx.ack(sub)
                commit = asyncio.ensure_future(tx.__aexit__(None, None, None))
                await asyncio.sleep(0.02)
                await broker.start()
                await commit
                assert CheckpointToken(broker.subscribers["a"].acked) == sub.checkpoint

    run(main())


def test_a_wrong_selector_and_a_taken_name_are_refused() -> None:
    async def main() -> None:
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

    run(main())


def test_arguments_that_cannot_be_meant_are_refused_at_once() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            for wrong in (
                {"checkpoint": START},
                {"ack": "client"},
                {"durable": ""},
                {"durable": "d", "ack": "sometimes"},
            ):
                with pytest.raises(ClientError):
                    tm.subscribe("t", **wrong)

    run(main())


def test_credit_comes_back_in_large_steps() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            await tm.create_topic("t", "[n: int, pad: bytes]")
            async with tm.subscribe("t", durable="d", window_bytes_max=100_000) as sub:
                for first in range(0, 200, 10):
                    await tm.publish_many(
                        "t", [{"n": n, "pad": bytes(1_000)} for n in range(first, first + 10)]
                    )
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

    run(main())


def test_a_hole_in_the_stream_starts_the_connection_over() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            await declare(tm)
            async with tm.subscribe("t", durable="d") as sub:
                await publish(tm, 0, 2)
                assert await numbers(sub, 2) == [0, 1]
                upto = sub.checkpoint["p1"]
                broker.sessions[0].send(Deliver("d", "p1", upto + 5, upto + 9))
                await until(lambda: len(broker.of(Subscribe)) == 2)
                await publish(tm, 2, 4)
                assert await numbers(sub, 2) == [2, 3]

    run(main())


def test_closing_ends_iteration_and_keeps_a_durable_subscription() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
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

    run(main())


def test_a_changed_selector_is_told_without_starting_over() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            await declare(tm)
            async with tm.subscribe("t", durable="d") as sub:
                await publish(tm, 0, 2)
                await until(lambda: sub._inbox._pieces)
                since = CheckpointToken({"p1": 5_000})
                broker.sessions[0].send(Subscribed("d", START, since))
                await until(lambda: sub.since == since)
                assert await numbers(sub, 2) == [0, 1]

    run(main())


def test_a_silent_broker_is_asked_and_given_up() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url, ping=0.05) as tm:
            await until(lambda: broker.of(Ping))
            assert tm.is_connected
            broker.is_deaf = True
            await until(lambda: not tm.is_connected)
            with pytest.raises(NotConnectedError):
                _ = tm.broker
            broker.is_deaf = False
            await until(lambda: tm.is_connected)

    run(main())


def test_administrators_ask_and_are_answered_refused_or_left_alone() -> None:
    async def main() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            assert await tm.ask("status", depth=2) == {"what": "status", "arguments": {"depth": 2}}
            with pytest.raises(RefusedError, match="no such question"):
                await tm.ask("forbidden")
            broker.is_deaf = True
            with pytest.raises(tidemark.TimedOutError):
                await tm.ask("status", timeout=0.05)
            waiting = asyncio.ensure_future(tm.ask("status"))
            await asyncio.sleep(0.01)
            broker.cut()
            with pytest.raises(NotConnectedError, match="not known"):
                await waiting

    run(main())


def test_a_broker_of_another_version_is_an_error_of_its_own() -> None:
    async def main() -> None:
        broker = FakeBroker()

        async with broker:
            broker.is_deaf = True
            opening = asyncio.ensure_future(tidemark.connect(broker.url, connect_timeout=2).open())
            await until(lambda: broker.sessions)
            await until(lambda: broker.heard)
            broker.sessions[0].send(Refused("connect", "", "version", "update the client"))
            with pytest.raises(VersionError, match="update the client"):
                await opening

    run(main())
