"""PrincipalsRole: many users, each with a client of its own and a subscription, in one process.

Each user sees the events of its shard that are not its own: in a secured broker by a rule of its role, in an
open one because its selector says the same.
"""

from __future__ import annotations

import asyncio
import json
from time import perf_counter_ns
from typing import Any

from tidemark.client.client import Client, connect

TOPIC = "bench.trades"
SCHEMA = "[shard: int, account: string, n: int, pad: string]"
PAD = "x" * 200
SHARDS = 10
#: Clients that connect at a time: a broker takes only so many strangers of one address.
CONNECTING_MAX = 5
PATIENCE_SECONDS = 45.0
#: Clients wait this long before they ask a silent broker whether it is there: four brokers with all their
#: clients share two cores, and those that are not measured at the moment must neither ask nor be given up.
PING_SECONDS = 30.0


def user(number: int) -> str:
    """Return the name of a user."""
    return f"user-{number}"


def selector(number: int) -> str:
    """Return what a user of an open broker subscribes with: the rule of its role, written out."""
    return f"shard = {number % SHARDS} AND account <> '{user(number)}'"


def document(principals: int, verifier: str = "") -> str:
    """Return the access document with all users and the desk, and a password if there is a `verifier`."""
    password = f"password = {json.dumps(verifier)}\n" if verifier else ""
    users = "".join(
        f'[users.{user(number)}]\nroles = ["trader"]\nclaims = {{ shard = {number % SHARDS} }}\n{password}'
        for number in range(principals)
    )
    return (
        f'{users}[users.desk]\nroles = ["desk"]\n{password}'
        f'[roles.trader]\nsubscribe = ["{TOPIC}"]\n'
        f'read."{TOPIC}" = "shard = :claims.shard AND account <> :user"\n'
        f'[roles.desk]\npublish = ["{TOPIC}"]\ndeclare = ["{TOPIC}"]\nadminister = true\n'
        f'write."{TOPIC}" = "account = :user AND n >= 0"\n'
    )


def value(number: int) -> dict[str, Any]:
    """Return the fields of an event."""
    return {"shard": number % SHARDS, "account": "desk", "n": number, "pad": PAD}


class PrincipalsRole:
    """All users of a case, and the desk that publishes."""

    def __init__(
        self,
        counters: str,  # noqa: ARG002  (every role is given it)
        url: str,
        principals: int,
        password: str = "",
        ca: str = "",
    ) -> None:
        """Without `password` the broker is open."""
        self._url = url
        self._principals = principals
        self._login: dict[str, Any] = {"ca": ca} if ca else {}
        self._password = password
        self._clients: list[Client] = []
        self._tasks: list[asyncio.Task[None]] = []
        #: received[user]: how many events it has got; and the last of them, since they come in order
        self._received = [0] * principals
        self._last = [-1] * principals
        self._changed = asyncio.Event()
        self._arrived: dict[int, int] = {}
        self._published = 0
        self._desk: Client | None = None

    async def open(self) -> None:
        """Connect the desk and all users, and subscribe."""
        self._desk = await self._connect("desk")
        await self._desk.create_topic(TOPIC, SCHEMA)
        turns = asyncio.Semaphore(CONNECTING_MAX)
        await asyncio.gather(*(self._come(number, turns) for number in range(self._principals)))

    async def _connect(self, name: str) -> Client:
        login = {**self._login, **({"user": name, "password": self._password} if self._password else {})}
        client = await connect(self._url, connect_timeout=PATIENCE_SECONDS, ping=PING_SECONDS, **login)
        self._clients.append(client)
        return client

    async def _come(self, number: int, turns: asyncio.Semaphore) -> None:
        async with turns:
            client = await self._connect(user(number))
            where = "" if self._password else selector(number)
            subscription = await client.subscribe(TOPIC, where)
        self._tasks.append(asyncio.create_task(self._take(number, subscription)))

    async def _take(self, number: int, subscription: Any) -> None:
        async for batch in subscription.batches():
            numbers, shards = batch.column("n").tolist(), batch.column("shard").tolist()
            is_own = numbers[0] > self._last[number] and set(shards) == {number % SHARDS}
            assert is_own, f"{user(number)} got what is not its own, or not in order: {numbers[:5]}"
            self._last[number] = numbers[-1]
            self._received[number] += len(numbers)
            if number < SHARDS:
                self._arrived |= dict.fromkeys(numbers, perf_counter_ns())
            self._changed.set()

    async def burst(self, events: int, batch: int) -> int:
        """Publish events in batches; return how many deliveries that made, when all have arrived."""
        before = sum(self._received)
        assert self._desk is not None
        for first in range(self._published, self._published + events, batch):
            await self._desk.publish_many(TOPIC, [value(first + at) for at in range(batch)])
        self._published += events
        due = before + events * self._principals // SHARDS
        await self._until(lambda: sum(self._received) >= due)
        assert sum(self._received) == due, f"{sum(self._received)} deliveries, not {due}"
        return due - before

    async def flood(self, events: int, batch: int) -> int:
        """Publish events that nobody sees, in batches; return how many."""
        assert self._desk is not None
        for _ in range(0, events, batch):
            await self._desk.publish_many(
                TOPIC, [{**value(at), "shard": SHARDS + at % SHARDS} for at in range(batch)]
            )
        return events

    async def latency(self, events: int, rate: float) -> list[int]:
        """Publish one event at a time; return nanoseconds until each had reached a user who sees it."""
        assert self._desk is not None
        sent: dict[int, int] = {}
        self._arrived.clear()
        for _ in range(events):
            number = self._published
            self._published += 1
            sent[number] = perf_counter_ns()
            await self._desk.publish(TOPIC, value(number))
            await asyncio.sleep(1 / rate)
        await self._until(lambda: self._arrived.keys() >= sent.keys())
        return [self._arrived[number] - at for number, at in sent.items()]

    async def _until(self, condition: Any) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                for task in self._tasks:
                    if task.done():
                        task.result()
                self._changed.clear()
                await self._changed.wait()
