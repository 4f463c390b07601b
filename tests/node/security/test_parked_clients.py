"""Clients that are away with a lease: what changes about them meanwhile holds when they come back."""

from __future__ import annotations

from pathlib import Path

from tests.node.security.secured import client_of, logged_in, secured
from tests.node.speech import Speaker, Stage, play
from tests.ports import free_ports
from tests.waiting import until
from tidemark.node.node import Node
from tidemark.wire.answers import ACCESS, PROPOSE_ACCESS
from tidemark.wire.frames import Deliver, Lease, Leased, Refused, Rest, Resume, Subscribe, Subscribed

KEY = "k" * 32


async def parked(node: Node, client: Speaker, key: str = KEY) -> str:
    """Park a client where nobody answers when the broker calls; returns its ticket."""
    before = node.server.leases.parked
    await client.say(Lease(60, f"127.0.0.1:{free_ports(1)[0]}", key))
    ticket = (await client.hear(Leased)).ticket
    await client.say(Rest(0))
    await client.hear(Rest)
    assert await client.is_closed()
    await until(lambda: node.server.leases.parked == before + 1)
    return ticket


def test_what_waits_for_a_parked_client_is_not_given_out_once_its_rules_have_changed(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        async with client_of(node, "ops") as ops, client_of(node, "paula") as writer:
            await writer.create_topic("t.x", "[n: int]")
            client = await logged_in(stage, node, "alice")
            await client.say(Subscribe("s", "t.>", "", False, 1 << 20))
            await client.hear(Subscribed)
            ticket = await parked(node, client)
            await writer.publish("t.x", {"n": 4})
            await until(lambda: bool(node.server.leases.waiting))
            found = await ops.ask(ACCESS)
            await ops.ask(PROPOSE_ACCESS, text=found.text.replace("most = 5", "most = 3"), base=found.version)
        again = await stage.stranger(node)
        await again.say(Resume(ticket))
        assert (await again.hear(Refused)).code == "unknown"
        assert not [frame for frame in again.unread if isinstance(frame, Deliver)]
        assert node.server.leases.parked == 0

    play(story)


def test_a_user_that_was_removed_while_it_was_parked_does_not_come_back(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        ticket = await parked(node, await logged_in(stage, node, "bob"))
        async with client_of(node, "ops") as ops:
            found = await ops.ask(ACCESS)
            text = found.text.replace("[users.bob]", "[users.someone-else]")
            await ops.ask(PROPOSE_ACCESS, text=text, base=found.version)
        again = await stage.stranger(node)
        await again.say(Resume(ticket))
        assert (await again.hear(Refused)).code == "unknown"

    play(story)


def test_nobody_ends_the_lease_of_another_user_with_its_key(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        ticket = await parked(node, await logged_in(stage, node, "alice"))
        thief = await logged_in(stage, node, "bob")
        await thief.say(Lease(60, "127.0.0.1:9", KEY))
        assert (await thief.hear(Refused)).code == "denied"
        again = await stage.stranger(node)
        await again.say(Resume(ticket))
        await until(lambda: node.server.leases.parked == 0)
        assert not [frame for frame in again.unread if isinstance(frame, Refused)]

    play(story)
