"""A broker process that keeps no event: the best effort that exactly-once delivery is compared with.

`python -m tidemark.lab.figures.dsn02.best_effort_broker KEEPS broker ...` runs a broker. With KEEPS `nothing`
it has no event log: nothing is written or synced for an event, no thread is woken for it, and whatever is
lost with a frame or a crash stays lost. With `all` it is a broker like any other.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from tidemark.broker.effects import (
    AppendEvents,
    AppendLease,
    AppendMove,
    Effect,
    ExpireLog,
    LogSynced,
    LoseLog,
    Stimulus,
    SyncLog,
)
from tidemark.lab.processes.client_processes import main
from tidemark.node.disk.disk_threads import DiskThreads

NOTHING, ALL = "nothing", "all"
_FORGOTTEN = (AppendEvents, AppendLease, AppendMove, ExpireLog, LoseLog, SyncLog)


def keep_nothing() -> None:
    """Let the brokers of this process write no event log."""
    put = DiskThreads.put

    def on_put(self: DiskThreads, effects: Sequence[Effect]) -> None:
        synced: list[Stimulus] = [LogSynced(each.ticket) for each in effects if isinstance(each, SyncLog)]
        others = [each for each in effects if not isinstance(each, _FORGOTTEN)]
        if others:
            put(self, others)
        if synced:
            asyncio.get_running_loop().call_soon(self.disk_finished, synced)

    DiskThreads.put = on_put  # type: ignore[method-assign]  # a hook


if __name__ == "__main__":
    if sys.argv[1] == NOTHING:
        keep_nothing()
    sys.exit(main(sys.argv[2:]))
