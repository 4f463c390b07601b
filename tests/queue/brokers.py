"""What the queue's tests share: a broker on a thread, and one in a process of its own that can be killed."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemark.node.configload import load
from tidemark.node.node import Node

PATIENCE_SECONDS = 20.0


def settings(path: Path, port: int) -> dict[str, str]:
    return {
        "storage.data_dir": str(path / "data"),
        "broker.listen": f"127.0.0.1:{port}",
        "http.listen": "",
        "thresholds.silence": "50ms",
        "thresholds.heartbeat": "10ms",
    }


@contextmanager
def node_on_a_thread(path: Path) -> Iterator[str]:
    """A broker in this process; its URL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        started = asyncio.run_coroutine_threadsafe(Node.start(load(options=settings(path, 0))), loop)
        node = started.result(PATIENCE_SECONDS)
        yield f"tidemark://{node.address}"
        asyncio.run_coroutine_threadsafe(node.stop(), loop).result(PATIENCE_SECONDS)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Broker:
    """A broker in a process of its own, always on the same port and disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = int(found.getsockname()[1])
        self.url = f"tidemark://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        given = [
            part for pair in settings(self._path, self.port).items() for part in ("--set", "=".join(pair))
        ]
        command = [sys.executable, "-m", "tidemark.node", *given]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
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
