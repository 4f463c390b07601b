"""Handshakes: sockets that TLS is being agreed on, before anything else is known of who is at the other end.

Nobody has paid for anything yet, and a handshake that never ends would hold memory and an open file. So there
is a bound on how long one may take, on how many there are, and on how many of one other address there are.
When there are too many, the one that has taken the longest goes: whoever means it is done within a few round
trips, and is not locked out by those who only came to stay.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from tidemark.node.config.units import HostPort
from tidemark.node.logs import Log
from tidemark.node.sockets import is_here

#: Handshakes that are under way at one listener.
HANDSHAKES_MAX = 512
log = Log("tls")


async def listening(
    made: Callable[[], asyncio.BaseProtocol],
    address: HostPort,
    handshakes: Handshakes | None,
    backlog: int,
) -> asyncio.Server:
    """Accept connections at `address`: each begins with a handshake, or without TLS with what is `made`.

    Raises OSError if the address is taken.
    """
    loop = asyncio.get_running_loop()
    accepted = made if handshakes is None else lambda: _Accepted(handshakes)
    return await loop.create_server(accepted, address.host, address.port, backlog=backlog, reuse_address=True)


class Handshakes:
    """The handshakes under way at one listener of this process."""

    def __init__(
        self,
        made: Callable[[], asyncio.BaseProtocol],
        tls: ssl.SSLContext,
        *,
        seconds_max: float,
        address_max: int,
        most: int = HANDSHAKES_MAX,
    ) -> None:
        """`made` returns the protocol of a connection, which begins when its handshake is done.

        `address_max`: handshakes under way of one address, unless that is one of this machine.
        """
        self._made = made
        self._tls = tls
        self._seconds_max = seconds_max
        self._address_max = address_max
        self._most = most
        self._loop = asyncio.get_running_loop()
        #: the sockets whose handshake is under way, the oldest first, and the address of each
        self._open: dict[socket.socket, str] = {}
        self._counts: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        #: counter: handshakes that were given up because there were too many
        self.given_up = 0

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._open)

    def take(self, accepted: socket.socket) -> None:
        """Begin the handshake of a socket that was accepted, or close it if its address has too many."""
        address = _remote(accepted)
        if self._counts[address] >= self._address_max and not is_here(address):
            self.given_up += 1
            accepted.close()
            return
        if len(self._open) >= self._most:
            self._give_up(next(iter(self._open)))
        self._open[accepted] = address
        self._counts[address] += 1
        task = self._loop.create_task(self._shake(accepted), name="tidemark handshake")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _shake(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(
                self._made, accepted, ssl=self._tls, ssl_handshake_timeout=self._seconds_max
            )
        except (OSError, asyncio.CancelledError) as error:
            # The other side has gone, has no TLS or takes too long, or this broker stops.
            log.debug("a socket became no connection", reason=str(error))
            with suppress(OSError):
                accepted.close()
        finally:
            self._forget(accepted)

    def _give_up(self, accepted: socket.socket) -> None:
        """End a handshake; its task ends when it finds that nothing more comes."""
        self.given_up += 1
        self._forget(accepted)
        with suppress(OSError):  # it has gone meanwhile
            accepted.shutdown(socket.SHUT_RDWR)

    def _forget(self, accepted: socket.socket) -> None:
        """A handshake is not under way any more; a second call does nothing."""
        address = self._open.pop(accepted, None)
        if address is None:
            return
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]

    def close(self) -> None:
        """Give all handshakes up."""
        for task in self._tasks:
            task.cancel()


class _Accepted(asyncio.Protocol):
    """A connection that was just accepted: its socket goes to the handshakes before anything is read."""

    def __init__(self, handshakes: Handshakes) -> None:
        self._handshakes = handshakes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        found: Any = transport.get_extra_info("socket")
        self._handshakes.take(socket.socket(fileno=os.dup(found.fileno())))
        cast(asyncio.Transport, transport).abort()


def _remote(accepted: socket.socket) -> str:
    """Return the address at the other end; "" if nobody is there any more."""
    try:
        found: Any = accepted.getpeername()
    except OSError:
        return ""
    return str(found[0]) if isinstance(found, tuple) else ""
