"""Requests to a broker: answers find them by their ticket, in any order, or they are void."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.connected import connected
from tests.client.fake_broker import FakeBroker
from tests.waiting import bounded, until
from tidemark.client.client import Client
from tidemark.client.connecting.pending_requests import PendingRequests, connection_lost, first_pages
from tidemark.errors import ClosedError, NotConnectedError, RefusedError
from tidemark.wire.frames import Answer, Ask, Fetch, Fetched, Refused


@bounded
async def test_answers_come_in_any_order_and_those_that_nobody_waits_for_are_let_go() -> None:
    sent: list[Ask | Fetch] = []
    requests = PendingRequests(sent.append)
    one = asyncio.create_task(requests.ask("one", "{}"))
    two = asyncio.create_task(requests.fetch("p", 0, 9, ">", "", 100))
    three = asyncio.create_task(requests.ask("three", "{}"))
    await asyncio.sleep(0)
    assert sent == [Ask(1, "one", "{}"), Fetch(2, "p", 0, 9, ">", "", 100), Ask(3, "three", "{}")]
    fetched = Fetched(2, "p", 0, 9, 0)
    requests.answered(fetched)
    requests.refused(Refused("ask", "1", "unknown", "there is no such question"))
    requests.refused(Refused("ask", "7", "unknown", "somebody else's"))
    requests.answered(Answer(9, "nobody's"))
    assert await two == fetched
    with pytest.raises(RefusedError, match="no such question"):
        await one
    requests.fail_all(connection_lost)
    requests.answered(Answer(3, "too late"))
    with pytest.raises(NotConnectedError, match="not known"):
        await three


@bounded
async def test_pages_are_asked_for_until_there_are_as_many_items_as_are_wanted() -> None:
    asked: list[str] = []

    async def ask(arguments: dict[str, object]) -> object:
        after = str(arguments["after"])
        asked.append(after)
        return {"items": [after, after], "next": after + "x" if len(after) < 3 else None}

    assert await first_pages(ask, {}) == (["", "", "x", "x", "xx", "xx", "xxx", "xxx"], True)
    assert await first_pages(ask, {}, 3) == (["", "", "x", "x"], False)
    assert await first_pages(ask, {}, 8) == (["", "", "x", "x", "xx", "xx", "xxx", "xxx"], True)
    assert asked == ["", "x", "xx", "xxx", "", "x", "", "x", "xx", "xxx"]


@connected
async def test_a_refusal_that_comes_late_is_not_taken_for_that_of_another(
    broker: FakeBroker, tm: Client
) -> None:
    broker.is_deaf = True
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(tm.ask("status"), 0.02)
    waiting = asyncio.create_task(tm.ask("status"))
    await until(lambda: len(broker.of(Ask)) == 2)
    first, second = (frame.ticket for frame in broker.of(Ask))
    broker.sessions[0].send(Refused("ask", str(first), "unknown", "too late"))
    broker.sessions[0].send(Answer(second, "7"))
    assert await waiting == 7


@connected
async def test_closing_voids_what_was_asked(broker: FakeBroker, tm: Client) -> None:
    broker.is_deaf = True
    waiting = asyncio.create_task(tm.ask("status"))
    await until(lambda: broker.of(Ask))
    await tm.close(0)
    with pytest.raises(ClosedError):
        await waiting
