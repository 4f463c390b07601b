"""Connection: one socket, from its first byte to its last.

The first frame says who is there: Connect a client, Resume one that was away, Hello a broker. Until then
little is read and little waited for. Reading goes through one buffer that all connections share, since the
decoder keeps a copy of what it has to keep. What is said while one thing is handled goes out in one write;
the transport queues what the socket does not take, a batch's bytes shared among all that it is for. The queue
is bounded: a client over the bound is cut off, a neighbour gets no more knowledge, which it will ask for
again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast, get_args

from tidemark.errors import VersionError, WireError
from tidemark.message.batches.batch import Buffer
from tidemark.node.logs import Log
from tidemark.wire.codec import Encode, encode, encoder_for, size_of
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import (
    Ack,
    Answer,
    Ask,
    Claim,
    ClientFrame,
    Connect,
    Credit,
    Deliver,
    Describe,
    Fetch,
    Frame,
    Heard,
    Hello,
    Interest,
    Knowledge,
    Lease,
    Links,
    Offer,
    Overlay,
    PeerFrame,
    Ping,
    Pong,
    Publish,
    Pushing,
    Recalled,
    Refused,
    Release,
    Rest,
    Resume,
    Subscribe,
    Topic,
    Unfollow,
    Unsubscribe,
    Welcome,
)
from tidemark.wire.limits import FRAME_BYTES_MAX
from tidemark.wire.versions import agree, agree_link

if TYPE_CHECKING:
    from tidemark.node.leases.leaseholder import Leaseholder
    from tidemark.node.server import Server

#: What the broker understands of a client besides Ask; Ping and Pong are answered here.
_FROM_CLIENT = frozenset(
    (Publish, Subscribe, Ack, Credit, Unsubscribe, Describe, Topic, Fetch, Offer, Recalled)
)
_FROM_PEER = frozenset(get_args(PeerFrame)) - {Ping, Pong}
#: Without these a neighbour would be wrong about us; all else it asks for again.
NEVER_DROPPED = frozenset((Hello, Links, Interest, Unfollow, Claim, Topic, Release, Heard, Overlay))
#: Pieces that wait for one write.
PIECES_MAX = 512
log = Log("connection")


class Connection(asyncio.BufferedProtocol):
    """See above. Who it is with is in `client` or `peer`, and neither before the handshake."""

    __slots__ = (
        "_decoder",
        "_encode",
        "_is_closing",
        "_said",
        "_server",
        "_transport",
        "address",
        "asked",
        "began",
        "calling",
        "client",
        "expected",
        "heard",
        "hello",
        "incomplete_since",
        "is_paused",
        "is_subscriber",
        "lease",
        "name",
        "peer",
        "said_bytes",
        "said_events",
    )

    def __init__(
        self, server: Server, expected: str | None = None, calling: Leaseholder | None = None
    ) -> None:
        """`expected` is the neighbour that was called, `calling` the client; neither if it called."""
        self._server = server
        self._decoder = FrameDecoder()
        self._encode: Encode = encode
        self._transport: asyncio.Transport | None = None
        self._is_closing = False
        #: pieces of frames that go out together at the end of what is being handled
        self._said: list[Buffer] = []
        self.expected = expected
        self.calling = calling
        #: of a client that may be away
        self.lease: Leaseholder | None = None
        self.address = ""
        #: on the loop's clock: when it was opened, heard from last, and has had part of a frame since
        self.began = self.heard = server.time()
        self.incomplete_since: float | None = None
        #: when it was last asked whether it is there
        self.asked = 0.0
        self.is_paused = False
        self.client: int | None = None
        self.peer: str | None = None
        #: what a client calls itself
        self.name = ""
        #: of a broker that is no neighbour: one of the two may only not know it yet
        self.hello: Hello | None = None
        #: a client that has subscribed
        self.is_subscriber = False
        #: to a neighbour: all that was written, and events in it
        self.said_bytes = 0
        self.said_events = 0

    @property
    def is_known(self) -> bool:
        """It has said who it is."""
        return self.client is not None or self.peer is not None

    @property
    def is_called(self) -> bool:
        """This side has opened it."""
        return self.expected is not None or self.calling is not None

    @property
    def queued_bytes(self) -> int:
        """What the other side has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # The transport speaks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self._transport = cast(asyncio.Transport, transport)
        peer: Any = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        if not self._server.opened(self):
            self.abort()
        elif self.expected is not None:
            self._write(Hello(self._server.name, self._server.incarnation))
            self._write(self._server.membership.greeting())
        elif self.calling is not None:
            self._write(Pushing(self._server.name, self.calling.key))

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._is_closing = True
        self._transport = None
        self._server.closed(self, exc)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature)
        """Where to read to: shared, because what arrived is decoded before anyone else reads."""
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        self.heard = now = self._server.time()
        if self._is_closing:
            return
        try:
            frames = self._decoder.feed(self._server.buffer[:nbytes])
            if not self.is_known and frames:
                self._introduce(frames.pop(0))
                self._decoder.bytes_max = FRAME_BYTES_MAX
                frames += self._decoder.feed(b"")
        except WireError as error:
            self.refuse("frame", str(error))
            return
        if self._decoder.waiting_bytes:
            if frames or self.incomplete_since is None:
                self.incomplete_since = now
                self._server.incomplete.add(self)
        elif self.incomplete_since is not None:
            self.incomplete_since = None
            self._server.incomplete.discard(self)
        if frames and not self._is_closing:
            self._take(frames)

    def pause_writing(self) -> None:
        """The socket takes no more: what is said from now on is counted."""
        self._server.congested.add(self)

    def resume_writing(self) -> None:
        """It takes more again."""
        self._server.congested.discard(self)

    # What is heard.

    def _introduce(self, frame: Frame) -> None:
        match frame:
            case Connect(name, oldest, newest) if not self.is_called:
                self._welcome(name, oldest, newest)
            case Resume() if self.expected is None:
                self._resume(frame)
            case Hello() if self.calling is None:
                self._link(frame)
            case Overlay() if self.expected is not None or self.hello is not None:
                self._server.told_overlay(self, frame)
            case Refused(reason=reason):
                log.warning("refused by the other side", address=self.address, reason=reason)
                if self.calling is not None:
                    self._server.leases.refused(self.calling)
                self.close()
            case _:
                self.refuse("frame", "say who you are first, with Connect or Hello")

    def _welcome(self, name: str, oldest: int, newest: int) -> None:
        server = self._server
        try:
            version = agree(oldest, newest)
        except VersionError as error:
            self.refuse("version", str(error))
            return
        self._encode = encoder_for(version)
        self.name = name
        self.client = server.runtime.client_came(self)
        server.introduced(self)
        self._write(Welcome(server.name, server.incarnation, version, server.pubends))

    def _resume(self, frame: Resume) -> None:
        server = self._server
        try:
            version = agree(frame.oldest, frame.newest)
        except VersionError as error:
            self.refuse("version", str(error))
            return
        holder = server.leases.claim(self, frame.ticket)
        if holder is None:
            self.refuse("unknown", "there is no such lease, or not any more: connect and subscribe again")
            return
        self._encode = encoder_for(version)
        self.name, self.client, self.lease, self.calling = holder.name, holder.client, holder, None
        server.introduced(self)
        self._write(Welcome(server.name, server.incarnation, version, server.pubends))
        server.leases.arrived(holder, self)

    def _link(self, hello: Hello) -> None:
        """LinkUp comes only here: both sides have said who they are, and speak a common version."""
        server = self._server
        try:
            agree_link(hello.oldest, hello.newest)
        except VersionError as error:
            self.refuse("version", str(error))
            return
        self.hello = hello
        if self.expected not in (None, hello.broker):
            self.refuse_stranger()
            return
        if hello.broker in server.neighbours:
            self.peer = hello.broker
            server.introduced(self)
            server.runtime.link_up(hello.broker, self, hello)
        if self.expected is None:
            self._write(server.membership.greeting())

    def refuse_stranger(self) -> None:
        """The other side is no neighbour, and both go by the same topology, or know which is newer."""
        server = self._server
        wanted = self.expected or " or ".join(server.neighbours) or "nobody"
        who = self.hello.broker if self.hello is not None else server.name
        reason = f"{server.name!r} is linked to {wanted}, not to {who!r}: compare the topologies"
        self.refuse("unknown", reason)

    def _take(self, frames: list[Frame]) -> None:
        if self.client is not None:
            self._take_client(self.client, frames)
        elif self.peer is not None:
            self._take_peer(self.peer, frames)
        else:
            for frame in frames:
                if isinstance(frame, Overlay):
                    self._server.told_overlay(self, frame)

    def _take_client(self, client: int, frames: list[Frame]) -> None:
        server, is_resting = self._server, False
        said: list[ClientFrame] = []
        if self.lease is not None:
            self.lease.heard(frames)
        for frame in frames:
            kind = type(frame)
            if kind in _FROM_CLIENT:
                if isinstance(frame, Subscribe):
                    self.is_subscriber = True
                    notice = server.drain_notice
                    if notice is not None:
                        self._write(
                            Refused("subscribe", frame.name, "draining", notice.reason, notice.addresses)
                        )
                        continue
                said.append(cast(ClientFrame, frame))
            elif isinstance(frame, Ping):
                self._answer(Pong(frame.stamp))
            elif isinstance(frame, Ask):
                if not server.answer(frame, self._answer):
                    said.append(frame)
            elif isinstance(frame, Lease):
                self._answer(server.leases.grant(self, frame))
            elif isinstance(frame, Rest) and self.lease is not None and frame is frames[-1]:
                is_resting = True
            elif kind is not Pong:
                self.refuse("frame", f"a client does not say {kind.__name__}")
                break
        if said:
            server.runtime.client_said(client, said)
        if is_resting and not self._is_closing:
            server.leases.rested(self)

    def _answer(self, frame: ClientFrame) -> None:
        """Say it to a client at once; if the last frame was said here, when it is back."""
        if self.lease is None or not self.lease.is_resting:
            self._write(frame)
        elif type(frame) is not Pong:
            self.lease.send(frame)

    def _take_peer(self, peer: str, frames: list[Frame]) -> None:
        said: list[PeerFrame] = []
        for frame in frames:
            if isinstance(frame, Ping):
                self._write(Pong(frame.stamp))
            elif isinstance(frame, Overlay):
                self._server.told_overlay(self, frame)
            elif type(frame) in _FROM_PEER:
                said.append(cast(PeerFrame, frame))
            elif type(frame) is not Pong:
                self.refuse("frame", f"a broker does not say {type(frame).__name__}")
                break
        if said:
            self._server.runtime.peer_said(peer, self, said)

    # What is said.

    def send(self, frame: Frame) -> None:
        """Say it, as far as the queue has room for it."""
        if self._transport is None or self._is_closing:
            return
        if self.expected is not None and type(frame) is Hello:
            return  # whoever calls has said its Hello first
        queued = self._transport.get_write_buffer_size()
        if queued and queued > self._server.queue_bytes_max(self) and not self._may_send(frame, queued):
            return
        if not self._said:
            runtime = self._server.runtime
            (runtime.to_deliver if type(frame) is Deliver else runtime.to_flush).append(self)
        self._say(frame)
        if type(frame) is Knowledge and frame.batch is not None:
            self.said_events += frame.batch.count
        if len(self._said) > PIECES_MAX:
            self.flush()

    def _may_send(self, frame: Frame, queued: int) -> bool:
        """With a full queue: only what must not be lost, and even of that only so much."""
        bytes_max = self._server.queue_bytes_max(self)
        if self.peer is not None and type(frame) not in NEVER_DROPPED:
            self._server.dropped += 1
            return False
        if self.peer is not None and queued <= 2 * bytes_max:
            return True
        log.warning("too slow: disconnected", address=self.address, who=self.peer or self.name, queued=queued)
        self.abort()
        return False

    def say(self, frame: Overlay) -> None:
        """From process to process."""
        if self._transport is not None and not self._is_closing:
            self._write(frame)

    def ping(self) -> None:
        """Ask whether the other side is there."""
        self.asked = self._server.time()
        self._write(Ping(int(self.asked * 1e6)))

    def _write(self, frame: Frame) -> None:
        """Say it at once."""
        self._say(frame)
        self.flush()

    def _say(self, frame: Frame) -> None:
        try:
            self._said += self._encode(frame)
        except WireError as error:
            log.error("a frame cannot be sent", address=self.address, reason=str(error))
            if isinstance(frame, Answer):
                self._say(Refused("ask", str(frame.ticket), "limit", str(error)))
            else:
                self.close()

    def flush(self) -> None:
        """Write what was said, in one go; the transport queues what the socket does not take."""
        said, self._said = self._said, []
        if said and self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(said)
            if self.client is None:
                self.said_bytes += size_of(said)

    def refuse(self, code: str, reason: str, addresses: tuple[str, ...] = ()) -> None:
        """Tell the other side why, and which brokers to go to instead, and close."""
        if self._is_closing:
            return
        log.warning("refused", address=self.address, who=self.peer or self.name, code=code, reason=reason)
        self._write(Refused("connect", "", code, reason, addresses))
        self.close()

    def close(self) -> None:
        """Close it when what was said has gone out; the server cuts it off if that takes too long."""
        if self._transport is not None and not self._is_closing:
            self.flush()
            self._is_closing = True
            self._server.closing(self)
            self._transport.close()

    def abort(self) -> None:
        """Close it at once."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Read nothing more."""
        if self._transport is not None and not self.is_paused:
            self.is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        self.heard = self._server.time()
        if self._transport is not None and self.is_paused:
            self.is_paused = False
            self._transport.resume_reading()
