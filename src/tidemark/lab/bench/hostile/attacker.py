"""AttackerRole: the worker that attacks a broker, in one way or in several at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from tidemark.lab.bench.hostile import attacks, link_attacks
from tidemark.lab.bench.hostile.attacks import AGAIN_SECONDS, FULL, QUICK, TINY, Attack

#: The scheduling priority of attackers, the lowest there is: on machines of their own they would take no
#: processor time from the broker and its clients, and what is measured is the broker, not the system.
NICE = 19

ATTACKS: dict[str, Callable[[Attack], Awaitable[None]]] = {
    "flood of events": attacks.flood_events,
    "flood of batches": attacks.flood_batches,
    "subscriptions": attacks.subscriptions,
    "questions": attacks.questions,
    "schemas": attacks.schemas,
    "shapes": attacks.shapes,
    "LIKE": attacks.like,
    "undecodable": attacks.undecodable,
    "publishers": attacks.publishers,
    "unfinished frames": attacks.unfinished,
    "nested events": attacks.nested,
    "names in batches": attacks.names,
    "wide topics": attacks.topics,
    "the future": attacks.future,
    "fetches": attacks.fetches,
    "churn": attacks.churn,
    "half-open": attacks.half_open,
    "dotted keys": attacks.dotted_keys,
    "large questions": attacks.large_questions,
    "large acknowledgements": attacks.large_acknowledgements,
    "own acknowledgements": attacks.own_acknowledgements,
    "unread topics": attacks.unread_topics,
    "fan-out": attacks.fan_out,
    "a broker's nacks": link_attacks.nacks,
    "a broker's claims": link_attacks.claims,
    "a broker's rows": link_attacks.rows,
    "a broker's fetches": link_attacks.link_fetches,
}


class AttackerRole:
    """The role of a worker that attacks a broker, in one way or in several at once."""

    def __init__(self, counters: str, url: str, sizes: str, key: str) -> None:  # noqa: ARG002  (every worker has them)
        self._url = url
        self._key = Path(key)
        self._sizes = {"full": FULL, "quick": QUICK, "tiny": TINY}[sizes]
        self._attacks: dict[str, Attack] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Leave the processor to the broker and its well-behaved client; each attack connects by itself."""
        os.nice(NICE)

    async def begin(self, names: list[str]) -> None:
        """Begin attacks, which go on until `end`."""
        for name in names:
            attack = self._attacks[name] = Attack(self._url, self._sizes, self._key)
            self._tasks.append(asyncio.create_task(_again_and_again(ATTACKS[name], attack)))

    async def end(self) -> dict[str, int]:
        """End all attacks; returns how often each was done."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        done = {name: attack.done for name, attack in self._attacks.items()}
        self._tasks, self._attacks = [], {}
        return done


async def _again_and_again(run: Callable[[Attack], Awaitable[None]], attack: Attack) -> None:
    try:
        while True:
            with suppress(ConnectionError):
                await run(attack)
            attack.end()
            attack.clients.clear()
            await asyncio.sleep(AGAIN_SECONDS)
    finally:
        attack.end()
