"""Offering to answer recalls: in order, within the credit, and void with the connection."""

from __future__ import annotations

import asyncio

import numpy as np

import tidemark
from tests.client.connected import connected
from tests.client.fake_broker import FakeBroker
from tests.waiting import bounded, until
from tidemark.client.client import Client
from tidemark.client.recalls import IncomingRecall, IncomingRecalls
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.topic_selector import TopicSelector
from tidemark.wire.frames import Frame, Line, Offer, Recalled, RecallMore, RecallOver
from tidemark.wire.frames import Recall as RecallFrame


def batch_of(*ticks: int) -> EventBatch:
    """Events of 20 bytes each."""
    builder = BatchBuilder()
    for _ in ticks:
        builder.add(Shape("t", 7), b"12345678")
    batch = builder.build()
    batch.fill_ticks(np.array(ticks, np.int64))
    assert len(batch.body) == 20 * len(ticks)
    return batch


def recall(ticket: int, base: int = 0, upto: int = 100, credit: int = 50) -> RecallFrame:
    return RecallFrame(ticket, "p", base, upto, (Line(TopicSelector("t", ""), base, upto),), credit)


async def offered(broker: FakeBroker, tm: Client, *frames: Frame, recalls_max: int = 8) -> IncomingRecalls:
    """An offer that the broker has heard, and answered with these frames."""
    recalls = tm._offer(recalls_max)
    await until(lambda: broker.of(Offer) == [Offer(recalls_max)])
    for frame in frames:
        broker.sessions[0].send(frame)
    return recalls


@connected
async def test_parts_go_on_from_each_other_up_to_the_end(broker: FakeBroker, tm: Client) -> None:
    found = await anext(await offered(broker, tm, recall(3)))
    assert (found.pubend, found.position, found.upto) == ("p", 0, 100)
    assert await found.answer(40, batch_of(7, 9))
    assert await found.answer(100, None, [(50, 60)])
    assert found.is_over
    await until(lambda: len(broker.of(Recalled)) == 2)
    assert broker.of(Recalled) == [
        Recalled(3, 0, 40, batch_of(7, 9)),
        Recalled(3, 40, 100, None, ((50, 60),)),
    ]


@connected
async def test_no_more_is_under_way_than_was_granted(broker: FakeBroker, tm: Client) -> None:
    found = await anext(await offered(broker, tm, recall(3, credit=50)))
    assert await found.answer(10, batch_of(1, 2))
    late = asyncio.create_task(found.answer(20, batch_of(11)))
    await asyncio.sleep(0.05)
    assert not late.done()
    broker.sessions[0].send(RecallMore(3, 10))
    assert await late
    assert not found.has_room(20)
    assert await found.answer(30)  # silence costs nothing


@connected
async def test_what_is_larger_than_all_credit_goes_alone(broker: FakeBroker, tm: Client) -> None:
    found = await anext(await offered(broker, tm, recall(3, credit=10)))
    assert await found.answer(10, batch_of(1))
    late = asyncio.create_task(found.answer(20, batch_of(11)))
    broker.sessions[0].send(RecallMore(3, 19))
    await asyncio.sleep(0.05)
    assert not late.done()
    broker.sessions[0].send(RecallMore(3, 1))
    assert await late


@connected
async def test_who_is_not_waited_for_any_more_stops(broker: FakeBroker, tm: Client) -> None:
    recalls = await offered(broker, tm, recall(3, credit=20), recall(4), RecallOver(4))
    found = await anext(recalls)
    assert await found.answer(10, batch_of(1))
    late = asyncio.create_task(found.answer(20, batch_of(11)))
    await asyncio.sleep(0.02)
    broker.sessions[0].send(RecallOver(3))
    assert not await late
    broker.sessions[0].send(recall(5))
    # The fourth was over before anyone took it up.
    assert (await anext(recalls)).upto == 100
    assert len(broker.of(Recalled)) == 1


@connected
async def test_a_break_ends_all_recalls_and_offers_again(broker: FakeBroker, tm: Client) -> None:
    recalls = await offered(broker, tm, recall(3, credit=20))
    found = await anext(recalls)
    assert await found.answer(10, batch_of(1))
    late = asyncio.create_task(found.answer(20, batch_of(11)))
    await asyncio.sleep(0.02)
    broker.cut()
    assert not await late
    assert found.is_over
    await until(lambda: len(broker.of(Offer)) == 2)
    broker.sessions[0].send(recall(1, base=10))
    assert (await anext(recalls)).position == 10


@bounded
async def test_iterating_ends_when_the_client_is_closed() -> None:
    async with FakeBroker() as broker:
        tm = await tidemark.connect(broker.url)
        recalls = tm._offer(8)
        rest = asyncio.create_task(_all(recalls))
        await asyncio.sleep(0.02)
        await tm.close()
        assert await rest == []


async def _all(recalls: IncomingRecalls) -> list[IncomingRecall]:
    return [each async for each in recalls]


@connected
async def test_many_answers_share_a_socket_in_turns(broker: FakeBroker, tm: Client) -> None:
    builder = BatchBuilder()
    for _ in range(4):
        builder.add(Shape("t", 7), bytes(60_000))
    large = builder.build()
    large.fill_ticks(np.arange(1, 5))
    frames = [recall(ticket, credit=1 << 20) for ticket in range(1, 41)]
    recalls = await offered(broker, tm, *frames, recalls_max=64)
    found = [await anext(recalls) for _ in frames]
    answers = [asyncio.create_task(each.answer(100, large)) for each in found]
    answers[7].cancel()  # its turn must not be lost
    await asyncio.gather(*answers, return_exceptions=True)
    await until(lambda: len(broker.of(Recalled)) == 39)
