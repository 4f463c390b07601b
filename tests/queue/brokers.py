"""A broker in a process of its own that can be killed."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live_node import settings_at
from tests.ports import free_ports
from tests.waiting import PATIENCE_SECONDS


class Broker:
    """A broker in a process of its own, always on the same port and disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        (self.port,) = free_ports(1)
        self.url = f"tidemark://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        settings = settings_at(self._path / "data", broker__listen=f"127.0.0.1:{self.port}", http__listen="")
        given = [part for pair in settings.items() for part in ("--set", "=".join(pair))]
        command = [sys.executable, "-m", "tidemark.node", *given]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self._process.poll() is None, "the broker has ended"
                assert time.monotonic() < until, "the broker does not listen"
                time.sleep(0.02)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE_SECONDS)

    @contextmanager
    def running(self) -> Iterator[Broker]:
        try:
            yield self
        finally:
            self.kill()
