"""TracingWatcher: the spans that a broker makes for events that their publisher has sampled.

An event carries the trace context of its publisher and nothing of the brokers that it passed
(`message.batches.trace_context`). So that the spans of several brokers are one tree all the same, the number
of a span is made of the event and of what the span is about, and each broker knows the number of the span
before its own without being told:

    publish (the client) > log (the pubend's broker) > pass on (each hop) > match > deliver (the host)

Needs the extra `otel`. Spans leave over OTLP/HTTP from a thread of their own, and its queue is bounded; how
many are made a second is bounded too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from threading import Thread
from time import monotonic, time_ns
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from prometheus_client.metrics_core import CounterMetricFamily, Metric

from tidemark.broker.observer import Matches
from tidemark.errors import ConfigError
from tidemark.message.batches.batch import EventBatch
from tidemark.message.batches.trace_context import traced_rows
from tidemark.node.config.settings import TracingSection
from tidemark.node.monitoring.watcher import BrokerWatcher

#: Sampled events of one batch that get spans.
ROWS_MAX = 100
#: Spans that wait to leave.
QUEUE_SPANS_MAX = 4_096
EXPORT_SECONDS_MAX = 5.0
#: Stopping a broker waits so long for the last spans to leave.
CLOSE_SECONDS_MAX = 2.0
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_SCOPE = InstrumentationScope("tidemark")


class TracingWatcher(BrokerWatcher):
    """Measures what a BrokerWatcher measures, and follows sampled events."""

    is_tracing = True

    def __init__(self, settings: TracingSection, broker: str) -> None:
        """ConfigError if `tracing.endpoint` is no address."""
        super().__init__()
        if urlsplit(settings.endpoint).scheme not in ("http", "https"):
            raise ConfigError('write it as "http://HOST:PORT"', key="tracing.endpoint")
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # what is lost is counted
        self._broker = broker
        self._exporter = _CountingExporter(settings.endpoint)
        self._processor = BatchSpanProcessor(
            self._exporter, max_queue_size=QUEUE_SPANS_MAX, schedule_delay_millis=1_000
        )
        self._resource = Resource.create({"service.name": "tidemark", "service.instance.id": broker})
        self._per_second = settings.spans_per_second
        #: the second, on the monotonic clock, in which `_asked` spans were asked for
        self._second = 0
        self._asked = 0
        self._made = 0
        self._over = 0

    # What the broker's core tells.

    def logged(self, pubend: str, batch: EventBatch) -> None:
        """An event is durable: from its tick, when it came, until now."""
        for row, traceparent in traced_rows(batch, ROWS_MAX):
            tick = int(batch.ticks[row])
            event = _TracedEvent(traceparent, pubend, tick)
            self._span(f"log at {self._broker}", event, self._log_span, event.publisher, tick * 1_000)

    def passed_on(self, pubend: str, peer: str, batch: EventBatch) -> None:
        """An event leaves for a neighbour."""
        for row, traceparent in traced_rows(batch, ROWS_MAX):
            event = _TracedEvent(traceparent, pubend, int(batch.ticks[row]))
            self._span(f"pass on to {peer}", event, f"{self._broker}>{peer}", self._arrival(event), peer=peer)

    def matched(self, pubend: str, batch: EventBatch, matches: Matches) -> None:
        """An event was matched: how many selectors want it, which may be none."""
        super().matched(pubend, batch, matches)
        for row, traceparent in traced_rows(batch, ROWS_MAX):
            event = _TracedEvent(traceparent, pubend, int(batch.ticks[row]))
            wanted = next((len(members) for rows, members in matches if (rows == row).any()), 0)
            self._span(
                f"match at {self._broker}", event, self._match_span, self._arrival(event), matched=wanted
            )

    def told(self, subscription: str, pubend: str, batch: EventBatch, *, is_late: bool) -> None:
        """An event was said to a subscriber, live or by its catchup stream."""
        if self._is_spent():
            return  # a batch may be told to thousands of subscribers in one turn
        for row, traceparent in traced_rows(batch, ROWS_MAX):
            event = _TracedEvent(traceparent, pubend, int(batch.ticks[row]))
            what = "catch up" if is_late else "deliver"
            # A subscriber may catch up much later and elsewhere than where the event was matched.
            parent = event.publisher if is_late else event.span(self._match_span)
            self._span(
                f"{what} to {subscription}",
                event,
                f"{self._broker}:{what}:{subscription}",
                parent,
                subscription=subscription,
            )

    # The spans.

    @property
    def _log_span(self) -> str:
        return f"{self._broker}:log"

    @property
    def _match_span(self) -> str:
        return f"{self._broker}:match"

    def _arrival(self, event: _TracedEvent) -> int:
        """Return the number of the span with which an event came here: a neighbour's, or that of the log."""
        upstream = self.upstream_of(event.pubend)
        return event.span(self._log_span if upstream is None else f"{upstream}>{self._broker}")

    def _span(
        self, name: str, event: _TracedEvent, what: str, parent: int, begin: int | None = None, **more: Any
    ) -> None:
        """Make a span that ends now; one of an event that is not sampled, or of too many, is not made."""
        if not event.is_sampled or not self._has_room():
            return
        now = time_ns()
        attributes = {
            "messaging.system": "tidemark",
            "tidemark.broker": self._broker,
            "tidemark.pubend": event.pubend,
            "tidemark.tick": event.tick,
            **{f"tidemark.{name}": value for name, value in more.items()},
        }
        self._processor.on_end(
            ReadableSpan(
                name,
                context=SpanContext(event.trace, event.span(what), is_remote=False, trace_flags=_SAMPLED),
                parent=SpanContext(event.trace, parent, is_remote=True, trace_flags=_SAMPLED),
                resource=self._resource,
                attributes=attributes,
                kind=SpanKind.INTERNAL,
                start_time=now if begin is None else min(begin, now),
                end_time=now,
                instrumentation_scope=_SCOPE,
            )
        )

    def _is_spent(self) -> bool:
        """Return whether more spans than may be were asked for in this second."""
        second = int(monotonic())
        if second != self._second:
            self._second, self._asked = second, 0
        return self._asked > self._per_second

    def _has_room(self) -> bool:
        """Return whether one span more may be made in this second."""
        if not self._is_spent():
            self._asked += 1
        is_allowed = self._asked <= self._per_second
        self._made += is_allowed
        self._over += not is_allowed
        return is_allowed

    def families(self) -> Iterator[Metric]:
        """Yield what Prometheus is told."""
        yield from super().families()
        yield CounterMetricFamily("tidemark_spans", "Spans that were made.", self._made)
        yield CounterMetricFamily(
            "tidemark_spans_over_limit", "Spans beyond tracing.spans_per_second.", self._over
        )
        yield CounterMetricFamily(
            "tidemark_spans_lost", "Spans that no receiver has taken.", self._exporter.lost
        )

    async def close(self) -> None:
        """Send the last spans, for at most CLOSE_SECONDS_MAX."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._processor.shutdown()  # type: ignore[no-untyped-call]
            with suppress(RuntimeError):  # the loop did not wait
                loop.call_soon_threadsafe(done.set)

        Thread(target=shut_down, name="tidemark last spans", daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await done.wait()


class _TracedEvent:
    """One event with its trace context."""

    __slots__ = ("is_sampled", "pubend", "publisher", "tick", "trace")

    def __init__(self, traceparent: str, pubend: str, tick: int) -> None:
        _, trace, publisher, flags = traceparent.split("-")
        self.pubend = pubend
        self.tick = tick
        self.trace = int(trace, 16)
        #: the number of the publisher's span
        self.publisher = int(publisher, 16)
        self.is_sampled = bool(int(flags, 16) & TraceFlags.SAMPLED)

    def span(self, what: str) -> int:
        """Return the number of the span about `what`, which every broker computes alike."""
        text = f"{self.trace:032x} {self.publisher:016x} {self.pubend} {self.tick} {what}"
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) or 1


class _CountingExporter(OTLPSpanExporter):
    """Sends spans over OTLP/HTTP and counts those that nobody took."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS_MAX)
        self.lost = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans; called on the processor's thread."""
        result = super().export(spans)
        self.lost += len(spans) if result is not SpanExportResult.SUCCESS else 0
        return result
