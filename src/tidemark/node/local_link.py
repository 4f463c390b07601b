"""LocalLink: a link between two brokers of one process, whose frames cross no socket (DESIGN 9).

To both it is a link as any other: it comes up and goes down, what is said arrives in order, and a neighbour
that does not keep up gets no more knowledge, which it will ask for again. Nothing is handed over while the
one who says it is still at work: the other hears of it in a later turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from tidemark.node.connection import NEVER_DROPPED
from tidemark.wire.frames import Frame, Hello, Knowledge, Overlay, PeerFrame, Ping, Pong

if TYPE_CHECKING:
    from tidemark.node.server import Server

#: Handed over in one turn of the loop, so that nobody else waits for long.
FRAMES_A_TURN_MAX = 64
#: What a frame counts for besides its events.
FRAME_BYTES = 128


class LocalLink:
    """One side of it."""

    def __init__(self, server: Server, peer: str) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self.peer = peer
        self.began = server.time()
        self.is_paused = False
        #: what the other side has said and was not handed over yet
        self._inbox: deque[tuple[PeerFrame | Overlay, int]] = deque()
        self._inbox_bytes = 0
        self._is_due = False
        self._is_over = False
        self.said_bytes = 0
        self.said_events = 0
        self._other: LocalLink | None = None

    def join(self, other: LocalLink) -> None:
        """The two sides of one link find each other."""
        self._other, other._other = other, self

    @property
    def queued_bytes(self) -> int:
        """What the other side has not taken yet."""
        return 0 if self._other is None else self._other._inbox_bytes

    # What is said.

    def send(self, frame: Frame) -> None:
        """Say it, as far as the other side keeps up."""
        # Both have introduced themselves when the link was made.
        if self._is_over or self._other is None or isinstance(frame, Hello):
            return
        bytes_max = self._server.limits.peer_queue
        if self.queued_bytes > bytes_max and type(frame) not in NEVER_DROPPED:
            self._server.dropped += 1
            return
        if self.queued_bytes > 2 * bytes_max:
            self.close()
            return
        size = FRAME_BYTES
        if isinstance(frame, Knowledge) and frame.batch is not None:
            size += len(frame.batch.data)
            self.said_events += frame.batch.count
        self.said_bytes += size
        self._other._put(frame, size)  # type: ignore[arg-type]  # the core says only what neighbours say

    def say(self, frame: Overlay) -> None:
        """From process to process: here, from one broker to another of the same."""
        self.send(frame)

    def flush(self) -> None:
        """Nothing waits here."""

    # What is heard.

    def _put(self, frame: PeerFrame | Overlay, size: int) -> None:
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
            elif not isinstance(frame, Ping | Pong):
                said.append(frame)
        if said:
            self._server.runtime.peer_said(self.peer, self, said)
        self._later()

    def pause(self) -> None:
        """Hand nothing more over."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on."""
        self.is_paused = False
        self._later()

    # The end.

    def close(self) -> None:
        """End it, in a later turn: whoever ends it may be at work."""
        self._loop.call_soon(self.abort)

    def abort(self) -> None:
        """End it, on both sides."""
        if self._is_over:
            return
        self._is_over = True
        self._inbox.clear()
        self._inbox_bytes = 0
        self._server.closed_local(self)
        if self._other is not None:
            self._other.close()


class LocalBrokers:
    """The brokers that run in one process."""

    def __init__(self) -> None:
        self._servers: dict[str, Server] = {}

    def enter(self, server: Server) -> None:
        """It can be linked to from now on."""
        self._servers[server.name] = server

    def leave(self, server: Server) -> None:
        """It cannot any more."""
        self._servers.pop(server.name, None)

    def link(self, caller: Server, peer: str) -> LocalLink | None:
        """A link to another broker of the process; None if it is not here, or does not know the caller."""
        called = self._servers.get(peer)
        if called is None or caller.name not in called.neighbours or peer not in caller.neighbours:
            return None
        here, there = LocalLink(caller, peer), LocalLink(called, caller.name)
        here.join(there)
        for server, link, other in ((caller, here, called), (called, there, caller)):
            server.opened_local(link)
            server.runtime.link_up(link.peer, link, Hello(other.name, other.incarnation))
            link.say(server.membership.greeting())
        return here
