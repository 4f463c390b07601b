"""A client that its broker calls when there is an event for it."""

from __future__ import annotations

from typing import Unpack

from tidemark.client.client import Client
from tidemark.client.connecting.addresses import parse_listen
from tidemark.client.connecting.options import ConnectOptions

LEASE_SECONDS = 60.0


def listen(
    url: str,
    address: str = "127.0.0.1:0",
    *,
    lease: float = LEASE_SECONDS,
    **options: Unpack[ConnectOptions],
) -> Client:
    """A client that holds no connection while it is idle: its broker calls it when there is an event for it.

    The client listens at `address`, `host:port`, where port 0 lets the system choose; all else is as with
    `connect`. If the client cannot be reached for `lease` seconds, or fewer if the broker grants fewer, the
    broker ends its subscriptions that are not durable. ConfigError if the URL or the address is malformed;
    connecting raises RefusedError with the code "address" if the broker does not call that address.
    """
    return Client(url, push=(parse_listen(address), max(1, round(lease))), **options)
