"""Connection: one socket, from its first byte to its last.

The first frame says who is at the other end: Connect comes from a client, Resume from a client that was away,
Hello from a broker. Until then the connection accepts only small frames and may not last long. All
connections read into one shared buffer, since the decoder copies what it has to keep. Frames that are sent
while one stimulus is handled go out in one write; the transport queues what the socket does not take, and the
bytes of a batch are shared among the queues of all its receivers. The queue is bounded: a client over the
bound is disconnected, a neighbour over the bound gets no more knowledge, which it will ask for again.

To a neighbour live frames go before history (`broker.outgoing`): history waits here until the transport has
written what it has, and the kernel is not given more than NOTSENT_BYTES_MAX that it cannot send yet.

Connections take turns (`node.turns`): what does not fit into a slice of the event loop's time waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast, get_args

from tidemark.access.principal import Principal
from tidemark.broker.effects import LinkMeasured
from tidemark.broker.outgoing import HistoryQueue, events_in, is_history, is_question, undroppable
from tidemark.broker.preparation import Steps, Work
from tidemark.errors import WireError
from tidemark.message.batches.batch import Buffer
from tidemark.node.config.units import HostPort
from tidemark.node.logs import Log
from tidemark.node.security.introduction import Introduction
from tidemark.node.sockets import bound_kernel_queue, keep_alive, observed, write_pieces
from tidemark.node.turns.turn_taking import TurnTaking
from tidemark.node.workers.redirects import is_sent_away
from tidemark.wire.codec import Encode, encode, encoder_for, encoder_for_link, size_of
from tidemark.wire.frames import (
    Ack,
    Answer,
    Ask,
    ClientFrame,
    Credit,
    Deliver,
    Describe,
    Fetch,
    Frame,
    Hello,
    Knowledge,
    Lease,
    Offer,
    Overlay,
    PeerFrame,
    Ping,
    Pong,
    Publish,
    Pushing,
    Recalled,
    Refused,
    Rest,
    Subscribe,
    Subscribed,
    Together,
    Topic,
    Unsubscribe,
)
from tidemark.wire.limits import FRAME_BYTES_MAX
from tidemark.wire.liveness.tcp_info import TcpInfo
from tidemark.wire.moving.frames import Come, Leave
from tidemark.wire.security.frames import Access, Proof
from tidemark.wire.versions import is_spoken

if TYPE_CHECKING:
    from tidemark.node.leases.leaseholder import Leaseholder
    from tidemark.node.server import Server

#: Frames of a client that go to the broker's core, besides Ask; Ping and Pong are handled here.
FROM_CLIENT = frozenset(
    (Publish, Leave, Come, Subscribe, Ack, Credit, Unsubscribe, Describe, Topic, Fetch, Offer, Recalled)
)
#: Frames to a client of which something is noted.
_NOTED = frozenset((Refused, Subscribed))
#: Frames that may need preparation, in steps or on a thread, before they are handled.
_PREPARED = frozenset((Publish, Subscribe, Topic, Knowledge, Together))
FROM_PEER = frozenset(get_args(PeerFrame)) - {Ping, Pong}
#: Pieces of encoded frames that wait for one write.
PIECES_MAX = 512
#: Bytes of answers that wait for one neighbour, at most: a neighbour asks for as much as its link carries.
HISTORY_BYTES_MAX = 8 << 20
#: Characters of what an unforeseen error says that the other side is told.
REASON_CHARACTERS_MAX = 500
#: While the socket takes no more, small pieces gather to so many bytes before they join its queue, as one
#: piece: a piece takes some 200 bytes of memory besides its own, which nobody counts.
GATHERED_BYTES = 16 << 10
SMALL_PIECE_BYTES = 1 << 10
log = Log("connection")


class Connection(TurnTaking):
    """One socket. After the handshake either `client` or `peer` is set, before it neither."""

    __slots__ = (
        "__weakref__",
        "_encode",
        "_history",
        "_is_full",
        "_is_introduced",
        "_is_question_said",
        "_questions",
        "_said",
        "_said_size",
        "_server",
        "address",
        "began",
        "calling",
        "client",
        "expected",
        "expires_at",
        "hello",
        "incomplete_since",
        "introduction",
        "is_subscriber",
        "lease",
        "link_version",
        "measured",
        "name",
        "number",
        "peer",
        "principal",
        "said_bytes",
        "said_events",
    )

    def __init__(
        self, server: Server, expected: str | None = None, calling: Leaseholder | None = None
    ) -> None:
        """`expected`: the neighbour that this broker calls. `calling`: the parked client that it calls.

        Both are None if the other side has opened the connection.
        """
        super().__init__(server.turns, server.time, server.client_traffic.received)
        #: the server that owns this connection; the connection reports to it, and through it to the runtime
        self._server = server
        self._questions = server.questions.of("")
        self._encode: Encode = encode
        #: the version of the protocol between brokers that is spoken
        self.link_version = 0
        #: pieces of encoded frames that `flush` writes together when the stimulus at hand has been handled
        self._said, self._said_size = list[Buffer](), 0
        #: whether one of these frames asks the neighbour for something
        self._is_question_said = False
        #: encoded frames of history for a neighbour, and the number of their events, until they are written
        self._history: HistoryQueue[tuple[list[Buffer], int]] = HistoryQueue()
        #: the transport has enough to write for now
        self._is_full = False
        self.expected = expected
        #: cleared when the client has answered, or when the lease gives the call up
        self.calling = calling
        #: the lease of the client at the other end, if it has one; `Leases` sets, clears and shares it
        self.lease: Leaseholder | None = None
        #: how many connections the server had before
        self.number = server.next_number()
        #: the remote host, without its port
        self.address = ""
        #: on the loop's clock: when the socket was opened, and since when part of a frame waits for the rest
        self.began = server.time()
        self.incomplete_since: float | None = None
        #: the client's number in the runtime, or the neighbour's name
        self.client: int | None = None
        self.peer: str | None = None
        #: the name that a client gave itself
        self.name = ""
        #: what a broker introduced itself with; if it is no neighbour, one of the two may not know it yet
        self.hello: Hello | None = None
        #: hears the first frames, until the other side has said and proved who it is
        self.introduction = Introduction(self, server)
        self._is_introduced = False
        #: who the client has proved to be, None while the broker is open; and until when, in seconds of day
        self.principal: Principal | None = None
        self.expires_at: float | None = None
        #: the client has sent Subscribe
        self.is_subscriber = False
        #: what the core was told last of a link's delay and rate
        self.measured: LinkMeasured | None = None
        #: bytes that were written, and events that were written to a neighbour
        self.said_bytes = 0
        self.said_events = 0

    @property
    def is_known(self) -> bool:
        """Whether the other side has said who it is, and was accepted."""
        return self.client is not None or self.peer is not None

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The verified certificate of the other side; None if it has none."""
        return (self._transport and self._transport.get_extra_info("peercert")) or None

    @property
    def is_called(self) -> bool:
        """Whether this broker has opened the connection."""
        return self.expected is not None or self.calling is not None

    @property
    def local(self) -> HostPort:
        """The address of this machine that the other side has connected to."""
        found: Any = None if self._transport is None else self._transport.get_extra_info("sockname")
        return HostPort(*found[:2]) if isinstance(found, tuple) else HostPort("", 0)

    @property
    def queued_bytes(self) -> int:
        """Bytes that were sent and that the socket has not taken yet."""
        written = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return written + self._said_size + self._history.bytes

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self._transport = cast(asyncio.Transport, transport)
        peer: Any = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        self.opened_from(self.address)
        self._questions = self._server.questions.of(self.origin)
        keep_alive(self._transport)
        if (reason := self._server.opened(self)) is not None:
            self.refuse("limit", reason)
        elif self.expected is not None:
            self.write(self._server.hello)
            if not self._server.security.proves_links:
                self.write(self._server.membership.greeting())
        elif self.calling is not None:
            self.write(Pushing(self._server.name, self.calling.key))

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._is_closing = True
        self._transport = None
        self._server.closed(self, exc)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature)
        """Returns the buffer to read into; all connections share it, because each read is decoded at once."""
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        self.received(self._server.buffer[:nbytes])

    def _decode(self, data: Buffer) -> None:
        try:
            self._read(data)
        except WireError as error:
            self._malformed(str(error))
        except Exception as error:
            self._unforeseen(error)

    def _read(self, data: Buffer) -> None:
        frames = self._decoder.feed(data)
        if not self._is_introduced and frames:
            self._introduce(frames)
        self._unheard += frames
        if self._decoder.waiting_bytes:
            if frames or self.incomplete_since is None:
                self.incomplete_since = self.liveness.heard
            self._server.incomplete.holds(self, self._decoder.held_bytes, self.liveness.heard)
        elif self.incomplete_since is not None:
            self.incomplete_since = None
            self._server.incomplete.discard(self)

    def _introduce(self, frames: list[Frame]) -> None:
        """Let the introduction hear the first of `frames`, and leave those that come after it."""
        while frames and not self._is_introduced and not self._is_closing:
            self._is_introduced = self.introduction.hear(frames.pop(0))
            if self._is_introduced or self.introduction.is_of_trusted_broker:
                self._decoder.bytes_max = FRAME_BYTES_MAX
            frames += self._decoder.feed(b"")
        if not self._is_introduced:
            frames.clear()

    def _hear(self, until: float) -> None:
        try:
            if ready := self._ready(until):
                frames, later = self._unheard[:ready], self._unheard[ready:]
                self._unheard = []
                self._unheard = self._take(frames, until) + later
        except Exception as error:
            self._unforeseen(error)

    def _steps_for(self, frame: Frame) -> Steps | None:
        if type(frame) not in _PREPARED or (self.client is None and self.peer is None):
            return None
        preparation = self._server.runtime.broker.preparation
        # As _PREPARED says: a cast costs a call.
        return preparation.of(frame) if self.peer is None else preparation.of_peer(frame)  # type: ignore[arg-type]

    def _take_step(self, steps: Steps) -> tuple[Work | None, bool]:
        return self._server.runtime.take_step(steps)

    def _unforeseen(self, error: Exception) -> None:
        """Refuse the connection because of an error that it has caused, outside the core (`Runtime.give`)."""
        log.error("what a connection said was not foreseen", address=self.address, cause=error)
        self._malformed(f"{type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX])

    def _malformed(self, reason: str) -> None:
        """Refuse the connection because of what came over it."""
        self._server.malformed += 1
        self.refuse("frame", reason)

    def pause_writing(self) -> None:
        """The socket takes no more: the queue of this connection counts among all queues from now on."""
        self._is_full = True
        self._server.congested.add(self)

    def resume_writing(self) -> None:
        """The socket takes bytes again."""
        self._is_full = False
        self._server.congested.discard(self)
        self.flush()
        self.was_read()

    # Receiving.

    def refuse_stranger(self) -> None:
        """Close the connection to a broker that is no neighbour, once both sides know the newer topology."""
        server = self._server
        wanted = self.expected or " or ".join(server.neighbours) or "nobody"
        who = self.hello.broker if self.hello is not None else server.name
        reason = f"{server.name!r} is linked to {wanted}, not to {who!r}: compare the topologies"
        self.refuse("unknown", reason)

    def _take(self, frames: list[Frame], until: float) -> list[Frame]:
        """Handle `frames`, or at least the first of them; return those that are left at the time `until`."""
        if self.client is not None:
            return self._take_client(self.client, frames, until)
        if self.peer is not None:
            return self._take_peer(self.peer, frames, until)
        for frame in frames:
            if isinstance(frame, Overlay) and self._is_introduced:
                self._server.told_overlay(self, frame)
        return []

    def _take_client(self, client: int, frames: list[Frame], until: float) -> list[Frame]:
        server, is_resting = self._server, False
        said: list[ClientFrame] = []
        left: list[Frame] = []
        if self.lease is not None:
            self.lease.heard(frames)
        for at, frame in enumerate(frames):
            kind = type(frame)
            if kind in FROM_CLIENT:
                if isinstance(frame, (Subscribe, Unsubscribe)) and is_sent_away(server, self, frame):
                    continue
                if kind is Topic:
                    server.security.audit.asked(self.principal, self.address, cast(Topic, frame))
                said.append(frame)  # type: ignore[arg-type]  # as FROM_CLIENT says
            elif isinstance(frame, Ping):
                self._answer(Pong(frame.stamp))
            elif isinstance(frame, Proof):
                self.introduction.prove_anew(frame)
            elif isinstance(frame, Ask):
                if reason := self._questions.refusal():
                    server.questions_refused += 1
                    self._answer(Refused("ask", str(frame.ticket), "limit", reason))
                elif (refusal := server.runtime.broker.access.refusal(client, frame)) is not None:
                    self._answer(refusal)
                else:
                    server.security.audit.asked(self.principal, self.address, frame)
                    if not server.admin.answer(frame, client, self._answer):
                        said.append(frame)
                    elif server.turns.work() > until:
                        left = frames[at + 1 :]
                        break
            elif isinstance(frame, Lease) and (reason := self._no_lease()):
                self._answer(Refused("lease", "", "denied", reason))
            elif isinstance(frame, Lease):
                self._answer(server.leases.grant(self, frame))
            elif isinstance(frame, Rest) and self.lease is not None and frame is frames[-1]:
                is_resting = True
            elif kind is not Pong:
                self.refuse("frame", f"a client does not say {kind.__name__}")
                break
        handled = server.runtime.client_said(client, said, until) if said else 0
        left = [*said[handled:], *left] if handled < len(said) else left
        if is_resting and left:
            left.append(frames[-1])
        elif is_resting and not self._is_closing:
            server.leases.rested(self)
        return left

    def _no_lease(self) -> str:
        """Return why this client cannot be parked and called back; "" if it can."""
        return "" if self.expires_at is None else "a login that expires cannot be parked: stay connected"

    def _answer(self, frame: ClientFrame) -> None:
        """Send `frame` to the client at once, or keep it in the lease if the client has been sent Rest."""
        if isinstance(frame, Refused):
            self._note(frame)
        if self.lease is None or not self.lease.is_resting:
            self.write(frame)
        elif type(frame) is not Pong:
            self.lease.send(frame)

    def _take_peer(self, peer: str, frames: list[Frame], until: float) -> list[Frame]:
        said: list[PeerFrame] = []
        for frame in frames:
            if isinstance(frame, Ping):
                self.write(Pong(frame.stamp))
            elif isinstance(frame, Overlay):
                self._server.told_overlay(self, frame)
            elif isinstance(frame, Access):
                self._server.told_access(self, frame)
            elif type(frame) in FROM_PEER and is_spoken(frame, self.link_version):
                said.append(cast(PeerFrame, frame))
            elif isinstance(frame, Refused):
                log.error("refused by the neighbour", peer=peer, code=frame.code, reason=frame.reason)
                self._server.refused_neighbours.add(peer)
                self.close()
                break
            elif type(frame) is not Pong:
                self.refuse("frame", f"a broker does not say {type(frame).__name__}")
                break
        handled = self._server.runtime.peer_said(peer, self, said, until) if said else 0
        return list(said[handled:])

    # Sending.

    def send(self, frame: Frame) -> None:
        """Queue `frame` for the next flush. A full queue drops it, or closes the connection."""
        if self._transport is None or self._is_closing:
            return
        if self.expected is not None and type(frame) is Hello:
            return  # the side that calls has sent its Hello first
        queued = self._transport.get_write_buffer_size()
        if self.peer is not None and is_history(frame):
            self._send_history(frame, queued)
            return
        if type(frame) in _NOTED:
            self._note(cast(Refused | Subscribed, frame))
        if queued and queued > self._server.queue_bytes_max(self):
            if (kept := self._kept(frame, queued)) is None:
                return
            frame = kept
        if not self._said:
            runtime = self._server.runtime
            (runtime.to_deliver if type(frame) is Deliver else runtime.to_flush).append(self)
        self._say(frame)
        if self.peer is not None:
            self._is_question_said = self._is_question_said or is_question(frame)
            self.said_events += events_in(frame)
            self._history.tell(frame, self.said_bytes + self._said_size)
        if len(self._said) > PIECES_MAX:
            self.flush()

    def _send_history(self, frame: Frame, queued: int) -> None:
        """Let what of `frame` does not wait already wait for the next flush, unless too much does."""
        for part in self._history.rest(frame, self.said_bytes - queued):
            if self._history.held_bytes > min(HISTORY_BYTES_MAX, self._server.queue_bytes_max(self)):
                self._server.dropped += 1
                return None
            try:
                pieces = self._encode(part)
            except WireError as error:
                log.error("a frame cannot be sent", address=self.address, reason=str(error))
                return self.close()
            self._history.put(part, (pieces, events_in(part)), size_of(pieces))
        if not self._said:
            self._server.runtime.to_flush.append(self)

    def drop_answers(self, pubend: str) -> None:
        """The neighbour does not want the answers any more that tell of a pubend and wait here."""
        self._history.drop(pubend)

    def _write_history(self) -> None:
        """Give the transport what waits until it has enough, or more if live frames have had their share."""
        while self._history and (not self._is_full or self._history.is_owed):
            if self._transport is None or self._transport.is_closing():
                return
            pieces, events = self._history.take(self.said_bytes)
            write_pieces(self._transport, pieces)
            self._server.link_traffic.sent(self.peer or "", pieces)
            self.said_bytes += size_of(pieces)
            self.said_events += events
            self.liveness.say(self._server.time(), self.said_bytes)

    def _kept(self, frame: Frame, queued: int) -> Frame | None:
        """Returns what of `frame` must not be lost; aborts a client, and a link beyond twice the bound."""
        bytes_max = self._server.queue_bytes_max(self)
        kept = undroppable(frame)
        self._server.dropped += self.peer is not None and kept is not frame
        if self.peer is not None and (kept is None or queued <= 2 * bytes_max):
            return kept
        log.warning("too slow: disconnected", address=self.address, who=self.peer or self.name, queued=queued)
        self.abort()
        return None

    def _note(self, frame: Refused | Subscribed) -> None:
        if isinstance(frame, Refused):
            self._server.security.audit.refused(self.principal, self.address, frame)
        elif self._server.redirects is not None:
            self._server.redirects.took(frame.name, self.principal)

    def say(self, frame: Overlay | Access) -> None:
        """Send a frame about the topology or the access document at once; the core sends none of these."""
        if self._transport is not None and not self._is_closing:
            self.write(frame)

    def ping(self) -> None:
        """Ask the other side for a Pong."""
        now = self._server.time()
        frame = Ping(int(now * 1e6))
        upto = self.said_bytes + self._said_size + size_of(self._encode(frame))
        self.write(frame)
        self.liveness.ask(now, upto)

    def observe(self, now: float) -> TcpInfo | None:
        """Note what the other side's kernel has taken; return all that this kernel knows, if anything."""
        info = None if self._transport is None else observed(self._transport)
        if info is not None:
            self.liveness.take(now, info.acknowledged)
        return info

    def speak(self, version: int) -> None:
        """Encode frames for a client that speaks this version of the protocol."""
        self._encode = encoder_for(version)

    def speak_link(self, version: int) -> None:
        """Speak this version of the protocol between brokers from now on."""
        self._encode, self.link_version = encoder_for_link(version), version
        self.become_link()

    def bound_link(self, bytes_per_second: int = 0) -> None:
        """Keep the kernel from holding more for a neighbour than it can send soon."""
        if self._transport is not None:
            bound_kernel_queue(self._transport, bytes_per_second)

    def write(self, frame: Frame) -> None:
        """Write `frame` at once, after what is queued."""
        self._say(frame)
        self.flush()

    def _say(self, frame: Frame) -> None:
        try:
            pieces = self._encode(frame)
            self._said += pieces
            self._said_size += (size := size_of(pieces))
            if self.peer is not None:
                self._server.link_traffic.sent(self.peer, pieces)
            else:
                self._server.client_traffic.say(frame, size)
        except WireError as error:
            log.error("a frame cannot be sent", address=self.address, reason=str(error))
            if isinstance(frame, Answer):
                self._say(Refused("ask", str(frame.ticket), "limit", str(error)))
            else:
                self.close()

    def flush(self) -> None:
        """Write the queued frames in one call; the transport queues what the socket does not take."""
        if self._said and self._is_full:
            if self._said_size > SMALL_PIECE_BYTES * len(self._said):
                self._hand_over()
            elif self._said_size >= GATHERED_BYTES or len(self._said) >= PIECES_MAX:
                self._said = [b"".join(self._said)]
                self._hand_over()
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        said, size, self._said, self._said_size = self._said, self._said_size, [], 0
        if said and self._transport is not None and not self._transport.is_closing():
            write_pieces(self._transport, said)
            self.said_bytes += size
            self._history.passed(size)
            self.liveness.say(self._server.time(), self.said_bytes, is_question=self._is_question_said)
            self._is_question_said = False
        if self.peer is not None and self._history:
            self._write_history()

    def refuse(self, code: str, reason: str, addresses: tuple[str, ...] = ()) -> None:
        """Send Refused with `code`, `reason` and the addresses of brokers to go to instead, and close."""
        if self._is_closing:
            return None
        log.warning("refused", address=self.address, who=self.peer or self.name, code=code, reason=reason)
        if self.peer is not None and code == "frame":
            self._server.refused_neighbours.add(self.peer)
        if code == "access" and self.queued_bytes:
            return self.abort()  # what waits was chosen by rules that hold no more
        self.write(Refused("connect", "", code, reason, addresses))
        self.close()

    def close(self) -> None:
        """Close the socket when the queue is written; the server aborts it if that takes too long."""
        if self._transport is not None and not self._is_closing:
            self._hand_over()
            self._is_closing = True
            self._server.closing(self)
            self._transport.close()

    def abort(self) -> None:
        """Close the socket at once; the queue is lost."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()
