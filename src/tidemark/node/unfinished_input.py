"""UnfinishedInput: the memory of frames that have not arrived completely, bounded for all connections.

A frame may have 16 MiB, and there may be thousands of connections. When the parts that have arrived take more
than `limits.input`, connections are closed until they do not: of those that hold at least an average share,
the one whose frame comes in the slowest. A frame that is small, or arrives quickly, is never in danger, and
nobody waits for somebody else. Whoever is closed can send the frame again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark.node.connection import Connection

#: A frame that has arrived for less time than this is judged as if it had taken this long.
SECONDS_MIN = 1.0
REASON = (
    "all frames that have not arrived completely take up limits.input, and this one arrives the slowest: "
    "send it again, in smaller batches or when there is less to do"
)


class UnfinishedInput:
    """The connections with part of a frame. Each connection reports its own part."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        #: connection -> memory of what has arrived of its frame
        self._held: dict[Connection, int] = {}
        #: of all connections together
        self.bytes = 0
        #: how many connections were closed because of the bound
        self.closed = 0

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._held))

    def holds(self, connection: Connection, held: int, now: float) -> None:
        """What has arrived of the frame of `connection` takes `held` bytes. Closes connections if need be."""
        self.bytes += held - self._held.get(connection, 0)
        self._held[connection] = held
        while self.bytes > self._bytes_max:
            slowest = self._slowest(now)
            self.discard(slowest)
            self.closed += 1
            slowest.give_up_input()
            slowest.refuse("limit", REASON)

    def discard(self, connection: Connection) -> None:
        """The frame of `connection` has arrived completely, or never will."""
        self.bytes -= self._held.pop(connection, 0)

    def _slowest(self, now: float) -> Connection:
        """Returns whom to close: a client before a neighbour, and nobody that we do not read from."""
        share = self.bytes / len(self._held)

        def rank(connection: Connection) -> tuple[bool, bool, float, int]:
            held, since = self._held[connection], connection.incomplete_since
            seconds = max(SECONDS_MIN, now - since) if since is not None else SECONDS_MIN
            return connection.is_paused, connection.peer is not None, held / seconds, held

        return min((each for each, held in self._held.items() if held >= share), key=rank)
