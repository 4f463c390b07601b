"""HandedSockets: sockets that the acceptor gives to a worker become connections of its server."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress

from tidemark.node.connection import Connection
from tidemark.node.logs import Log
from tidemark.node.server import Server
from tidemark.node.workers.handover import write_hint

#: Sockets that a worker takes in one turn of its loop.
TAKEN_MAX = 64
log = Log("handover")


class HandedSockets:
    """A worker's end of its channel: every socket that comes becomes a connection of the server.

    The connection is in nothing different from one that the server has accepted itself: TLS, introduction,
    login and all limits are those of the server.
    """

    def __init__(self, number: int, server: Server) -> None:
        """`number` is that of the open file; it is closed with this object."""
        os.set_inheritable(number, False)
        self._channel = socket.socket(fileno=number)
        self._channel.setblocking(False)
        self._server = server
        self._loop = asyncio.get_running_loop()
        #: sockets that become connections; those that agree on TLS first are with the server's `handshakes`
        self._opening: set[asyncio.Task[None]] = set()
        #: counter: sockets that have come
        self.taken = 0

    def start(self) -> None:
        """Take sockets from now on."""
        self._loop.add_reader(self._channel, self._take)

    def stop(self) -> None:
        """Take no more sockets; those that wait are for the next process of this worker."""
        if self._channel.fileno() < 0:
            return
        self._loop.remove_reader(self._channel)
        self._channel.close()
        for task in self._opening:
            task.cancel()

    def belongs(self, client: str, worker: str) -> bool:
        """Tell the acceptor to bring the client of this name to another worker.

        Returns whether it was told; it may have forgotten by the time that the client comes.
        """
        try:
            self._channel.send(write_hint(client, worker))
        except OSError:
            return False
        return True

    def _take(self) -> None:
        for _ in range(TAKEN_MAX):
            try:
                said, numbers, _, _ = socket.recv_fds(self._channel, 1, 1, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return
            except OSError as error:
                log.error("no socket can be taken", reason=str(error))
                said, numbers = b"", []
            if not said:
                self._loop.remove_reader(self._channel)
                return
            # A process without a free number for the file gets none: the system has closed the socket.
            for number in numbers:
                self._open(socket.socket(fileno=number))

    def _open(self, accepted: socket.socket) -> None:
        self.taken += 1
        if self._server.handshakes is not None:
            self._server.handshakes.take(accepted)
            return
        accepted.setblocking(False)
        task = self._loop.create_task(self._connect(accepted), name="tidemark handed socket")
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _connect(self, accepted: socket.socket) -> None:
        server = self._server
        try:
            await self._loop.connect_accepted_socket(lambda: Connection(server), accepted)
        except (OSError, asyncio.CancelledError) as error:
            # The client has gone, or this broker stops.
            log.debug("a handed socket became no connection", reason=str(error))
            with suppress(OSError):
                accepted.close()
