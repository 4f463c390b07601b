"""The door under attack: what is too much, too slow or cannot be is refused, and costs nobody else."""

from __future__ import annotations

import io
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.live_console import LiveConsole, live_console
from tests.live_node import LiveNode, live_node
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark import sync
from tidemark.console import http_limits
from tidemark.console.door import requests
from tidemark.console.options import BODY_BYTES_MAX

ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    with live_node(tmp_path_factory.mktemp("limits")) as node:
        yield node


@pytest.fixture(scope="module")
def console(node: LiveNode) -> Iterator[LiveConsole]:
    with live_console(node.url) as console:
        yield console


def connected(console: LiveConsole) -> socket.socket:
    return socket.create_connection(("127.0.0.1", console.port), PATIENCE_SECONDS)


def read_to_the_end(connection: socket.socket) -> bytes:
    found = b""
    while piece := connection.recv(65_536):
        found += piece
    return found


def test_nothing_that_a_request_says_makes_the_console_fail(console: LiveConsole) -> None:
    for host in ("[", "]", "[::1", "", "a b"):
        assert console.ask("GET", "/", headers={"Host": host}).status == 421, host
    for last in ("9" * 6_000, "-1", "", "0", "%C2%B2", "%D9%A3"):
        assert console.ask("GET", f"/try?last={last}").status == 200, last
    form = "&".join(f"field{n}=1" for n in range(100))
    for path in ("/overlay/plan", "/access/apply", "/login"):
        assert console.ask("POST", path, form).status == 413, path
        assert console.ask("POST", path, b"a=" + b"x" * (2 << 20)).status == 413, path
    for body in (b"[" * 100_000, b'{"a":' * 50_000, b"9" * 100_000, b"\xff", b"", b'{"a": "\\ud800"}'):
        assert console.ask("POST", "/topics/t/events", body, {"Content-Type": "application/json"}).status in (
            400,
            422,
        ), body[:10]


def test_a_head_that_does_not_end_is_not_waited_for(
    console: LiveConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "HEAD_SECONDS", 0.3)
    for said in (b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nA: b"):
        with connected(console) as connection:
            connection.sendall(said)
            assert read_to_the_end(connection) == b""
    with connected(console) as connection:
        # The next request on a connection has no longer than the first.
        connection.sendall(
            f"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\n\r\nGET /".encode()
        )
        assert read_to_the_end(connection).count(b"HTTP/1.1 ") == 1


def test_a_head_without_an_end_is_refused_before_it_fills_the_memory(console: LiveConsole) -> None:
    with connected(console) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        said = b""
        for number in range(10_000):
            try:
                connection.sendall(b"X-%d: %s\r\n" % (number, b"y" * 1_000))
            except ConnectionError:
                break
        else:
            pytest.fail("ten megabytes of headers were taken")
        try:
            said = connection.recv(100)
        except ConnectionError:
            return  # the answer was lost with what had not been read
        assert said.startswith(b"HTTP/1.1 431 ")


def test_a_reader_that_takes_nothing_loses_its_stream(
    node: LiveNode, console: LiveConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "WRITE_SECONDS", 0.5)
    with sync.connect(node.url) as tm, connected(console) as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        path = "/topics/much/events?start=now"
        stuck.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\n\r\n".encode())
        eventually(lambda: len(tm.ask("subscriptions")) == 1)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(tm.ask("subscriptions")) == 1 and time.monotonic() < deadline:
            tm.publish_many("much", [{"text": "x" * 10_000}] * 100)
        assert tm.ask("subscriptions") == []


def test_a_body_that_comes_too_slowly_is_not_waited_for(
    console: LiveConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "BODY_SECONDS", 0.3)
    with connected(console) as connection:
        head = f"POST /topics/t/events HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\nConnection: close\r\n"
        connection.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        answer = read_to_the_end(connection)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "timeout"


def test_a_body_that_is_too_long_is_refused_by_what_it_says_and_by_what_comes(console: LiveConsole) -> None:
    assert console.ask("POST", "/topics/t/events", b"x" * (BODY_BYTES_MAX + 1)).status == 413
    with connected(console) as connection:
        head = f"POST /topics/t/events HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\nConnection: close\r\n"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        piece = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
        try:
            for _ in range(20):
                connection.sendall(piece)
            answer = connection.recv(100)
        except ConnectionError:
            return  # it was refused while the rest was on its way
        assert answer.startswith(b"HTTP/1.1 413 ")


def test_large_bodies_have_a_bound_together_and_small_ones_find_room_beside_them(
    console: LiveConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "BODIES_BYTES_MAX", 300_000)
    head = (
        f"POST /topics/t/events HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\nContent-Length: 260000\r\n\r\n"
    )
    large = [{"text": "x" * 100_000}]
    statuses: set[int] = set()

    def is_refused_beside_another() -> bool:
        # Whichever of the two is read later is refused, so that the other one may have to be sent again.
        with connected(console) as slow:
            slow.sendall(head.encode() + b"x" * 250_000)
            time.sleep(0.1)
            reply = console.post("t", large)
            statuses.add(console.post("t", {"text": "small"}).status)
        return reply.status == 503 and reply.json["error"]["code"] == "limit"

    eventually(is_refused_beside_another)
    assert statuses == {201}
    eventually(lambda: console.post("t", large).status == 201)


def arrow(columns: dict[str, Any]) -> bytes:
    pa = pytest.importorskip("pyarrow")
    written, table = io.BytesIO(), pa.table(columns)
    with pa.ipc.new_stream(written, table.schema) as stream:
        stream.write_table(table)
    return written.getvalue()


def test_few_bytes_of_arrow_do_not_become_many_values(console: LiveConsole) -> None:
    pa = pytest.importorskip("pyarrow")
    ends = pa.array([0, 20_000_000], pa.int32())
    nothing = pa.StructArray.from_buffers(pa.struct([]), 20_000_000, [None])
    body = arrow({"n": pa.ListArray.from_arrays(ends, nothing)})
    assert len(body) < 1_000
    assert console.post("a", body, ARROW).status == 413


def test_arrow_that_was_altered_is_refused_and_not_followed(console: LiveConsole) -> None:
    whole = arrow({"text": ["one", "two", "three"], "list": [[1], [2, 3], []]})
    assert console.post("altered", whole, ARROW).status == 201
    for place in range(0, len(whole), 3):
        harmed = bytearray(whole)
        harmed[place] ^= 0xFF
        reply = console.post("altered", bytes(harmed), ARROW)
        assert reply.status in (201, 400, 413, 415, 422), (place, reply.text)
