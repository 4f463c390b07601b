"""A worker's connections come from the acceptor, and are treated as those that it has accepted itself."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests import security_on
from tests.live_node import config_at
from tests.node.speech import Speaker, Stage, play
from tidemark.node.node import Node
from tidemark.node.workers.handover import OF, WorkerSeat, channel, hand, read_hint
from tidemark.node.workers.subscription_workers import SubscriptionWorkers
from tidemark.wire.frames import Answer, Ask, Connect, Lease, Leased, Refused, Subscribe, Subscribed, Welcome
from tidemark.wire.limits import PROTOCOL_NEWEST, PROTOCOL_OLDEST


class Seat:
    """A worker with a seat, and this test as its acceptor."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mine, theirs = channel()
        self.seat = WorkerSeat(os.dup(theirs.fileno()), path / "places.sqlite")
        theirs.close()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.speakers: list[Speaker] = []

    @asynccontextmanager
    async def worker(self, **options: str) -> AsyncIterator[Node]:
        """A running worker, which ends with the block, whatever happens in it."""
        options = {"broker__name": "worker-1", **options}
        node = await Node.start(config_at(self.path / "data", **options), seat=self.seat)
        try:
            yield node
        finally:
            for speaker in self.speakers:
                await speaker.close()
            await node.stop()
            self.mine.close()
            self.listener.close()

    async def handed(self) -> Speaker:
        """A connection that the worker was given."""
        speaker = Speaker(*await asyncio.open_connection(*self.listener.getsockname()))
        self.speakers.append(speaker)
        accepted, _ = self.listener.accept()
        hand(self.mine, accepted)
        accepted.close()
        return speaker

    async def client(self, name: str) -> Speaker:
        speaker = await self.handed()
        await speaker.say(Connect(name, PROTOCOL_OLDEST, PROTOCOL_NEWEST))
        if security_on.is_on():
            await speaker.log_in(security_on.USER, security_on.PASSWORD)
        await speaker.hear(Welcome)
        return speaker


def test_a_handed_socket_is_introduced_and_limited_like_any_other(tmp_path: Path) -> None:
    async def story(_: Stage) -> None:
        seat = Seat(tmp_path)
        async with seat.worker(limits__connections="2") as node:
            first = await seat.client("first")
            assert [each.name for each in node.server.connections] == ["first"]
            stranger = await seat.handed()
            await stranger.say(Subscribe("s", ">", "", False, 1))
            refused = await stranger.hear(Refused)
            assert (refused.what, refused.code) == ("connect", "frame")
            assert await stranger.is_closed()
            await seat.client("second")
            third = await seat.handed()
            assert "limits.connections" in (await third.hear(Refused)).reason
            await first.say(Ask(1, "assignment"))
            await first.hear(Answer)

    play(story)


def test_the_ticket_of_a_parked_client_names_its_worker(tmp_path: Path) -> None:
    async def story(_: Stage) -> None:
        seat = Seat(tmp_path)
        async with seat.worker():
            client = await seat.client("parked")
            await client.say(Lease(60, "127.0.0.1:9", "k" * 32))
            assert (await client.hear(Leased)).ticket.endswith(f"{OF}worker-1")

    play(story)


def test_a_subscriber_is_sent_to_the_worker_that_keeps_its_place_and_only_there(tmp_path: Path) -> None:
    async def story(_: Stage) -> None:
        seat = Seat(tmp_path)
        async with seat.worker():
            other = SubscriptionWorkers(seat.seat.places, "worker-2")
            owner = security_on.USER if security_on.is_on() else ""
            other.take("audit", owner)
            client = await seat.client("one")
            # There is no such worker in the topology: nobody is sent where nobody is.
            await client.say(Subscribe("audit", ">", "", True, 1))
            await client.hear(Subscribed)
            assert other.of("audit", owner) == "worker-1"
            other.close()

    play(story)


def test_what_a_worker_says_of_a_client_arrives_at_the_acceptor(tmp_path: Path) -> None:
    async def story(_: Stage) -> None:
        seat = Seat(tmp_path)
        async with seat.worker() as node:
            assert node._handed is not None
            assert node._handed.belongs("kunde-ä", "worker-2")
            assert read_hint(seat.mine.recv(1_024)) == ("kunde-ä", "worker-2")
        assert not node._handed.belongs("late", "worker-2")

    play(story)
