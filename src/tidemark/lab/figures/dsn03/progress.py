"""ProgressSamples: the tables of the experiments of DSN'03, filled from the answers of brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidemark.lab.figures.dsn03.figures import DELIVERED, RELEASED, progress_table, returns_table
from tidemark.wire.answers import PubendStatus, StreamStatus


class ProgressSamples:
    """Samples of latest_delivered and released, and the returns of subscribers."""

    def __init__(self, milliseconds_of: Callable[[int], float]) -> None:
        """`milliseconds_of` converts a tick to milliseconds since the start of the experiment."""
        self.progress = progress_table()
        self.returns = returns_table()
        self._milliseconds_of = milliseconds_of
        #: pubend -> the last answer on how far it was delivered, in milliseconds since the start
        self._delivered: dict[str, float] = {}

    def delivered(self) -> float:
        """Returns the time up to which every pubend was delivered, in seconds since the start."""
        return min(self._delivered.values()) / 1e3

    def sample_delivered(self, time: float, streams: Iterable[StreamStatus]) -> None:
        """Add a sample from the answer `streams`; an empty answer repeats the last one."""
        for each in streams:
            if each.delivered is not None:
                self._delivered[each.pubend] = self._milliseconds_of(each.delivered)
        for pubend, tick in self._delivered.items():
            self.progress.add(time, pubend, DELIVERED, tick)

    def sample_released(self, time: float, pubends: Iterable[PubendStatus]) -> None:
        """Add a sample from the answer `pubends`."""
        for each in pubends:
            if each.released is not None:
                self.progress.add(time, each.pubend, RELEASED, self._milliseconds_of(each.released))
