"""A subscriber without an open connection: the broker calls it when there is an event.

Between events the program holds a lease and no connection: a broker can have very many such subscribers. The
program receives three events and ends. Start a broker first, `./run up`, then this, then publish now and then
with `./run pub alarms text=smoke`:

    python examples/listen.py [tidemark://127.0.0.1:7676]
"""

from __future__ import annotations

import asyncio
import sys

import tidemark


async def main(url: str) -> None:
    # The client listens at a port that the system chooses. After 10 minutes in which it cannot be reached,
    # the broker ends its subscriptions; the client renews the lease by itself long before.
    async with tidemark.listen(url, "127.0.0.1:0", lease=600) as push:
        await push.create_topic("alarms", "[text: string]")
        async with push.subscribe("alarms", gaps=True) as sub:
            print("waiting for alarms", flush=True)
            received = 0
            async for item in sub:
                if isinstance(item, tidemark.Event):
                    received += 1
                    print(f"alarm {received}: {item['text']}", flush=True)
                else:
                    # The broker was started again: it knows no leases, and this subscription is not durable.
                    print(f"these alarms are gone: {item}", flush=True)
                if received == 3:
                    return


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "tidemark://127.0.0.1:7676"))
