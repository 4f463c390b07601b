"""TracedPublisher: a publisher whose calls are spans of OpenTelemetry, and whose sampled events carry them.

The span of a call begins when the event is given to the client and ends when it is on a broker's disk. It is
a child of the span that is current where `publish` is called; its trace context goes with the event, if it is
sampled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tidemark.client.publishing.options import EventOptions
from tidemark.client.publishing.outgoing import Ticks
from tidemark.client.publishing.publisher import Publisher

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider


def made_publisher(provider: TracerProvider | None, **parts: Any) -> Publisher:
    """Return a publisher of these parts, which traces if there is a provider."""
    return Publisher(**parts) if provider is None else TracedPublisher(provider, **parts)


class TracedPublisher(Publisher):
    """The publishing half of a client that traces. A call with a traceparent of its own makes no span."""

    def __init__(self, provider: TracerProvider, **parts: Any) -> None:
        """`parts` are those of Publisher."""
        super().__init__(**parts)
        self._tracer = provider.get_tracer("tidemark")

    def publish(
        self, topic: str, value: Any, options: EventOptions, timeout: float
    ) -> asyncio.Future[int | None]:
        """Publish one event; the span ends with the future."""
        if options.traceparent:
            return super().publish(topic, value, options, timeout)
        span = self._begin(topic)
        try:
            future = super().publish(topic, value, _traced(options, span), timeout)
        except BaseException as error:
            _end(span, error, ())
            raise
        future.add_done_callback(lambda done: _ended(span, done))
        return future

    async def publish_many(
        self, topic: str, values: Iterable[Any], options: EventOptions, timeout: float
    ) -> Ticks:
        """Publish events; one span, which all of them carry, ends when all are on disk."""
        if options.traceparent:
            return await super().publish_many(topic, values, options, timeout)
        span = self._begin(topic)
        try:
            ticks = await super().publish_many(topic, values, _traced(options, span), timeout)
        except BaseException as error:
            _end(span, error, ())
            raise
        _end(span, None, ticks)
        return ticks

    def _begin(self, topic: str) -> Span:
        from opentelemetry.trace import SpanKind

        attributes = {
            "messaging.system": "tidemark",
            "messaging.operation.type": "send",
            "messaging.destination.name": topic,
        }
        return self._tracer.start_span(f"publish {topic}", kind=SpanKind.PRODUCER, attributes=attributes)


def _traced(options: EventOptions, span: Span) -> EventOptions:
    """Return the options with the trace context of a span, if it is sampled."""
    context = span.get_span_context()
    if not context.is_valid or not context.trace_flags.sampled:
        return options
    traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return options._replace(traceparent=traceparent)


def _ended(span: Span, done: asyncio.Future[int | None]) -> None:
    if done.cancelled():
        _end(span, asyncio.CancelledError(), ())
    else:
        error = done.exception()
        _end(span, error, (done.result(),) if error is None else ())


def _end(span: Span, error: BaseException | None, ticks: Iterable[int | None]) -> None:
    known = [tick for tick in ticks if tick is not None]
    if known:
        span.set_attribute("tidemark.tick", known[-1])
    if error is not None:
        from opentelemetry.trace import StatusCode

        with suppress(Exception):
            span.record_exception(error)
        span.set_status(StatusCode.ERROR, str(error))
    span.end()
