"""Client processes: a publisher, a subscriber or a broker that may be killed and started again.

    python -m tidemark.lab.processes.client_processes publish --url URL --name desk \\
        --ledger desk.jsonl --count 5000 --rate 400
    python -m tidemark.lab.processes.client_processes subscribe --url URL --name audit \\
        --ledger audit.sqlite --where "price > 10"
    python -m tidemark.lab.processes.client_processes broker --set storage.data_dir=data

A publisher that is started again first publishes, under their old numbers, the events whose outcome its
ledger does not know. A durable subscriber goes on from the token in its ledger. With `--die` a process sends
itself SIGKILL, and with `--pause` a subscriber sends itself SIGSTOP, at a moment that could not be hit from
outside. With `--allowed` a publisher goes only as far as a file says. Every process ends when its parent
does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

from tidemark.client.client import Client, connect
from tidemark.client.events import Batch, Event, Gap
from tidemark.client.subscribing.arguments import SERVER_KEPT
from tidemark.client.subscribing.subscription import Subscription
from tidemark.errors import ClientError
from tidemark.lab.processes.ledger import Line, Publication
from tidemark.lab.processes.ledger_writers import (
    DurableSubscriberLedger,
    PlainSubscriberLedger,
    PublisherLedger,
)
from tidemark.node.process.parent import end_with_parent
from tidemark.spark.audit.ledgers import SQLITE

TOPIC = "trades.equity"
SCHEMA = "[symbol: string, price: double, qty: int, note: string]"
SYMBOLS = ("ACME", "AXLE", "BOLT", "CRAB", "DUNE")
PUBEND = "main"

#: Events that may be published and not yet acknowledged.
UNDER_WAY_EVENTS_MAX = 200
#: Seconds between the bursts of a publisher with a rate; events in a burst of one without a rate.
TURN_SECONDS = 0.05
BURST_EVENTS = 100
POLL_SECONDS = 0.01

#: Places at which a process can be told to kill itself.
INTENDED = "intended"  # in the publisher's ledger, not sent
ACKNOWLEDGED = "acknowledged"  # on the broker's disk, not in the publisher's ledger
CONSUMED = "consumed"  # in the subscriber's transaction, not committed
COMMITTED = "committed"  # committed, not acknowledged to the broker


class SelfKill:
    """Parses `N:PLACE`: the process kills itself at the place, at the first event numbered N or higher."""

    def __init__(self, text: str) -> None:
        number, _, self._place = text.partition(":")
        self._number = int(number or 0)

    def at(self, place: str, number: int) -> None:
        """The process has reached this place with this event."""
        if place == self._place and number >= self._number:
            os.kill(os.getpid(), signal.SIGKILL)


def trade(publisher: str, number: int, padding: int = 0) -> Line:
    """Returns the fields of a publisher's nth event, the same each time, with `padding` extra bytes."""
    chance = Random(f"{publisher}-{number}")
    return {
        "symbol": chance.choice(SYMBOLS),
        "price": round(chance.uniform(1, 100), 2),
        "qty": chance.randrange(1, 1_000),
        "note": padding * ".",
    }


class LedgerPublisher:
    """Publishes up to a number of events, at a rate; events without an outcome in the ledger come first."""

    def __init__(self, given: argparse.Namespace, client: Client, ledger: PublisherLedger) -> None:
        self._given = given
        self._client = client
        self._ledger = ledger
        self._self_kill = SelfKill(given.die)
        self._under_way: set[asyncio.Future[int | None]] = set()
        self._problem = ""

    async def run(self) -> int:
        """Returns 0 when every event is acknowledged, 1 when an outcome is unknown and it must run again."""
        self._send(self._ledger.unsettled)
        while self._ledger.next_sequence <= self._given.count and not self._problem:
            self._turn()
            await asyncio.sleep(TURN_SECONDS if self._given.rate or self._given.allowed else 0)
            while len(self._under_way) >= UNDER_WAY_EVENTS_MAX:
                await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
        if self._under_way:
            await asyncio.wait(self._under_way)
        if self._problem:
            print(self._problem, file=sys.stderr)
        return 1 if self._problem else 0

    def _turn(self) -> None:
        first, given = self._ledger.next_sequence, self._given
        many = max(1, round(given.rate * TURN_SECONDS)) if given.rate else BURST_EVENTS
        allowed = given.count if given.allowed is None else int(given.allowed.read_text())
        until = min(first + many, given.count + 1, allowed + 1)
        if until <= first:
            return
        made = self._ledger.intend(trade(given.name, each, given.padding) for each in range(first, until))
        self._self_kill.at(INTENDED, until - 1)
        self._send(made)

    def _send(self, publications: Iterable[Publication]) -> None:
        for each in publications:
            # Once an event has failed, later numbers would be refused: they wait for the next life.
            if self._problem:
                return
            try:
                future = self._client.publish(
                    each.topic, each.fields, key=each.key, sequence=each.sequence, timeout=self._given.timeout
                )
            except ClientError as error:
                self._problem = str(error)
                return
            self._under_way.add(future)
            future.add_done_callback(partial(self._settled, each))

    def _settled(self, each: Publication, done: asyncio.Future[int | None]) -> None:
        self._under_way.discard(done)
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._self_kill.at(ACKNOWLEDGED, each.sequence)
            self._ledger.settle(each, done.result())
        else:
            self._problem = str(error)
            self._ledger.settle(each, None, reason=self._problem)


class LedgerSubscriber:
    """Consumes until its task is cancelled."""

    def __init__(
        self, given: argparse.Namespace, ledger: DurableSubscriberLedger | PlainSubscriberLedger
    ) -> None:
        self._given = given
        self._ledger = ledger
        self._self_kill = SelfKill(given.die)
        self._pauses = [int(number) for number in given.pause.split(",") if number]
        self._events = 0

    async def run(self, client: Client) -> None:
        """Subscribe, and write every event and gap to the ledger."""
        given, ledger = self._given, self._ledger
        async with client.subscribe(
            given.topic,
            given.where,
            durable=given.name if isinstance(ledger, DurableSubscriberLedger) else None,
            checkpoint=ledger.checkpoint if isinstance(ledger, DurableSubscriberLedger) else SERVER_KEPT,
            window_bytes_max=given.window,
            gaps=True,
        ) as subscription:
            while not set(given.pubends.split(",")) <= set(subscription.checkpoint):
                await asyncio.sleep(POLL_SECONDS)
            ledger.opened(given.topic, given.where, subscription.checkpoint)
            async for item in subscription.batches():
                await self._take(item, subscription)

    async def _take(self, item: Batch | Gap, subscription: Subscription[Event | Gap]) -> None:
        if isinstance(item, Batch):
            self._events += len(item)
        if isinstance(self._ledger, DurableSubscriberLedger):
            self._ledger.stage(item, subscription.checkpoint)
            self._self_kill.at(CONSUMED, self._events)
            self._ledger.commit()
            self._self_kill.at(COMMITTED, self._events)
            await subscription.ack(subscription.checkpoint)
        else:
            self._ledger.record(item)
        while self._pauses and self._events >= self._pauses[0]:
            del self._pauses[0]
            os.kill(os.getpid(), signal.SIGSTOP)
        if self._given.slow:
            await asyncio.sleep(self._given.slow)


async def publish(given: argparse.Namespace) -> int:
    """Run the publisher; returns the exit code."""
    ledger = PublisherLedger(given.ledger, given.name, given.pubend, given.topic)
    try:
        client = await connect(
            given.url,
            client=given.name,
            publisher=given.name,
            pubend=given.pubend,
            timeout=given.timeout,
            connect_timeout=given.timeout,
            wait_for_broker=True,
            ping=given.ping,
        )
        await client.create_topic(given.topic, SCHEMA)
        code = await LedgerPublisher(given, client, ledger).run()
        # Events that were not sent in time are left to the next life.
        await client.close(timeout=0)
    finally:
        ledger.close()
    return code


async def subscribe(given: argparse.Namespace) -> int:
    """Run the subscriber until SIGTERM; returns the exit code."""
    is_durable = given.ledger.suffix == SQLITE
    kind = DurableSubscriberLedger if is_durable else PlainSubscriberLedger
    ledger = kind(given.ledger, given.name)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        async with connect(
            given.url,
            client=given.name,
            timeout=given.timeout,
            connect_timeout=given.timeout,
            wait_for_broker=True,
            ping=given.ping,
        ) as client:
            with suppress(asyncio.CancelledError):
                await LedgerSubscriber(given, ledger).run(client)
    finally:
        ledger.close()
    return 0


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Parses the arguments of a publisher or a subscriber."""
    parser = argparse.ArgumentParser(prog="python -m tidemark.lab.processes.client_processes")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--url", required=True)
    shared.add_argument("--name", required=True, help="of the publisher, or of the durable subscription")
    shared.add_argument("--ledger", required=True, type=Path)
    shared.add_argument("--topic", default=TOPIC)
    shared.add_argument("--timeout", type=float, default=60.0, help="seconds, for any answer")
    shared.add_argument("--ping", type=float, default=10.0, help="seconds of silence before asking")
    shared.add_argument("--die", default="", metavar="N:PLACE", help="end by SIGKILL at the Nth event")
    roles = parser.add_subparsers(dest="role", required=True)
    one = roles.add_parser("publish", parents=[shared])
    one.add_argument("--pubend", default=PUBEND)
    one.add_argument("--count", type=int, required=True, help="events, those of former lives included")
    one.add_argument("--rate", type=float, default=0.0, help="events a second; 0 is as fast as possible")
    one.add_argument("--padding", type=int, default=0, help="bytes more than an event needs")
    one.add_argument("--allowed", type=Path, help="a file: how many events may be published yet")
    other = roles.add_parser("subscribe", parents=[shared])
    other.add_argument("--where", default="")
    other.add_argument("--pubends", default=PUBEND, help="the subscription must have started at these")
    other.add_argument("--window", type=int, default=4 << 20, help="bytes that may be under way")
    other.add_argument(
        "--pause", default="", metavar="N,N...", help="stop by SIGSTOP when so many events are consumed"
    )
    other.add_argument("--slow", type=float, default=0.0, help="seconds to rest after each delivery")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run the process that the arguments name; returns the exit code."""
    end_with_parent(signal.SIGKILL)
    if arguments[:1] == ["broker"]:
        # Imported only here: publishers and subscribers start in half the time without it.
        from tidemark.node.__main__ import main as node_main

        return node_main(arguments[1:])
    given = parsed(arguments)
    return asyncio.run(publish(given) if given.role == "publish" else subscribe(given))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
