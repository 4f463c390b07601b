"""Connections to brokers for administrators: a person waits, so an absent broker is given up soon."""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.sync import Client
    from tidemark.wire.questions import Answered, Question

#: Seconds after which a broker that does not let the client connect is given up.
CONNECT_SECONDS = 3.0
#: Seconds after which a question that the broker does not answer is given up.
ANSWER_SECONDS = 10.0


def connect(url: str) -> Client:
    """Return a client of the broker; NotConnectedError says what to do if no broker answers at the URL."""
    from tidemark import sync

    return sync.connect(url, client=f"cli-{token_hex(4)}", connect_timeout=CONNECT_SECONDS)


def listen(url: str, address: str, lease: float) -> Client:
    """Return a client that the broker calls at an address; RefusedError if the broker does not call there.

    The broker keeps the client's subscriptions for `lease` seconds while the client cannot be called.
    """
    from tidemark import sync

    name = f"cli-{token_hex(4)}"
    return sync.listen(url, address, lease=lease, client=name, connect_timeout=CONNECT_SECONDS)


def ask(url: str, question: Question[Answered], **arguments: Any) -> Answered:
    """Return the broker's answer to one question, over a connection of its own."""
    with connect(url) as client:
        return client.ask(question, timeout=ANSWER_SECONDS, **arguments)
