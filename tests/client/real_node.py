"""A real broker for tests of the client: on a free port, and quick to tell of silence."""

from __future__ import annotations

from pathlib import Path

from tidemark.node.configload import load
from tidemark.node.node import Node


async def start_node(path: Path, port: int = 0, **more: str) -> Node:
    """A broker on the disk below `path`; `more` settings have `__` for the dot in their names."""
    return await Node.start(
        load(
            options={
                "storage.data_dir": str(path / "data"),
                "broker.listen": f"127.0.0.1:{port}",
                "http.listen": "127.0.0.1:0",
                "thresholds.silence": "50ms",
                "thresholds.heartbeat": "10ms",
                **{name.replace("__", "."): value for name, value in more.items()},
            }
        )
    )
