"""Brokers for tests: how they are set, and one on a thread of its own, for clients that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import uvloop

from tests import security_on
from tests.ports import free_ports
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
    """The configuration of a broker with the settings of `settings_at`; with `--secure` it has accounts.

    Options of security are taken as they are.
    """
    given = settings_at(path, **options)
    has_own = any(key.startswith("security.") for key in given)
    return load(options=given if has_own else security_on.settings_without_tls() | given)


class HandClock:
    """The clock of a broker's server, moved by hand: how loaded the machine is does not count."""

    def __init__(self, node: Node) -> None:
        """From now on the server of this node goes by this clock."""
        self.server = node.server
        self.now = node.server.time()
        node.server.time = self

    def __call__(self) -> float:
        return self.now


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        # As in a broker process. A server of asyncio's own that is closed while a connection arrives leaves
        # that connection's transport unclosed.
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()


class LiveNode:
    """A broker that can be stopped and started again at its address."""

    def __init__(self, path: Path, **options: str) -> None:
        self._path = path
        self._options = options
        self._listen = f"127.0.0.1:{free_ports(1)[0]}"
        self._loop = LoopThread()
        self._node: Node | None = None
        self.start()

    @property
    def http_address(self) -> str:
        assert self._node is not None
        return str(self._node.http_address)

    @property
    def url(self) -> str:
        return f"{security_on.scheme()}://{self._listen}"

    def metrics(self, page: str = "/metrics") -> str:
        """What the broker tells monitoring."""
        scheme, context = security_on.http()
        asked = Request(f"{scheme}://{self.http_address}{page}")
        asked.add_header("Authorization", f"Bearer {security_on.PASSWORD}")
        with urlopen(asked, context=context) as found:
            return str(found.read().decode())

    def start(self) -> None:
        options = {**security_on.settings_of(), "broker__listen": self._listen, **self._options}
        config = config_at(self._path / "data", **options)
        self._node = self._loop.run(Node.start(config))
        self._listen = str(self._node.address)

    def stop(self) -> None:
        if self._node is not None:
            node, self._node = self._node, None
            self._loop.run(node.stop())

    def close(self) -> None:
        self.stop()
        self._loop.close()


class OverlayNodes:
    """Brokers in a line, each a cell of its own with a pubend of its name, on one thread."""

    def __init__(self, path: Path, *names: str, **options: str) -> None:
        """`options` are settings of every broker, written as they are: `**{"tracing.endpoint": ...}`."""
        self._options = options
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self._file = path / "overlay.toml"
        tables = [
            f'[brokers.{name}]\ncell = "{name}"\nlisten = "127.0.0.1:{port}"\npubends = ["{name}"]\n'
            for name, port in self._ports.items()
        ]
        bundles = [f'[bundles.{a}-{b}]\ncells = ["{a}", "{b}"]\n' for a, b in pairwise(names)]
        self._file.write_text("".join(tables + bundles))
        self._path = path
        self._loop = LoopThread()
        self._nodes: dict[str, Node] = {}
        for name in names:
            self.start(name)

    def url(self, name: str) -> str:
        return f"{security_on.scheme()}://127.0.0.1:{self._ports[name]}"

    def http_address(self, name: str) -> str:
        return str(self._nodes[name].http_address)

    def start(self, name: str) -> None:
        options = settings_at(self._path / name) | security_on.settings_of(name) | self._options
        del options["broker.listen"]
        self._nodes[name] = self._loop.run(Node.start(load(self._file, broker=name, options=options)))

    def stop(self, name: str) -> None:
        self._loop.run(self._nodes.pop(name).stop())

    def close(self) -> None:
        for name in list(self._nodes):
            self.stop(name)
        self._loop.close()


@contextmanager
def live_node(path: Path, **options: str) -> Iterator[LiveNode]:
    node = LiveNode(path, **options)
    try:
        yield node
    finally:
        node.close()
