"""Health and metrics over HTTP: what is served, and what is refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.live_node import config_at
from tests.node.security.secured import client_of, secured
from tests.node.speech import Stage, play
from tests.waiting import PATIENCE_SECONDS
from tidemark.node.config.units import HostPort
from tidemark.node.monitoring.http import CONNECTIONS_MAX, REQUEST_BYTES_MAX, HttpServer, Page, Response, Say
from tidemark.node.turns.turns import Turns


async def fetch(address: HostPort, request: bytes) -> tuple[int, bytes]:
    """Status and body."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    async with asyncio.timeout(PATIENCE_SECONDS):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    if not request.startswith(b"HEAD"):
        assert b"Content-Length: %d" % len(body) in head
    return int(head.split()[1]), body


def serving(page: Page) -> HttpServer:
    """A server of one page."""
    return HttpServer({"/page": page}, Turns(asyncio.get_running_loop()))


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


@pytest.mark.open_broker(reason="with accounts and no token, metrics tell nothing of single subscriptions")
def test_health_and_metrics_are_served(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        assert node.http_address is not None
        status, body = await fetch(node.http_address, get("/health?verbose=1"))
        assert (status, json.loads(body)["status"]) == (200, "ok")
        status, body = await fetch(node.http_address, get("/metrics"))
        assert status == 200
        for name in (
            "tidemark_events_published_total 0",
            "tidemark_clients 0",
            "tidemark_sync_seconds_bucket",
            "tidemark_delivery_latency_seconds_bucket",
            "tidemark_matching_seconds_bucket",
            'tidemark_broker_info{broker="tidemark"',
            'tidemark_log_held_bytes{pubend="main"} 0.0',
        ):
            assert name.encode() in body
        assert b"tidemark_lag" not in body
        status, body = await fetch(node.http_address, get("/metrics/subscriptions"))
        assert (status, b"tidemark_lag_incomplete 0.0" in body) == (200, True)
        node.state = "stopping"
        assert (await fetch(node.http_address, get("/health")))[0] == 503

    play(story)


def test_head_gives_what_get_gives_without_the_content() -> None:
    async def story() -> None:
        server = serving(lambda say: say(Response(b"hello")))
        address = await server.listen(HostPort("127.0.0.1", 0))
        assert await fetch(address, b"HEAD /page HTTP/1.1\r\n\r\n") == (200, b"")
        assert await fetch(address, b"HEAD /nothing HTTP/1.1\r\n\r\n") == (404, b"")
        server.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/nothing"), 404),
        (b"POST /page HTTP/1.1\r\n\r\n", 405),
        (b"GET /page\r\n\r\n", 400),
        (b"\xff\xfe\r\n\r\n", 400),
        (b"GET /page HTTP/1.1\r\nX: " + b"x" * REQUEST_BYTES_MAX, 431),
        (get("/page"), 200),
    ],
)
def test_a_request_is_answered_or_refused(request_bytes: bytes, status: int) -> None:
    async def story() -> None:
        server = serving(lambda say: say(Response(b"hello")))
        address = await server.listen(HostPort("127.0.0.1", 0))
        assert (await fetch(address, request_bytes))[0] == status
        server.close()

    asyncio.run(story())


def test_what_is_owed_is_on_the_page_of_a_broker_with_accounts_too(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        (tmp_path / "token").write_text("let me see")
        node = await secured(stage, tmp_path, security__http_token=str(tmp_path / "token"))
        assert node.http_address is not None
        async with client_of(node, "paula") as tm:
            await tm.create_topic("t.one", "[n: int]")
        async with client_of(node, "alice") as tm, tm.subscribe("t.one", durable="alice.all"):
            pass
        request = get("/metrics/subscriptions").replace(
            b"Host: x", b"Host: x\r\nAuthorization: Bearer let me see"
        )
        _, body = await fetch(node.http_address, request)
        assert b'tidemark_lag_events{subscription="alice.all"} 0.0' in body
        assert b"tidemark_lag_incomplete 0.0" in body

    play(story)


def test_who_holds_connections_and_says_nothing_keeps_nobody_from_being_answered() -> None:
    async def story() -> None:
        server = serving(lambda say: say(Response(b"hello")))
        address = await server.listen(HostPort("127.0.0.1", 0))
        silent = [await asyncio.open_connection(*address) for _ in range(CONNECTIONS_MAX + 10)]
        for _, writer in silent:
            writer.write(b"GET /page HTTP/1.1\r\nX: ")
        for _ in range(3):
            assert await fetch(address, get("/page")) == (200, b"hello")
        assert len(server.open) <= CONNECTIONS_MAX
        for _, writer in silent:
            writer.close()
        server.close()

    asyncio.run(story())


def test_pages_are_made_in_turns_with_the_connections_of_the_broker() -> None:
    async def story() -> None:
        made = []

        def page(say: Say) -> None:
            made.append(server.turns.work())
            while server.turns.work() < made[-1] + 0.003:  # longer than all turns of one pass
                pass
            say(Response(b"hello"))

        server = serving(page)
        address = await server.listen(HostPort("127.0.0.1", 0))
        passes = []

        def count() -> None:
            passes.append(len(made))
            asyncio.get_running_loop().call_soon(count)

        asyncio.get_running_loop().call_soon(count)
        asked = [fetch(address, get("/page")) for _ in range(8)]
        assert await asyncio.gather(*asked) == [(200, b"hello")] * 8
        assert set(passes) >= set(range(1, 8)), "others had their turn after each page"
        server.close()

    asyncio.run(story())


def test_a_page_that_cannot_be_made_is_told_and_those_behind_it_are_answered() -> None:
    async def story() -> None:
        server = serving(lambda _: 1 // 0)  # type: ignore[arg-type]
        address = await server.listen(HostPort("127.0.0.1", 0))
        answers = await asyncio.gather(fetch(address, get("/page")), fetch(address, get("/nothing")))
        assert [status for status, _ in answers] == [500, 404]
        server.close()

    asyncio.run(story())
