"""Clients that are away: parked, called, back, gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.live_node import config_at
from tests.node.speech import Speaker, Stage, events, play
from tests.waiting import PATIENCE_SECONDS, until
from tidemark.node import server as server_module
from tidemark.node.config.settings import Config
from tidemark.node.leases import leases as leases_module
from tidemark.node.node import Node
from tidemark.wire.frames import (
    Answer,
    Ask,
    Connect,
    Credit,
    Deliver,
    Frame,
    Lease,
    Leased,
    Ping,
    Publish,
    Published,
    Pushing,
    Refused,
    Rest,
    Resume,
    Subscribe,
    Subscribed,
    Welcome,
)

KEY = "k" * 32


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(leases_module, "WAIT_SECONDS_MIN", 0.02)
    monkeypatch.setattr(leases_module, "WAIT_SECONDS_MAX", 0.1)


OPEN: list[Ear] = []


class Ear:
    """Where a client listens: those who call, one after the other."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[Speaker] = asyncio.Queue()
        self.speakers: list[Speaker] = []
        self.server: asyncio.Server | None = None
        OPEN.append(self)
        self.port = 0

    async def open(self) -> Ear:
        self.server = await asyncio.start_server(
            lambda *streams: self.calls.put_nowait(Speaker(*streams)), "127.0.0.1", self.port
        )
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def caller(self, *, key: str = KEY) -> Speaker:
        async with asyncio.timeout(PATIENCE_SECONDS):
            speaker = await self.calls.get()
        self.speakers.append(speaker)
        assert await speaker.hear(Pushing) == Pushing("tidemark", key)
        return speaker

    def close(self) -> None:
        if self.server is not None:
            self.server.close()
            self.server = None
        while not self.calls.empty():
            self.speakers.append(self.calls.get_nowait())
        for speaker in self.speakers:
            speaker.writer.transport.abort()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


def act(story: Callable[[Stage], Awaitable[None]]) -> None:
    """Run a test's story, and close every listener at its end."""

    async def whole(stage: Stage) -> None:
        try:
            await story(stage)
        finally:
            while OPEN:
                OPEN.pop().close()

    play(whole)


async def subscribed(client: Speaker, name: str = "s", *, durable: bool = False) -> None:
    await client.say(Subscribe(name, "t.>", "n >= 0", durable, 1 << 20))
    if not (await client.hear(Subscribed)).token:
        await client.hear(Deliver)  # it starts later


async def leased(client: Speaker, ear: Ear, seconds: int = 60, key: str = KEY) -> Leased:
    await client.say(Lease(seconds, ear.address, key))
    return await client.hear(Leased)


async def parked(node: Node, client: Speaker, count: int = 1) -> None:
    """Wait until the broker has parked the client."""
    rest = await client.hear(Rest)
    await client.say(rest)
    assert await client.is_closed()
    assert not [frame for frame in client.unread if isinstance(frame, Rest)]
    await until(lambda: node.server.leases.parked == count)
    await client.close()


async def names_at(client: Speaker) -> list[str]:
    await client.say(Ask(1, "subscriptions"))
    return sorted(each["name"] for each in json.loads((await client.hear(Answer)).payload))


def node_config(path: Path, **options: str) -> Config:
    return config_at(path / "data", **{"subscribers__rest": "50ms", **options})


@dataclass(frozen=True)
class Scene:
    """A client has subscribed and is parked: its broker, where it listens, and somebody who publishes."""

    node: Node
    ear: Ear
    publisher: Speaker
    ticket: str

    async def resumed(self) -> Speaker:
        """The broker has called, and the client goes on where it was."""
        caller = await self.ear.caller()
        await caller.say(Resume(self.ticket))
        return caller


async def scene_at(stage: Stage, path: Path, **options: str) -> Scene:
    node = await stage.node(node_config(path, **options))
    ear, client, publisher = await Ear().open(), await stage.client(node), await stage.client(node, "p")
    await publisher.declare()
    await subscribed(client)
    ticket = (await leased(client, ear)).ticket
    await parked(node, client)
    return Scene(node, ear, publisher, ticket)


def numbers_of(frames: list[Frame]) -> int:
    return sum(frame.batch.count for frame in frames if isinstance(frame, Deliver) and frame.batch)


def test_a_parked_client_is_called_for_events_and_gets_each_once_in_order(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        scene = await scene_at(stage, tmp_path)
        assert len(scene.node.server.connections) == 1
        for first in (0, 20, 40):
            await scene.publisher.publish(first + 1, 10)
            await scene.publisher.publish(first + 11, 10)
            caller = await scene.resumed()
            await caller.hear(Welcome)
            assert (await caller.numbers(20))[0] == list(range(first + 1, first + 21))
            await parked(scene.node, caller)
            assert numbers_of(caller.unread) == 0
        assert scene.node.server.leases.dials == 3
        assert scene.node.server.leases.dials_failed == 0

    act(story)


def test_a_client_comes_by_itself_and_leaves_when_it_likes(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(node_config(tmp_path, subscribers__rest="1h", subscribers__lease="30s"))
        ear, client, publisher = await Ear().open(), await stage.client(node), await stage.client(node, "p")
        await publisher.declare()
        await subscribed(client)
        lease = await leased(client, ear, seconds=3_600)
        assert lease.seconds == 30
        await client.say(Rest(0))
        assert await client.hear(Rest) == Rest(30)
        assert await client.is_closed()
        again = await stage.stranger(node)
        await again.say(Resume(lease.ticket), Publish("main", "p2", 1, events(7, 1)))
        await again.hear(Welcome)
        await again.hear(Published)
        assert (await again.numbers(1))[0] == [7]
        assert node.server.leases.dials == 0

    act(story)


def test_nobody_is_called_for_silence(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(node_config(tmp_path))
        ear, client, publisher = await Ear().open(), await stage.client(node), await stage.client(node, "p")
        await publisher.declare()
        await client.say(Subscribe("s", "t.>", "n > 5", False, 1 << 20))
        await client.hear(Subscribed)
        upto = await client.started()
        ticket = (await leased(client, ear)).ticket
        await parked(node, client)
        for number in range(1, 6):
            await publisher.publish(number)
            await asyncio.sleep(0.06)
        assert node.server.leases.dials == 0
        await publisher.publish(6)
        caller = await ear.caller()
        await caller.say(Resume(ticket))
        frames = [await caller.hear(Deliver)]
        while frames[-1].batch is None:
            frames.append(await caller.hear(Deliver))
        tiled = [*[f for f in client.unread if isinstance(f, Deliver)], *frames]
        assert [frame.base for frame in tiled] == [upto, *(frame.upto for frame in tiled[:-1])]
        assert len(frames) <= 2

    act(story)


def test_a_callback_that_refuses_for_a_while_is_tried_again(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        scene = await scene_at(stage, tmp_path)
        scene.ear.close()
        await scene.publisher.publish(1, 5)
        await until(lambda: scene.node.server.leases.dials_failed >= 3)
        await scene.publisher.publish(6, 5)
        await scene.ear.open()
        caller = await scene.resumed()
        assert (await caller.numbers(10))[0] == list(range(1, 11))

    act(story)


def test_calls_in_vain_end_and_the_client_can_still_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases_module, "TRIES_MAX", 2)

    async def story(stage: Stage) -> None:
        scene = await scene_at(stage, tmp_path)
        scene.ear.close()
        await scene.publisher.publish(1)
        await until(lambda: scene.node.server.leases.dials_failed == 2)
        await scene.publisher.publish(2, 4)
        await asyncio.sleep(0.2)
        assert scene.node.server.leases.dials == 2
        again = await stage.stranger(scene.node)
        await again.say(Resume(scene.ticket))
        assert (await again.numbers(5))[0] == [1, 2, 3, 4, 5]
        await parked(scene.node, again)
        await scene.ear.open()
        await scene.publisher.publish(6)
        caller = await scene.resumed()
        assert (await caller.numbers(1))[0] == [6]

    act(story)


def test_who_stays_away_is_gone_and_only_what_is_durable_stays(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(node_config(tmp_path))
        ear, client, other = await Ear().open(), await stage.client(node), await stage.client(node, "other")
        await other.declare()
        await subscribed(client, "passing")
        await subscribed(client, "durable", durable=True)
        ticket = (await leased(client, ear, seconds=1)).ticket
        await parked(node, client)
        assert await names_at(other) == ["durable", "passing"]
        ear.close()
        await other.publish(1, 3)
        await until(lambda: node.server.leases.expired == 1)
        assert await names_at(other) == ["durable"]
        late = await stage.stranger(node)
        await late.say(Resume(ticket))
        assert (await late.hear(Refused)).code == "unknown"
        again = await stage.client(node)
        await again.say(Subscribe("durable", "t.>", "n >= 0", True, 1 << 20))
        assert (await again.numbers(3))[0] == [1, 2, 3]

    act(story)


def test_a_connection_that_is_lost_ends_the_lease_at_once(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(node_config(tmp_path, subscribers__rest="1h"))
        ear, client, other = await Ear().open(), await stage.client(node), await stage.client(node, "other")
        await subscribed(client)
        ticket = (await leased(client, ear)).ticket
        await client.close()
        late = await stage.stranger(node)
        await late.say(Resume(ticket))
        assert (await late.hear(Refused)).code == "unknown"
        assert await names_at(other) == []

    act(story)


def test_a_wrong_ticket_is_turned_away_also_on_a_call(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(node_config(tmp_path))
        ears = [await Ear().open() for _ in range(2)]
        clients = [await stage.client(node) for _ in range(2)]
        publisher = await stage.client(node, "p")
        await publisher.declare()
        tickets = []
        for number, (client, ear) in enumerate(zip(clients, ears, strict=True)):
            await subscribed(client, f"s{number}")
            tickets.append((await leased(client, ear, key=str(number) * 16)).ticket)
            await parked(node, client, number + 1)
        guesser = await stage.stranger(node)
        await guesser.say(Resume("0" * 32))
        assert (await guesser.hear(Refused)).code == "unknown"
        await publisher.publish(1)
        callers = [await ear.caller(key=str(number) * 16) for number, ear in enumerate(ears)]
        await callers[0].say(Resume(tickets[1]))
        assert (await callers[0].hear(Refused)).code == "unknown"
        assert numbers_of(callers[0].unread) == 0
        await callers[1].say(Resume(tickets[1]))
        assert (await callers[1].numbers(1))[0] == [1]
        again = await ears[0].caller(key="0" * 16)
        await again.say(Resume(tickets[0]))
        assert (await again.numbers(1))[0] == [1]

    act(story)


def test_whoever_else_answers_at_the_address_gets_nothing_and_ends_the_lease(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        scene = await scene_at(stage, tmp_path)
        await scene.publisher.publish(1)
        caller = await scene.ear.caller()
        await caller.say(Refused("connect", "tidemark", "unknown", "who are you?"))
        assert await caller.is_closed()
        assert numbers_of(caller.unread) == 0
        await until(lambda: scene.node.server.leases.parked == 0)
        assert await names_at(scene.publisher) == []

    act(story)


def test_a_newer_lease_of_the_same_key_ends_the_older_one(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(node_config(tmp_path))
        ear, client = await Ear().open(), await stage.client(node)
        await subscribed(client, "old")
        old = await leased(client, ear)
        await parked(node, client)
        again = await stage.client(node)
        new = await leased(again, ear)
        await subscribed(again, "new")
        assert old.ticket != new.ticket
        assert node.server.leases.parked == 0
        assert await names_at(again) == ["new"]

    act(story)


def test_too_much_mail_ends_the_lease_as_a_full_queue_ends_a_connection(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        scene = await scene_at(stage, tmp_path, limits__client_queue="4KiB")
        scene.ear.close()
        for number in range(1, 40):
            await scene.publisher.publish(number)
        await until(lambda: scene.node.server.leases.parked == 0)
        assert await names_at(scene.publisher) == []

    act(story)


@pytest.mark.parametrize(
    ("lease", "code", "said"),
    [
        (Lease(9, "93.184.216.34:80", KEY), "address", "subscribers.callbacks"),
        (Lease(9, "10.0.0.1:22", KEY), "address", "does not call 10.0.0.1:22"),
        (Lease(9, "127.0.0.1:0", KEY), "address", "does not call"),
        (Lease(9, "nowhere", KEY), "address", "host:port"),
        (Lease(9, "127.0.0.1:9", "short"), "frame", "16 to 64"),
        (Lease(9, "127.0.0.1:9", "GET / HTTP/1.1 and more"), "frame", "letters and digits"),
    ],
)
def test_a_lease_that_would_make_a_weapon_is_refused(
    tmp_path: Path, lease: Lease, code: str, said: str
) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(node_config(tmp_path))
        client = await stage.client(node)
        await client.say(lease, Ping(1))
        refused = await client.hear(Refused)
        assert (refused.what, refused.name, refused.code) == ("lease", lease.address, code)
        assert said in refused.reason

    act(story)


def test_leases_are_bounded_in_number(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(node_config(tmp_path, subscribers__leases="1"))
        first, second = await stage.client(node), await stage.client(node)
        await first.say(Lease(9, "127.0.0.1:9", KEY), Lease(5, "127.0.0.1:8", KEY))
        answers = [await first.hear(Leased), await first.hear(Leased)]
        assert answers[0].ticket == answers[1].ticket
        await second.say(Lease(9, "127.0.0.1:9", KEY[::-1] + "2"))
        assert (await second.hear(Refused)).code == "limit"

    act(story)


def test_rest_is_for_those_who_hold_a_lease_and_is_their_last_word(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(node_config(tmp_path, subscribers__rest="1h"))
        client = await stage.client(node)
        await client.say(Rest(0))
        assert (await client.hear(Refused)).code == "frame"
        other = await stage.client(node)
        await other.say(Lease(9, "127.0.0.1:9", KEY))
        await other.hear(Leased)
        await other.say(Rest(0), Credit("s", 1))
        assert await other.is_closed()
        third = await stage.stranger(node)
        await third.say(Pushing("me", KEY))
        assert (await third.hear(Refused)).code == "frame"
        await (await stage.stranger(node)).say(Connect("x"))

    act(story)
