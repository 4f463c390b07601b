"""Server: the listening socket and every connection, with bounds on their number, time and bytes.

An idle connection costs no timer of its own. One sweep a second checks the connections in a state that may
not last (not introduced, in the middle of a frame, closing, congested), and every few seconds it checks all
of them. Links to other brokers are checked more often: the sooner a link is known to be dead, the sooner
another one is used.

A server belongs to one node. It owns the connections, the local links and the leases, and passes what they
receive to the runtime; each of them holds the server and reports to it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from time import time
from typing import Protocol

from tidemark.broker.effects import DrainNotice, LinkMeasured
from tidemark.node.clock import Clock
from tidemark.node.config.settings import Config
from tidemark.node.config.units import HostPort
from tidemark.node.connection import Connection
from tidemark.node.leases.leaseholder import Leaseholder
from tidemark.node.leases.leases import Leases
from tidemark.node.local_link import LocalLink
from tidemark.node.logs import Log
from tidemark.node.monitoring.client_traffic import ClientTraffic
from tidemark.node.monitoring.link_traffic import LinkTraffic
from tidemark.node.runtime import Runtime
from tidemark.node.security.access_membership import AccessMembership
from tidemark.node.security.handshakes import listening
from tidemark.node.security.login_limits import LoginLimits
from tidemark.node.security.security import Security
from tidemark.node.sockets import call_back, is_here
from tidemark.node.topology.membership import Membership
from tidemark.node.topology.topology import Topology
from tidemark.node.turns.rates import QuestionRates
from tidemark.node.unfinished_input import UnfinishedInput
from tidemark.node.workers.redirects import Redirects
from tidemark.wire.frames import Answer, Ask, Hello, Overlay, Pong, Refused
from tidemark.wire.limits import VERSIONS_MISSED_MAX
from tidemark.wire.liveness.tcp_info import TcpInfo
from tidemark.wire.security.frames import Access

#: As much as is logged as one record, so that what a publisher has under way is read and decoded at once.
READ_BYTES = 512 << 10
#: Connections that the system may keep waiting until they are accepted.
BACKLOG = 1_024
SWEEP_SECONDS = 1.0
#: A sweep that comes later than this after the one before judges nobody: this process was busy or stopped.
LATE_SECONDS = 2.0
#: Every so many sweeps all connections are checked.
FULL_SWEEP = 5
#: Silent clients of which one sweep asks the kernel whether they are reachable.
OBSERVED_MAX = 2_000
#: How often links are measured.
MEASURE_SECONDS = 1.0
#: Measurements of a link that differ by no more than this part say the same.
ALIKE = 0.1
#: A connection that is being closed has this long to write what is queued.
GOODBYE_SECONDS = 5.0
#: A neighbour that was refused is left alone for this long at first, and at most.
REFUSED_SECONDS_MIN = 1.0
REFUSED_SECONDS_MAX = 60.0
#: Other brokers that a client is told of.
OTHERS_MAX = 8
log = Log("server")


class Reply(Protocol):
    """Sends the answer to an administrator's question to whoever asked it."""

    def __call__(self, frame: Answer | Refused, /) -> None:
        """Send `frame`, now, or when the client that asked is back."""


class Administration(Protocol):
    """Answers the questions of administrators that are about the process: `node.admin.ProcessAdmin`."""

    def answer(self, ask: Ask, client: int, reply: Reply) -> bool:
        """Answer the question of a client through `reply`, now or later.

        Returns False if the question is for the broker's core.
        """


class StrangerCounts:
    """How many connections of each remote address have not introduced themselves; bounds that number.

    Connections from this machine are counted and never refused.
    """

    def __init__(self, strangers_max: int) -> None:
        self._strangers_max = strangers_max
        self._counts: Counter[str] = Counter()

    def add(self, address: str) -> bool:
        """Count one more connection. Returns whether it may stay."""
        self._counts[address] += 1
        return self._counts[address] <= self._strangers_max or is_here(address)

    def remove(self, address: str) -> None:
        """A connection is closed, or has introduced itself."""
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]


class RefusedNeighbours:
    """Neighbours whose links were closed because of what they said, and for how long they are left alone.

    The time doubles from REFUSED_SECONDS_MIN to REFUSED_SECONDS_MAX while a neighbour keeps being refused, so
    that one that says the same each time does not come again and again.
    """

    def __init__(self, time: Clock) -> None:
        self._time = time
        #: neighbour -> until when it is left alone, on the loop's clock, and for how long that is
        self._until: dict[str, tuple[float, float]] = {}

    def add(self, peer: str) -> None:
        """A neighbour has just been refused."""
        now = self._time()
        until, seconds = self._until.get(peer, (0.0, 0.0))
        is_again = now - until < REFUSED_SECONDS_MAX
        seconds = min(2 * seconds, REFUSED_SECONDS_MAX) if is_again and seconds else REFUSED_SECONDS_MIN
        self._until[peer] = now + seconds, seconds

    def seconds_left(self, peer: str) -> float:
        """Returns for how long a neighbour is still left alone; 0 if it may be linked."""
        until, _ = self._until.get(peer, (0.0, 0.0))
        return max(0.0, until - self._time())


class Server:
    """All connections of a broker."""

    def __init__(
        self,
        config: Config,
        incarnation: int,
        membership: Membership,
        runtime: Runtime,
        admin: Administration,
        security: Security,
        access: AccessMembership | None = None,
    ) -> None:
        """All but `config` and `incarnation` belong to the node, which shares them with the server."""
        limits, name = config.limits, config.broker.name
        self.name = name
        self.incarnation = incarnation
        #: which topology holds; connections greet neighbours with it
        self.membership = membership
        #: the neighbours of this broker, and the pubends it hosts, in the topology that `change` was given
        self.neighbours: tuple[str, ...] = membership.topology.neighbours(name)
        self.pubends: tuple[str, ...] = hosted(membership.topology, name)
        #: what subscribers are told while this broker is being drained; None while it is not
        self.drain_notice = drain_notice(membership.topology, name)
        self.limits = limits
        #: by what connections are judged, and the access document that neighbours are told of
        self.security = security
        self.access = access
        self._link_limits = config.links
        #: what neighbours are told first, with the newest version of the protocol that is spoken with them
        self.hello = Hello(name, incarnation, newest=config.links.version)
        #: what was sent to each neighbour, and to and from all clients; connections count, metrics read it
        self.link_traffic, self.client_traffic = LinkTraffic(), ClientTraffic()
        #: what connections receive goes to its `client_*`, `peer_said` and `link_*` methods
        self.runtime = runtime
        self.admin = admin
        #: Every connection reads into this one buffer, and decodes what it has read before anyone else reads.
        self.buffer = memoryview(bytearray(READ_BYTES))
        #: gives each connection its number; numbers are not used again
        self.next_number = count().__next__
        #: Every open connection. Changed by `opened` and `closed` only; the node, admin and metrics read it.
        self.connections: set[Connection] = set()
        #: Links that are up, to brokers of other processes and of this one: only methods here change both.
        self.links: set[Connection] = set()
        self.local: set[LocalLink] = set()
        #: Connections with part of a frame, and whose socket takes no more: each adds and discards itself.
        self.incomplete = UnfinishedInput(limits.input)
        self.congested: set[Connection] = set()
        #: Connections that have not introduced themselves, and how many each address has.
        self._strangers: set[Connection] = set()
        #: how many connections each remote address has
        self._address_counts: Counter[str] = Counter()
        self._stranger_counts = StrangerCounts(limits.strangers)
        #: connections that close when their queue is written -> since when, on the loop's clock
        self._closing: dict[Connection, float] = {}
        #: counters for metrics: frames that slow neighbours missed (links count), connections over a limit
        self.dropped = 0
        self.turned_away = 0
        #: questions over `limits.questions`; each connection counts here
        self.questions_refused = 0
        #: counter for metrics: connections that ended because of what came over them; each counts itself
        self.malformed = 0
        self._loop = asyncio.get_running_loop()
        #: connections that wait until others have had their part of the event loop's time
        self.turns = runtime.turns
        self.questions = QuestionRates(limits.questions, limits.address_times, self.turns.clock)
        #: the clock of connections, links and leases
        self.time: Clock = self._loop.time
        #: failed logins, which connections report, and a counter for metrics
        self.login_limits = LoginLimits(self.time)
        self.logins_failed = 0
        #: sends clients to other workers; None unless this broker is one of several workers
        self.redirects: Redirects | None = None
        #: neighbours that said what this broker cannot handle; links report them
        self.refused_neighbours = RefusedNeighbours(self.time)
        self._listener: asyncio.Server | None = None
        #: connections that agree on TLS; None without it
        self.handshakes = security.transport.handshakes(lambda: Connection(self), limits)
        #: no new connection is accepted and no client is called any more
        self._is_shut = False
        #: clients that may be away
        self.leases = Leases(self, config.subscribers)
        #: how many sweeps there were, when the last one was, and the timer of the next
        self._sweeps = 0
        self._swept = self.time()
        self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        #: the same for the sweep of links
        self._links_swept = self.time()
        self._links_measured = 0.0
        self._link_timer = self._loop.call_later(self._link_limits.ping / 2e6, self._sweep_links)
        #: set whenever a connection or local link has closed, for `gone`
        self._is_changed = asyncio.Event()

    async def listen(self, address: HostPort) -> HostPort:
        """Accept connections at `address`. Returns the address with the port, which for 0 the system chooses.

        Raises OSError if the address is taken.
        """
        self._listener = await listening(lambda: Connection(self), address, self.handshakes, BACKLOG)
        host, port = self._listener.sockets[0].getsockname()[:2]
        return HostPort(host, port)

    async def call(self, peer: str, address: HostPort) -> Connection:
        """Open a connection to the neighbour `peer`. Raises OSError if nobody listens there."""
        _, connection = await self._loop.create_connection(
            lambda: Connection(self, peer), address.host, address.port, ssl=self.security.transport.client
        )
        return connection

    async def push(self, holder: Leaseholder, address: HostPort) -> Connection:
        """Open a connection to a client that is parked. Raises OSError if nobody listens there."""
        connection = Connection(self, calling=holder)
        await call_back(connection, address, self.security.transport.server)
        return connection

    async def gone(self, connection: Connection | LocalLink) -> None:
        """Return when `connection` is closed."""
        while connection in self.connections or connection in self.local:
            self._is_changed.clear()
            await self._is_changed.wait()

    def shut(self) -> None:
        """Accept no more connections, turn away those that are just arriving, and call no client."""
        self._is_shut = True
        self.leases.stop()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self.handshakes is not None:
            self.handshakes.close()

    async def say_goodbye(self) -> None:
        """Close every connection once its queue is written, and abort those that take too long."""
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
        """Abort every connection and link."""
        self.shut()
        self._timer.cancel()
        self._link_timer.cancel()
        self.turns.close()
        for connection in list(self.connections):
            connection.abort()
        for link in list(self.local):
            link.abort()

    # The overlay.

    def told_overlay(self, connection: Connection | LocalLink, frame: Overlay) -> None:
        """A broker says which topology it has; by that one the two may be neighbours, or no more."""
        membership = self.membership
        if self._leaps(connection, frame, membership.topology.version):
            return
        if isinstance(connection, LocalLink) or connection.peer is not None:
            membership.heard(frame, connection.say, connection.refuse)
            return
        # Where no proof is asked for, everybody can say Hello under any name.
        if not frame.text or connection.expected is not None or self.security.proves_links:
            membership.heard(frame, connection.say, connection.refuse)
            if membership.is_behind(frame):
                return
        who = connection.expected or (connection.hello.broker if connection.hello is not None else "")
        # A broker that learns just now that it is a neighbour closes this connection and is called again.
        if who not in self.neighbours or frame.version == membership.topology.version:
            connection.refuse_stranger()

    def told_access(self, connection: Connection | LocalLink, frame: Access) -> None:
        """A neighbour says which access document it has."""
        if self.access is not None and not self._leaps(connection, frame, self.access.document.version):
            self.access.heard(frame, connection.say, connection.refuse)

    def _leaps(self, connection: Connection | LocalLink, frame: Overlay | Access, known: int) -> bool:
        """Refuse a broker that tells of a version to which nobody can have come; return whether it does.

        After such a version there would be no room for those of administrators.
        """
        if frame.version <= known + VERSIONS_MISSED_MAX:
            return False
        what = "a topology" if isinstance(frame, Overlay) else "an access document"
        self.runtime.broker.counters["neighbours_refused"] += 1
        reason = f"you tell of {what} of version {frame.version}, and here it is {known}: that is no next one"
        connection.refuse("frame", reason)
        return True

    def spread(self, frame: Overlay | Access) -> None:
        """Send `frame` to all neighbours that are linked."""
        for link in self._all_links():
            link.say(frame)

    def change(self, topology: Topology) -> None:
        """Go by another topology: close what is no link any more, and send subscribers away when drained."""
        self.neighbours = topology.neighbours(self.name)
        self.link_traffic.keep(self.neighbours)
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

    # Connections and local links report.

    def opened_local(self, link: LocalLink) -> None:
        """A link to a broker of this process is up."""
        self.local.add(link)
        log.info("link is up", peer=link.peer, address="this process")

    def closed_local(self, link: LocalLink) -> None:
        """A link to a broker of this process is down."""
        self.local.discard(link)
        log.info("link is down", peer=link.peer, cause="closed")
        self.runtime.link_down(link.peer, link)
        self._is_changed.set()

    def opened(self, connection: Connection) -> str | None:
        """A connection was accepted or made. Returns None if it may stay, else why not."""
        self.connections.add(connection)
        self._strangers.add(connection)
        self._address_counts[connection.address] += 1
        is_known_soon = self._stranger_counts.add(connection.address)
        if self._is_shut:
            return "the broker stops"
        reason = self._over_limit(connection, is_known_soon)
        if reason is not None:
            self.turned_away += 1
            log.warning("turned away: too many connections", address=connection.address, reason=reason)
        return reason

    def _over_limit(self, connection: Connection, is_known_soon: bool) -> str | None:
        """Returns which limit one connection more exceeds, in a sentence; None if it exceeds none."""
        limits = self.limits
        if len(self.connections) > limits.connections:
            return f"there are {limits.connections} connections, as many as limits.connections allows"
        if connection.is_called or is_here(connection.address):
            return None
        if self._address_counts[connection.address] > limits.address_connections:
            return (
                f"this address has {limits.address_connections} connections, as many as "
                "limits.address_connections allows"
            )
        if not is_known_soon:
            return (
                f"{limits.strangers} connections of this address have not said who they are, as many as "
                "limits.strangers allows"
            )
        return None

    def introduced(self, connection: Connection) -> None:
        """A connection has said who is at its other end: a client, or a neighbour."""
        self._strangers.discard(connection)
        self._stranger_counts.remove(connection.address)
        if connection.peer is not None:
            self.links.add(connection)
            log.info("link is up", peer=connection.peer, address=connection.address)
        else:
            log.debug("client is here", address=connection.address, name=connection.name)

    def closing(self, connection: Connection) -> None:
        """A connection closes as soon as its queue is written."""
        self._closing[connection] = self.time()

    def closed(self, connection: Connection, error: Exception | None) -> None:
        """A connection is closed, because of `error` if there is one."""
        if connection in self.connections:
            self.connections.discard(connection)
            self._address_counts[connection.address] -= 1
            if not self._address_counts[connection.address]:
                del self._address_counts[connection.address]
        self.incomplete.discard(connection)
        self.congested.discard(connection)
        self.links.discard(connection)
        self._closing.pop(connection, None)
        if connection in self._strangers:
            self._strangers.discard(connection)
            self._stranger_counts.remove(connection.address)
        self.leases.closed(connection)
        if connection.client is not None:
            self.runtime.client_gone(connection.client)
        if connection.peer is not None:
            log.info("link is down", peer=connection.peer, cause=str(error or "closed"))
            self.runtime.link_down(connection.peer, connection)
        self._is_changed.set()

    def queue_bytes_max(self, connection: Connection) -> int:
        """Returns how many bytes the output queue of `connection` may hold."""
        return self.limits.client_queue if connection.peer is None else self.limits.peer_queue

    # Time.

    def _sweep(self) -> None:
        self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        now = self.time()
        late, self._swept = now - self._swept > LATE_SECONDS, now
        if late:
            # This process was busy, or stopped: what others sent meanwhile is read before they are judged.
            return
        for connection in [
            each for each in self._strangers if now - each.began > self.limits.handshake / 1e6
        ]:
            connection.refuse("limit", "say who you are sooner")
        for connection in self.incomplete:
            self._check_incomplete(connection, now)
        for connection, since in list(self._closing.items()):
            if now - since > GOODBYE_SECONDS:
                connection.abort()
        self._bound_queues()
        self._end_expired()
        self.security.look()
        self._end_unreachable(now)
        self.leases.sweep(now)
        self._sweeps += 1
        if self._sweeps % FULL_SWEEP == 0:
            self._ping(now)

    def _end_expired(self) -> None:
        """Refuse clients whose bearer token has expired."""
        day = time()
        for connection in [each for each in self.connections if (each.expires_at or day) < day]:
            connection.refuse("login", "the bearer token has expired: log in with a newer one")

    def _check_incomplete(self, connection: Connection, now: float) -> None:
        since = connection.incomplete_since
        if since is not None and now - since > self.limits.frame / 1e6 and not connection.is_paused:
            connection.refuse("limit", "a frame took too long to arrive")

    def _ping(self, now: float) -> None:
        ping, silence = self.limits.ping / 1e6, self.limits.silence / 1e6
        for connection in [each for each in self.connections if each.client is not None]:
            if connection.is_paused or now - connection.liveness.heard <= ping:
                continue
            connection.observe(now)
            # Only a connection that was asked and has not answered is given up: the last full sweep may have
            # been longer ago than `limits.silence`.
            if connection.liveness.is_dead(now, silence - ping):
                log.warning(
                    "nothing heard: disconnected",
                    address=connection.address,
                    who=connection.peer or connection.name,
                )
                connection.abort()
            else:
                connection.ping()

    def _end_unreachable(self, now: float) -> None:
        """Abort clients whose machine has vanished while something was on its way to it.

        The kernel finds those that vanish while nothing is on its way (`sockets.KEEPALIVE`).
        """
        seconds = self.limits.unreachable / 1e6
        silent = [
            each
            for each in self.connections
            if each.client is not None and each.liveness.said >= each.liveness.heard < now - seconds
        ]
        # Each costs a call of the kernel: of very many silent clients every sweep looks at some.
        stride = 1 + len(silent) // OBSERVED_MAX
        for connection in silent[self._sweeps % stride :: stride]:
            info = connection.observe(now)
            if info is not None and info.is_unreachable(seconds):
                log.warning("unreachable: disconnected", address=connection.address, who=connection.name)
                connection.abort()

    def _sweep_links(self) -> None:
        limits = self._link_limits
        ping, silence, idle = limits.ping / 1e6, limits.silence / 1e6, max(limits.idle, limits.ping) / 1e6
        self._link_timer = self._loop.call_later(ping / 2, self._sweep_links)
        now = self.time()
        late, self._links_swept = now - self._links_swept > 2 * ping, now
        is_measured = now - self._links_measured > MEASURE_SECONDS
        if is_measured:
            self._links_measured = now
        for link in list(self.links):
            info = link.observe(now)
            if info is not None:
                link.bound_link(info.bytes_per_second or 0)
            if info is not None and is_measured:
                self._measured(link, info)
            if late:
                # This process was busy, or stopped: what came meanwhile is read before the link is judged.
                link.liveness.forgive(now - ping)
            if link.liveness.is_dead(now, silence - ping) and not link.is_paused:
                seconds = round(link.liveness.silence(now), 3)
                log.warning("nothing heard and nothing taken: link is dead", peer=link.peer, seconds=seconds)
                link.abort()
            elif link.liveness.should_ask(now, ping, idle):
                link.ping()
            elif link.liveness.should_speak(now, idle):
                link.write(Pong(0))

    def _measured(self, link: Connection, info: TcpInfo) -> None:
        """Tell the core what was measured of a link, unless that is what it was told before."""
        measure = LinkMeasured(
            link.peer or "", info.round_trip_us, info.bytes_per_second, info.is_rate_a_lower_bound
        )
        if not is_alike(measure, link.measured):
            link.measured = measure
            self.runtime.give((measure,))

    def _bound_queues(self) -> None:
        """Keep all output queues together under `limits.all_queues`: the longest are disconnected first."""
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


def is_alike(one: LinkMeasured, other: LinkMeasured | None) -> bool:
    """Returns whether two measurements of a link differ by so little that they say the same."""
    if other is None or one.is_lower_bound != other.is_lower_bound:
        return False
    pairs = ((one.delay, other.delay), (one.bytes_per_second, other.bytes_per_second))
    return all(
        new == old or (new is not None and old is not None and abs(new - old) <= ALIKE * old)
        for new, old in pairs
    )


def hosted(topology: Topology, name: str) -> tuple[str, ...]:
    """Returns the pubends that the broker `name` hosts, sorted; none if `topology` does not have it."""
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
