"""Observer: whom a broker tells what it is doing, for metrics and traces (docs/monitoring.md).

Its methods are called once for each batch and return nothing, so that nothing a broker does depends on who
watches it. The observer may read clocks; the core does not.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.matching.audience import Members, Rows
from tidemark.message.batches.batch import EventBatch

#: Rows of a batch, and the selectors here that match them; a row is in one group at most.
Matches = Sequence[tuple[Rows, Members]]


class Observer:
    """Does nothing with what it is told: the observer of a broker that nobody watches."""

    #: Whether single events are followed. Only then are `logged`, `passed_on` and `told` called.
    is_tracing = False

    def matching(self) -> None:
        """The next events of a pubend are about to be matched with all subscriptions."""

    def matched(self, pubend: str, batch: EventBatch, matches: Matches) -> None:
        """The events of `batch` were matched: `matches` has those rows that somebody wants."""

    def delivered(self, batch: EventBatch, matches: Matches) -> None:
        """The events of `matches` were said to all of these subscribers that are connected and not behind."""

    def logged(self, pubend: str, batch: EventBatch) -> None:
        """These events of a pubend that is hosted here are durable."""

    def passed_on(self, pubend: str, peer: str, batch: EventBatch) -> None:
        """These events were said to a neighbour as first-time knowledge."""

    def told(self, subscription: str, pubend: str, batch: EventBatch, *, is_late: bool) -> None:
        """These events were said to one subscriber; `is_late`: by its catchup stream."""
