"""Handover: how accepted sockets go from the acceptor to a worker, over a channel that both inherit.

A channel is a pair of Unix sockets that keep messages apart. One message has one socket (SCM_RIGHTS). What
the kernel holds of a channel waits for a worker that is being started again, because the process that starts
the workers holds both ends too. In the other direction a worker tells the acceptor where a client belongs.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

#: What a worker says to the acceptor at most: the names of a client and of a worker.
HINT_BYTES_MAX = 1 << 10
#: Between the ticket of a parked client and the name of its worker.
OF = "@"
_SEPARATOR = b"\0"


@dataclass(frozen=True, slots=True)
class WorkerSeat:
    """What a worker gets from the process that starts it."""

    #: the number of the open file that is the worker's end of its channel
    channel: int
    #: the file that says which worker has which durable subscription
    places: Path


def channel() -> tuple[socket.socket, socket.socket]:
    """Return the acceptor's end and the worker's end of a new channel; neither blocks."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(False)
    return ends


def hand(to: socket.socket, accepted: socket.socket) -> None:
    """Give a socket to the other end; the caller still has to close its own.

    Raises BlockingIOError if the channel is full, ConnectionError if nobody has the other end any more, and
    OSError if the system has too many sockets on their way.
    """
    socket.send_fds(to, [_SEPARATOR], [accepted.fileno()])


def write_hint(client: str, worker: str) -> bytes:
    """Return the message that the client of this name belongs to a worker."""
    return client.encode() + _SEPARATOR + worker.encode()


def read_hint(message: bytes) -> tuple[str, str]:
    """Return the client and the worker of a message."""
    client, _, worker = message.partition(_SEPARATOR)
    return client.decode(), worker.decode()
