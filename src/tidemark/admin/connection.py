"""Connections to brokers for administrators: a person waits, so an absent broker is given up soon."""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.sync import Client
    from tidemark.wire.questions import Answered, Question

#: Bytes of a name on the wire.
NAME_BYTES_MAX = 255
#: Seconds after which a broker that does not let the client connect is given up.
CONNECT_SECONDS = 3.0
#: Seconds after which a question that the broker does not answer is given up.
ANSWER_SECONDS = 10.0


def client_name(durable: str | None = None) -> str:
    """Return the name of a client of the command line, a new one unless it is for a durable subscription.

    Workers behind one address are chosen by it: a subscriber that returns then meets the one that has it.
    """
    name = f"cli-{durable}"
    return name if durable and len(name.encode()) <= NAME_BYTES_MAX else f"cli-{token_hex(4)}"


def connect(url: str, durable: str | None = None) -> Client:
    """Return a client of the broker; NotConnectedError says what to do if no broker answers at the URL.

    `durable` is the durable subscription that it is for, if it is for one.
    """
    from tidemark import sync

    return sync.connect(url, client=client_name(durable), connect_timeout=CONNECT_SECONDS)


def listen(url: str, address: str, lease: float, durable: str | None = None) -> Client:
    """Return a client that the broker calls at an address; RefusedError if the broker does not call there.

    The broker keeps the client's subscriptions for `lease` seconds while the client cannot be called.
    """
    from tidemark import sync

    name = client_name(durable)
    return sync.listen(url, address, lease=lease, client=name, connect_timeout=CONNECT_SECONDS)


def ask(url: str, question: Question[Answered], **arguments: Any) -> Answered:
    """Return the broker's answer to one question, over a connection of its own."""
    with connect(url) as client:
        return client.ask(question, timeout=ANSWER_SECONDS, **arguments)
