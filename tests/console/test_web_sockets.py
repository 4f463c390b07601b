"""WebSockets at the HTTP door: events out; acknowledgements, events and nonsense in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.console.live_console import LiveConsole, live_console
from tests.live_node import live_node
from tests.waiting import PATIENCE_SECONDS


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveConsole]:
    with live_node(tmp_path_factory.mktemp("sockets")) as node, live_console(node.url) as console:
        yield console


def opened(console: LiveConsole, path: str, headers: dict[str, str] | None = None) -> ClientConnection:
    url = f"ws://127.0.0.1:{console.port}{path}"
    return connect(url, open_timeout=PATIENCE_SECONDS, additional_headers=headers)


def said(socket: ClientConnection) -> Any:
    return json.loads(socket.recv(PATIENCE_SECONDS))


def test_a_socket_publishes_and_gets_what_matches(console: LiveConsole) -> None:
    with opened(console, "/topics/chat/events?where=n%20%3E%201") as socket:
        for n in (1, 2):
            socket.send(json.dumps({"publish": {"n": n}, "ref": n}))
        answers = [said(socket) for _ in range(3)]
        assert sorted(each["ref"] for each in answers if "published" in each) == [1, 2]
        (event,) = [each["event"] for each in answers if "event" in each]
        assert (event["value"], event["topic"]) == ({"n": 2}, "chat")


def test_what_is_acknowledged_does_not_come_again(console: LiveConsole) -> None:
    path = "/topics/work/events?durable=worker"
    with opened(console, path) as socket:
        socket.send(json.dumps({"publish": {"n": 1}}))
        tokens = [each["event"]["checkpoint"] for each in (said(socket), said(socket)) if "event" in each]
        socket.send(json.dumps({"ack": tokens[0]}))
        socket.send(json.dumps({"publish": {"n": 2}, "ref": "second"}))
        assert {"event", "published"} == {next(iter(said(socket))) for _ in range(2)}
    with opened(console, path) as socket:
        answer = said(socket)
        assert answer.get("event", answer).get("value") == {"n": 2}


@pytest.mark.parametrize(
    "text", ["{", "7", "{}", '{"ack": 5}', '{"ack": "tm1.x"}', '{"publish": 5, "ref": 9}']
)
def test_nonsense_is_answered_and_the_socket_stays(console: LiveConsole, text: str) -> None:
    with opened(console, "/topics/nonsense/events") as socket:
        socket.send(text)
        answer = said(socket)
        assert answer["error"]["reason"]
        assert answer["ref"] == (9 if "ref" in text else None)
        socket.send(json.dumps({"publish": {"n": 1}, "ref": "good"}))
        assert {"event", "published"} == {next(iter(said(socket))) for _ in range(2)}


def test_messages_of_bytes_are_read_like_texts(console: LiveConsole) -> None:
    with opened(console, "/topics/bytes/events") as socket:
        socket.send(b"\xff\x00")
        assert said(socket)["error"]["reason"]
        socket.send(json.dumps({"publish": {"n": 1}, "ref": 1}).encode())
        assert {"event", "published"} == {next(iter(said(socket))) for _ in range(2)}


def test_packed_messages_are_not_agreed_to(console: LiveConsole) -> None:
    """One read of them would stand for a thousand times its bytes."""
    with opened(console, "/topics/packed/events") as socket:
        assert socket.request is not None
        assert socket.response is not None
        assert "permessage-deflate" in socket.request.headers["Sec-WebSocket-Extensions"]
        assert "Sec-WebSocket-Extensions" not in socket.response.headers


def test_a_wrong_selector_ends_the_socket_with_its_reason(console: LiveConsole) -> None:
    with opened(console, "/topics/t/events?where=price%20%3E") as socket:
        assert said(socket)["error"]["code"] == "selector"
        with pytest.raises(ConnectionClosed):
            socket.recv(PATIENCE_SECONDS)


def test_a_page_of_another_site_opens_no_socket(console: LiveConsole) -> None:
    with pytest.raises(InvalidStatus):
        opened(console, "/topics/t/events", {"Origin": "https://evil.example"}).close()


def test_the_second_socket_takes_a_durable_name_over(console: LiveConsole) -> None:
    path = "/topics/t/events?durable=one"
    with opened(console, path) as first, opened(console, path) as second:
        assert said(first)["error"]["code"] == "taken"
        second.send(json.dumps({"publish": {"n": 1}, "ref": 1}))
        assert {"event", "published"} == {next(iter(said(second))) for _ in range(2)}
