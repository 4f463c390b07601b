"""Link: a connection to one of several brokers, made again whenever it is lost.

The link tries the broker that it lost first, since that one may hold events that were published and not yet
acknowledged. A broker that does not answer soon is not waited for: the next is tried meanwhile, and the first
that welcomes the client wins. Once all have failed, they are tried again after a back-off. The link never
gives up by itself.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from errno import ECONNREFUSED
from math import inf
from ssl import SSLCertVerificationError

from tidemark.client.connecting.addresses import SocketAddress
from tidemark.client.connecting.backoff import Backoff
from tidemark.client.connecting.connection import PING_SECONDS, BrokerConnection
from tidemark.client.connecting.credentials import Credentials
from tidemark.errors import ClosedError, NotConnectedError, RefusedError, TidemarkError, VersionError
from tidemark.wire.frames import ClientFrame, Connect, Resume, Welcome
from tidemark.wire.limits import PROTOCOL_NEWEST, PROTOCOL_OLDEST

HANDSHAKE_SECONDS = 10.0
#: The next address is tried when those before it have not answered for so long.
STAGGER_SECONDS = 0.25
#: A connection that lived this long was a good one: the next is tried at once.
STEADY_SECONDS = 1.0
#: The longest wait while nobody listens at any address. To refuse a call costs a machine next to nothing, and
#: everybody waits for a broker that is being started again. A broker that answers and has no room for the
#: client, or a machine that does not answer, is left alone for longer.
REFUSED_SECONDS_MAX = 1.0
#: A broker has this long to close a connection over TLS that the client closes.
GOODBYE_SECONDS = 2.0
#: Addresses that brokers have named, beyond those that the application gave.
NAMED_MAX = 64

log = logging.getLogger("tidemark.client")


def joined(
    named: Iterable[SocketAddress],
    others: Iterable[SocketAddress],
    present: SocketAddress,
    given: Container[SocketAddress],
) -> list[SocketAddress]:
    """Return the addresses to try when a broker sends its client away: `named`, `others`, `present` last.

    Of addresses that only brokers have named, at most NAMED_MAX are kept, the newest first: brokers that send
    a client to and fro must not make its list grow without end.
    """
    order = [each for each in dict.fromkeys([*named, *others]) if each != present]
    dropped = {*[each for each in order if each not in given][NAMED_MAX:]}
    return [*(each for each in order if each not in dropped), present]


class Link:
    """Keeps one connection up. Calls `on_up` and `on_down` in turn, and `on_frame` between them."""

    def __init__(
        self,
        addresses: Sequence[SocketAddress],
        client: str,
        *,
        on_frame: Callable[[ClientFrame], None],
        on_up: Callable[[Welcome], None],
        on_down: Callable[[], None],
        on_writable: Callable[[], None],
        backoff: Backoff,
        ping_seconds: float = PING_SECONDS,
        waits: bool = True,
        credentials: Credentials | None = None,
    ) -> None:
        """`waits`: the first connection is tried again also if nobody listens at any address."""
        assert addresses
        self._waits = waits
        self._credentials = credentials or Credentials()
        #: the addresses that the application gave: never forgotten
        self._given = frozenset(addresses)
        #: every address to try, the one that answered last first
        self._addresses = list(addresses)
        self._client = client
        self._on_frame = on_frame
        self._on_up = on_up
        self._on_down = on_down
        self._on_writable = on_writable
        self._backoff = backoff
        self._ping_seconds = ping_seconds
        self._connection: BrokerConnection | None = None
        #: done, and gone from here, when the socket of a connection with TLS is closed
        self._encrypted: set[asyncio.Future[None]] = set()
        self._task: asyncio.Task[None] | None = None
        #: address -> why the last attempt to connect there failed
        self._errors: dict[SocketAddress, Exception] = {}
        #: address -> when the attempt to connect there began, on the loop's clock, in the round at hand
        self._tried: dict[SocketAddress, float] = {}
        self.welcome: Welcome | None = None

    @property
    def is_up(self) -> bool:
        """A broker has welcomed this client and is not lost."""
        return self.welcome is not None

    @property
    def is_congested(self) -> bool:
        """A frame that is sent now would wait for frames that were sent before."""
        return self._connection is None or self._connection.is_congested

    async def open(self, timeout: float) -> Welcome:
        """Connect for the first time, and return the broker's welcome.

        NotConnectedError, with what each broker answered, if none has welcomed this client within `timeout`
        seconds; VersionError, RefusedError with the code "address", "denied" or "login", or
        SSLCertVerificationError, if all brokers answered so.
        """
        loop = asyncio.get_running_loop()
        first: asyncio.Future[Welcome] = loop.create_future()
        self._task = loop.create_task(self._run(first), name="tidemark link")
        try:
            async with asyncio.timeout(timeout):
                return await first
        except TimeoutError:
            await self.close()
            raise self._unreachable(timeout) from None
        except BaseException:
            await self.close()
            raise

    def send(self, frame: ClientFrame) -> None:
        """Send a frame if a broker is connected. Callers that need an answer send again in `on_up`."""
        if self._connection is not None and self.is_up:
            self._connection.send(frame)

    def flush(self) -> None:
        """Let frames that were sent leave now, not only at the end of the loop turn."""
        if self._connection is not None:
            self._connection.flush()

    def reset(self, error: TidemarkError) -> None:
        """The broker broke the protocol: end the connection and make another one."""
        if self._connection is not None:
            self._connection.close(error)

    def move(self, addresses: Sequence[SocketAddress], reason: str) -> None:
        """Connect to another broker: first to `addresses`, and to this broker only if no other answers."""
        if self._connection is None or self._connection.lost.done():
            return  # the broker has asked for this before
        present, *others = self._addresses
        self._addresses = joined(addresses, others, present, self._given)
        self._connection.close(NotConnectedError(reason))

    async def close(self) -> None:
        """End the connection for good."""
        if self._connection is not None:
            self._connection.close()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        if self._encrypted:
            # Both sides say goodbye over TLS, which takes a round trip.
            await asyncio.wait(self._encrypted, timeout=GOODBYE_SECONDS)

    async def _run(self, first: asyncio.Future[Welcome]) -> None:
        loop = asyncio.get_running_loop()
        was_lost: SocketAddress | None = None
        while True:
            connection = self._connection = await self._connect(first)
            self.welcome = connection.welcome.result()
            up_at, address = loop.time(), self._addresses[0]
            if not first.done():
                first.set_result(self.welcome)
            if was_lost:
                what = "the broker at %s is back" if address == was_lost else "went on to the broker at %s"
                log.warning(what, address)
            self._on_up(self.welcome)
            try:
                error = await self._until_lost(connection)
            finally:
                self.welcome = self._connection = None
                self._on_down()
            was_lost = address
            log.warning("lost the broker at %s: %s", address, error)
            if loop.time() - up_at >= STEADY_SECONDS:
                self._backoff.reset()
            else:
                # The broker welcomed the client and ended the connection at once, perhaps again and again.
                await asyncio.sleep(self._backoff.delay())

    async def _until_lost(self, connection: BrokerConnection) -> Exception:
        """Wait until the connection has ended; return why."""
        return await connection.lost

    async def _connect(self, first: asyncio.Future[Welcome]) -> BrokerConnection:
        while True:
            self._tried.clear()
            connection = await self._connect_once()
            if connection is not None:
                return connection
            final = [error for error in self._errors.values() if _is_final(error)]
            if len(final) == len(self._addresses) and not first.done():
                first.set_exception(final[0])
            nobody_listens = all(map(_is_refusal, self._errors.values()))
            if not (self._waits or first.done()) and nobody_listens:
                first.set_exception(self._unreachable(None))
            await asyncio.sleep(self._backoff.delay(REFUSED_SECONDS_MAX if nobody_listens else inf))

    async def _connect_once(self) -> BrokerConnection | None:
        """Try every address once; return a connection that is ready for use, or None if there is none."""
        left = list(self._addresses)
        while left:
            won = await self._race(left)
            if won is None:
                return None
            address, connection = won
            left.remove(address)
            self._connection = connection
            try:
                await self._prepare(connection)
            except (OSError, TidemarkError) as error:
                self._failed(address, error)
                continue
            # From now on this is the broker that the link returns to first.
            self._addresses.remove(address)
            self._addresses.insert(0, address)
            return connection
        return None

    async def _race(self, addresses: list[SocketAddress]) -> tuple[SocketAddress, BrokerConnection] | None:
        """Return the first connection that a broker welcomes, and its address; None if no broker does.

        An address is tried when those before it have failed, or have not answered for STAGGER_SECONDS each.
        Addresses that fail are removed from `addresses`.
        """
        attempts: dict[asyncio.Task[BrokerConnection], SocketAddress] = {}
        waiting = list(addresses)
        try:
            while waiting or attempts:
                if waiting:
                    address = waiting.pop(0)
                    self._tried[address] = asyncio.get_running_loop().time()
                    attempts[asyncio.create_task(self._welcomed(address))] = address
                patience = STAGGER_SECONDS if waiting else None
                done, _ = await asyncio.wait(attempts, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                # Of several that are done at once the one that was tried first wins.
                for task in [each for each in attempts if each in done]:
                    address = attempts.pop(task)
                    error = task.exception()
                    if error is None:
                        return address, task.result()
                    if not isinstance(error, OSError | TidemarkError):
                        raise error
                    addresses.remove(address)
                    self._failed(address, error)
            return None
        finally:
            for task in attempts:
                task.cancel()
            for outcome in await asyncio.gather(*attempts, return_exceptions=True):
                if isinstance(outcome, BrokerConnection):
                    outcome.close()  # it was welcomed in the same moment as the one that won

    def _failed(self, address: SocketAddress, error: Exception) -> None:
        self._errors[address] = error
        log.info("cannot connect to %s: %s", address, error)

    async def _welcomed(self, address: SocketAddress) -> BrokerConnection:
        """A connection on which the broker at `address` has welcomed this client; raises if it does not."""
        return await self._greeted(address, Connect(self._client, PROTOCOL_OLDEST, PROTOCOL_NEWEST))

    async def _prepare(self, connection: BrokerConnection) -> None:
        """Make a connection that was welcomed ready for use; raises, and closes it, if that fails."""

    async def _greeted(self, address: SocketAddress, greeting: Connect | Resume) -> BrokerConnection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                _, connection = await loop.create_connection(
                    lambda: self._protocol(greeting),
                    address.host,
                    address.port,
                    ssl=self._credentials.tls,
                    server_hostname=address.host if self._credentials.tls is not None else None,
                )
                if self._credentials.tls is not None:
                    self._encrypted.add(connection.closed)
                    connection.closed.add_done_callback(self._encrypted.discard)
                try:
                    await connection.welcome
                except BaseException:
                    connection.close()
                    raise
                return connection
        except TimeoutError:
            raise NotConnectedError(f"no answer within {HANDSHAKE_SECONDS:.0f} s") from None

    def _protocol(self, greeting: Connect | Resume) -> BrokerConnection:
        return BrokerConnection(
            greeting,
            self._on_frame,
            self._on_writable,
            ping_seconds=self._ping_seconds,
            credentials=self._credentials,
        )

    def _unreachable(self, timeout: float | None) -> NotConnectedError:
        """Return the error of having found no broker: in so many seconds, or, if None, at once."""
        said = "; ".join(f"{address}: {self._outcome(address)}" for address in self._addresses)
        what = (
            "no broker answered: nobody listens"
            if timeout is None
            else f"no broker answered in {timeout:g} s"
        )
        return NotConnectedError(f"{what} ({said}): start one with `tidemark up`, or correct the URL")

    def _outcome(self, address: SocketAddress) -> str:
        """Return what became of the last attempt to connect to `address`."""
        if address in self._errors:
            return str(self._errors[address])
        if address in self._tried:
            return f"no answer within {asyncio.get_running_loop().time() - self._tried[address]:.1f} s"
        return "not tried yet"


def _is_refusal(error: Exception) -> bool:
    """Nobody listens at the address, or at any of the addresses that a name stands for."""
    if isinstance(error, ConnectionRefusedError):
        return True
    # asyncio tells of several addresses with one text.
    kind, _, errors = str(error).partition(": ")
    numbers = re.findall(r"\[Errno (\d+)\]", errors)
    return kind == "Multiple exceptions" and set(numbers) == {str(ECONNREFUSED)}


def _is_final(error: Exception) -> bool:
    """Trying again would not help."""
    if isinstance(error, RefusedError):
        return error.code in ("address", "denied", "login")
    return isinstance(error, VersionError | SSLCertVerificationError)


def closed() -> ClosedError:
    """The error of using a client that was closed."""
    return ClosedError("the client is closed: open a new one with tidemark.connect(...)")


def not_open() -> ClosedError:
    """The error of using a client that was never opened."""
    return ClosedError(
        "the client is not open yet: write `async with tidemark.connect(...) as tm:`, "
        "or `tm = await tidemark.connect(...)`"
    )


def forked() -> ClosedError:
    """The error of using, in a forked child, a client that the parent process opened."""
    return ClosedError(
        "the client was opened by the parent process, and a connection cannot be shared with a forked child: "
        "open a new one in the child with tidemark.connect(...)"
    )
