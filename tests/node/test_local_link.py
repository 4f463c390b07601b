"""LocalLink: in order, bounded, and never while the one who speaks is at work."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from tests.node.speech import events
from tidemark.node.local_link import FRAMES_A_TURN_MAX, LocalBrokers, LocalLink
from tidemark.node.monitoring.link_traffic import LinkTraffic
from tidemark.node.server import RefusedNeighbours, Server
from tidemark.wire.frames import Hello, Knowledge, Overlay, Unfollow


class FakeServer:
    """What a local link needs of a server, and what it says to it."""

    def __init__(self, name: str, *neighbours: str) -> None:
        self.access = None
        self.audited: list[tuple[str, str, str]] = []
        self.security = SimpleNamespace(audit=SimpleNamespace(write=self.audit))
        self.name = name
        self.incarnation = 1
        self.neighbours = neighbours
        self.limits = SimpleNamespace(peer_queue=4_096)
        self.membership = SimpleNamespace(greeting=lambda: Overlay(0, name))
        self.runtime = self
        self.dropped = 0
        self.link_traffic = LinkTraffic()
        self.refused_neighbours = RefusedNeighbours(self.time)
        self.local: set[LocalLink] = set()
        self.heard: list[Any] = []
        self.is_at_work = False
        self.peers: dict[str, LocalLink] = {}

    def time(self) -> float:
        return 0.0

    def audit(self, what: str, *, who: str, how: str) -> None:
        self.audited.append((what, who, how))

    def opened_local(self, link: LocalLink) -> None:
        self.local.add(link)

    def closed_local(self, link: LocalLink) -> None:
        self.local.discard(link)

    def told_overlay(self, link: LocalLink, frame: Overlay) -> None:
        assert link in self.local
        self.heard.append(frame)

    def link_up(self, peer: str, link: LocalLink, hello: Hello) -> None:
        assert hello.broker == peer
        self.peers[peer] = link

    def peer_said(self, peer: str, link: LocalLink, frames: list[Any]) -> None:
        assert self.peers[peer] is link
        assert not self.is_at_work
        self.heard += frames


def pair() -> tuple[FakeServer, FakeServer, LocalLink]:
    a, b = FakeServer("a", "b"), FakeServer("b", "a")
    local_brokers = LocalBrokers()
    for server in (a, b):
        local_brokers.enter(cast(Server, server))
    link = local_brokers.link(cast(Server, a), "b")
    assert link is not None
    return a, b, link


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def knowledge(upto: int) -> Knowledge:
    batch = events(1, 50)
    batch.fill_ticks(np.arange(upto - 50, upto))
    return Knowledge("p", 0, upto, 0, True, 0, batch)


def test_what_is_said_is_heard_in_order_in_a_later_turn() -> None:
    async def story() -> None:
        a, b, link = pair()
        a.limits.peer_queue = 1 << 20
        b.is_at_work = True
        frames = [Unfollow("p", n) for n in range(3 * FRAMES_A_TURN_MAX)]
        for frame in frames:
            link.send(frame)
        link.send(Hello("a", 1))
        assert b.heard == []
        b.is_at_work = False
        await turns(1)
        assert 0 < len(b.heard) <= FRAMES_A_TURN_MAX + 1
        await turns(5)
        assert b.heard == [Overlay(0, "a"), *frames]
        assert a.heard == [Overlay(0, "b")]

    asyncio.run(story())


def test_one_that_does_not_keep_up_gets_no_knowledge_but_all_that_it_must_not_miss() -> None:
    async def story() -> None:
        a, b, link = pair()
        await turns()
        b.peers["a"].pause()
        upto = 100
        while not a.dropped:
            link.send(knowledge(upto))
            upto += 100
        link.send(Unfollow("p", 1))
        assert link.queued_bytes > a.limits.peer_queue
        await turns()
        assert len(b.heard) == 1
        b.peers["a"].resume()
        await turns(5)
        assert b.heard[-1] == Unfollow("p", 1)
        assert link.queued_bytes == 0
        assert link.said_events == 50 * (len(b.heard) - 2)

    asyncio.run(story())


def test_it_ends_on_both_sides_and_what_was_under_way_is_gone() -> None:
    async def story() -> None:
        a, b, link = pair()
        link.send(Unfollow("p", 1))
        link.close()
        assert a.local
        assert b.local
        await turns()
        assert not a.local
        assert not b.local
        link.send(Unfollow("p", 2))
        await turns()
        assert Unfollow("p", 2) not in b.heard

    asyncio.run(story())


def test_only_those_who_know_each_other_are_linked() -> None:
    async def story() -> None:
        local_brokers = LocalBrokers()
        a, b = FakeServer("a", "b"), FakeServer("b")
        assert local_brokers.link(cast(Server, a), "b") is None
        local_brokers.enter(cast(Server, b))
        assert local_brokers.link(cast(Server, a), "b") is None

    asyncio.run(story())


def test_it_is_in_the_audit_log_of_both_sides() -> None:
    async def story() -> None:
        a, b, _ = pair()
        assert a.audited == [("link", "b", "this process")]
        assert b.audited == [("link", "a", "this process")]

    asyncio.run(story())
