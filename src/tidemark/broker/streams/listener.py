"""Listener: what the subscribers of a broker are told of a stream by the broker itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import Range


class Listener(Protocol):
    """The subscribers of this broker, as a stream sees them."""

    def advanced(self, pubend: str, tag: int, base: int, upto: int) -> None:
        """First-time knowledge of `(base, upto]` arrived, complete for the interest here of version `tag`."""

    def answered(
        self, pubend: str, base: int, upto: int, batches: Sequence[EventBatch], damaged: Sequence[Range]
    ) -> None:
        """An answer to what was asked for arrived: all of `(base, upto]`, of which `damaged` is L.

        The batches have its events, in order.
        """

    def lost(self, pubend: str) -> None:
        """More of the window's knowledge is L."""

    def delivered(self, pubend: str) -> int | None:
        """Return how far the subscribers here have consumed the window; None if there are none."""
