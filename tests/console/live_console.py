"""A console on a thread of its own, and a small HTTP client for it."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn

from tests import security_on
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark.console.options import ConsoleOptions
from tidemark.console.serving import server_config


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


def login(headers: dict[str, str]) -> dict[str, str]:
    """The headers of a request, with a login where brokers have accounts, unless they say who asks."""
    if not security_on.is_on() or {"authorization", "cookie"} & {name.lower() for name in headers}:
        return headers
    proof = base64.b64encode(f"{security_on.USER}:{security_on.PASSWORD}".encode()).decode()
    return {"Authorization": f"Basic {proof}", **headers}


class LiveConsole:
    """A console that can be stopped and started again at its port."""

    def __init__(self, url: str, **options: Any) -> None:
        self._url = url
        self._options = options
        self.port = 0
        self.start()

    def start(self) -> None:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        self._server = uvicorn.Server(server_config(ConsoleOptions(self._url, **self._options)))
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._server.serve([listening])), daemon=True
        )
        self._thread.start()
        eventually(lambda: self._server.started)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE_SECONDS)

    def ask(
        self, method: str, path: str, body: bytes | str | None = None, headers: dict[str, str] | None = None
    ) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, body, login(headers or {}))
            answer = connection.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def post(self, topic: str, value: Any, kind: str = "application/json", **headers: str) -> Reply:
        given = {"Content-Type": kind, **{name.replace("_", "-"): text for name, text in headers.items()}}
        body = value if isinstance(value, bytes) else json.dumps(value)
        return self.ask("POST", f"/topics/{topic}/events", body, given)

    @contextmanager
    def stream(self, path: str, **headers: str) -> Iterator[Stream]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            given = {k.replace("_", "-"): v for k, v in headers.items()}
            connection.request("GET", path, headers=login(given))
            yield Stream(connection.getresponse())
        finally:
            connection.close()


class Stream:
    """Server-Sent Events, read as a browser's EventSource reads them."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        assert answer.status == 200, (answer.status, answer.read())
        self._answer = answer
        self.last_id = ""
        self.retry = 0

    def next(self) -> tuple[str, Any] | None:
        """The type and the JSON of the next event that a page would get; None when the stream has ended."""
        kind, data = self.raw()
        return (kind, json.loads(data)) if data else None

    def raw(self) -> tuple[str, str]:
        """The type and data of the next event; no data when the stream has ended."""
        kind, data = "message", ""
        while line := self._answer.readline():
            text = line.decode().rstrip("\n")
            if not text:
                if data:
                    return kind, data
                kind = "message"
            elif text.startswith("id: "):
                self.last_id = text[4:]
            elif text.startswith("event: "):
                kind = text[7:]
            elif text.startswith("data: "):
                data += text[6:]
            elif text.startswith("retry: "):
                self.retry = int(text[7:])
        return kind, ""

    def wait_open(self) -> None:
        """Wait until the console has said the first thing: the subscription is open then."""
        while not self.retry:
            text = self._answer.readline().decode()
            if text.startswith("retry: "):
                self.retry = int(text[7:])

    def values(self, count: int) -> list[Any]:
        found = []
        for _ in range(count):
            item = self.next()
            assert item is not None
            found.append(item[1]["value"])
        return found


@contextmanager
def live_console(url: str, **options: Any) -> Iterator[LiveConsole]:
    console = LiveConsole(url, **options)
    try:
        yield console
    finally:
        console.stop()
