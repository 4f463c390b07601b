"""BrokerConnection: one socket to one broker; frames in, frames out.

Owns the handshake and the pings. A connection that the client opens begins with the client's greeting; a
connection that a broker opens begins with the broker's. Frames of one loop turn leave in one write. No task
reads: the loop puts what arrives into one buffer, and whole frames go to the owner at once.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from time import time
from typing import Any, cast

from tidemark.client.connecting.addresses import is_loopback
from tidemark.client.connecting.credentials import Credentials, fresh_token, renewal
from tidemark.client.connecting.refusals import error_of
from tidemark.errors import NotConnectedError, TidemarkError, VersionError, WireError
from tidemark.message.batches.batch import Buffer
from tidemark.wire.codec import Encode, encode, encoder_for, size_of
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import (
    ClientFrame,
    Connect,
    Deliver,
    Frame,
    Ping,
    Pong,
    Published,
    Pushing,
    Refused,
    Rest,
    Resume,
    Welcome,
)
from tidemark.wire.limits import FRAME_BYTES_MAX
from tidemark.wire.liveness.liveness import Liveness
from tidemark.wire.liveness.tcp_info import SIZE as TCP_INFO_BYTES
from tidemark.wire.liveness.tcp_info import TcpInfo
from tidemark.wire.security.frames import Login
from tidemark.wire.versions import agree

#: Most frames are one of these, which concern nobody but who gets them all.
_ABOUT_EVENTS = frozenset((Deliver, Published))
READ_BYTES_MAX = 256 << 10
#: The socket counts as congested when this much waits to leave.
WRITE_BYTES_MAX = 256 << 10
#: After so much silence the client pings the broker.
PING_SECONDS = 2.0
#: After so many times PING_SECONDS in which the broker has neither said nor taken anything, it is lost. The
#: client looks every half of PING_SECONDS, so that a broker that vanishes is noticed within 6 seconds.
SILENT_PINGS_MAX = 2.5
#: So many times PING_SECONDS after it was heard last, it has been asked at the latest.
ASKED_AFTER_PINGS_MAX = 1.5


class BrokerConnection(asyncio.BufferedProtocol):
    """One connection. `welcome` is done when the broker has answered, `lost` when it has ended."""

    def __init__(
        self,
        greeting: Connect | Resume | None,
        on_frame: Callable[[ClientFrame], None],
        on_writable: Callable[[], None],
        *,
        ping_seconds: float = PING_SECONDS,
        on_pushing: Callable[[BrokerConnection, Pushing], None] | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """`greeting` is None if a broker opened the connection: `on_pushing` gets that broker's greeting.

        `credentials` are what the broker may ask for before it welcomes this client.
        """
        self._credentials = credentials or Credentials()
        self._login = self._credentials.dialog()
        self._renewal: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._greeting = greeting
        self._on_pushing = on_pushing
        self._on_frame = on_frame
        self._on_writable = on_writable
        self._ping_seconds = ping_seconds
        self.welcome: asyncio.Future[Welcome] = self._loop.create_future()
        #: done when the socket is closed, which with TLS is some time after the connection has ended
        self.closed: asyncio.Future[None] = self._loop.create_future()
        #: why the connection ended
        self.lost: asyncio.Future[Exception] = self._loop.create_future()
        #: Rest was sent: nothing more is sent on this connection
        self.is_resting = False
        #: the broker closed the connection, without an error
        self.is_closed_well = False
        self._is_paused = False
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder()
        self._encode: Encode = encode
        self._buffer = memoryview(bytearray(READ_BYTES_MAX))
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._is_flushing = False
        #: bytes that were written to the socket
        self._written = 0
        self._liveness = Liveness(self._loop.time())
        self._ticked = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def host(self) -> str:
        """The address of this side, as the broker sees it; "" when the connection has ended."""
        name: Any = None if self._transport is None else self._transport.get_extra_info("sockname")
        return str(name[0]) if isinstance(name, tuple) else ""

    @property
    def _is_overheard(self) -> bool:
        """Whether others than the broker may read what is sent: neither TLS, nor on this machine."""
        if self._transport is None or self._transport.get_extra_info("ssl_object") is not None:
            return False
        name: Any = self._transport.get_extra_info("peername")
        return isinstance(name, tuple) and not is_loopback(str(name[0]))

    # Sending.

    @property
    def is_congested(self) -> bool:
        """A frame that is sent now would wait; `on_writable` is called when it would not any more."""
        return self._is_paused or self._out_bytes >= WRITE_BYTES_MAX

    def send(self, frame: ClientFrame) -> None:
        """Send a frame with the others of this loop turn; WireError if the frame is over a limit.

        Does nothing if the connection has ended.
        """
        pieces = self._encode(frame)
        if self._transport is None or self.is_resting:
            return
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush_all)
        self._out += pieces
        self._out_bytes += size_of(pieces)

    def _flush_all(self) -> None:
        self._is_flushing = False
        self.flush()

    def flush(self) -> None:
        """Send the frames now: for callers that know that this loop turn has no more of them."""
        if not self._out:
            return
        out, size, self._out, self._out_bytes = self._out, self._out_bytes, [], 0
        if self._transport is not None:
            if size < WRITE_BYTES_MAX or max(map(len, out)) < WRITE_BYTES_MAX:
                # As one piece: TLS would make a record of each, and plain sockets of asyncio join them too.
                self._transport.write(b"".join(out))
            else:
                # Large pieces are not joined first, and `write` would copy what a bytearray has left.
                for piece in out:
                    self._transport.write(memoryview(piece))
            self._written += size
            if size >= WRITE_BYTES_MAX and not self._is_paused:
                self._on_writable()

    def rest(self, frame: Rest) -> None:
        """Send Rest, the last frame on this connection: the broker will close it."""
        self.send(frame)
        self.flush()
        self.is_resting = True

    def close(self, error: Exception | None = None) -> None:
        """End the connection; frames that were sent before still leave, unless there is an `error`."""
        transport = self._transport
        if transport is None:
            return
        self.flush()
        self._over(error or NotConnectedError("the connection was closed here"))
        if error is None:
            transport.close()
        else:
            transport.abort()

    # From the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open: send the greeting."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_BYTES_MAX)
        found = transport.get_extra_info("socket")
        if found is not None and found.family in (socket.AF_INET, socket.AF_INET6):
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._greeting is not None:
            self.send(self._greeting)
        self._timer = self._loop.call_later(self._ping_seconds / 2, self._tick)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # as many as there are
        """The buffer that the loop reads into: the decoder keeps nothing of it."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived in the buffer."""
        self._liveness.hear(self._loop.time())
        try:
            self._feed(self._buffer[:nbytes])
        except TidemarkError as error:
            self.close(error)

    def eof_received(self) -> None:
        """The broker will send no more: returning None closes the socket."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        if not self.closed.done():
            self.closed.set_result(None)
        self.is_closed_well = exc is None and not self.lost.done()
        reason = f": {exc}" if exc else " by the broker"
        self._over(NotConnectedError(f"the connection was closed{reason}"))

    def pause_writing(self) -> None:
        """Too many bytes wait to leave."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """The bytes that waited have left."""
        self._is_paused = False
        self._on_writable()

    def _feed(self, data: Buffer) -> None:
        for frame in self._decoder.feed(data):
            if self._transport is None:
                return
            self._received(frame)

    def _received(self, frame: Frame) -> None:
        if type(frame) in _ABOUT_EVENTS and self.welcome.done():
            self._on_frame(frame)  # type: ignore[arg-type]  # as _ABOUT_EVENTS says
        elif isinstance(frame, Ping):
            self.send(Pong(frame.stamp))
        elif isinstance(frame, Pong):
            pass
        elif self.welcome.done():
            if isinstance(frame, Rest):
                self.rest(frame)
            self._on_frame(cast(ClientFrame, frame))
        elif isinstance(frame, Login):
            proof = self._login.answer(frame, is_overheard=self._is_overheard)
            if proof is not None:
                self.send(proof)
        elif isinstance(frame, Welcome):
            self._login.check_welcome()
            self._renew_later()
            self._encode = encoder_for(agree(frame.version, frame.version))
            self._decoder.bytes_max = FRAME_BYTES_MAX
            self.welcome.set_result(frame)
            self._feed(b"")
        elif isinstance(frame, Pushing) and self._on_pushing is not None:
            self._on_pushing(self, frame)
        elif isinstance(frame, Refused):
            raise _refusal(frame)
        else:
            raise WireError(f"the broker began with {type(frame).__name__}, not with Welcome")

    def _renew_later(self) -> None:
        """Bring a newer bearer token before the one at hand expires."""
        seconds = renewal(self._credentials, time())
        if seconds is not None:
            self._renewal = self._loop.call_later(seconds, self._renew)

    def _renew(self) -> None:
        self.send(fresh_token(self._credentials))
        self._renew_later()

    def _tick(self) -> None:
        """Ping a broker that has been silent; end the connection if it neither answers nor takes anything."""
        now, ping, liveness = self._loop.time(), self._ping_seconds, self._liveness
        late, self._ticked = now - self._ticked > ping, now
        if late:
            # This process was busy, or stopped: what came meanwhile is read before the broker is judged.
            liveness.forgive(now - ping)
        self._observe(now)
        if liveness.is_dead(now, (SILENT_PINGS_MAX - ASKED_AFTER_PINGS_MAX) * ping):
            seconds = liveness.silence(now)
            self.close(NotConnectedError(f"the broker has not answered for {seconds:.1f} s"))
            return
        if now - liveness.heard >= ping and not liveness.is_asked:
            self.send(Ping(int(now * 1_000_000)))
            self.flush()
            liveness.ask(now, self._written)
        self._timer = self._loop.call_later(ping / 2, self._tick)

    def _observe(self, now: float) -> None:
        """Note what the broker's kernel has taken, where this system says so."""
        found: Any = None if self._transport is None else self._transport.get_extra_info("socket")
        if found is not None and hasattr(socket, "TCP_INFO"):
            with suppress(OSError):  # it is no TCP socket, or is closed
                info = TcpInfo.parse(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES))
                if info is not None:
                    self._liveness.take(now, info.acknowledged)

    def _over(self, error: Exception) -> None:
        self._transport = None
        self._out.clear()
        for timer in (self._timer, self._renewal):
            if timer is not None:
                timer.cancel()
        if not self.lost.done():
            self.lost.set_result(error)
        if not self.welcome.done():
            self.welcome.set_exception(error)
            self.welcome.exception()  # mark it as seen: it may be that nobody awaits it any more


def _refusal(frame: Refused) -> TidemarkError:
    if frame.code == "version":
        return VersionError(frame.reason)
    return error_of(frame)
