"""Server: the listening socket and every connection, with their bounds in number, time and bytes.

Idle connections cost no timer of their own: one sweep a second looks at those that are in a state which may
not last (not introduced, in the middle of a frame, closing, congested), and every few seconds at all. Links
to other brokers are looked at more often: the sooner one is known to be dead, the sooner another is used.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from ipaddress import ip_address

from tidemark.broker.effects import DrainNotice
from tidemark.node.config.settings import LimitsSection, LinksSection, SubscribersSection
from tidemark.node.config.units import SocketAddress
from tidemark.node.connection import Connection
from tidemark.node.leases.leaseholder import Leaseholder
from tidemark.node.leases.leases import Leases
from tidemark.node.local_link import LocalLink
from tidemark.node.logs import Log
from tidemark.node.runtime import Runtime
from tidemark.node.topology.membership import Membership
from tidemark.node.topology.topology import Topology
from tidemark.wire.frames import Answer, Ask, Overlay, Refused

READ_BYTES = 256 << 10
BACKLOG = 1_024
SWEEP_SECONDS = 1.0
LATE_SECONDS = 2.0
#: Every so many sweeps all connections are looked at.
FULL_SWEEP = 5
#: What was said has this long to go out when a connection is closed.
GOODBYE_SECONDS = 5.0
#: Other brokers that a client is told of.
OTHERS_MAX = 8
log = Log("server")

Reply = Callable[[Answer | Refused], None]


class StrangerCounts:
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
        membership: Membership,
        limits: LimitsSection,
        link_limits: LinksSection,
        subscribers: SubscribersSection,
        runtime: Runtime,
        answer: Callable[[Ask, Reply], bool],
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.membership = membership
        self.neighbours: tuple[str, ...] = membership.topology.neighbours(name)
        self.pubends: tuple[str, ...] = hosted(membership.topology, name)
        #: what subscribers are told while this broker is being drained; None while it is not
        self.drain_notice = drain_notice(membership.topology, name)
        self.limits = limits
        self._link_limits = link_limits
        self.runtime = runtime
        #: answers the questions that are not for the broker's roles; whether it was one
        self.answer = answer
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.connections: set[Connection] = set()
        #: links to other brokers: of other processes, and of this one
        self.links: set[Connection] = set()
        self.local: set[LocalLink] = set()
        #: states that may not last
        self.incomplete: set[Connection] = set()
        self.congested: set[Connection] = set()
        self._strangers: set[Connection] = set()
        self._closing: dict[Connection, float] = {}
        #: frames that neighbours were too slow for, and connections that were turned away
        self.dropped = 0
        self.turned_away = 0
        self._stranger_counts = StrangerCounts(limits.strangers)
        self._loop = asyncio.get_running_loop()
        self.time = self._loop.time
        self._listener: asyncio.Server | None = None
        self._is_shut = False
        self.leases = Leases(self, subscribers)
        self._sweeps = 0
        self._swept = self.time()
        self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        self._links_swept = self.time()
        self._link_timer = self._loop.call_later(link_limits.ping / 2e6, self._sweep_links)
        #: set whenever a connection has gone
        self._is_changed = asyncio.Event()

    async def listen(self, address: SocketAddress) -> SocketAddress:
        """Open the door; where it is, since port 0 lets the system choose."""
        self._listener = await self._loop.create_server(
            lambda: Connection(self), address.host, address.port, backlog=BACKLOG, reuse_address=True
        )
        host, port = self._listener.sockets[0].getsockname()[:2]
        return SocketAddress(host, port)

    async def call(self, peer: str, address: SocketAddress) -> Connection:
        """Open a connection to a neighbour."""
        _, connection = await self._loop.create_connection(
            lambda: Connection(self, peer), address.host, address.port
        )
        return connection

    async def push(self, holder: Leaseholder, address: SocketAddress) -> Connection:
        """Open a connection to a parked client."""
        _, connection = await self._loop.create_connection(
            lambda: Connection(self, calling=holder), address.host, address.port
        )
        return connection

    async def gone(self, connection: Connection | LocalLink) -> None:
        """Return when a connection is closed."""
        while connection in self.connections or connection in self.local:
            self._is_changed.clear()
            await self._is_changed.wait()

    def shut(self) -> None:
        """Let nobody in any more, nor anyone who was at the door, and call no client."""
        self._is_shut = True
        self.leases.stop()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def say_goodbye(self) -> None:
        """Close every connection when what was said has gone out, and cut off those that do not take it."""
        self.shut()
        for connection in list(self.connections):
            connection.close()
        for link in list(self.local):
            link.abort()
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
        self._link_timer.cancel()
        for connection in list(self.connections):
            connection.abort()
        for link in list(self.local):
            link.abort()

    # The overlay.

    def told_overlay(self, connection: Connection | LocalLink, frame: Overlay) -> None:
        """Another broker says which topology it goes by; it may not be a neighbour, in one of the two."""
        membership = self.membership
        membership.heard(frame, connection.say)
        if isinstance(connection, LocalLink) or connection.peer is not None or membership.is_behind(frame):
            return
        who = connection.expected or (connection.hello.broker if connection.hello is not None else "")
        # One that has just been told that it is a neighbour closes the connection, and is called again.
        if who not in self.neighbours or frame.version == membership.topology.version:
            connection.refuse_stranger()

    def spread(self, frame: Overlay) -> None:
        """Tell all neighbours."""
        for link in self._all_links():
            link.say(frame)

    def change(self, topology: Topology) -> None:
        """Go by another topology: close what is no link any more, and send subscribers away when drained."""
        self.neighbours = topology.neighbours(self.name)
        self.pubends = hosted(topology, self.name)
        for connection in [each for each in self._strangers if each.hello is not None]:
            connection.close()
        for link in self._all_links():
            if link.peer not in self.neighbours:
                link.close()
        self.drain_notice = drain_notice(topology, self.name)
        if self.drain_notice is not None:
            for connection in [each for each in self.connections if each.is_subscriber]:
                connection.refuse("draining", self.drain_notice.reason, self.drain_notice.addresses)

    def _all_links(self) -> list[Connection | LocalLink]:
        return [*self.links, *self.local]

    # Connections tell.

    def opened_local(self, link: LocalLink) -> None:
        """A link to a broker of this process is there."""
        self.local.add(link)
        log.info("link is up", peer=link.peer, address="this process")

    def closed_local(self, link: LocalLink) -> None:
        """It is gone."""
        self.local.discard(link)
        log.info("link is down", peer=link.peer, cause="closed")
        self.runtime.link_down(link.peer, link)
        self._is_changed.set()

    def opened(self, connection: Connection) -> bool:
        """A connection is there; whether it may stay."""
        self.connections.add(connection)
        self._strangers.add(connection)
        is_welcome = self._stranger_counts.enter(connection.address) or connection.is_called
        if self._is_shut:
            return False
        if is_welcome and len(self.connections) <= self.limits.connections:
            return True
        self.turned_away += 1
        log.warning("turned away: too many connections", address=connection.address)
        return False

    def introduced(self, connection: Connection) -> None:
        """It has said who it is."""
        self._strangers.discard(connection)
        self._stranger_counts.leave(connection.address)
        if connection.peer is not None:
            self.links.add(connection)
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
        self.links.discard(connection)
        self._closing.pop(connection, None)
        if connection in self._strangers:
            self._strangers.discard(connection)
            self._stranger_counts.leave(connection.address)
        self.leases.closed(connection)
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
        self.leases.sweep(now)
        self._sweeps += 1
        if self._sweeps % FULL_SWEEP == 0:
            self._ping(now)

    def _check_incomplete(self, connection: Connection, now: float) -> None:
        since = connection.incomplete_since
        if since is not None and now - since > self.limits.frame / 1e6 and not connection.is_paused:
            connection.refuse("limit", "a frame took too long to arrive")

    def _ping(self, now: float) -> None:
        ask, give_up = now - self.limits.ping / 1e6, now - self.limits.silence / 1e6
        for connection in [each for each in self.connections if each.heard < ask and each.client is not None]:
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

    def _sweep_links(self) -> None:
        ping, silence = self._link_limits.ping / 1e6, self._link_limits.silence / 1e6
        self._link_timer = self._loop.call_later(ping / 2, self._sweep_links)
        now = self.time()
        late, self._links_swept = now - self._links_swept > 2 * ping, now
        for link in list(self.links):
            if late:
                # We were busy, or stopped: what it has sent meanwhile has to be read before it is judged.
                link.heard = max(link.heard, now - ping)
            if now - link.heard > silence and link.asked > link.heard and not link.is_paused:
                log.warning("nothing heard: link is dead", peer=link.peer, seconds=round(now - link.heard, 3))
                link.abort()
            # One that is not read from cannot hear us ask: it hears that we are there.
            elif now - max(link.heard, link.asked) > ping or link.is_paused:
                link.ping()

    def _bound_queues(self) -> None:
        """All queues together: whoever has the longest goes first."""
        queues = {connection: connection.queued_bytes for connection in self.congested}
        mail = sum(holder.mail_bytes for holder in self.leases.waiting)
        excess = sum(queues.values()) + mail - self.limits.all_queues
        for connection in sorted(queues, key=queues.__getitem__, reverse=True):
            if excess <= 0:
                return
            excess -= queues[connection]
            log.warning(
                "all queues are full: disconnected", address=connection.address, queued=queues[connection]
            )
            connection.abort()
        for holder in sorted(self.leases.waiting, key=lambda each: each.mail_bytes, reverse=True):
            if excess <= 0:
                return
            excess -= holder.mail_bytes
            log.warning("all queues are full: a lease ends", name=holder.name, queued=holder.mail_bytes)
            self.leases.end(holder)


def hosted(topology: Topology, name: str) -> tuple[str, ...]:
    """The pubends that a broker hosts."""
    return tuple(sorted(topology.brokers[name].pubends)) if name in topology.brokers else ()


def drain_notice(topology: Topology, name: str) -> DrainNotice | None:
    """Return where clients of a drained broker should go, its own cell first; None if it is not drained."""
    placement = topology.brokers.get(name)
    if placement is None or not placement.is_draining:
        return None
    others = [each for each in topology.brokers.values() if not each.is_draining]
    others.sort(key=lambda each: each.cell != placement.cell)
    addresses = tuple(str(each.listen) for each in others[:OTHERS_MAX])
    where = f": go to tidemark://{','.join(addresses)}" if addresses else ""
    return DrainNotice(f"{name!r} is being drained{where}", addresses)


def is_here(address: str) -> bool:
    """An address of this machine."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
