"""Observer: whom a broker tells what it is doing, for metrics, traces (docs/monitoring.md) and the audit log.

Its methods are called once for each batch, or for each change that an administrator asks for, and return
nothing, so that nothing a broker does depends on who watches it. The observer may read clocks; the core does
not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidemark.matching.audience import Members, Rows
from tidemark.message.batches.batch import EventBatch
from tidemark.wire.frames import Ask

#: Rows of a batch, and the selectors here that match them; a row is in one group at most.
Matches = Sequence[tuple[Rows, Members]]
#: What a subscription that an administrator changes was, or is: its topic, selector, checkpoint and owner.
Particulars = Mapping[str, str]


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

    def answered(
        self,
        who: str,
        asked: Ask,
        before: Particulars | None,
        after: Particulars | None,
        refusal: tuple[str, str] | None,
    ) -> None:
        """A user has asked for a change, which was made and is on disk, or was refused for a code and reason.

        `before` and `after` are of the subscription that the change is about, and None where there is none.
        """
