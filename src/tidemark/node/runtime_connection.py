"""What the runtime needs of the connections that it sends frames over, and of the node that owns it."""

from __future__ import annotations

from typing import Protocol

from tidemark.wire.frames import Frame


class RuntimeConnection(Protocol):
    """What the runtime needs of a connection: a `Connection`, a `LocalLink` or a `Leaseholder`."""

    def send(self, frame: Frame) -> None:
        """Queue `frame`; the connection adds itself to `Runtime.to_deliver` or `to_flush` for its `flush`."""

    def flush(self) -> None:
        """Write the queued frames to the socket."""

    def close(self) -> None:
        """Close the connection after the queued frames have been written."""

    def refuse(self, code: str, reason: str) -> None:
        """Tell the other side why, and close the connection."""

    def pause(self) -> None:
        """Read nothing more from the connection."""

    def resume(self) -> None:
        """Read from the connection again."""

    def charge(self, seconds: float) -> None:
        """What was done for the connection has used so much of the event loop's time."""


class RuntimeLink(RuntimeConnection, Protocol):
    """What the runtime needs of a link to a neighbour: a `Connection` or a `LocalLink`."""

    def drop_answers(self, pubend: str) -> None:
        """Do not send the answers that tell of a pubend and wait: the neighbour does not want them."""


class RuntimeListener(Protocol):
    """Who learns how the runtime fares: the node. All methods are called on the event loop."""

    def runtime_failed(self, error: BaseException) -> None:
        """The broker or its disk has failed, and the runtime has stopped. Called at most once."""

    def sync_took(self, which: str, seconds: float) -> None:
        """A sync of `which` (log, pfs or tables) took so long."""

    def publishing_waits(self, client: int) -> None:
        """A client has published more than its quota allows, and is not read from for a while."""
