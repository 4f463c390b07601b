"""Turn: what every part of a broker shares while it handles one stimulus.

Time reaches the parts in this one way: `Broker.hear` sets `now` and `wall` before it dispatches a stimulus,
and nothing else assigns them. Effects and counters leave in the same way.
"""

from __future__ import annotations

from tidemark.broker.commit import GroupCommit
from tidemark.broker.counters import Counters
from tidemark.broker.effects import CommitTables, Outbox, SyncLog, SyncPfs


class Turn:
    """The context of the stimulus that is being handled. One for a broker's life; every part holds it."""

    __slots__ = ("counters", "log", "now", "out", "pfs", "tables", "wall")

    def __init__(self) -> None:
        #: the effects of the stimulus, in order
        self.out = Outbox()
        #: what the broker has done so far, by name
        self.counters = Counters()
        #: monotonic time of the stimulus in microseconds; thresholds are measured by it
        self.now = 0
        #: time of day of the stimulus in microseconds; gives ticks their values, and may jump
        self.wall = 0
        #: what waits for a sync of the event log, of the PFS, and for a commit of the tables
        self.log = GroupCommit(lambda ticket: self.out.add(SyncLog(ticket)))
        self.pfs = GroupCommit(lambda ticket: self.out.add(SyncPfs(ticket)))
        self.tables = GroupCommit(lambda ticket: self.out.add(CommitTables(ticket)))
