"""Tests with a broker and a client of it, and what they publish: numbers, in the topic `t`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import Signature, signature
from typing import Any

import tidemark
from tests.client.fake_broker import FIRST_TICK, FakeBroker
from tests.waiting import PATIENCE_SECONDS, bounded
from tidemark.ticks import CheckpointToken

#: Before everything.
START = CheckpointToken({"p1": FIRST_TICK})


def connected(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Gives a test that is a coroutine what it names: `broker`, and `tm`, a client connected to it."""
    wanted = signature(test).parameters

    @bounded
    @wraps(test)
    async def with_both() -> None:
        async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
            given = {"broker": broker, "tm": tm}
            await test(**{name: given[name] for name in wanted})

    with_both.__signature__ = Signature()  # type: ignore[attr-defined]  # its arguments are no fixtures
    return with_both


async def declare(tm: tidemark.Client) -> None:
    await tm.create_topic("t", "[n: int]")


async def publish(tm: tidemark.Client, first: int, last: int) -> None:
    await tm.publish_many("t", [{"n": n} for n in range(first, last)])


async def numbers(sub: tidemark.Subscription[object], count: int) -> list[int]:
    """The field `n` of that many events."""
    found: list[int] = []
    while len(found) < count:
        event = await sub.next(PATIENCE_SECONDS)
        assert isinstance(event, tidemark.Event), event
        found.append(event["n"])
    return found
