"""Runtime: the sans-I/O broker with a clock, disk threads and connections around it.

A stimulus is handled at once, on the event loop. The frames that the broker sends go to the sockets in the
same turn of the loop; its disk effects go to the disk threads, whose completions come back as stimuli. The
runtime promises:
- The order of effects is kept for each connection and for each disk thread.
- Nothing is read from publishers while the disk is more than `limits.disk_queue` behind, and nothing from one
  that alone has more than its share of `limits.in_flight` on the way to the disk and to subscribers, or that
  has published more than its quota. Nothing is read from neighbours while deliveries are behind.
- Publishers wait for no deliveries: what they have sent goes to the disk before what is durable is passed on,
  and more than fits into one turn of the broker is delivered in several passes of the event loop.
- After an error in the broker or on the disk nothing more is handled, sent or written.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from time import perf_counter
from traceback import extract_tb

from tidemark.access.principal import Principal
from tidemark.broker.broker import Broker
from tidemark.broker.effects import (
    ClientCame,
    ClientFrameReceived,
    ClientGone,
    CommitTables,
    DropAnswers,
    Effect,
    LinkDown,
    LinkUp,
    LogSynced,
    PeerFrameReceived,
    RefuseClient,
    RefusePeer,
    SendClient,
    SendPeer,
    Stimulus,
    SyncLog,
    SyncPfs,
    Woken,
)
from tidemark.broker.hearing import is_commit, may_settle_later
from tidemark.broker.preparation import Steps, Work
from tidemark.node.clock import monotonic_us, wall_us
from tidemark.node.disk.backlog import Backlog, InFlight
from tidemark.node.disk.disk_thread import DiskWorker
from tidemark.node.disk.disk_threads import OF_EVENT_LOGS, DiskThreads
from tidemark.node.logs import Log
from tidemark.node.runtime_connection import RuntimeConnection, RuntimeLink, RuntimeListener
from tidemark.node.turns.awake import Awake
from tidemark.node.turns.disk_reads import READ, DiskReads
from tidemark.node.turns.quota_waits import QuotaWaits
from tidemark.node.turns.settling import SETTLED_LATER_BYTES, SETTLED_LATER_BYTES_MAX, are_few_rows
from tidemark.node.turns.sync_hold import HOLD_SECONDS, SyncHold
from tidemark.node.turns.turns import Turns
from tidemark.wire.frames import ClientFrame, Hello, PeerFrame, Publish

#: Timers of the event loop are no finer than this.
WAKE_SECONDS_MIN = 0.001
#: The ticket of disk effects that the runtime itself asks for; no broker uses it.
OWN_TICKET = 0
#: A sync that completes may set off another one, for what gathered meanwhile and for what follows from it.
SETTLE_ROUNDS = 4
log = Log("runtime")


class Runtime:
    """One broker at work. Everything in here happens on the event loop."""

    def __init__(
        self,
        broker: Broker,
        worker: DiskWorker,
        listener: RuntimeListener,
        *,
        disk_queue_bytes_max: int,
        in_flight_bytes_max: int,
        stays_awake: bool = False,
    ) -> None:
        """`worker` carries out disk effects, on the disk threads that the runtime starts here.

        `stays_awake`: the loop does not sleep for a while after something has happened.
        """
        #: The core. Only the runtime calls `hear` and `settle`; the node, admin and metrics read from it.
        self.broker = broker
        #: bytes given to `disk` and not durable yet; health and metrics read it
        self.backlog = Backlog()
        self.disk = DiskThreads(worker, self)
        self._listener = listener
        #: Connections with something to write: those with events, which are written first, and the others.
        #: `Connection.send` appends itself, `flush` empties both lists.
        self.to_deliver: list[RuntimeConnection] = []
        self.to_flush: list[RuntimeConnection] = []
        #: Client number -> its connection, or its lease while it holds one. Changed by `client_*` here only;
        #: the node, metrics and admin count them.
        self.clients: dict[int, RuntimeConnection] = {}
        #: Neighbour -> the link to it that is up. Changed by `link_*` here only; health, metrics and admin
        #: look neighbours up in it.
        self.peers: dict[str, RuntimeLink] = {}
        #: what each publisher has on its way to the event logs
        self._in_flight = InFlight(in_flight_bytes_max)
        #: clients and links that are not read from until the disk has caught up
        self._paused_clients: set[int] = set()
        self._paused_links: set[RuntimeConnection] = set()
        #: the broker has heard something and has not settled it
        self._is_unsettled = False
        #: all of it is settled but that the log has not got what was published, and until when that may be so
        self._is_log_held = False
        self._hold_timer: asyncio.TimerHandle | None = None
        #: whether a sync for little waits for more
        self.sync_hold = SyncHold(perf_counter)
        #: what the disk is to do for what was heard; between two calls of `give` only rows that wait there
        self._to_disk: list[Effect] = []
        #: whether that is settled in the next turn of the loop at the latest
        self._is_settling_soon = False
        #: client -> the batches that came from it and were not given to the disk yet, and what they take
        self._came: dict[int, tuple[int, int]] = {}
        self._came_bytes = 0
        #: the broker has more to deliver, and goes on with it in the next pass of the loop
        self._is_delivering = False
        #: the times that the broker was told with what is not settled
        self._now = self._wall = 0
        #: what the broker is still to hear of connections that were refused while a stimulus was handled
        self._gone: list[Stimulus] = []
        self._disk_queue_bytes_max = disk_queue_bytes_max
        self._loop = asyncio.get_running_loop()
        self._quota_waits = QuotaWaits(self, self._loop, listener)
        self._awake = Awake(self._loop, self._is_disk_at_work) if stays_awake else None
        #: connections that wait until others have had their part of the event loop's time; shared with them
        self.turns = Turns(self._loop)
        self.turns.before_slice = self.disk.collect
        self._reads = DiskReads(self, self.turns)
        #: the number of the next client; numbers are not used again while the process lives
        self._next_client = 1
        #: the timer that wakes the broker, and the time it is set for, in monotonic microseconds
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        #: added to the broker's time while it is drained, so that what is due soon is done at once
        self._ahead_us = 0
        #: the runtime was stopped or has failed: it handles, sends and writes nothing more
        self.is_over = False

    def start(self) -> None:
        """Wake the broker for the first time, which sets its timer."""
        self.give((Woken(),))

    # What reaches the broker.

    def give(
        self, stimuli: Iterable[Stimulus], until: float = math.inf, *, expects_more: bool = False
    ) -> int:
        """Have the broker handle stimuli in order, and carry out the effects.

        After the time `until`, on `Turns.work`, no further stimulus is begun. Returns how many were handled,
        which is at least one, and all of them once the runtime is over. All disk effects of one call go to
        the disk threads together. What was published is settled a moment later while a sync is under way,
        which it has to wait for anyway, and with `expects_more`, when all sockets that can be read have been:
        see `settling`. What a sync waits for (`SyncHold`) is settled at once when it has come. An error in
        the broker stops the runtime; a frame that the broker refuses ends its connection, and the rest of
        that is not handled.
        """
        handled = 0
        if self.is_over:
            return sum(1 for _ in stimuli)
        to_disk = self._to_disk
        try:
            for stimulus in stimuli:
                if handled and until < math.inf and self.turns.work() > until:
                    break
                if not self._is_refused(stimulus):
                    self._handle(stimulus, to_disk)
                while self._gone:
                    self._handle(self._gone.pop(0), to_disk)
                handled += 1
            is_little = self._came_bytes < SETTLED_LATER_BYTES_MAX and are_few_rows(to_disk)
            expects_more = expects_more and not self.sync_hold.has_come(self._came_bytes)
            may_wait = expects_more or (handled > 0 and self._is_log_syncing)
            if self._is_unsettled and is_little and may_wait:
                self._settle_later()
                return handled
            self._settle(to_disk, may_hold=True)
            while self._gone:
                self._handle(self._gone.pop(0), to_disk)
            if self.broker.is_behind:
                self._deliver_soon()
            wake_at = self.broker.next_wake()
        except Exception as error:
            # Half of a stimulus has been handled: no state of the broker can be trusted any more.
            self._fail(error)
            return handled + 1
        # A sync that publishers wait for runs while we write to sockets. Other disk work would only compete
        # with that writing for the interpreter, so it is handed over afterwards.
        if SyncLog not in map(type, to_disk):
            self.flush()
        self._put(to_disk)
        self.flush()
        if not self.is_over and not self._is_delivering:
            self._set_timer(wake_at)
        return handled

    def _is_disk_at_work(self) -> bool:
        """Whether a disk thread does something, or is about to: it needs the interpreter then."""
        return self.is_over or self._is_log_syncing or self.disk.busy_seconds > 0

    @property
    def is_staying_awake(self) -> bool:
        """Whether the loop is kept from sleeping now."""
        return self._awake is not None and self._awake.is_turning

    def take_step(self, steps: Steps) -> tuple[Work | None, bool]:
        """Take one step of what is done for a frame before it is handled.

        Returns the work that is to be done before the next step, if any, and whether this was the last step.
        """
        try:
            return next(steps), False
        except StopIteration:
            return None, True
        except Exception as error:
            self._fail(error)  # a matcher may be half made
            return None, True

    def _handle(self, stimulus: Stimulus, to_disk: list[Effect]) -> None:
        """Have the broker hear one stimulus, and settle unless that may wait for the next one.

        What it sends is sent; disk effects go to `to_disk`.
        """
        is_patient, is_synced = may_settle_later(stimulus), type(stimulus) is LogSynced
        if not is_patient and not is_synced:
            self._settle(to_disk)
        if not self._is_unsettled:
            # What is settled together happens at one time: the ticks of batches that came together go on.
            self._now, self._wall = monotonic_us() + self._ahead_us, wall_us()
        self._is_unsettled, self._is_log_held = True, False
        if type(stimulus) is ClientFrameReceived and type(stimulus.frame) is Publish:
            batches, size = self._came.get(stimulus.client, (0, 0))
            held = stimulus.frame.batch.held_bytes
            self._came[stimulus.client] = batches + (len(stimulus.frame.parts) or 1), size + held
            self._came_bytes += held
        self._carry_out(self.broker.hear(stimulus, self._now, self._wall), to_disk)
        if is_synced:
            self.flush()  # publishers wait for nothing but their acknowledgement
            if not self.sync_hold.holds(self._came_bytes):
                self._carry_out(self.broker.append(), to_disk)
                self._put(to_disk)
        if not is_patient:
            self._settle(to_disk, may_hold=is_synced)

    def _settle(self, to_disk: list[Effect], *, may_hold: bool = False) -> None:
        """Have the broker settle what it has heard, if it has not yet; what was published may be held."""
        if not self._is_unsettled:
            return
        is_held = may_hold and self.sync_hold.holds(self._came_bytes)
        if not is_held or not self._is_log_held:
            self._carry_out(self.broker.settle(is_log_held=is_held), to_disk)
        self._is_unsettled = self._is_log_held = is_held
        if is_held and self._hold_timer is None:
            self._hold_timer = self._loop.call_later(HOLD_SECONDS, self._held_long)
        elif not is_held and self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None

    def _held_long(self) -> None:
        """What was published has waited long enough for more."""
        self._hold_timer = None
        self.sync_hold.gave_up(self._came_bytes)
        self._settle_now()

    def _is_refused(self, stimulus: Stimulus) -> bool:
        """Return whether this is a frame that came in one read with another that was refused."""
        if type(stimulus) is ClientFrameReceived:
            return stimulus.client not in self.clients
        return type(stimulus) is PeerFrameReceived and stimulus.peer not in self.peers

    def flush(self) -> None:
        """Write once to each connection with queued frames.

        Events first, which are waited for the longest.
        """
        for connections in (self.to_deliver, self.to_flush):
            if connections:
                for connection in connections:
                    connection.flush()
                connections.clear()

    def client_came(
        self, connection: RuntimeConnection, principal: Principal | None = None, origin: str = ""
    ) -> int:
        """A client has introduced itself on `connection`, and proved to be `principal` if that is asked for.

        It comes from the address `origin`, "" if that is one of this machine. Returns the number that it has
        from now on.
        """
        client = self._next_client
        self._next_client += 1
        self.clients[client] = connection
        if principal is not None or origin:
            self.give((ClientCame(client, principal, origin),))
        return client

    def client_is(self, client: int, connection: RuntimeConnection) -> None:
        """Frames for `client` go to `connection` from now on: the client got a lease."""
        self._paused_clients.discard(client)
        self._quota_waits.forget(client)
        self.clients[client] = connection

    def client_said(self, client: int, frames: list[ClientFrame], until: float = math.inf) -> int:
        """These frames of a client arrived. Returns how many of them were handled: see `give`."""
        allowed = self._quota_waits.allowed(client, frames)
        stimuli = [ClientFrameReceived(client, frame) for frame in frames[:allowed]]
        size = sum([len(frame.batch.data) for frame in frames if type(frame) is Publish])
        commits = is_commit(frames[-1])
        handled = self.give(stimuli, until, expects_more=commits or size >= SETTLED_LATER_BYTES)
        if commits and self._is_unsettled:
            self._settle_soon()
        if self._awake is not None:
            self._awake.stay()
        self._pause_if_over(client)
        return handled

    def _put(self, effects: list[Effect]) -> None:
        """Give `effects` to the disk, and count what of it each publisher has under way; empties the list."""
        if not effects:
            return
        before = self.backlog.logged
        self.disk.put(tuple(effects))
        self.backlog.put(effects)
        effects.clear()
        if self.backlog.logged > before:
            came, self._came, self._came_bytes = self._came, {}, 0
            for client, (batches, size) in came.items():
                if client in self.clients:
                    logged = self.backlog.logged
                    self._in_flight.add(client, batches, logged - size, logged)
                    self._pause_if_over(client)

    def _pause_if_over(self, client: int) -> None:
        """Read no more from a publisher that has too much under way, or while the disk is behind."""
        in_flight = self._in_flight
        is_behind = self.backlog.bytes > self._disk_queue_bytes_max and in_flight.has(client)
        if (is_behind or in_flight.is_over(client)) and client in self.clients:
            self._paused_clients.add(client)
            self.clients[client].pause()

    @property
    def _is_log_syncing(self) -> bool:
        """Whether a sync of the event logs is under way, which what comes meanwhile has to wait for."""
        return self.backlog.logged > self.backlog.durable

    def _settle_later(self) -> None:
        """Settle when the running sync is reported, or when the loop has read what can be read by now."""
        self.flush()
        if not self._is_log_syncing:
            self._settle_soon()

    def _settle_soon(self) -> None:
        if not self._is_settling_soon:
            self._is_settling_soon = True
            self._loop.call_soon(self._settle_now)

    def _settle_now(self) -> None:
        self._is_settling_soon = False
        if self._is_unsettled:
            self.give(())

    def client_gone(self, client: int) -> None:
        """The connection of `client` is closed, or its lease has ended; a second call does nothing."""
        connection = self.clients.pop(client, None)
        if connection is not None:
            self._forget(client)
            self.give((ClientGone(client),))

    def _forget(self, client: int) -> None:
        """Forget why a client that is gone was not read."""
        self._paused_clients.discard(client)
        self._quota_waits.forget(client)
        self._in_flight.forget(client)

    def link_up(self, peer: str, connection: RuntimeLink, hello: Hello) -> None:
        """The neighbour `peer` has introduced itself with `hello`. An older link to it is closed."""
        before = self.peers.get(peer)
        if before is not None:
            self.link_down(peer, before)
            before.close()
        self.peers[peer] = connection
        self.give((LinkUp(peer), PeerFrameReceived(peer, hello)))

    def peer_said(
        self, peer: str, connection: RuntimeConnection, frames: list[PeerFrame], until: float = math.inf
    ) -> int:
        """These frames of a neighbour arrived; those of a link that has been replaced are ignored.

        Returns how many of them were handled: see `give`.
        """
        if self.peers.get(peer) is not connection:
            return len(frames)
        handled = self.give([PeerFrameReceived(peer, frame) for frame in frames], until)
        if self._awake is not None:
            self._awake.stay()
        is_behind = self._is_delivering or self.backlog.bytes > self._disk_queue_bytes_max
        if is_behind and self.peers.get(peer) is connection:
            self._paused_links.add(connection)
            connection.pause()
        return handled

    def link_down(self, peer: str, connection: RuntimeConnection) -> None:
        """This link is lost; the broker hears of it unless a newer link to `peer` has replaced it."""
        self._paused_links.discard(connection)
        if self.peers.get(peer) is connection:
            del self.peers[peer]
            self.give((LinkDown(peer),))

    # As the listener of the disk threads.

    def disk_finished(self, stimuli: list[Stimulus]) -> None:
        """Completions of disk effects; when the disk has caught up, paused connections are read again.

        What was read is handled in turns, since much may follow from it and nobody waits for it in a hurry.
        """
        before = self.backlog.durable
        self.backlog.done(stimuli)
        if self.backlog.durable > before:
            self.sync_hold.answered(self.backlog.durable - before)
        began = self.turns.work()
        if reads := [stimulus for stimulus in stimuli if type(stimulus) in READ]:
            self._reads.add(reads)
            stimuli = [stimulus for stimulus in stimuli if type(stimulus) not in READ]
        self.give(stimuli)
        self._charge_publishers(self.turns.work() - began)
        self._resume()
        if self._awake is not None and any(type(stimulus) is LogSynced for stimulus in stimuli):
            self._awake.stay()

    def _resume(self) -> None:
        """Read again from publishers and neighbours, once the disk and the deliveries have caught up."""
        if self._is_delivering:
            return  # what is durable and not delivered yet is still under way
        self._in_flight.done(self.backlog.durable)
        is_paused = self._paused_clients or self._paused_links
        if not is_paused or self.backlog.bytes > self._disk_queue_bytes_max // 2:
            return
        for client in [each for each in self._paused_clients if self._in_flight.has_room(each)]:
            self._paused_clients.discard(client)
            self.resume(client)
        links, self._paused_links = self._paused_links, set()
        for link in links:
            link.resume()

    def resume(self, client: int) -> None:
        """Read from a client again, unless something else keeps it from being read."""
        if client not in self._paused_clients and client not in self._quota_waits:
            self.clients[client].resume()

    def _charge_publishers(self, seconds: float) -> None:
        """What was done with published events has taken so long: it counts as their publishers' time."""
        for client, part in self._in_flight.parts():
            connection = self.clients.get(client)
            if connection is not None:
                connection.charge(seconds * part)

    def _deliver_soon(self) -> None:
        """Go on delivering in the next pass of the loop, after what can be read by then."""
        if not self._is_delivering:
            self._is_delivering = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        """Deliver what fits into one turn of the broker."""
        self._is_delivering = False
        if self.is_over:
            return
        began = self.turns.work()
        to_disk = self._to_disk
        try:
            self._settle(to_disk)
            self._now, self._wall = monotonic_us() + self._ahead_us, wall_us()
            self._carry_out(self.broker.deliver(self._now, self._wall), to_disk)
        except Exception as error:
            self._fail(error)
            return
        self._put(to_disk)
        self.give(())
        self._charge_publishers(self.turns.work() - began)
        self._resume()

    def disk_failed(self, error: BaseException) -> None:
        """The disk has failed: stop, and tell the node."""
        self._fail(error)

    def sync_took(self, which: str, seconds: float) -> None:
        """A sync was measured."""
        self._listener.sync_took(which, seconds)

    # The broker's effects.

    def _carry_out(self, effects: list[Effect], to_disk: list[Effect]) -> None:
        clients = self.clients
        for effect in effects:
            if type(effect) is SendClient:
                connection = clients.get(effect.client)
                if connection is not None:
                    connection.send(effect.frame)
            elif type(effect) in OF_EVENT_LOGS:
                to_disk.append(effect)
            elif isinstance(effect, SendPeer):
                connection = self.peers.get(effect.peer)
                if connection is not None:
                    connection.send(effect.frame)
            elif isinstance(effect, RefuseClient | RefusePeer):
                self._refuse(effect)
            elif isinstance(effect, DropAnswers):
                if (connection := self.peers.get(effect.peer)) is not None:
                    connection.drop_answers(effect.pubend)
            else:
                to_disk.append(effect)

    def _refuse(self, effect: RefuseClient | RefusePeer) -> None:
        """Close the connection of a frame that the broker refused; to the broker it is gone at once."""
        gone: Stimulus
        if isinstance(effect, RefuseClient):
            connection = self.clients.pop(effect.client, None)
            self._forget(effect.client)
            who, gone = f"client {effect.client}", ClientGone(effect.client)
        else:
            connection = self.peers.pop(effect.peer, None)
            who, gone = effect.peer, LinkDown(effect.peer)
        cause = effect.cause
        trace = extract_tb(cause.__traceback__)
        place = f"{trace[-1].filename}:{trace[-1].lineno}" if trace else ""
        log.warning("a frame is refused", who=who, reason=effect.reason, cause=repr(cause), place=place)
        if connection is not None:
            self._paused_links.discard(connection)
            connection.refuse(effect.code if isinstance(effect, RefuseClient) else "frame", effect.reason)
            self._gone.append(gone)

    # Time.

    def _set_timer(self, at: int) -> None:
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        delay = max((at - monotonic_us()) / 1e6, WAKE_SECONDS_MIN)
        self._timer_at = at
        self._timer = self._loop.call_later(delay, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self.is_over:
            return
        # The broker may have dealt meanwhile with what the timer was set for.
        at = self.broker.next_wake()
        if at <= monotonic_us():
            self.give((Woken(),))
        else:
            self._set_timer(at)

    # The end.

    async def settle(self) -> None:
        """Return when everything received is on disk and acknowledged. Call it when nothing more is read."""
        self.sync_hold.gave_up()
        self._settle_now()
        for _ in range(SETTLE_ROUNDS):
            await self.disk.reached()

    async def drain(self, ahead_us: int) -> None:
        """Put on disk what the broker would write within the next `ahead_us` microseconds, then stop.

        Call it when nobody is connected any more.
        """
        self._ahead_us = ahead_us
        self.give((Woken(),))
        await self.settle()
        if not self.is_over:
            self.disk.put((SyncPfs(OWN_TICKET), CommitTables(OWN_TICKET)))
        # The runtime stops after the disk threads: a failure of the last sync must still reach the node.
        await self.disk.stop()
        self.stop()

    def stop(self) -> None:
        """Handle, send and write nothing more. What is not durable is lost, as in a crash."""
        self.is_over = True
        for timer in (self._timer, self._hold_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._hold_timer = None

    def _fail(self, error: BaseException) -> None:
        if not self.is_over:
            self.stop()
            self._listener.runtime_failed(error)
