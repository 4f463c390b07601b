"""The door under attack: what is too much, too slow or cannot be is refused, and costs nobody else."""

from __future__ import annotations

import io
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import pytest

from tests.console.live_console import LiveConsole, live_console
from tests.live_node import LiveNode, live_node
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark import sync
from tidemark.console import http_limits
from tidemark.console.door import requests
from tidemark.console.options import BODY_BYTES_MAX
from tidemark.console.pages import tail

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


def first_line(console: LiveConsole, path: str) -> bytes:
    """The status of an answer that may be a stream."""
    with connected(console) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\n\r\n".encode())
        return connection.recv(12)[9:]


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


def test_moments_that_no_calendar_has_are_refused(node: LiveNode, console: LiveConsole) -> None:
    with sync.connect(node.url) as tm:
        tm.create_topic("moments", "[at: timestamp]")
        with tm.subscribe("moments", durable="mover", ack="client"):
            pass
    pa = pytest.importorskip("pyarrow")
    eventually(lambda: console.ask("GET", "/subscriptions/mover").status == 200)
    for moment in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        assert console.post("moments", {"at": moment}).status == 422, moment
        asked = quote(moment)
        for path in (f"/subscriptions/mover/change?what=seek&to={asked}", f"/topics/moments?before={asked}"):
            assert console.ask("GET", path).status in (200, 400), path
        assert first_line(console, f"/topics/moments/events?start={asked}") != b"500", moment
    with sync.connect(node.url) as tm:
        tm.ask("remove", name="mover", force=True)
    far = pa.array([1 << 50], pa.timestamp("s"))
    assert console.post("far", arrow({"at": far}), ARROW).status in (400, 422)


def test_forms_share_the_memory_of_bodies(console: LiveConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "BODIES_BYTES_MAX", 300_000)
    head = f"POST /login HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\nContent-Length: 260000\r\n\r\n"

    def is_refused_beside_another() -> bool:
        with connected(console) as slow:
            slow.sendall(head.encode() + b"x" * 250_000)
            time.sleep(0.1)
            return console.ask("POST", "/login", b"user=" + b"x" * 200_000).status == 503

    eventually(is_refused_beside_another)
    assert console.ask("POST", "/login", b"user=small").status == 403


def test_one_tail_too_many_is_told_so(console: LiveConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "FEEDS_MAX", 2)
    with ExitStack() as stack:
        for n in range(2):
            stack.enter_context(console.stream(f"/tail/rows?topic=t{n}")).wait_open()
        reply = console.ask("GET", "/tail/rows?topic=t9")
        assert reply.status == 503
        assert "tails are open" in reply.text
        stack.enter_context(console.stream("/tail/rows?topic=t1")).wait_open()


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
