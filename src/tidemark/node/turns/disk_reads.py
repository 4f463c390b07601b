"""DiskReads: what was read from the disk, and waits for its turn among the connections that wait for theirs.

It is no news to anybody but who asked, and much may follow from it. The time that it takes counts as that of
the connection that asked, where that is known, and as that of all reads together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidemark.broker.effects import CacheRead, LogFetched, LogRead, PfsCounted, PfsRead, Stimulus
from tidemark.broker.preparation import Steps
from tidemark.node.runtime_connection import RuntimeConnection
from tidemark.node.turns.accounts import Account
from tidemark.node.turns.turns import Turns

if TYPE_CHECKING:
    from tidemark.node.runtime import Runtime

#: What is handled in turns, and not as soon as the disk reports it.
READ = frozenset((CacheRead, LogFetched, LogRead, PfsCounted, PfsRead))


class DiskReads:
    """The reads that wait. Belongs to the runtime, which handles them."""

    #: much may follow from a read
    is_short = False

    def __init__(self, runtime: Runtime, turns: Turns) -> None:
        self._runtime = runtime
        self._turns = turns
        self.account = Account(turns.clock)
        self._waiting: deque[Stimulus] = deque()
        #: the steps that are taken for the first of them; None before the first step
        self._steps: Steps | None = None

    def add(self, reads: Iterable[Stimulus]) -> None:
        """These were read."""
        is_first = not self._waiting
        self._waiting += reads
        if is_first and self._waiting:
            self._turns.wait(self)

    def go_on(self) -> bool:
        """Use one slice for what was read; return whether a part of it is left."""
        runtime, clock = self._runtime, self._turns.work
        began = clock()
        until = self._turns.deadline(began)
        while self._waiting and not runtime.is_over:
            stimulus = self._waiting[0]
            connection = self._asker(stimulus)
            if self._steps is None:
                self._steps = runtime.broker.preparation.of_read(stimulus) or iter(())
            work, is_last = runtime.take_step(self._steps)
            if is_last and not runtime.is_over:
                self._waiting.popleft()
                self._steps = None
                runtime.give((stimulus,))
            used = clock() - began
            self.account.used(used)
            if connection is not None:
                connection.charge(used)
            if work is not None:
                self._turns.run(work, lambda _: self._turns.wait(self))
                return False
            if clock() > until:
                break
            began = clock()
        return bool(self._waiting) and not runtime.is_over

    def _asker(self, stimulus: Stimulus) -> RuntimeConnection | None:
        """Return the connection that has asked for what was read; None if it is gone, or was none."""
        runtime = self._runtime
        asker = runtime.broker.fetching.asker(stimulus.ticket) if isinstance(stimulus, LogFetched) else None
        return runtime.clients.get(asker) if isinstance(asker, int) else runtime.peers.get(asker or "")
