"""Runtime: the broker with a clock, disk threads and connections around it.

A stimulus is handled at once, on the loop. What the broker says goes to the sockets in the same loop turn;
what it writes goes to the disk threads, whose completions come back as stimuli. Promises: per connection and
towards each disk the order of the effects is kept; publishers are not read while the disk is too far behind;
after an error in the broker or on the disk nothing more is handled, said or written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from time import monotonic_ns, time_ns
from typing import Protocol

from tidemark.broker.broker import Broker
from tidemark.broker.effects import (
    ClientFrameReceived,
    ClientGone,
    CommitTables,
    Effect,
    LinkDown,
    LinkUp,
    LogSynced,
    PeerFrameReceived,
    SendClient,
    SendPeer,
    Stimulus,
    SyncLog,
    SyncPfs,
    Woken,
)
from tidemark.node.disk.backlog import Backlog
from tidemark.node.disk.disk_thread import DiskWorker
from tidemark.node.disk.disk_threads import DiskThreads
from tidemark.wire.frames import ClientFrame, Frame, Hello, PeerFrame

#: Timers of the loop are no finer than this.
WAKE_SECONDS_MIN = 0.001
#: A ticket that no broker gives: for what the runtime itself asks of the disk.
OWN_TICKET = 0
#: Each sync that is reported may set off the next: of what had gathered, then of what that has set off.
SETTLE_ROUNDS = 4


class RuntimeConnection(Protocol):
    """A connection as the runtime sees it."""

    def send(self, frame: Frame) -> None:
        """Say it at the next `flush`, for which it joins `to_flush`."""

    def flush(self) -> None:
        """Put what was said on the socket."""

    def close(self) -> None:
        """End it, after what was said."""

    def pause(self) -> None:
        """Read nothing more from it."""

    def resume(self) -> None:
        """Read on."""


class Runtime:
    """One broker at work."""

    def __init__(
        self,
        broker: Broker,
        worker: DiskWorker,
        *,
        disk_queue_bytes_max: int,
        failed: Callable[[BaseException], None],
        timed: Callable[[str, float], None],
    ) -> None:
        self.broker = broker
        self.backlog = Backlog()
        self.disk = DiskThreads(worker, self._finished, self._fail, timed)
        #: those with something to put on their sockets: events, and all else
        self.to_deliver: list[RuntimeConnection] = []
        self.to_flush: list[RuntimeConnection] = []
        self.clients: dict[int, RuntimeConnection] = {}
        self.peers: dict[str, RuntimeConnection] = {}
        #: not read from until the disk has caught up
        self._paused: set[RuntimeConnection] = set()
        self._disk_queue_bytes_max = disk_queue_bytes_max
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._next_client = 1
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        #: the time that is told to the broker runs ahead at the end, so that what is due soon is done now
        self._ahead_us = 0
        self.is_over = False

    def start(self) -> None:
        """Wake the broker for the first time."""
        self.give((Woken(),))

    # What reaches the broker.

    def give(self, stimuli: Iterable[Stimulus]) -> None:
        """Handle stimuli in order; what they ask of the disk goes there together."""
        if self.is_over:
            return
        to_disk: list[Effect] = []
        try:
            for stimulus in stimuli:
                effects = self.broker.hear(stimulus, _now() + self._ahead_us, _wall())
                self._carry_out(effects, to_disk)
                if type(stimulus) is LogSynced:
                    self._flush()  # publishers wait for nothing but their sync
                self._carry_out(self.broker.settle(), to_disk)
            wake_at = self.broker.next_wake()
        except Exception as error:
            # Half of a stimulus has been handled: no state of the broker can be trusted any more.
            self._fail(error)
            return
        # A sync that somebody waits for runs while we write to sockets; all else would only compete with us.
        is_urgent = any(type(effect) is SyncLog for effect in to_disk)
        if not is_urgent:
            self._flush()
        if to_disk:
            self.disk.put(to_disk)
            self.backlog.put(to_disk)
        self._flush()
        if not self.is_over:
            self._set_timer(wake_at)

    def _flush(self) -> None:
        """One write a connection, however much was said. Events first: somebody waits for them longest."""
        for speakers in (self.to_deliver, self.to_flush):
            for speaker in speakers:
                speaker.flush()
            speakers.clear()

    def client_came(self, speaker: RuntimeConnection) -> int:
        """A client has introduced itself; its number."""
        client = self._next_client
        self._next_client += 1
        self.clients[client] = speaker
        return client

    def client_is(self, client: int, speaker: RuntimeConnection) -> None:
        """From now on this is who a client is spoken to through."""
        self._paused.discard(self.clients[client])
        self.clients[client] = speaker

    def client_said(self, client: int, frames: list[ClientFrame]) -> None:
        """Frames of a client, all that arrived at once."""
        self.give([ClientFrameReceived(client, frame) for frame in frames])
        if self.backlog.bytes > self._disk_queue_bytes_max and client in self.clients:
            self._pause(self.clients[client])

    def client_gone(self, client: int) -> None:
        """A client's connection is lost."""
        speaker = self.clients.pop(client, None)
        if speaker is not None:
            self._paused.discard(speaker)
            self.give((ClientGone(client),))

    def link_up(self, peer: str, speaker: RuntimeConnection, hello: Hello) -> None:
        """A neighbour has introduced itself. A newer link ends the one before it."""
        before = self.peers.get(peer)
        if before is not None:
            self.link_down(peer, before)
            before.close()
        self.peers[peer] = speaker
        self.give((LinkUp(peer), PeerFrameReceived(peer, hello)))

    def peer_said(self, peer: str, speaker: RuntimeConnection, frames: list[PeerFrame]) -> None:
        """Frames of a neighbour; those of a link that has been replaced count for nothing."""
        if self.peers.get(peer) is not speaker:
            return
        self.give([PeerFrameReceived(peer, frame) for frame in frames])
        if self.backlog.bytes > self._disk_queue_bytes_max:
            self._pause(speaker)

    def link_down(self, peer: str, speaker: RuntimeConnection) -> None:
        """A link is lost."""
        self._paused.discard(speaker)
        if self.peers.get(peer) is speaker:
            del self.peers[peer]
            self.give((LinkDown(peer),))

    def _finished(self, stimuli: list[Stimulus]) -> None:
        """The disk reports."""
        self.backlog.done(stimuli)
        self.give(stimuli)
        if self._paused and self.backlog.bytes <= self._disk_queue_bytes_max // 2:
            paused, self._paused = self._paused, set()
            for speaker in paused:
                speaker.resume()

    def _pause(self, speaker: RuntimeConnection) -> None:
        if speaker not in self._paused:
            self._paused.add(speaker)
            speaker.pause()

    # What the broker does.

    def _carry_out(self, effects: list[Effect], to_disk: list[Effect]) -> None:
        clients = self.clients
        for effect in effects:
            if isinstance(effect, SendClient):
                speaker = clients.get(effect.client)
                if speaker is not None:
                    speaker.send(effect.frame)
            elif isinstance(effect, SendPeer):
                speaker = self.peers.get(effect.peer)
                if speaker is not None:
                    speaker.send(effect.frame)
            else:
                to_disk.append(effect)

    # Time.

    def _set_timer(self, at: int) -> None:
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        delay = max((at - _now()) / 1e6, WAKE_SECONDS_MIN)
        self._timer_at = at
        self._timer = self._loop.call_later(delay, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self.is_over:
            return
        # What it was set for may have been dealt with meanwhile.
        at = self.broker.next_wake()
        if at <= _now():
            self.give((Woken(),))
        else:
            self._set_timer(at)

    # The end.

    async def settle(self) -> None:
        """Return when what has been received is on disk and acknowledged; call when nothing more comes."""
        for _ in range(SETTLE_ROUNDS):
            await self.disk.reached()

    async def drain(self, ahead_us: int) -> None:
        """With nobody connected any more: put everything on disk that the broker would within `ahead_us`."""
        self._ahead_us = ahead_us
        self.give((Woken(),))
        await self.settle()
        if not self.is_over:
            self.disk.put((SyncPfs(OWN_TICKET), CommitTables(OWN_TICKET)))
        # Only then: if the last sync fails, that has to be heard.
        await self.disk.stop()
        self.stop()

    def stop(self) -> None:
        """Handle nothing more. What was not durable is lost, as in a crash."""
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fail(self, error: BaseException) -> None:
        if not self.is_over:
            self.stop()
            self._failed(error)


def _now() -> int:
    """Monotonic microseconds."""
    return monotonic_ns() // 1_000


def _wall() -> int:
    """Microseconds of the time of day."""
    return time_ns() // 1_000
