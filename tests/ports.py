"""Ports for what is started in a process of its own and has to be known before."""

from __future__ import annotations

from contextlib import ExitStack
from socket import socket


def free_ports(count: int) -> list[int]:
    """Different ports that nobody listens at just now."""
    with ExitStack() as stack:
        found = [stack.enter_context(socket()) for _ in range(count)]
        for each in found:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in found]
