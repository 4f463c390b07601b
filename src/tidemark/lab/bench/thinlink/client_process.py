"""A client in a network namespace: it publishes or subscribes as its arguments say, and prints what it found.

Usage: `python -m tidemark.lab.bench.thinlink.client_process ROLE JSON`. It ends with its parent process, and
when its standard input ends. The last line of its output is a JSON object.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from time import monotonic, time_ns
from typing import Any

import tidemark
from tidemark.node.process.parent import end_with_parent
from tidemark.wire.answers import LINKS

SCHEMA = "[n: int, at: long, text: string]"
HISTORY_TOPIC, LIVE_TOPIC = "history.x", "live.x"
BATCH_EVENTS = 50
LAST_SECONDS_MAX = 30.0


async def until_told() -> bytes:
    """Return what was told on standard input, when it has ended."""
    return await asyncio.to_thread(sys.stdin.buffer.read)


async def began(sub: tidemark.Subscription[tidemark.Event]) -> None:
    """Return when a subscription has begun."""
    while not sub.checkpoint:
        await asyncio.sleep(0.01)


async def hold(url: str) -> dict[str, Any]:
    """Begin the durable subscription of history and leave; return its token."""
    async with tidemark.connect(url) as tm:
        for topic in (HISTORY_TOPIC, LIVE_TOPIC):
            await tm.create_topic(topic, SCHEMA)
        async with tm.subscribe(HISTORY_TOPIC, durable="returning") as sub:
            await began(sub)
            return {"token": {name: sub.checkpoint[name] for name in sub.checkpoint}}


async def publish_history(url: str, events: int, text_bytes: int, begin: int = 0) -> dict[str, Any]:
    """Publish what the durable subscription will have missed, numbered from `begin` on."""
    text = "x" * text_bytes
    async with tidemark.connect(url) as tm:
        for first in range(begin, begin + events, BATCH_EVENTS):
            some = range(first, min(first + BATCH_EVENTS, begin + events))
            await tm.publish_many(HISTORY_TOPIC, [{"n": n, "at": time_ns(), "text": text} for n in some])
    return {"published": events}


async def publish_live(url: str, rate: float) -> dict[str, Any]:
    """Publish small events at a steady rate until told to stop."""
    told = asyncio.create_task(until_told())
    count, loop = 0, asyncio.get_running_loop()
    async with tidemark.connect(url) as tm:
        began = loop.time()
        while not told.done():
            await tm.publish(LIVE_TOPIC, {"n": count, "at": time_ns(), "text": "live"})
            count += 1
            await asyncio.sleep(max(0.0, began + count / rate - loop.time()))
    return {"published": count}


async def take_history(url: str, token: Mapping[str, int], events: int, seconds: float) -> dict[str, Any]:
    """Return to the durable subscription with its token; take what was missed, in order, while time lasts."""
    found: dict[str, Any] = {"got": 0, "bytes": 0, "wrong": "", "seconds": seconds}
    async with tidemark.connect(url) as tm:
        began = monotonic()
        checkpoint = tidemark.CheckpointToken(token)
        async with tm.subscribe(HISTORY_TOPIC, durable="returning", checkpoint=checkpoint) as sub:
            while found["got"] < events and monotonic() - began < seconds:
                event = await sub.next(max(0.0, began + seconds - monotonic()))
                if event is None:
                    break
                if event["n"] != found["got"] and not found["wrong"]:
                    found["wrong"] = f"event {event['n']} came where {found['got']} was due"
                found["got"] += 1
                found["bytes"] += len(event["text"])
            found["seconds"] = monotonic() - began
    return found


async def ask_links(url: str) -> dict[str, Any]:
    """Ask a broker for its links."""
    async with tidemark.connect(url) as tm:
        return {"links": [link.to_json() for link in await tm.ask(LINKS)]}


async def take_live(url: str) -> dict[str, Any]:
    """Take live events until told to stop; return how late each one was, in seconds.

    Who is told a number has so many events before it stops, or takes events for LAST_SECONDS_MAX more.
    """
    late: list[float] = []
    wrong = ""

    async def take() -> None:
        nonlocal wrong
        async with tidemark.connect(url) as tm, tm.subscribe(LIVE_TOPIC) as sub:
            # A subscription begins when the broker of the pubend has heard of it.
            await began(sub)
            print(json.dumps({"ready": True}), flush=True)
            last: int | None = None
            async for event in sub:
                late.append((time_ns() - event["at"]) / 1e9)
                if last is not None and event["n"] != last + 1:
                    wrong = wrong or f"event {event['n']} came after {last}"
                last = event["n"]

    taking = asyncio.create_task(take())
    count = int(await until_told() or 0)
    deadline = monotonic() + LAST_SECONDS_MAX
    while len(late) < count and not taking.done() and monotonic() < deadline:
        await asyncio.sleep(0.01)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    return {"late": late, "wrong": wrong}


ROLES: Mapping[str, Callable[..., Coroutine[Any, Any, dict[str, Any]]]] = {
    "ask_links": ask_links,
    "hold": hold,
    "publish_history": publish_history,
    "publish_live": publish_live,
    "take_history": take_history,
    "take_live": take_live,
}


def main() -> None:
    """Play the role of the first argument, with the arguments that the second one has as JSON."""
    end_with_parent(signal.SIGKILL)
    role, arguments = sys.argv[1:]
    print(json.dumps(asyncio.run(ROLES[role](**json.loads(arguments)))), flush=True)


if __name__ == "__main__":
    main()
