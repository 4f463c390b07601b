"""A subscriber without an open connection, against a real broker: called, back, renewed, lost and found."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import tidemark
from tests.client.connected import numbers, publish
from tests.live_node import HandClock, config_at
from tests.waiting import PATIENCE_SECONDS, bounded, until
from tidemark.client.connecting.push_link import PushLink
from tidemark.errors import ConfigError
from tidemark.node import server as server_module
from tidemark.node.leases import leases as leases_module
from tidemark.node.node import Node
from tidemark.wire.codec import encode
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import Pushing, Refused

PARKS_SOON = {"subscribers__rest": "50ms"}


@pytest.fixture(autouse=True)
def sweep_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "SWEEP_SECONDS", 0.02)


@asynccontextmanager
async def stage(
    path: Path, lease: float = 60
) -> AsyncIterator[tuple[Node, tidemark.Client, tidemark.Client]]:
    """A broker, a client that is connected to it, and one that listens."""
    node = await Node.start(config_at(path / "data", **PARKS_SOON))
    url = f"tidemark://{node.address}"
    async with tidemark.connect(url) as tm, tidemark.listen(url, lease=lease) as push:
        yield node, tm, push
    await node.stop()


@bounded
async def test_a_parked_subscriber_gets_what_is_published_once_and_in_order(tmp_path: Path) -> None:
    node = await Node.start(config_at(tmp_path / "data", **PARKS_SOON))
    url = f"tidemark://{node.address}"
    async with tidemark.connect(url) as tm, tidemark.listen(url, lease=60) as push:
        await tm.create_topic("t", "[n: int]")
        passing = await push.subscribe("t")
        async with push.subscribe("t", durable="d", ack="client") as durable:
            for first in (0, 50, 100):
                await until(lambda: node.server.leases.parked == 1)
                assert len(node.server.connections) == 1
                assert push.is_connected
                await publish(tm, first, first + 25)
                await publish(tm, first + 25, first + 50)
                for subscription in (passing, durable):
                    assert await numbers(subscription, 50) == list(range(first, first + 50))
            await until(lambda: node.server.leases.parked == 1)
            await durable.ack(sync=True)
            await until(lambda: node.server.leases.parked == 1)
            assert await push.publish("t", {"n": 150})
            assert await numbers(passing, 1) == [150]
            await until(lambda: node.server.leases.parked == 1)
    assert node.server.leases.parked == 0
    async with tidemark.connect(url) as tm, tm.subscribe("t", durable="d") as sub:
        assert await numbers(sub, 1) == [150]
    assert node.runtime.broker.hosts("d")
    await node.stop()


@bounded
async def test_a_lease_is_renewed_in_time_and_nothing_is_missed(tmp_path: Path) -> None:
    node = await Node.start(config_at(tmp_path / "data", **PARKS_SOON))
    clock, leases, url = HandClock(node), node.server.leases, f"tidemark://{node.address}"
    async with tidemark.connect(url) as tm, tidemark.listen(url, lease=1) as push:
        await tm.create_topic("t", "[n: int]")
        async with push.subscribe("t") as sub:
            for _ in range(3):
                clock.now += 0.1  # nothing was sent for a while: it may rest
                await until(lambda: leases.parked == 1)
                clock.now += 0.8
                await until(lambda: leases.parked == 0)
            # It was away for longer than the lease, and came back each time by itself.
            assert (leases.expired, leases.dials) == (0, 0)
            await publish(tm, 0, 10)
            assert await numbers(sub, 10) == list(range(10))
    await node.stop()


@bounded
async def test_a_subscriber_that_consumes_slowly_is_not_starved_of_credit(tmp_path: Path) -> None:
    async with stage(tmp_path) as (node, tm, push):
        await tm.create_topic("t", "[n: int, text: string]")
        async with push.subscribe("t", durable="d", window_bytes_max=4_000) as sub:
            for number in range(12):
                await tm.publish("t", {"n": number, "text": "x" * 1_000})
            got = []
            for number in range(12):
                if number % 4 == 0:
                    await until(lambda: node.server.leases.parked == 1)
                got += await numbers(sub, 1)
            assert got == list(range(12))


@bounded
async def test_a_subscriber_that_dies_without_a_word_is_gone_when_its_lease_ends(tmp_path: Path) -> None:
    node = await Node.start(config_at(tmp_path / "data", **PARKS_SOON))
    url = f"tidemark://{node.address}"
    async with tidemark.connect(url) as tm:
        await tm.create_topic("t", "[n: int]")
        push = await tidemark.listen(url, lease=1)
        await push.subscribe("t")
        await push.subscribe("t", durable="d", ack="client")
        await until(lambda: node.server.leases.parked == 1)
        link = push._link
        assert isinstance(link, PushLink)
        assert link._task is not None  # as if killed: nothing is said, nothing listens
        assert link._listener is not None
        link._listener.close()
        link._task.cancel()
        await publish(tm, 0, 10)
        await until(lambda: node.server.leases.expired == 1)
        assert node.server.leases.dials_failed > 0
        assert [each["name"] for each in await tm.ask("subscriptions")] == ["d"]
        async with tidemark.listen(url) as again, again.subscribe("t", durable="d") as sub:
            assert await numbers(sub, 10) == list(range(10))
    await node.stop()


@bounded
async def test_a_caller_with_a_wrong_key_is_turned_away(tmp_path: Path) -> None:
    async with stage(tmp_path) as (node, tm, push):
        await tm.create_topic("t", "[n: int]")
        async with push.subscribe("t") as sub:
            await until(lambda: node.server.leases.parked == 1)
            assert isinstance(push._link, PushLink)
            reader, writer = await asyncio.open_connection(*push._link.listens_at)
            writer.writelines(bytes(piece) for piece in encode(Pushing("tidemark", "0" * 32)))
            answer = FrameDecoder().feed(await reader.read())
            assert [type(frame) for frame in answer] == [Refused]
            writer.close()
            assert node.server.leases.parked == 1
            await publish(tm, 0, 3)
            assert await numbers(sub, 3) == [0, 1, 2]


@bounded
async def test_a_broker_that_starts_again_knows_no_lease_and_the_subscriber_starts_over(
    tmp_path: Path,
) -> None:
    node = await Node.start(config_at(tmp_path / "data", **PARKS_SOON))
    url = f"tidemark://{node.address}"
    async with tidemark.listen(url, lease=1) as push:
        async with tidemark.connect(url) as tm:
            await tm.create_topic("t", "[n: int]")
            sub = await push.subscribe("t", durable="d")
            await until(lambda: node.server.leases.parked == 1)
            await publish(tm, 0, 5)
            assert await numbers(sub, 5) == list(range(5))
        await until(lambda: node.server.leases.parked == 1)
        await node.stop()
        node = await Node.start(config_at(tmp_path / "data", broker__listen=str(node.address), **PARKS_SOON))
        async with tidemark.connect(url) as tm:
            await publish(tm, 5, 10)
            assert await numbers(sub, 5) == list(range(5, 10))
    await node.stop()


@bounded
async def test_an_address_that_the_broker_does_not_call_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases_module, "may_call", lambda *_: False)

    node = await Node.start(config_at(tmp_path / "data", **PARKS_SOON))
    with pytest.raises(tidemark.RefusedError, match="callbacks") as caught:
        await tidemark.listen(f"tidemark://{node.address}")
    assert caught.value.code == "address"
    with pytest.raises(ConfigError, match="host:port"):
        tidemark.listen(f"tidemark://{node.address}", "here")
    with pytest.raises(ConfigError, match="cannot listen"):
        await tidemark.listen(f"tidemark://{node.address}", str(node.address))
    await node.stop()


@bounded
async def test_the_blocking_client_is_called_too(tmp_path: Path) -> None:
    node = await Node.start(config_at(tmp_path / "data", **PARKS_SOON))
    url = f"tidemark://{node.address}"

    def listening() -> list[int]:
        with tidemark.sync.listen(url, lease=5) as push, push.subscribe("t", durable="d") as sub:
            is_open.set()
            got = [sub.next(PATIENCE_SECONDS) for _ in range(3)]
            return [each["n"] for each in got if isinstance(each, tidemark.Event)]

    async with tidemark.connect(url) as tm:
        await tm.create_topic("t", "[n: int]")
        is_open = threading.Event()
        work = asyncio.create_task(asyncio.to_thread(listening))
        await until(lambda: is_open.is_set() and node.server.leases.parked == 1)
        await publish(tm, 0, 3)
        assert await work == [0, 1, 2]
    assert node.server.leases.dials > 0
    await node.stop()
