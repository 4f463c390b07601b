"""Readers of the HTTP door over kills of console and broker: nothing lost, repeated or reordered."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.console.live_console import login
from tests.ports import free_ports
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark import sync
from tidemark.errors import TidemarkError

EVENTS = 1_500
TOGETHER = 10
KILLS = 6
#: A browser waits before it connects again.
RETRY_SECONDS = 0.05

pytestmark = pytest.mark.chaos


class Killed:
    """A process that is started, killed and started again."""

    def __init__(self, *command: str) -> None:
        self._command = [sys.executable, "-m", "tidemark", *command, "--json"]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        json.loads(self._process.stdout.readline())

    def kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Reader(threading.Thread):
    """A browser's EventSource: it keeps the last id, connects again, and writes down what it gets."""

    def __init__(self, port: int, path: str) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._path = path
        self.ledger: list[int] = []
        self.gaps: list[Any] = []
        self.connections = 0
        self.is_over = False

    def run(self) -> None:
        last = ""
        while not self.is_over:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
            try:
                headers = login({"Last-Event-ID": last} if last else {})
                connection.request("GET", self._path, headers=headers)
                answer = connection.getresponse()
                if answer.status == 200:
                    self.connections += 1
                    last = self._read(answer, last)
            except (OSError, http.client.HTTPException):
                time.sleep(RETRY_SECONDS)
            finally:
                connection.close()

    def _read(self, answer: http.client.HTTPResponse, last: str) -> str:
        kind, data, token = "", "", last
        try:
            while not self.is_over and (line := answer.readline()):
                if not line.endswith(b"\n"):
                    break
                text = line.decode().rstrip("\n")
                if text.startswith("id: "):
                    token = text[4:]
                elif text.startswith("event: "):
                    kind = text[7:]
                elif text.startswith("data: "):
                    data = text[6:]
                elif not text:
                    # A browser takes an event, and its id, only with the empty line behind it.
                    last = token
                    if data and kind == "gap":
                        self.gaps.append(json.loads(data))
                    elif data and not kind:
                        self.ledger.append(json.loads(data)["value"]["n"])
                    kind = data = ""
        except (OSError, http.client.HTTPException):
            pass
        return last


def published(url: str, kills: list[threading.Event]) -> None:
    """Publish numbers as a named publisher, which is told of no loss and repeats nothing."""
    with sync.connect(url, publisher="numbers", wait_for_broker=True, timeout=PATIENCE_SECONDS) as tm:
        for n in range(0, EVENTS, TOGETHER):
            tm.publish_many("numbers", [{"n": n + each} for each in range(TOGETHER)], sequence=n + 1)
            for number, kill in enumerate(kills):
                if n >= (number + 1) * EVENTS // (len(kills) + 2):
                    kill.set()


def test_what_a_browser_gets_is_exact_over_kills_of_console_and_broker(tmp_path: Path) -> None:
    broker_port, console_port = free_ports(2)
    url = f"tidemark://127.0.0.1:{broker_port}"
    broker = Killed(
        *("up", "--listen", f"127.0.0.1:{broker_port}", "--http", "", "--no-pipeline"),
        *("--data-dir", str(tmp_path / "data")),
    )
    console = Killed("console", "--broker", url, "--listen", f"127.0.0.1:{console_port}")
    readers = [
        Reader(console_port, "/topics/numbers/events?durable=kept&ack_seconds=1&start=earliest"),
        Reader(
            console_port, "/topics/numbers/events?durable=even&ack_seconds=2&start=earliest&where=n%2B0%3C1e9"
        ),
    ]
    kills = [threading.Event() for _ in range(KILLS)]
    publisher = threading.Thread(target=published, args=(url, kills), daemon=True)
    try:
        for reader in readers:
            reader.start()
        eventually(lambda: all(reader.connections for reader in readers))
        publisher.start()
        chance = random.Random(18)
        for kill in kills:
            assert kill.wait(PATIENCE_SECONDS)
            victim = chance.choice((console, broker))
            victim.kill()
            victim.start()
        publisher.join(PATIENCE_SECONDS)
        assert not publisher.is_alive()
        eventually(lambda: all(reader.ledger and reader.ledger[-1] == EVENTS - 1 for reader in readers))
    except TidemarkError as error:
        pytest.fail(str(error))
    finally:
        for reader in readers:
            reader.is_over = True
        console.kill()
        broker.kill()
    for reader in readers:
        assert reader.ledger == list(range(EVENTS))
        assert not reader.gaps
        assert reader.connections > 1
