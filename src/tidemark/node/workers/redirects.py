"""Redirects: a client whose durable subscription is at another worker is sent there.

Clients that come to the one address meet a worker by their own name, and a program that is started again may
have another name than before. If it shows no token, only the worker that has its subscription knows its
place (`places`). A client that is sent to another worker is told what a client of a drained broker is told,
so that it brings its other subscriptions along, with their tokens.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidemark.errors import WireError
from tidemark.node.config.units import HostPort
from tidemark.wire.answers import REMOVE, SEEK, SUBSCRIPTION
from tidemark.wire.frames import Ask, Refused, Subscribe, Unsubscribe
from tidemark.wire.json_objects import read_arguments

if TYPE_CHECKING:
    from tidemark.access.principal import Principal
    from tidemark.node.connection import Connection
    from tidemark.node.server import Server
    from tidemark.node.workers.handed_sockets import HandedSockets
    from tidemark.node.workers.subscription_workers import SubscriptionWorkers

#: A client that has other subscriptions here is sent away after this time: it has their tokens by then, and
#: brings them along. Without them it would be sent to and fro.
TOKENS_SECONDS = 0.25
#: Questions about one subscription.
ABOUT_ONE = frozenset((SUBSCRIPTION.what, REMOVE.what, SEEK.what))
#: How the names of subscriptions begin that end with their connection.
PASSING = "~"
#: Addresses that stand for all those of a machine.
EVERYWHERE = frozenset(("0.0.0.0", "::", ""))


def is_sent_away(server: Server, connection: Connection, frame: Subscribe | Unsubscribe) -> bool:
    """Tell a client of the broker that it should go to; return whether there is one."""
    is_first = not connection.is_subscriber
    if isinstance(frame, Subscribe):
        connection.is_subscriber = True
        if (notice := server.drain_notice) is not None:
            where = notice.addresses
            connection.write(Refused("subscribe", frame.name, "draining", notice.reason, where))
            return True
    return server.redirects is not None and server.redirects.is_sent(connection, frame, is_first=is_first)


class Redirects:
    """Sends clients of one worker to the others. It belongs to the worker's server."""

    def __init__(
        self, server: Server, own_port: int, places: SubscriptionWorkers, handed: HandedSockets
    ) -> None:
        """`own_port` is that of the worker's own address: who is at another one has come over the front."""
        self._server = server
        self._own_port = own_port
        self._places = places
        self._handed = handed
        self._loop = asyncio.get_running_loop()

    def took(self, name: str, principal: Principal | None) -> None:
        """A subscriber was told that the subscription `name` is in force here."""
        if not name.startswith(PASSING):
            self._places.take(name, _owner(principal))

    def close(self) -> None:
        """Forget the file."""
        self._places.close()

    def is_sent(self, connection: Connection, frame: Subscribe | Unsubscribe, *, is_first: bool) -> bool:
        """Send a client away if what it asks for is at another worker; return whether it was sent.

        `is_first`: the client has no subscription here yet.
        """
        if isinstance(frame, Subscribe) and not frame.durable:
            return False
        owner = _owner(connection.principal)
        where = self._elsewhere(frame.name, owner)
        if isinstance(frame, Unsubscribe):
            if where is None:
                self._places.end(frame.name, owner)
                return False
        elif where is None or frame.token is not None:
            return False
        what = "subscribe" if isinstance(frame, Subscribe) else "unsubscribe"
        reason = f"{frame.name!r} is at {where!r}"
        refusal = Refused(what, frame.name, "draining", reason, self._way(connection, where))
        if is_first:
            connection.write(refusal)
        else:
            self._loop.call_later(TOKENS_SECONDS, connection.write, refusal)
        return True

    def answer(self, ask: Ask) -> Refused | None:
        """Return the answer to a question about a subscription that is at another worker; else None."""
        if ask.what not in ABOUT_ONE:
            return None
        try:
            name = str(read_arguments(ask.arguments).get("name", ""))
        except WireError:
            return None
        where = self._elsewhere(name)
        if where is None:
            return None
        address = self._server.membership.topology.brokers[where].listen
        reason = f"{name!r} is at {where!r}: ask there, at {address}"
        return Refused("ask", str(ask.ticket), "moved", reason)

    def _elsewhere(self, name: str, owner: str = "") -> str | None:
        """Return the other worker that has the subscription `name`; None if none has that takes clients."""
        where = self._places.of(name, owner)
        placement = self._server.membership.topology.brokers.get(where or "")
        if placement is None or placement.is_draining or where == self._server.name:
            return None
        return where

    def _way(self, connection: Connection, where: str) -> tuple[str, ...]:
        """Return the addresses at which the client finds a worker; none if it finds it where it came from.

        The acceptor does not see the name of a client that comes over TLS.
        """
        is_handed = connection.local.port != self._own_port
        is_seen = is_handed and self._server.security.transport.server is None
        if is_seen and self._handed.belongs(connection.name, where):
            return ()
        listen = self._server.membership.topology.brokers[where].listen
        if listen.host in EVERYWHERE:
            listen = HostPort(connection.local.host, listen.port)
        return (str(listen),)


def _owner(principal: Principal | None) -> str:
    return "" if principal is None else principal.name
