"""An overlay: publish at one broker, subscribe at another, and come back at a third.

The subscriber keeps its checkpoint token itself, so it may come back at any broker of the overlay and misses
nothing. Start the overlay first, `./run up --topology examples/overlay.toml`, then:

    python examples/overlay.py [EAST WEST1 WEST2]
"""

from __future__ import annotations

import asyncio
import sys

import tidemark

DEFAULT = ("tidemark://127.0.0.1:7676", "tidemark://127.0.0.1:7686", "tidemark://127.0.0.1:7696")


async def receive(url: str, count: int, token: tidemark.CheckpointToken | None) -> tidemark.CheckpointToken:
    """Receive `count` events at the broker `url`, from `token` on; return the token behind them."""
    async with (
        tidemark.connect(url) as tm,
        tm.subscribe("readings", where="celsius > 30", durable="heat", checkpoint=token) as sub,
    ):
        for _ in range(count):
            event = await sub.next(timeout=30)
            assert isinstance(event, tidemark.Event), event
            print(f"{tm.broker}: {event['celsius']} degrees")
        # A new subscription has a token once the broker that hosts the pubend has said where it begins.
        while not sub.checkpoint:
            await asyncio.sleep(0.05)
        return sub.checkpoint


async def main(east: str, west1: str, west2: str) -> None:
    async with tidemark.connect(east) as publisher:
        await publisher.create_topic("readings", "[celsius: int]")
        token = await receive(west1, 0, None)
        # While the subscriber is away its events are kept.
        await publisher.publish_many("readings", [{"celsius": each} for each in (28, 31, 35)])
        token = await receive(west1, 2, token)
        await publisher.publish_many("readings", [{"celsius": each} for each in (38, 22, 33)])
        await receive(west2, 2, token)


if __name__ == "__main__":
    asyncio.run(main(*(sys.argv[1:] or DEFAULT)))
