"""Starting a broker process: its arguments, a free port, and the address at which it listens."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from time import monotonic, sleep


def set_arguments(settings: Mapping[str, str]) -> list[str]:
    """Settings as arguments of a broker: `--set section.key=value` for each."""
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


def listening_address(log: bytes) -> str | None:
    """The address in the line `ready` of a broker's JSON log, or None while that line is not complete."""
    for line in log.splitlines(keepends=True):
        if line.startswith(b"{") and line.endswith(b"\n"):
            record = json.loads(line)
            if record.get("text") == "ready":
                return str(record["listen"])
    return None


def free_port() -> int:
    """A TCP port of the loopback address that nothing listens at just now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def wait_until(condition: Callable[[], bool], seconds: float, poll_seconds: float) -> bool:
    """Wait until the condition holds; returns False if it does not within `seconds`."""
    until = monotonic() + seconds
    while not condition():
        if monotonic() > until:
            return False
        sleep(poll_seconds)
    return True
