"""BrokerWatcher: the observer of a broker's core, which measures what the core cannot: durations.

It takes one observation a batch. The latency of an event is counted from its tick, which is the time of day
at which its pubend got it from the publisher, until its host has said it to the live subscribers that want
it. The clocks of the two machines count; what a disagreement would make negative counts as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import perf_counter_ns
from typing import Protocol

import numpy as np
from prometheus_client.metrics_core import Metric

from tidemark.broker.observer import Matches, Observer, Particulars
from tidemark.errors import ConfigError
from tidemark.message.batches.batch import EventBatch
from tidemark.node.clock import wall_us
from tidemark.node.config.settings import Config
from tidemark.node.monitoring.histograms import BatchHistogram
from tidemark.wire.frames import Ask

LATENCY_BUCKETS_SECONDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0,
)  # fmt: skip
MATCHING_BUCKETS_SECONDS = (
    0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0,
)  # fmt: skip


class AnswerNote(Protocol):
    """Writes down what became of a change: `AuditLog.answered`."""

    def __call__(
        self,
        who: str,
        asked: Ask,
        before: Particulars | None = None,
        after: Particulars | None = None,
        refusal: tuple[str, str] | None = None,
    ) -> None:
        """See `Observer.answered`."""


class BrokerWatcher(Observer):
    """The histograms of one broker. Called on the event loop only."""

    def __init__(self) -> None:
        self._latency = BatchHistogram(
            "tidemark_delivery_latency_seconds",
            "How long after its tick an event was said to the live subscribers here that want it.",
            LATENCY_BUCKETS_SECONDS,
        )
        self._matching = BatchHistogram(
            "tidemark_matching_seconds",
            "How long it took to match the events of a batch with all subscriptions here.",
            MATCHING_BUCKETS_SECONDS,
        )
        self._matching_since = 0
        #: returns the neighbour that a pubend's stream comes from, None if it is here; set by the node
        self.upstream_of: Callable[[str], str | None] = lambda _: None
        #: is told what became of changes that users asked for; set by the node
        self.note_answer: AnswerNote | None = None

    def matching(self) -> None:
        """Begin to measure."""
        self._matching_since = perf_counter_ns()

    def matched(self, pubend: str, batch: EventBatch, matches: Matches) -> None:  # noqa: ARG002
        """Count how long it took."""
        self._matching.add((perf_counter_ns() - self._matching_since) // 1_000)

    def delivered(self, batch: EventBatch, matches: Matches) -> None:
        """Count the latency of every event that somebody wants."""
        wanted = sum(len(rows) for rows, _ in matches)
        if wanted == batch.count:
            ticks = batch.ticks
        elif len(matches) == 1:
            ticks = batch.ticks[matches[0][0]]
        else:
            ticks = batch.ticks[np.sort(np.concatenate([rows for rows, _ in matches]))]
        self._latency.add_since(wall_us(), ticks)

    def answered(
        self,
        who: str,
        asked: Ask,
        before: Particulars | None,
        after: Particulars | None,
        refusal: tuple[str, str] | None,
    ) -> None:
        """Pass it on to the audit log."""
        if self.note_answer is not None:
            self.note_answer(who, asked, before, after, refusal)

    def families(self) -> Iterator[Metric]:
        """Yield what Prometheus is told."""
        yield self._latency.family()
        yield self._matching.family()

    def delivered_within(self) -> Mapping[str, float]:
        """Return how many events were delivered within each bound, for administrators' questions."""
        return {f"delivered_within_{bound}": count for bound, count in self._latency.cumulative()}

    async def close(self) -> None:
        """Nothing is left to send."""


def watcher_of(config: Config) -> BrokerWatcher:
    """Return the watcher that the settings ask for: it traces if `tracing.endpoint` is set.

    ConfigError if that cannot be done.
    """
    if not config.tracing.endpoint:
        return BrokerWatcher()
    try:
        from tidemark.node.monitoring.tracing import TracingWatcher
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        raise ConfigError(
            "traces need OpenTelemetry: pip install 'tidemark[otel]', or leave it empty",
            key="tracing.endpoint",
        ) from None
    return TracingWatcher(config.tracing, config.broker.name)
