"""LocalLink: a link between two brokers of one process, whose frames cross no socket (docs/overlay.md).

To both brokers it is a link like any other: it comes up and goes down, frames arrive in order, and a
neighbour that does not keep up gets no more knowledge, which it will ask for again. A frame is never handed
over while its sender is still handling a stimulus: the receiver gets it in a later turn of the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from tidemark.broker.outgoing import undroppable
from tidemark.node.logs import Log
from tidemark.wire.frames import Frame, Hello, Knowledge, Overlay, PeerFrame, Ping, Pong, Together
from tidemark.wire.limits import LINK_NEWEST
from tidemark.wire.security.frames import Access

if TYPE_CHECKING:
    from tidemark.node.server import Server

#: How many frames are handed over in one turn of the loop, so that other work of the loop does not wait long.
FRAMES_A_TURN_MAX = 64
#: Bytes that a frame counts for besides its events.
FRAME_BYTES = 128
log = Log("local_link")


class LocalLink:
    """One side of the link. Each side has an inbox, into which the other side puts what it sends."""

    def __init__(self, server: Server, peer: str) -> None:
        """The side of the broker of `server`, whose neighbour is `peer`. `join` it to the other side."""
        #: the server that this side belongs to, in whose set `local` it is while the link is up
        self._server = server
        self._loop = asyncio.get_running_loop()
        self.peer = peer
        #: when the link was made, on the loop's clock
        self.began = server.time()
        #: the runtime lets nothing be handed over, because its disk is behind
        self.is_paused = False
        #: frames from the other side that were not handed over yet, each with the bytes it counts for
        self._inbox: deque[tuple[PeerFrame | Overlay | Access, int]] = deque()
        self._inbox_bytes = 0
        #: whether `_hand_over` is scheduled
        self._is_due = False
        self._is_over = False
        #: bytes and events sent from this side since the link is up
        self.said_bytes = 0
        self.said_events = 0
        #: both sides are of one program, and so speak its newest version
        self.link_version = LINK_NEWEST
        self._other: LocalLink | None = None

    def join(self, other: LocalLink) -> None:
        """Make this and `other` the two sides of one link."""
        self._other, other._other = other, self

    @property
    def queued_bytes(self) -> int:
        """Bytes that this side has sent and the other side has not handed over yet."""
        return 0 if self._other is None else self._other._inbox_bytes

    # Sending.

    def send(self, frame: Frame) -> None:
        """Send `frame`, or drop it if the other side does not keep up.

        A link that is far behind is closed.
        """
        # Both sides have introduced themselves when the link was made.
        if self._is_over or self._other is None or isinstance(frame, Hello):
            return
        bytes_max = self._server.limits.peer_queue
        if self.queued_bytes > bytes_max:
            kept = undroppable(frame)
            self._server.dropped += kept is not frame
            if kept is None:
                return
            frame = kept
        if self.queued_bytes > 2 * bytes_max:
            self.close()
            return
        size = FRAME_BYTES
        before = self.said_bytes
        self.said_bytes += FRAME_BYTES
        for each in frame.frames if isinstance(frame, Together) else (frame,):
            if isinstance(each, Knowledge) and each.batch is not None:
                size += each.batch.held_bytes
                self.said_events += each.batch.count
                self.said_bytes += len(each.batch.data)
        self._server.link_traffic.sent_locally(self.peer, frame, self.said_bytes - before)  # type: ignore[arg-type]
        self._other._put(frame, size)  # type: ignore[arg-type]  # the core sends peers only peer frames

    def say(self, frame: Overlay | Access) -> None:
        """Send a frame about the topology, which the server itself sends and not the broker's core."""
        self.send(frame)

    def drop_answers(self, pubend: str) -> None:
        """Do nothing: no answer waits on this side."""

    def flush(self) -> None:
        """Do nothing: `send` has put the frame into the other side's inbox."""

    # Receiving.

    def _put(self, frame: PeerFrame | Overlay | Access, size: int) -> None:
        self._inbox.append((frame, size))
        self._inbox_bytes += size
        self._later()

    def _later(self) -> None:
        if not self._is_due and not self.is_paused and not self._is_over and self._inbox:
            self._is_due = True
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._is_due = False
        if self._is_over or self.is_paused:
            return
        said: list[PeerFrame] = []
        while self._inbox and len(said) < FRAMES_A_TURN_MAX:
            frame, size = self._inbox.popleft()
            self._inbox_bytes -= size
            if isinstance(frame, Overlay):
                self._server.told_overlay(self, frame)
            elif isinstance(frame, Access):
                self._server.told_access(self, frame)
            elif not isinstance(frame, Ping | Pong):
                said.append(frame)
        if said:
            self._server.runtime.peer_said(self.peer, self, said)
        self._later()

    def pause(self) -> None:
        """Hand over nothing more until `resume`."""
        self.is_paused = True

    def resume(self) -> None:
        """Hand over what waits, and what comes."""
        self.is_paused = False
        self._later()

    def charge(self, seconds: float) -> None:
        """A broker of the same process shares the loop anyway."""

    # The end.

    def refuse(self, code: str, reason: str) -> None:
        """End the link: the neighbour has said what this broker cannot handle. It may come again later."""
        log.error("refused", who=self.peer, code=code, reason=reason)
        self._server.refused_neighbours.add(self.peer)
        self.close()

    def close(self) -> None:
        """End the link in a later turn of the loop: the caller may be in the middle of a stimulus."""
        self._loop.call_soon(self.abort)

    def abort(self) -> None:
        """End this side of the link now, and the other side in a later turn of the loop."""
        if self._is_over:
            return
        self._is_over = True
        self._inbox.clear()
        self._inbox_bytes = 0
        self._server.closed_local(self)
        if self._other is not None:
            self._other.close()


class LocalBrokers:
    """The brokers that run in one process. All nodes of the process share one object of this class."""

    def __init__(self) -> None:
        #: broker -> its server; each node enters and leaves its own
        self._servers: dict[str, Server] = {}

    def enter(self, server: Server) -> None:
        """The broker of `server` can be linked to from now on."""
        self._servers[server.name] = server

    def leave(self, server: Server) -> None:
        """The broker of `server` cannot be linked to any more."""
        self._servers.pop(server.name, None)

    def link(self, caller: Server, peer: str) -> LocalLink | None:
        """Link `caller` to the broker `peer` of this process. Returns the caller's side of the link.

        Returns None if `peer` does not run here, if either topology does not have the other as neighbour, or
        if `peer` has refused what `caller` said a moment ago.
        """
        called = self._servers.get(peer)
        if called is None or caller.name not in called.neighbours or peer not in caller.neighbours:
            return None
        if called.refused_neighbours.seconds_left(caller.name):
            return None
        here, there = LocalLink(caller, peer), LocalLink(called, caller.name)
        here.join(there)
        for server, link, other in ((caller, here, called), (called, there, caller)):
            server.opened_local(link)
            server.security.audit.write("link", who=link.peer, how="this process")
            server.runtime.link_up(link.peer, link, Hello(other.name, other.incarnation))
            link.say(server.membership.greeting())
            if server.access is not None:
                link.say(server.access.greeting())
        return here
