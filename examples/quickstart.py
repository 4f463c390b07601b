"""Publish and subscribe: the shortest program that does both.

It declares a topic, subscribes with a selector, publishes three trades, and receives the two that match.
Start a broker first, `./run up`, then:

    python examples/quickstart.py [tidemark://127.0.0.1:7676]
"""

from __future__ import annotations

import asyncio
import sys

import tidemark


async def main(url: str) -> None:
    async with tidemark.connect(url) as tm:
        await tm.create_topic("trades", "[symbol: string, price: double, qty: int]")
        # Once the subscription is open, everything that is published at this broker is delivered.
        async with tm.subscribe("trades", where="price > 10") as sub:
            for price in (9.5, 10.5, 11.5):
                # publish() returns a future: its result is the tick, once the event is on the broker's disk.
                tick = await tm.publish("trades", {"symbol": "ACME", "price": price, "qty": 3})
                print(f"published at tick {tick}")
            for _ in range(2):
                event = await sub.next(timeout=10)
                assert isinstance(event, tidemark.Event)
                print(f"received {event.value} of {event.time:%H:%M:%S.%f}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "tidemark://127.0.0.1:7676"))
