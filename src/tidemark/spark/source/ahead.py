"""The end of the next micro-batch, found while tasks read the one before. Imports no pyspark.

Spark asks for the end of a micro-batch when the one before is done, and starts no task until it is told. To
count half a million events takes a broker a tenth of a second; so they are counted ahead, on a thread and a
connection of its own. Events that are counted stay where they are: if some are let go meanwhile, tasks find
that out as they do otherwise. A search that fails is done again in its turn, where its error is told.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from tidemark.errors import TidemarkError
from tidemark.spark.source.offsets import PubendExtent
from tidemark.ticks import CheckpointToken


class BatchEnd(NamedTuple):
    """Up to where a batch reads, and how far the pubends went when that was found."""

    token: CheckpointToken
    there: dict[str, PubendExtent]


Search = Callable[[CheckpointToken, int], BatchEnd]


class SearchAhead:
    """One search at a time, for the batch that begins where the last one ends."""

    def __init__(self, search: Search) -> None:
        """`search` is called on a thread, and on no other."""
        self._search = search
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidemark ahead")
        self._under_way: tuple[CheckpointToken, int, Future[BatchEnd]] | None = None

    def begin(self, start: CheckpointToken, events_max: int) -> None:
        """Look for the end of a batch of at most so many events."""
        self._under_way = start, events_max, self._thread.submit(self._search, start, events_max)

    def found(self, start: CheckpointToken, events_max: int) -> BatchEnd | None:
        """The end of this batch, which is waited for; None if another one, or none, was looked for."""
        under_way, self._under_way = self._under_way, None
        if under_way is None or under_way[:2] != (start, events_max):
            return None
        try:
            return under_way[2].result()
        except TidemarkError:
            return None

    def close(self) -> None:
        """End the thread, when its search is done."""
        self._thread.shutdown()
