"""Brokers for tests: how they are set, and one on a thread of its own, for clients that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE_SECONDS
from tidemark.node.config.loading import load
from tidemark.node.config.settings import Config
from tidemark.node.node import Node


def settings_at(path: Path, **options: str) -> dict[str, str]:
    """Data in `path`, ports of the system's choice, silence told soon; options may have `__` for the dot."""
    return {
        "storage.data_dir": str(path),
        "broker.listen": "127.0.0.1:0",
        "http.listen": "127.0.0.1:0",
        "thresholds.silence": "50ms",
        "thresholds.heartbeat": "10ms",
        **{key.replace("__", "."): value for key, value in options.items()},
    }


def config_at(path: Path, **options: str) -> Config:
    """The configuration of a broker with the settings of `settings_at`."""
    return load(options=settings_at(path, **options))


class LiveNode:
    """A broker that can be stopped and started again at its address."""

    def __init__(self, path: Path, **options: str) -> None:
        self._path = path
        self._options = options
        self._listen = "127.0.0.1:0"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._node: Node | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"tidemark://{self._listen}"

    def start(self) -> None:
        config = config_at(self._path / "data", broker__listen=self._listen, **self._options)
        self._node = self._run(Node.start(config))
        self._listen = str(self._node.address)

    def stop(self) -> None:
        if self._node is not None:
            node, self._node = self._node, None
            self._run(node.stop())

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)


@contextmanager
def live_node(path: Path, **options: str) -> Iterator[LiveNode]:
    node = LiveNode(path, **options)
    try:
        yield node
    finally:
        node.close()
