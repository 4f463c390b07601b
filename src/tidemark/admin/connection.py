"""A connection to a broker for an administrator: one command, one question, little patience."""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.sync import Client

#: A person waits: less patience than a program has.
CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 10.0


def connect(url: str) -> Client:
    """A client of the broker; NotConnectedError says what to do if it is not there."""
    from tidemark import sync

    return sync.connect(url, client=f"cli-{token_hex(4)}", connect_timeout=CONNECT_SECONDS)


def listen(url: str, address: str, lease: float) -> Client:
    """A client that the broker calls at an address; RefusedError if it does not call there."""
    from tidemark import sync

    name = f"cli-{token_hex(4)}"
    return sync.listen(url, address, lease=lease, client=name, connect_timeout=CONNECT_SECONDS)


def ask(url: str, what: str, **arguments: Any) -> Any:
    """Ask one question over a connection of its own."""
    with connect(url) as tm:
        return tm.ask(what, timeout=ANSWER_SECONDS, **arguments)
