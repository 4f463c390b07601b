"""What a connection may do before and after it has said who it is, and how its queue is bounded."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.live_node import HandClock, config_at
from tests.node.speech import Speaker, Stage, events, play, root_of_leaf
from tests.waiting import PATIENCE_SECONDS, until
from tidemark.broker.effects import Effect, Stimulus
from tidemark.message.batches.batch import EventBatch
from tidemark.node import server as server_module
from tidemark.node.connection import Connection
from tidemark.node.node import Node
from tidemark.node.server import StrangerCounts
from tidemark.node.turns.turn_taking import READY_FRAMES, UNREAD_BYTES_MAX
from tidemark.node.unfinished_input import UnfinishedInput
from tidemark.persistence.event_logs import Report
from tidemark.persistence.store import Store
from tidemark.ticks import CheckpointToken
from tidemark.wire.codec import encode
from tidemark.wire.frames import (
    Answer,
    Ask,
    Connect,
    Describe,
    Frame,
    Hello,
    Interest,
    Knowledge,
    Nack,
    Overlay,
    Ping,
    Pong,
    Publish,
    Published,
    Refused,
    Together,
    Topic,
    Welcome,
)
from tidemark.wire.limits import HANDSHAKE_BYTES_MAX
from tidemark.wire.liveness.tcp_info import TcpInfo

SPEAKS_AT_ONCE = pytest.mark.open_broker(
    reason="the test speaks right behind its Connect, where a login would be"
)


@pytest.fixture(autouse=True)
def sweep_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(server_module, "FULL_SWEEP", 1)


def refused(tmp_path: Path, *frames: Frame | bytes, **options: str) -> Refused:
    """Say something before Connect; returns the refusal, after which the connection is closed."""
    found: list[Refused] = []

    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data", **options))
        stranger = await stage.stranger(node)
        for frame in frames:
            if isinstance(frame, bytes):
                stranger.writer.write(frame)
            else:
                await stranger.say(frame)
        found.append(await stranger.hear(Refused))
        assert await stranger.is_closed()

    play(story)
    return found[0]


def test_a_client_of_another_version_is_refused_with_what_to_update(tmp_path: Path) -> None:
    answer = refused(tmp_path, Connect("c", oldest=90, newest=91))
    assert (answer.what, answer.code) == ("connect", "version")
    assert "update this side" in answer.reason


def test_a_stranger_has_to_say_who_it_is_first(tmp_path: Path) -> None:
    assert refused(tmp_path, Ping(1)).code == "frame"


def test_bytes_that_are_no_frames_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, b"GET / HTTP/1.1\r\n\r\n").code == "frame"


def test_a_stranger_cannot_send_much(tmp_path: Path) -> None:
    header = (HANDSHAKE_BYTES_MAX + 1).to_bytes(4, "little")
    assert "over the limit" in refused(tmp_path, header + bytes(4)).reason


def test_a_stranger_that_says_nothing_is_closed(tmp_path: Path) -> None:
    assert refused(tmp_path, limits__handshake="1ms").code == "limit"


def test_a_frame_that_never_ends_is_cut_off(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data", limits__frame="1ms"))
        client = await stage.client(node)
        client.writer.write(b"\x10\x00")
        assert "too long" in (await client.hear(Refused)).reason

    play(story)


def test_unfinished_frames_are_bounded_together_and_others_are_not_disturbed(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data", limits__input="2MiB"))
        publisher = await stage.client(node, "publisher")
        await publisher.declare()
        begun = b"".join(bytes(piece) for piece in encode(Publish("main", "late", 1, events(1, 40_000))))
        assert 1 << 20 < len(begun) < 2 << 20
        hostile = [await stage.client(node, f"hostile {number}") for number in range(8)]
        for number, each in enumerate(hostile, 1):
            each.writer.write(begun[:-1])
            await each.writer.drain()
            await publisher.publish(number)
        for each in hostile[:-1]:
            assert (await each.hear(Refused)).code == "limit"
        assert node.server.incomplete.closed == 7
        assert len(begun) <= node.server.incomplete.bytes <= 2 << 20
        # A large frame that arrives at once gets through although another holds most of the room.
        await publisher.publish(9, 20_000)
        hostile[-1].writer.write(begun[-1:])
        assert (await hostile[-1].hear(Published)).sequence == 40_000
        assert node.server.incomplete.bytes == 0

    play(story)


def test_of_unfinished_frames_the_slowest_goes_first_and_small_ones_never() -> None:
    class Arriving:
        def __init__(self, since: float, *, peer: str | None = None, is_paused: bool = False) -> None:
            self.incomplete_since, self.peer, self.is_paused = since, peer, is_paused
            self.refusals: list[str] = []

        def refuse(self, code: str, reason: str) -> None:
            assert "limits.input" in reason
            self.refusals.append(code)

        def give_up_input(self) -> None:
            self.refusals.append("given up")

    unfinished = UnfinishedInput(1_000)
    tiny, old, quick, link, paused = connections = [
        Arriving(0.0),
        Arriving(0.0),
        Arriving(9.0),
        Arriving(0.0, peer="b"),
        Arriving(0.0, is_paused=True),
    ]
    for each, held in zip(connections, (10, 300, 300, 300, 90), strict=True):
        unfinished.holds(each, held, 10.0)  # type: ignore[arg-type]  # what is asked of a connection
    assert unfinished.bytes == 1_000
    unfinished.holds(tiny, 20, 10.0)  # type: ignore[arg-type]
    assert [each.refusals for each in connections] == [[], ["given up", "limit"], [], [], []]
    assert unfinished.bytes == 710
    unfinished.holds(paused, 500, 10.0)  # type: ignore[arg-type]
    assert quick.refusals == ["given up", "limit"]
    unfinished.holds(paused, 900, 10.0)  # type: ignore[arg-type]
    assert (paused.refusals, link.refusals, old.refusals[2:]) == (["given up", "limit"], [], [])
    assert (unfinished.bytes, unfinished.closed) == (320, 3)
    for each in connections:
        unfinished.discard(each)  # type: ignore[arg-type]
    assert unfinished.bytes == 0


@pytest.mark.open_broker(reason="the test plays a broker that has nothing to prove itself with")
def test_a_broker_that_is_no_neighbour_is_refused(tmp_path: Path) -> None:
    answer = refused(tmp_path, Hello("nobody", 1), Overlay(0, ""))
    assert answer.code == "unknown"
    assert "compare the topologies" in answer.reason


@SPEAKS_AT_ONCE
def test_a_client_does_not_speak_as_a_broker(tmp_path: Path) -> None:
    answer = refused(tmp_path, Connect("c"), Knowledge("main", 1, 2, 0, True, 0))
    assert (answer.code, answer.reason) == ("frame", "a client does not say Knowledge")


@SPEAKS_AT_ONCE
def test_a_large_frame_right_behind_the_handshake_is_taken(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        client = await stage.stranger(node)
        await client.say(Connect("c"), Publish("elsewhere", "p", 1, events(1, 1_000)))
        await client.hear(Welcome)
        assert (await client.hear(Refused)).code == "pubend"

    play(story)


def test_a_silent_client_is_asked_and_then_closed(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data", limits__ping="1ms", limits__silence="300ms"))
        client = await stage.client(node)
        ping = await client.hear(Ping)
        await client.say(Pong(ping.stamp))
        assert await client.is_closed()
        assert not node.server.connections

    play(story)


@pytest.mark.parametrize("unanswered", [0, 3])
def test_a_client_is_unreachable_when_its_machine_answers_nothing_and_not_when_it_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unanswered: int
) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data", limits__unreachable="1ms"))
        client = await stage.client(node)
        looks = 0

        def observe(_: Connection, __: float) -> TcpInfo:
            nonlocal looks
            looks += 1
            return TcpInfo(0, unanswered, 60.0, None, None, False)

        monkeypatch.setattr(Connection, "observe", observe)
        if unanswered:
            assert await client.is_closed()
        else:
            await until(lambda: looks > 3)
            assert len(node.runtime.clients) == 1

    play(story)


def test_a_client_that_leaves_too_much_unread_is_disconnected(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data", limits__client_queue="4KiB"))
        publisher = await stage.client(node, "publisher")
        await publisher.declare()
        slow = await stage.client(node, "slow")
        await slow.subscribe(credit=1 << 40)
        await slow.started()
        # Its socket takes some megabytes before anything is queued here.
        batch = events(1, 20_000)
        sequence = 0
        while len(node.runtime.clients) == 2:
            assert sequence < 4_000_000
            await publisher.say(Publish("main", "p", sequence + 1, batch))
            sequence += batch.count
            while (await publisher.hear(Published)).sequence < sequence:
                pass
        assert await slow.is_closed()

    play(story)


async def linked(stage: Stage, tmp_path: Path, **options: str) -> tuple[Node, Speaker]:
    """A node, and a neighbour below it that the test speaks for."""
    patient = {"links__ping": "10s", "links__silence": "60s"}
    node = await stage.node(root_of_leaf(tmp_path, **(patient | options)))
    leaf = await stage.neighbour(node, "leaf")
    assert (await leaf.hear(Hello)).broker == "root"
    await leaf.hear(Interest)
    return node, leaf


def test_a_newer_link_of_the_same_neighbour_ends_the_one_before(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node, before = await linked(stage, tmp_path)
        again = await stage.neighbour(node, "leaf", 2)
        await again.hear(Interest)
        assert await before.is_closed()
        assert len(node.runtime.peers) == 1
        await again.say(Ping(3))
        assert await again.hear(Pong) == Pong(3)

    play(story)


async def swept(clock: HandClock, seconds: float) -> None:
    """Let time pass, and wait until the server has looked at its links."""
    clock.now += seconds
    await until(lambda: clock.server._links_swept == clock.now)


def test_a_neighbour_that_does_not_answer_is_dead_and_one_that_does_is_not(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node, leaf = await linked(
            stage, tmp_path, links__ping="20ms", links__idle="20ms", links__silence="200ms"
        )
        clock = HandClock(node)
        for _ in range(20):  # longer than `links.silence`
            await swept(clock, 0.03)
            await swept(clock, 0.03)
            await leaf.say(Pong((await leaf.hear(Ping)).stamp))
        assert "leaf" in node.runtime.peers
        for _ in range(20):
            await swept(clock, 0.03)
        assert await leaf.is_closed()
        assert not node.runtime.peers

    play(story)


def test_a_neighbour_that_goes_on_taking_what_is_before_the_ping_is_busy_and_not_dead(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node, leaf = await linked(stage, tmp_path, links__ping="20ms", links__silence="500ms")
        clock = HandClock(node)
        (connection,) = (each for each in node.server.connections if each.peer == "leaf")
        leaf.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
        before = connection.said_bytes
        connection.send(Knowledge("main", 1, 1 << 40, 0, True, 0, filled(100_000)))
        connection.flush()
        left = connection.said_bytes - before
        assert left > 30 * (64 << 10)  # it takes longer than `links.silence`, and nothing is said meanwhile
        while left > 0:
            taken = await leaf.reader.read(64 << 10)
            assert taken, "the link was closed"
            left -= len(taken)
            await swept(clock, 0.03)
        assert "leaf" in node.runtime.peers
        # Only pings are left to take. From here on an answer would count and nothing else.
        for _ in range(40):
            await swept(clock, 0.03)
        assert await leaf.is_closed()
        assert not node.runtime.peers

    play(story)


def test_a_neighbour_that_says_what_the_spoken_version_does_not_have_is_refused(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        _, leaf = await linked(stage, tmp_path, links__version="3")
        await leaf.say(Together((Nack("main", ((1, 2),), 1), Nack("main", ((3, 4),), 1))))
        assert (await leaf.hear(Refused)).reason == "a broker does not say Together"

    play(story)


def test_what_a_neighbour_says_of_an_unknown_pubend_changes_nothing(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node, leaf = await linked(stage, tmp_path)
        await leaf.say(Knowledge("unheard", 1, 2, 0, True, 0), Ping(1))
        await leaf.hear(Pong)
        await leaf.say(Connect("client"))
        assert (await leaf.hear(Refused)).reason == "a broker does not say Connect"
        assert not node.failed.done()

    play(story)


def test_knowledge_for_a_slow_neighbour_is_dropped_and_interest_is_not(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node, leaf = await linked(stage, tmp_path)
        (connection,) = (each for each in node.server.connections if each.peer == "leaf")
        assert isinstance(connection, Connection)
        leaf.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport of a socket reads
        bulk = Knowledge("main", 1, 1 << 40, 0, True, 0, filled(20_000))
        while connection.queued_bytes <= node.config.limits.peer_queue:
            connection.send(bulk)
            connection.flush()
        queued = connection.queued_bytes
        connection.send(bulk)
        connection.flush()
        assert (connection.queued_bytes, node.server.dropped) == (queued, 1)
        connection.send(Interest("leaf", 9, ()))
        connection.flush()
        assert queued < connection.queued_bytes < queued + 1_000

    play(story)


def test_small_frames_for_a_socket_that_takes_no_more_are_queued_as_few_pieces(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node, leaf = await linked(stage, tmp_path)
        (connection,) = (each for each in node.server.connections if each.peer == "leaf")
        leaf.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport of a socket reads
        while connection not in node.server.congested:
            connection.send(Knowledge("main", 1, 1 << 40, 0, True, 0, filled(20_000)))
            connection.flush()
        pieces: list[int] = []
        transport = connection._transport
        connection._transport = Counting(transport, pieces)  # type: ignore[assignment]
        before = connection.queued_bytes
        for number in range(2, 5_002):
            connection.send(Knowledge("main", number, number + 1, 0, True, 0))
            connection.flush()
        assert connection.queued_bytes - before > 5_000 * 40
        assert len(pieces) < 50
        connection._transport = transport
        leaf.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for number in range(2, 5_002):
            frame = await leaf.hear(Knowledge)
            while frame.batch is not None or frame.base < 2:
                frame = await leaf.hear(Knowledge)
            assert frame.base == number

    play(story)


class Counting:
    """A transport that writes down how large the pieces are that it is given."""

    def __init__(self, transport: asyncio.Transport | None, pieces: list[int]) -> None:
        self._transport, self._pieces = transport, pieces

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)

    def writelines(self, pieces: list[bytes]) -> None:
        """Pass them on."""
        assert self._transport is not None
        self._pieces += map(len, pieces)
        self._transport.writelines(pieces)


def filled(count: int) -> EventBatch:
    """A batch as a pubend sends it."""
    batch = events(1, count)
    batch.fill_ticks(np.arange(2, count + 2))
    return batch


def test_strangers_of_one_address_are_few_but_those_of_this_machine_are_no_strangers() -> None:
    counts = StrangerCounts(2)
    assert [counts.add("192.0.2.1") for _ in range(3)] == [True, True, False]
    assert counts.add("192.0.2.2")
    counts.remove("192.0.2.1")
    counts.remove("192.0.2.1")
    assert counts.add("192.0.2.1")
    assert all(counts.add("127.0.0.1") for _ in range(10))


def test_connections_over_the_limit_are_told_so(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data", limits__connections="1"))
        await stage.client(node)
        stranger = await stage.stranger(node)
        refusal = await stranger.hear(Refused)
        assert refusal.code == "limit"
        assert "limits.connections" in refusal.reason
        assert await stranger.is_closed()
        assert node.server.turned_away == 1

    play(story)


def test_one_address_may_have_a_number_of_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "is_here", lambda _: False)

    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data", limits__address_connections="2"))
        first = await stage.client(node)
        await stage.client(node)
        third = await stage.stranger(node)
        assert "limits.address_connections" in (await third.hear(Refused)).reason
        assert await third.is_closed()
        await first.close()
        while len(node.server.connections) > 1:
            await asyncio.sleep(0)
        await stage.client(node)

    play(story)


def test_a_client_may_ask_a_number_of_questions_a_second(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data", limits__questions="2"))
        client = await stage.client(node)
        await client.say(*(Ask(ticket, "overlay", "{}") for ticket in (1, 2, 3)))
        refusal = await client.hear(Refused)
        assert (refusal.what, refusal.name, refusal.code) == ("ask", "3", "limit")
        assert "limits.questions" in refusal.reason
        assert [each.ticket for each in client.unread if isinstance(each, Answer)] == [1, 2]
        assert node.server.questions_refused == 1

    play(story)


def test_the_connections_of_a_broker_come_in_pages(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        clients = [await stage.client(node, f"client {number}") for number in range(5)]
        names: list[str] = []
        after: str | None = ""
        while after is not None:
            await clients[0].say(Ask(1, "connections", json.dumps({"limit": 2, "after": after})))
            page = json.loads((await clients[0].hear(Answer)).payload)
            assert len(page["items"]) <= 2
            names += [each["name"] for each in page["items"]]
            after = page["next"]
        assert names == [f"client {number}" for number in range(5)]
        await clients[0].say(Ask(2, "connections", "[]"))
        assert (await clients[0].hear(Refused)).code == "frame"

    play(story)


def test_publishers_are_not_read_while_the_disk_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    carry_out = Store.carry_out

    def slowly(self: Store, effect: Effect, report: Report | None = None) -> Stimulus | None:
        assert gate.wait(PATIENCE_SECONDS)
        return carry_out(self, effect, report)

    async def story(stage: Stage) -> None:
        gate.set()
        node = await stage.node(config_at(tmp_path / "data", limits__disk_queue="4KiB"))
        client = await stage.client(node)
        await client.declare()
        (connection,) = node.server.connections
        gate.clear()
        await client.say(*(Publish("main", "p", n, events(n, 100)) for n in range(1, 1_001, 100)))
        while not connection.is_paused:
            await asyncio.sleep(0)
        assert node.runtime.backlog.bytes > 4 << 10
        gate.set()
        while (await client.hear(Published)).sequence < 1_000:
            pass
        await client.say(Ping(1))
        await client.hear(Pong)
        assert not connection.is_paused

    monkeypatch.setattr(Store, "carry_out", slowly)
    play(story)


def test_a_stopping_node_acknowledges_and_keeps_what_it_has_received(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        client = await stage.client(node)
        await client.declare()
        await client.subscribe()
        start = await client.started()
        published = asyncio.create_task(client.publish(1, 10))
        while not node.runtime.broker.counters["events_published"] and not published.done():
            await asyncio.sleep(0)
        await stage.stop(node)
        assert (await published).sequence == 10
        assert await client.is_closed()

        node = await stage.node(config_at(tmp_path / "data"))
        client = await stage.client(node)
        await client.subscribe(token=CheckpointToken({"main": start}))
        assert (await client.numbers(10))[0] == list(range(1, 11))

    play(story)


def test_a_client_that_does_not_read_what_topics_are_is_told_of_no_more_until_it_does(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        lazy = await stage.client(node, "lazy")
        (connection,) = node.server.connections
        fields = ", ".join(f"field_number_{at}: int?" for at in range(2_000))
        await lazy.say(Topic("large", True, (f"[{fields}]",)))
        size = len((await lazy.hear(Topic)).schemas[0])
        asked = 512
        lazy.writer.writelines([b"".join(bytes(each) for each in encode(Describe("large")))] * asked)
        await until(lambda: connection.is_held)
        # One slice of frames is handled after the queue was short.
        assert connection.queued_bytes < UNREAD_BYTES_MAX + READY_FRAMES * (size + 1_000)
        assert connection.queued_bytes < asked * size / 4
        for _ in range(asked):
            assert (await lazy.hear(Topic)).topic == "large"
        await until(lambda: not connection.is_held)
        await lazy.say(Ping(1))
        await lazy.hear(Pong)

    play(story)
