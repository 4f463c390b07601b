"""Acknowledging: by itself, by the application, several together; and tokens that the application keeps."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from tests.client.connected import connected, declare, numbers, publish
from tests.client.fake_broker import FakeBroker, Session
from tests.waiting import until
from tidemark.client.client import Client, connect
from tidemark.client.connecting.ack_frames import in_frames
from tidemark.client.events import Batch
from tidemark.client.subscribing.acks import GATHER_SECONDS
from tidemark.errors import ClientError, TimedOutError
from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Ack, Credit
from tidemark.wire.limits import ACK_TICKS, PROTOCOL_NEWEST


@connected
async def test_automatic_acknowledgement_is_of_what_the_application_came_back_from(
    broker: FakeBroker, tm: Client
) -> None:
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


@connected
async def test_acknowledgements_of_many_events_leave_in_few_frames(broker: FakeBroker, tm: Client) -> None:
    await declare(tm)
    async with tm.subscribe("t", durable="a") as one, tm.subscribe("t", durable="b") as two:
        await publish(tm, 0, 500)
        await asyncio.gather(numbers(one, 500), numbers(two, 500))
        await until(lambda: broker.of(Ack))
        assert len(broker.of(Ack)) <= 3
        assert any(len(frame.tokens) == 2 for frame in broker.of(Ack))


@connected
async def test_an_application_acknowledges_itself_and_may_wait_for_the_disk(
    broker: FakeBroker, tm: Client
) -> None:
    await declare(tm)
    async with tm.subscribe("t", durable="d", ack="client") as sub:
        await publish(tm, 0, 4)
        ticks = broker.events["p1"][0].ticks.tolist()
        first = await anext(sub)
        await numbers(sub, 2)
        await sub.ack(first, sync=True)
        assert broker.subscribers["d"].acked["p1"] == ticks[0]
        await sub.ack(sub.checkpoint)
        await until(lambda: broker.subscribers["d"].acked["p1"] == ticks[2])
        await sub.ack(CheckpointToken({"p1": ticks[0]}), sync=True)
        assert broker.subscribers["d"].acked["p1"] == ticks[2]
        with pytest.raises(ClientError, match="token"):
            await sub.ack(7)  # type: ignore[arg-type]


@connected
async def test_a_token_that_the_application_keeps_is_never_acknowledged_ahead_of_it(
    broker: FakeBroker, tm: Client
) -> None:
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


@connected
async def test_a_transaction_acknowledges_all_or_nothing(broker: FakeBroker, tm: Client) -> None:
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


@connected
async def test_a_transaction_survives_a_break(broker: FakeBroker, tm: Client) -> None:
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


@connected
async def test_in_the_mode_auto_an_event_is_on_disk_as_consumed_before_the_next_one_is_handed_out(
    broker: FakeBroker, tm: Client
) -> None:
    await declare(tm)
    async with tm.subscribe("t", durable="d", ack="auto") as sub:
        await publish(tm, 0, 4)
        ticks = broker.events["p1"][0].ticks.tolist()
        for number, tick in enumerate(ticks[:3]):
            assert await numbers(sub, 1) == [number]
            if number:
                assert broker.subscribers["d"].acked["p1"] == ticks[number - 1]
            assert sub.checkpoint == CheckpointToken({"p1": tick})
        tickets = [frame.ticket for frame in broker.of(Ack) if frame.ticket]
        assert tickets == [1, 2]
        # By batches it is a commit for each batch.
        batch = await anext(sub.batches())
        assert broker.subscribers["d"].acked["p1"] == ticks[2]
        assert batch.base == ticks[2]
    assert broker.subscribers["d"].acked["p1"] == ticks[3]


@connected
async def test_in_the_mode_auto_a_commit_is_all_that_is_said_for_an_event(broker: FakeBroker) -> None:
    broker.version = PROTOCOL_NEWEST
    async with connect(broker.url) as tm, tm.subscribe("t", durable="d", ack="auto") as sub:
        await declare(tm)
        for number in range(5):
            await publish(tm, number, number + 1)
            assert await numbers(sub, 1) == [number]
            # Whatever gathers would be sent meanwhile.
            await asyncio.sleep(2 * GATHER_SECONDS)
            if number == 2:
                before = len(broker.of(Ack))
        said = broker.of(Ack)[before:]
        # In place of a frame of its own, the credit of an event is in the next commit.
        assert [frame.ticket for frame in said] == [3, 4]
        assert all(frame.credits for frame in said)


@connected
async def test_a_commit_that_does_not_come_is_told_where_the_next_event_is_asked_for(
    broker: FakeBroker, tm: Client
) -> None:
    await declare(tm)
    async with tm.subscribe("t", durable="d", ack="auto") as sub:
        await publish(tm, 0, 3)
        assert await numbers(sub, 1) == [0]
        broker.is_silent_about_acks = True
        sub._session._owner.timeout = 0.05
        with pytest.raises(TimedOutError, match="acknowledging again is safe"):
            await numbers(sub, 1)
        broker.is_silent_about_acks = False
        sub._session._owner.timeout = 10.0
        assert await numbers(sub, 2) == [1, 2]


@connected
async def test_nothing_is_handed_out_while_a_subscription_closes(broker: FakeBroker, tm: Client) -> None:
    """What arrives while the broker learns what was consumed would be consumed and delivered again."""
    await declare(tm)
    sub = await tm.subscribe("t", durable="d")
    got: list[int] = []

    async def read() -> None:
        async for batch in sub.batches():
            assert isinstance(batch, Batch)
            got.extend(batch.column("n").tolist())

    reader = asyncio.create_task(read())
    await publish(tm, 0, 1)
    await until(lambda: got == [0])
    kept = broker.ack

    def late(session: Session, frame: Ack) -> None:
        if frame.ticket and broker.count() == 1:
            broker.append("p1", EventBatch.parse(bytearray(broker.events["p1"][0].data)))
        kept(session, frame)

    broker.ack = late  # type: ignore[method-assign]
    await sub.close()
    await reader
    assert broker.count() == 2
    async with tm.subscribe("t", durable="d") as again:
        got += await numbers(again, 1)
    assert len(got) == broker.count(), "each event once"


def test_acknowledgements_of_many_subscriptions_leave_in_frames_of_a_bounded_size() -> None:
    token = CheckpointToken({f"p{at}": at for at in range(18)})
    tokens = tuple((f"s{at}", token) for at in range(10_000))
    granted = tuple(Credit(f"s{at}", 1) for at in range(10_000))
    frames = list(in_frames(tokens, granted))
    assert tuple(each for frame in frames for each in frame.tokens) == tokens
    assert tuple(each for frame in frames for each in frame.credits) == granted
    assert max(sum(1 + len(each) for _, each in frame.tokens) for frame in frames) < ACK_TICKS + 20
    assert max(len(frame.credits) for frame in frames) <= ACK_TICKS
    assert list(in_frames((), ())) == []
    assert list(in_frames(tokens[:1], granted[:1])) == [Ack(tokens[:1], 0, granted[:1])]
    assert list(in_frames((), granted[:1])) == [Ack((), 0, granted[:1])]
