"""Leases: clients that may be away, and are called when there is something for them (MOPS, mobility).

A lease begins with the frame Lease on any connection of a client. When nothing has been sent on a connection
for a while, both sides send Rest and the client is parked: the broker goes on as if the client were there,
within its credit, and holds no socket, no timer and no task for it. The first frame for the client makes the
broker call it, one call at a time; the wait between calls grows and their number is bounded. The client may
also come by itself. Either way it shows its ticket, and the new connection is that of the lease. A lease ends
when the client is away for too long, and when a connection ends without Rest: frames that were on their way
are lost then, and only the client knows which of them it got.
"""

from __future__ import annotations

import asyncio
from random import Random
from secrets import token_hex
from typing import TYPE_CHECKING

from tidemark.access.principal import Principal
from tidemark.errors import ConfigError
from tidemark.node.config.settings import SubscribersSection
from tidemark.node.config.units import HostPort, parse_address
from tidemark.node.leases.callback_policy import may_call
from tidemark.node.leases.leaseholder import Leaseholder
from tidemark.node.logs import Log
from tidemark.node.workers.handover import OF
from tidemark.wire.frames import Lease, Leased, Refused

if TYPE_CHECKING:
    from tidemark.node.connection import Connection
    from tidemark.node.server import Server

#: Calls that are under way at a time.
CALLS_MAX = 64
CALL_SECONDS_MAX = 5.0
#: Calls that may fail before the client has to come by itself; with the waits between them about a minute.
TRIES_MAX = 12
WAIT_SECONDS_MIN = 0.1
WAIT_SECONDS_MAX = 10.0
#: The key is sent to whatever answers at an address that a client named: letters and digits only, so that it
#: cannot be a command of another protocol.
KEY_CHARACTERS_MIN, KEY_CHARACTERS_MAX = 16, 64
TICKET_BYTES = 16
log = Log("leases")


class Leases:
    """All leases of a broker. Belongs to the server, whose connections call it."""

    def __init__(self, server: Server, settings: SubscribersSection, random: Random | None = None) -> None:
        #: opens connections to clients, and leads to the runtime
        self._server = server
        self._settings = settings
        self._random = random or Random()
        #: every lease, by the ticket that its client shows and by the key that the client chose
        self._by_ticket: dict[str, Leaseholder] = {}
        self._by_key: dict[str, Leaseholder] = {}
        #: Parked clients for whom something waits. Changed here only; the server counts their mail.
        self.waiting: set[Leaseholder] = set()
        #: bounds how many calls are under way
        self._turns = asyncio.Semaphore(CALLS_MAX)
        self._is_stopped = False
        #: counters for metrics: calls, calls that failed, and leases that ended because nobody came back
        self.dials = self.dials_failed = self.expired = 0

    @property
    def parked(self) -> int:
        """How many clients are away."""
        return sum(holder.is_parked for holder in self._by_ticket.values())

    # Called by connections.

    def grant(self, connection: Connection, lease: Lease) -> Leased | Refused:
        """A client asks for a lease, or to change its lease. Returns the answer to send to it."""
        refusal = self._refusal(connection, lease)
        if refusal is not None:
            return Refused("lease", lease.address, *refusal)
        before = self._by_key.get(lease.key)
        if before is not None and before is not connection.lease:
            self.end(before)
        holder = connection.lease or self._begin(connection)
        self._by_key.pop(holder.key, None)
        self._by_key[lease.key] = holder
        holder.key, holder.address = lease.key, parse_address(lease.address)
        holder.seconds = max(1, min(lease.seconds, self._settings.lease // 1_000_000))
        return Leased(holder.seconds, holder.ticket)

    def _begin(self, connection: Connection) -> Leaseholder:
        ticket = token_hex(TICKET_BYTES)
        if self._server.redirects is not None:
            ticket += OF + self._server.name
        holder = Leaseholder(connection, ticket, self._server.time, self)
        connection.lease = self._by_ticket[holder.ticket] = holder
        self._server.runtime.client_is(holder.client, holder)
        return holder

    def _refusal(self, connection: Connection, lease: Lease) -> tuple[str, str] | None:
        """Returns code and reason if the lease cannot be granted, else None."""
        try:
            address = parse_address(lease.address)
        except ConfigError as error:
            return "address", error.reason
        if not address.port or not may_call(address.host, connection.address, self._settings.callbacks):
            reason = (
                f"this broker does not call {address}: listen at an address of your own that it sees you at "
            )
            return "address", reason + "in a private network, or have its subscribers.callbacks allow it"
        if not KEY_CHARACTERS_MIN <= len(lease.key) <= KEY_CHARACTERS_MAX or not _is_plain(lease.key):
            few, many = KEY_CHARACTERS_MIN, KEY_CHARACTERS_MAX
            return "frame", f"the key of a lease is {few} to {many} letters and digits"
        before = self._by_key.get(lease.key)
        if before is not None and _user(before.principal) != _user(connection.principal):
            return "denied", "a client of another user listens under this key: draw one at random"
        if connection.lease is None and len(self._by_ticket) >= self._settings.leases:
            return "limit", "this broker gives no more leases: stay connected, or ask for subscribers.leases"
        return None

    def claim(self, connection: Connection, ticket: str) -> Leaseholder | None:
        """Returns the lease of `ticket` if its client is parked; None otherwise.

        On a connection that this broker has opened to call a client, only the lease of that client counts.
        """
        holder = self._by_ticket.get(ticket)
        if holder is None or not holder.is_parked or connection.calling not in (None, holder):
            return None
        return holder

    def arrived(self, holder: Leaseholder, connection: Connection) -> None:
        """The client of `holder` is back on `connection`."""
        self.waiting.discard(holder)
        if holder.call is not None and holder.answered is None:
            holder.call.cancel()  # the call task waits for its next try
        holder.arrived(connection)

    def rested(self, connection: Connection) -> None:
        """The client has sent Rest, its last frame on `connection`."""
        holder = connection.lease
        assert holder is not None
        if not holder.is_resting:
            holder.rest()
        # From here on the end of the connection loses nothing, so it must not end the lease.
        connection.lease = connection.client = None
        connection.close()
        holder.parked()

    def closed(self, connection: Connection) -> None:
        """A connection is closed: a call on it has ended, and so has the lease of the client on it."""
        if connection.calling is not None:
            connection.calling.tell(None)
        if connection.lease is not None:
            self.end(connection.lease)

    def refused(self, holder: Leaseholder) -> None:
        """Somebody else answered at the client's address and refused the call: the lease ends."""
        if holder.is_parked:
            log.info("whoever is there is not the client: its lease ends", name=holder.name)
            self.end(holder)

    # The end of a lease.

    def end(self, holder: Leaseholder) -> None:
        """End a lease: the runtime hears that the client is gone. Durable subscriptions stay."""
        if holder.is_over:
            return
        connection = holder.connection
        self._forget(holder)
        if connection is not None:
            connection.lease = connection.client = None
            connection.abort()
        self._server.runtime.client_gone(holder.client)

    def turned_away(self, holder: Leaseholder) -> None:
        """End the lease of a parked client that the broker has refused, such as by a change of its rights.

        What waits for the client was meant for whoever it was before, and is given to nobody.
        """
        log.info("refused while it was away: its lease ends", name=holder.name)
        self._forget(holder)

    def _forget(self, holder: Leaseholder) -> None:
        """Nobody can claim the lease any more, and what waits in it is gone."""
        holder.is_over = True
        del self._by_ticket[holder.ticket]
        if self._by_key.get(holder.key) is holder:
            del self._by_key[holder.key]
        self.waiting.discard(holder)
        if holder.call is not None:
            holder.call.cancel()
        holder.connection = holder.mail = None

    def sweep(self, now: float) -> None:
        """Send Rest where nothing was sent for long, and end what has lasted too long.

        Called once a second.
        """
        rest_before = now - self._settings.rest / 1e6
        late_before = now - self._server.limits.handshake / 1e6
        for holder in list(self._by_ticket.values()):
            if holder.connection is None:
                if holder.until < now:
                    self.expired += 1
                    log.info("away for too long: its lease ends", name=holder.name, seconds=holder.seconds)
                    self.end(holder)
            elif holder.connection.is_paused:
                continue  # the client's Rest would not be read
            elif holder.is_resting:
                if holder.flowed < late_before:
                    holder.connection.abort()
            elif holder.flowed < rest_before and not holder.connection.queued_bytes:
                holder.rest()

    def stop(self) -> None:
        """Call nobody any more."""
        self._is_stopped = True
        for holder in self._by_ticket.values():
            if holder.call is not None:
                holder.call.cancel()

    # Calling.

    def mail_came(self, holder: Leaseholder) -> None:
        """Something waits for a parked client: call it, unless a call is under way or was given up."""
        if holder.mail_bytes > self._server.limits.client_queue:
            log.warning("too much waits for it: its lease ends", name=holder.name, queued=holder.mail_bytes)
            # Later: the runtime is in the middle of the broker's effects, and must not be called from there.
            asyncio.get_running_loop().call_soon(self.end, holder)
            return
        self.waiting.add(holder)
        if holder.call is None and not self._is_stopped:
            holder.call = asyncio.create_task(self._call(holder), name="call")

    async def _call(self, holder: Leaseholder) -> None:
        wait = WAIT_SECONDS_MIN
        for _ in range(TRIES_MAX):
            async with self._turns:
                problem = await self._try(holder)
            if holder.call is not asyncio.current_task():
                return  # the client has come
            self.dials_failed += 1
            log.info("cannot call", name=holder.name, address=str(holder.address), reason=problem)
            await asyncio.sleep(wait * self._random.uniform(0.5, 1.0))
            wait = min(2 * wait, WAIT_SECONDS_MAX)
        log.warning("called in vain: waits for it to come", name=holder.name, address=str(holder.address))

    async def _try(self, holder: Leaseholder) -> str:
        """Call the client once. Returns the reason of a failure; if the client has come it means nothing."""
        assert isinstance(holder.address, HostPort)
        self.dials += 1
        answered = holder.answered = asyncio.get_running_loop().create_future()
        connection: Connection | None = None
        try:
            async with asyncio.timeout(CALL_SECONDS_MAX):
                connection = await self._server.push(holder, holder.address)
                if await answered is not connection:
                    _give_up(connection)  # the connection is closed, or the client has come by itself
                return "it was not accepted"
        except TimeoutError:
            if connection is not None:
                _give_up(connection)
            return "no answer"
        except (OSError, UnicodeError) as error:
            return str(error)
        finally:
            if holder.answered is answered:
                holder.answered = None


def _give_up(connection: Connection) -> None:
    connection.calling = None
    connection.abort()


def _user(principal: Principal | None) -> str:
    return "" if principal is None else principal.name


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isalnum()
