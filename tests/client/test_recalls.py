"""Offering to answer recalls: in order, within the credit, and void with the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
from fake_broker import FakeBroker

import tidemark
from tidemark.client.recalls import Recall, Recalls
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.wire.frames import Line, Offer, Recalled, RecallMore, RecallOver
from tidemark.wire.frames import Recall as RecallFrame


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test

    asyncio.run(bounded())


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


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
    return RecallFrame(ticket, "p", base, upto, (Line("t", "", base, upto),), credit)


async def next_of(recalls: Recalls) -> Recall:
    return await anext(recalls)


def test_parts_go_on_from_each_other_up_to_the_end() -> None:
    async def test() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            recalls = tm.offer(8)
            await until(lambda: broker.of(Offer) == [Offer(8)])
            broker.sessions[0].send(recall(3))
            found = await next_of(recalls)
            assert (found.pubend, found.position, found.upto) == ("p", 0, 100)
            assert await found.answer(40, batch_of(7, 9))
            assert await found.answer(100, None, [(50, 60)])
            assert found.is_over
            await until(lambda: len(broker.of(Recalled)) == 2)
            assert broker.of(Recalled) == [
                Recalled(3, 0, 40, batch_of(7, 9)),
                Recalled(3, 40, 100, None, ((50, 60),)),
            ]

    run(test())


def test_no_more_is_under_way_than_was_granted() -> None:
    async def test() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            recalls = tm.offer(8)
            await until(lambda: broker.of(Offer))
            broker.sessions[0].send(recall(3, credit=50))
            found = await next_of(recalls)
            assert await found.answer(10, batch_of(1, 2))
            late = asyncio.create_task(found.answer(20, batch_of(11)))
            await asyncio.sleep(0.05)
            assert not late.done()
            broker.sessions[0].send(RecallMore(3, 10))
            assert await late
            assert not found.has_room(20)
            assert await found.answer(30)  # silence costs nothing

    run(test())


def test_what_is_larger_than_all_credit_goes_alone() -> None:
    async def test() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            recalls = tm.offer(8)
            await until(lambda: broker.of(Offer))
            broker.sessions[0].send(recall(3, credit=10))
            found = await next_of(recalls)
            assert await found.answer(10, batch_of(1))
            late = asyncio.create_task(found.answer(20, batch_of(11)))
            broker.sessions[0].send(RecallMore(3, 19))
            await asyncio.sleep(0.05)
            assert not late.done()
            broker.sessions[0].send(RecallMore(3, 1))
            assert await late

    run(test())


def test_who_is_not_waited_for_any_more_stops() -> None:
    async def test() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            recalls = tm.offer(8)
            await until(lambda: broker.of(Offer))
            broker.sessions[0].send(recall(3, credit=20))
            broker.sessions[0].send(recall(4))
            broker.sessions[0].send(RecallOver(4))
            found = await next_of(recalls)
            assert await found.answer(10, batch_of(1))
            late = asyncio.create_task(found.answer(20, batch_of(11)))
            await asyncio.sleep(0.02)
            broker.sessions[0].send(RecallOver(3))
            assert not await late
            broker.sessions[0].send(recall(5))
            # The fourth was over before anyone took it up.
            assert (await next_of(recalls)).upto == 100
            assert len(broker.of(Recalled)) == 1

    run(test())


def test_a_break_ends_all_recalls_and_offers_again() -> None:
    async def test() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            recalls = tm.offer(8)
            await until(lambda: broker.of(Offer))
            broker.sessions[0].send(recall(3, credit=20))
            found = await next_of(recalls)
            assert await found.answer(10, batch_of(1))
            late = asyncio.create_task(found.answer(20, batch_of(11)))
            await asyncio.sleep(0.02)
            broker.cut()
            assert not await late
            assert found.is_over
            await until(lambda: len(broker.of(Offer)) == 2)
            broker.sessions[0].send(recall(1, base=10))
            assert (await next_of(recalls)).position == 10

    run(test())


def test_iterating_ends_when_the_client_is_closed() -> None:
    async def test() -> None:
        async with FakeBroker() as broker:
            tm = await tidemark.connect(broker.url)
            recalls = tm.offer(8)
            rest = asyncio.create_task(_all(recalls))
            await asyncio.sleep(0.02)
            await tm.close()
            assert await rest == []

    run(test())


async def _all(recalls: Recalls) -> list[Recall]:
    return [each async for each in recalls]


def test_many_answers_share_a_socket_in_turns() -> None:
    async def test() -> None:
        builder = BatchBuilder()
        for _ in range(4):
            builder.add(Shape("t", 7), bytes(60_000))
        large = builder.build()
        large.fill_ticks(np.arange(1, 5))
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            recalls = tm.offer(64)
            await until(lambda: broker.of(Offer))
            for ticket in range(1, 41):
                broker.sessions[0].send(recall(ticket, credit=1 << 20))
            found = [await next_of(recalls) for _ in range(40)]
            answers = [asyncio.create_task(each.answer(100, large)) for each in found]
            answers[7].cancel()  # its turn must not be lost
            await asyncio.gather(*answers, return_exceptions=True)
            await until(lambda: len(broker.of(Recalled)) == 39)

    run(test())
