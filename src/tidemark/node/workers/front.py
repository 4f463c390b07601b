"""Front: the one address of the workers, held by the process that starts them.

The front holds the listening socket and both ends of the channels to the workers, and keeps the acceptor
running. While the acceptor is down, connections wait in the listening socket; while a worker is down, they
wait in its channel.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Sequence

from tidemark.errors import ConfigError
from tidemark.node.config.units import HostPort
from tidemark.node.workers.handover import channel

#: Connections that the system may keep waiting until they are accepted.
BACKLOG = 1_024


class Front:
    """The sockets of the one address. It belongs to the process that starts the acceptor and the workers."""

    def __init__(self, address: HostPort, workers: Iterable[str]) -> None:
        """Listen at `address`. Raises ConfigError if that is not possible."""
        try:
            found = socket.getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            # A name may stand for addresses of both kinds, and clients try the old kind too.
            family, _, _, _, where = min(found, key=lambda each: each[0] != socket.AF_INET)
            self._listener = socket.create_server(where[:2], family=family, backlog=BACKLOG)
        except OSError as error:
            reason = f"cannot listen at {address}: {error.strerror or error}"
            raise ConfigError(reason, key="broker.listen") from None
        #: worker -> the acceptor's end and the worker's end of its channel
        self._channels = {name: channel() for name in workers}

    @property
    def address(self) -> HostPort:
        """Where it listens."""
        return HostPort(*self._listener.getsockname()[:2])

    def command(self) -> list[str]:
        """Return the command of the acceptor, for the workers that are not removed."""
        ends = [f"{name}={mine.fileno()}" for name, (mine, _) in self._channels.items()]
        program = [sys.executable, "-m", "tidemark.node.workers.acceptor", "--parent", str(os.getpid())]
        return [*program, str(self._listener.fileno()), *ends]

    def of_acceptor(self) -> Sequence[int]:
        """Return the files that the acceptor inherits."""
        return self._listener.fileno(), *(mine.fileno() for mine, _ in self._channels.values())

    def of_worker(self, name: str) -> int:
        """Return the file that a worker inherits."""
        return self._channels[name][1].fileno()

    def removed(self, name: str) -> None:
        """A worker was removed from the overlay and does not come back: its clients go to the others."""
        for end in self._channels.pop(name, ()):
            end.close()

    def close(self) -> None:
        """Let nobody wait any more: who comes now finds nobody listening."""
        self._listener.close()
        for name in list(self._channels):
            self.removed(name)
