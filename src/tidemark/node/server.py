"""Server: the listening socket and every connection, with their bounds in number, time and bytes.

Idle connections cost no timer of their own: one sweep a second looks at those that are in a state which may
not last (not introduced, in the middle of a frame, closing, congested), and every few seconds at all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from ipaddress import ip_address

from tidemark.broker.broker import Route
from tidemark.node.config import LimitsSection
from tidemark.node.connection import Connection
from tidemark.node.logs import Log
from tidemark.node.runtime import Runtime
from tidemark.node.units import Address
from tidemark.wire.frames import Answer, Ask

READ_BYTES = 256 << 10
BACKLOG = 1_024
SWEEP_SECONDS = 1.0
LATE_SECONDS = 2.0
#: Every so many sweeps all connections are looked at.
FULL_SWEEP = 5
#: What was said has this long to go out when a connection is closed.
GOODBYE_SECONDS = 5.0
log = Log("server")


class Gate:
    """How many strangers of one address are inside. Those of this machine are no strangers."""

    def __init__(self, strangers_max: int) -> None:
        self._strangers_max = strangers_max
        self._inside: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """One more has come; whether it may stay."""
        self._inside[address] += 1
        return self._inside[address] <= self._strangers_max or is_here(address)

    def leave(self, address: str) -> None:
        """One has gone, or is no stranger any more."""
        self._inside[address] -= 1
        if not self._inside[address]:
            del self._inside[address]


class Server:
    """All connections of a broker."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        routes: Mapping[str, Route],
        neighbours: tuple[str, ...],
        limits: LimitsSection,
        runtime: Runtime,
        answer: Callable[[Ask], Answer | None],
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.routes = routes
        self.neighbours = neighbours
        self.pubends = tuple(sorted(pubend for pubend, route in routes.items() if route.upstream is None))
        self.limits = limits
        self.runtime = runtime
        #: of the questions that are not for the broker's roles; None for those that are
        self.answer = answer
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.connections: set[Connection] = set()
        #: states that may not last
        self.incomplete: set[Connection] = set()
        self.congested: set[Connection] = set()
        self._strangers: set[Connection] = set()
        self._closing: dict[Connection, float] = {}
        #: frames that neighbours were too slow for, and connections that were turned away
        self.dropped = 0
        self.turned_away = 0
        self._gate = Gate(limits.strangers)
        self._loop = asyncio.get_running_loop()
        self.time = self._loop.time
        self._listener: asyncio.Server | None = None
        self._sweeps = 0
        self._swept = self.time()
        self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        #: set whenever a connection has gone
        self._is_changed = asyncio.Event()

    async def listen(self, address: Address) -> Address:
        """Open the door; where it is, since port 0 lets the system choose."""
        self._listener = await self._loop.create_server(
            lambda: Connection(self), address.host, address.port, backlog=BACKLOG, reuse_address=True
        )
        host, port = self._listener.sockets[0].getsockname()[:2]
        return Address(host, port)

    async def call(self, peer: str, address: Address) -> Connection:
        """Open a connection to a neighbour."""
        _, connection = await self._loop.create_connection(
            lambda: Connection(self, peer), address.host, address.port
        )
        return connection

    async def gone(self, connection: Connection) -> None:
        """Return when a connection is closed."""
        while connection in self.connections:
            self._is_changed.clear()
            await self._is_changed.wait()

    def shut(self) -> None:
        """Let nobody in any more."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def say_goodbye(self) -> None:
        """Close every connection when what was said has gone out, and cut off those that do not take it."""
        self.shut()
        for connection in list(self.connections):
            connection.close()
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                for connection in list(self.connections):
                    await self.gone(connection)
        except TimeoutError:
            pass
        self.stop()

    def stop(self) -> None:
        """Cut everybody off."""
        self.shut()
        self._timer.cancel()
        for connection in list(self.connections):
            connection.abort()

    # Connections tell.

    def opened(self, connection: Connection) -> bool:
        """A connection is there; whether it may stay."""
        self.connections.add(connection)
        self._strangers.add(connection)
        is_welcome = self._gate.enter(connection.address) or connection.expected is not None
        if is_welcome and len(self.connections) <= self.limits.connections:
            return True
        self.turned_away += 1
        log.warning("turned away: too many connections", address=connection.address)
        return False

    def introduced(self, connection: Connection) -> None:
        """It has said who it is."""
        self._strangers.discard(connection)
        self._gate.leave(connection.address)
        if connection.peer is not None:
            log.info("link is up", peer=connection.peer, address=connection.address)
        else:
            log.debug("client is here", address=connection.address, name=connection.name)

    def closing(self, connection: Connection) -> None:
        """It is closed as soon as what was said has gone out."""
        self._closing[connection] = self.time()

    def closed(self, connection: Connection, error: Exception | None) -> None:
        """It is gone."""
        self.connections.discard(connection)
        self.incomplete.discard(connection)
        self.congested.discard(connection)
        self._closing.pop(connection, None)
        if connection in self._strangers:
            self._strangers.discard(connection)
            self._gate.leave(connection.address)
        if connection.client is not None:
            self.runtime.client_gone(connection.client)
        if connection.peer is not None:
            log.info("link is down", peer=connection.peer, cause=str(error or "closed"))
            self.runtime.link_down(connection.peer, connection)
        self._is_changed.set()

    def queue_bytes_max(self, connection: Connection) -> int:
        """The bound of its output queue."""
        return self.limits.client_queue if connection.peer is None else self.limits.peer_queue

    # Time.

    def _sweep(self) -> None:
        self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        now = self.time()
        late, self._swept = now - self._swept > LATE_SECONDS, now
        if late:
            # We were busy, or stopped: what others have sent meanwhile has to be read before they are judged.
            return
        for connection in [
            each for each in self._strangers if now - each.began > self.limits.handshake / 1e6
        ]:
            connection.refuse("limit", "say who you are sooner")
        for connection in list(self.incomplete):
            self._check_incomplete(connection, now)
        for connection, since in list(self._closing.items()):
            if now - since > GOODBYE_SECONDS:
                connection.abort()
        self._bound_queues()
        self._sweeps += 1
        if self._sweeps % FULL_SWEEP == 0:
            self._ping(now)

    def _check_incomplete(self, connection: Connection, now: float) -> None:
        since = connection.incomplete_since
        if since is not None and now - since > self.limits.frame / 1e6 and not connection.is_paused:
            connection.refuse("limit", "a frame took too long to arrive")

    def _ping(self, now: float) -> None:
        ask, give_up = now - self.limits.ping / 1e6, now - self.limits.silence / 1e6
        for connection in [each for each in self.connections if each.heard < ask and each.is_known]:
            if connection.is_paused:
                continue
            # Only who was asked and has not answered: we may not have looked for longer than that.
            if connection.heard < give_up and connection.asked > connection.heard:
                log.warning(
                    "nothing heard: disconnected",
                    address=connection.address,
                    who=connection.peer or connection.name,
                )
                connection.abort()
            else:
                connection.ping()

    def _bound_queues(self) -> None:
        """All queues together: whoever has the longest goes first."""
        queues = {connection: connection.queued_bytes for connection in self.congested}
        excess = sum(queues.values()) - self.limits.all_queues
        for connection in sorted(queues, key=queues.__getitem__, reverse=True):
            if excess <= 0:
                return
            excess -= queues[connection]
            log.warning(
                "all queues are full: disconnected", address=connection.address, queued=queues[connection]
            )
            connection.abort()


def is_here(address: str) -> bool:
    """An address of this machine."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
