"""Acceptor: a process that accepts connections at the one address of the workers, and hands them over.

It looks at the first frame without taking it from the socket (MSG_PEEK), chooses a worker, and gives the
socket to it. It never reads, writes or refuses anything, so that whatever a client says or does not say is
judged by a worker, by its limits and in its words. The worker is chosen by a rendezvous hash of the name in
Connect, so that a client that reconnects meets the same worker; a worker may have said where that client
belongs. A parked client's ticket names its worker, and a broker that calls gets the first one. Whoever says
anything else, such as TLS, or nothing in time, goes by its address.

A worker that is down is waited for and not replaced: its clients' events may be there. Only when nobody has
the other end of its channel, because it was removed from the overlay, do its clients go to the others.
"""

from __future__ import annotations

import argparse
import select
import signal
import socket
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from types import FrameType
from typing import NoReturn

from tidemark.errors import WireError
from tidemark.node.clock import Clock
from tidemark.node.process.open_files import allow_connections
from tidemark.node.process.parent import end_with_parent
from tidemark.node.workers.handover import HINT_BYTES_MAX, OF, hand, read_hint
from tidemark.wire import rendezvous
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import Connect, Hello, Resume

#: Bytes that are looked at: Connect and Resume have at most two numbers and a name.
PEEK_BYTES = 512
#: A client that has not said its first frame by then goes by its address, to a worker that waits for longer.
FIRST_FRAME_SECONDS = 1.0
#: Clients that have not said their first frame. Of more, the oldest go by their address at once.
UNDECIDED_MAX = 1_024
#: Connections that wait for one worker, beyond those in its channel. More are closed, and come again later.
WAITING_MAX = 1_024
#: Connections that are accepted before others are looked after.
ACCEPTED_MAX = 64
#: Clients of which a worker has said where they belong; the oldest are forgotten.
HINTS_MAX = 65_536
#: How long the acceptor waits when the system has no room for one more socket.
ROOM_SECONDS = 0.05


def key_of(data: bytes) -> Connect | Resume | Hello | None:
    """Return the first frame if it says who is there; None if more bytes have to come.

    Raises WireError if the bytes are no such frame.
    """
    found = FrameDecoder(PEEK_BYTES, frames_max=1).feed(data)
    if not found:
        if len(data) >= PEEK_BYTES:
            raise WireError("the first frame is too large")
        return None
    if not isinstance(found[0], Connect | Resume | Hello):
        raise WireError("the first frame does not say who is there")
    return found[0]


class Acceptor:
    """Chooses a worker for every connection. `turn` does what there is to do; `run` calls it for ever."""

    def __init__(
        self,
        listener: socket.socket,
        workers: Mapping[str, socket.socket],
        *,
        clock: Clock = time.monotonic,
        patience: float = FIRST_FRAME_SECONDS,
    ) -> None:
        """`workers`: each worker's name and the acceptor's end of its channel, the first worker first."""
        self._listener = listener
        self._workers = dict(workers)
        self._clock = clock
        self._patience = patience
        #: socket -> until when its first frame is waited for; the oldest first
        self._undecided: OrderedDict[int, tuple[socket.socket, float]] = OrderedDict()
        #: worker -> sockets that its channel did not take yet
        self._waiting: dict[str, deque[socket.socket]] = {name: deque() for name in workers}
        self._names = {channel.fileno(): name for name, channel in workers.items()}
        #: client -> the worker that it belongs to, which is not the one that its name leads to
        self._hints: OrderedDict[str, str] = OrderedDict()
        #: when connections are accepted again, or handed over again, if the system had no room
        self._room_at: float | None = None
        self._poll = select.epoll()
        listener.setblocking(False)
        self._poll.register(listener, select.EPOLLIN)
        for channel in workers.values():
            # With EPOLLET a channel is reported when room appears, not all the time that there is some.
            self._poll.register(channel, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)

    @property
    def is_over(self) -> bool:
        """Whether there is no worker left."""
        return not self._workers

    def close(self) -> None:
        """Close the channels, and all that was not handed over."""
        for channel in self._workers.values():
            channel.close()
        for accepted, _ in self._undecided.values():
            accepted.close()
        for waiting in self._waiting.values():
            for accepted in waiting:
                accepted.close()
        self._poll.close()

    def turn(self, seconds_max: float | None = None) -> None:
        """Wait until something happens, at most for so many seconds, and do what there is to do."""
        for number, what in self._poll.poll(self._seconds(seconds_max)):
            if self.is_over:
                return
            if number == self._listener.fileno():
                self._accept()
            elif number in self._names:
                self._heard(self._names[number], what)
            elif number in self._undecided:
                self._look(number)
        self._overdue()
        if self._room_at is not None and self._clock() >= self._room_at:
            self._room_at = None
            self._poll.modify(self._listener, select.EPOLLIN)
            for worker in list(self._workers):
                self._flush(worker)

    def _seconds(self, seconds_max: float | None) -> float | None:
        """Return how long nothing may happen before there is something to do."""
        ends = [] if self._room_at is None else [self._room_at]
        if self._undecided:
            ends.append(next(iter(self._undecided.values()))[1])
        seconds = None if not ends else max(0.0, min(ends) - self._clock())
        return min((each for each in (seconds, seconds_max) if each is not None), default=None)

    # Deciding.

    def _accept(self) -> None:
        for _ in range(ACCEPTED_MAX):
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError:
                self._no_room()
                return
            accepted.setblocking(False)
            number = accepted.fileno()
            self._undecided[number] = accepted, self._clock() + self._patience
            # With EPOLLET part of a frame is looked at once, and again when more has come.
            self._poll.register(number, select.EPOLLIN | select.EPOLLET)
        self._overdue()

    def _no_room(self) -> None:
        self._room_at = self._clock() + ROOM_SECONDS
        self._poll.modify(self._listener, 0)

    def _overdue(self) -> None:
        """Hand over those that have said nothing in time, and the oldest if there are too many."""
        now = self._clock()
        while self._undecided and self._workers:
            number, (accepted, until) = next(iter(self._undecided.items()))
            if until > now and len(self._undecided) <= UNDECIDED_MAX:
                return
            self._decided(number, self._by_address(accepted))

    def _look(self, number: int) -> None:
        accepted, _ = self._undecided[number]
        try:
            data = accepted.recv(PEEK_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._forget(number).close()
            return
        try:
            first = key_of(data)
        except WireError:
            self._decided(number, self._by_address(accepted))
            return
        if first is not None:
            self._decided(number, self._of(first, accepted))

    def _of(self, first: Connect | Resume | Hello, accepted: socket.socket) -> str:
        match first:
            case Connect(client):
                hinted = self._hints.get(client)
                return hinted if hinted in self._workers else rendezvous.chosen(client, self._workers)
            case Resume(ticket):
                worker = ticket.rpartition(OF)[2]
                return worker if worker in self._workers else self._by_address(accepted)
            case Hello():
                return next(iter(self._workers))

    def _by_address(self, accepted: socket.socket) -> str:
        try:
            address = str(accepted.getpeername()[0])
        except OSError:
            address = ""
        return rendezvous.chosen(address, self._workers)

    def _forget(self, number: int) -> socket.socket:
        accepted, _ = self._undecided.pop(number)
        self._poll.unregister(number)
        return accepted

    # Handing over.

    def _decided(self, number: int, worker: str) -> None:
        accepted = self._forget(number)
        waiting = self._waiting[worker]
        if len(waiting) >= WAITING_MAX:
            accepted.close()
            return
        waiting.append(accepted)
        if len(waiting) == 1:
            self._flush(worker)

    def _flush(self, worker: str) -> None:
        """Hand over what waits for a worker, as far as its channel takes it."""
        waiting, channel = self._waiting[worker], self._workers[worker]
        while waiting:
            try:
                hand(channel, waiting[0])
            except BlockingIOError:
                return
            except ConnectionError:
                self._removed(worker)
                return
            except OSError:
                self._no_room()  # too many sockets are on their way in the whole system
                return
            waiting.popleft().close()

    def _heard(self, worker: str, what: int) -> None:
        """A channel has room, a word from its worker, or no other end any more."""
        channel = self._workers[worker]
        while what & select.EPOLLIN:
            try:
                said = channel.recv(HINT_BYTES_MAX)
            except BlockingIOError:
                break
            except OSError:
                said = b""
            if not said:
                self._removed(worker)
                return
            client, hinted = read_hint(said)
            self._hints.pop(client, None)
            self._hints[client] = hinted
            if len(self._hints) > HINTS_MAX:
                self._hints.popitem(last=False)
        if what & select.EPOLLHUP:
            self._removed(worker)
        else:
            self._flush(worker)

    def _removed(self, worker: str) -> None:
        """Nobody will take what was for this worker: choose again among the others."""
        channel, waiting = self._workers.pop(worker), self._waiting.pop(worker)
        del self._names[channel.fileno()]
        self._poll.unregister(channel)
        channel.close()
        for accepted in waiting:
            if not self._workers:
                accepted.close()
                continue
            # Its first frame is there already.
            number = accepted.fileno()
            self._undecided[number] = accepted, self._clock() + self._patience
            self._poll.register(number, select.EPOLLIN | select.EPOLLET)


def main(arguments: list[str] | None = None) -> int:
    """Accept until a signal, or until no worker is left."""
    parser = argparse.ArgumentParser(prog="python -m tidemark.node.workers.acceptor", description=__doc__)
    parser.add_argument("--parent", type=int, help="the process that has started this one")
    parser.add_argument("listener", type=int, help="the number of the listening socket")
    parser.add_argument("workers", nargs="+", metavar="NAME=NUMBER", help="a worker, and its channel")
    given = parser.parse_args(arguments)
    end_with_parent(signal.SIGTERM, given.parent)
    workers: dict[str, socket.socket] = {}
    for each in given.workers:
        name, _, number = each.rpartition("=")
        workers[name] = socket.socket(fileno=int(number))
    allow_connections(UNDECIDED_MAX + WAITING_MAX * len(workers))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    acceptor = Acceptor(socket.socket(fileno=given.listener), workers)
    while not acceptor.is_over:
        acceptor.turn()
    return 0


def _end(number: int, _: FrameType | None) -> NoReturn:
    """End at once: clients of which nothing is decided yet come again.

    The code is not 0: an acceptor that somebody else than its parent ends is started again.
    """
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
