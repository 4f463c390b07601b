"""Turn: what every part of a broker shares while it handles one stimulus.

Time reaches the parts in this one way: `Broker.hear` sets `now` and `wall` before it dispatches a stimulus,
as `Broker.deliver` does before it goes on, and nothing else assigns them. Effects and counters leave in the
same way.

A frame comes from a stranger. What a part does with it before it changes anything goes into `with
turn.looking:`, and whatever is raised in there, foreseen or not, ends the connection and not the broker
(`Broker.hear`). Nothing may be changed in such a block, nor before it while the same frame is handled.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from tidemark.broker.commit import GroupCommit
from tidemark.broker.counters import Counters
from tidemark.broker.effects import CommitTables, Outbox, SyncLog, SyncPfs
from tidemark.broker.observer import Observer
from tidemark.errors import FrameError
from tidemark.wire.frames import ClientFrame, Refused

#: Characters of what an unforeseen error says that the other side is told.
REASON_CHARACTERS_MAX = 500


class Looking:
    """A context in which a frame is looked at and nothing is changed: what it raises becomes a FrameError.

    What is foreseen, and answered with Refused over a connection that stays, is caught inside.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        """Begin to look."""

    def at(
        self, look: Callable[[int, ClientFrame], ClientFrame | Refused], client: int, frame: ClientFrame
    ) -> ClientFrame | Refused:
        """Return what `look` says of a client's frame; for every frame, so without entering the context."""
        try:
            return look(client, frame)
        except Exception as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise  # a FrameError, as it is

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Turn what was raised into a FrameError."""
        if error is not None and isinstance(error, Exception) and not isinstance(error, FrameError):
            raise FrameError(f"{type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX]) from error


class Turn:
    """The context of the stimulus that is being handled. One for a broker's life; every part holds it."""

    __slots__ = ("counters", "log", "looking", "now", "observer", "out", "pfs", "tables", "wall")

    def __init__(self, observer: Observer | None = None) -> None:
        #: the effects of the stimulus, in order
        self.out = Outbox()
        #: what the broker has done so far, by name
        self.counters = Counters()
        #: who is told what the broker does
        self.observer = observer if observer is not None else Observer()
        #: `with turn.looking:` around what is done with a frame before anything is changed
        self.looking = Looking()
        #: monotonic time of the stimulus in microseconds; thresholds are measured by it
        self.now = 0
        #: time of day of the stimulus in microseconds; gives ticks their values, and may jump
        self.wall = 0
        #: what waits for a sync of the event log, of the PFS, and for a commit of the tables
        self.log = GroupCommit(lambda ticket: self.out.add(SyncLog(ticket)))
        self.pfs = GroupCommit(lambda ticket: self.out.add(SyncPfs(ticket)))
        self.tables = GroupCommit(lambda ticket: self.out.add(CommitTables(ticket)))
