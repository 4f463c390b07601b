"""What a client that traces does with sampled events that it gets: each is the span of a consumer.

The span's parent is that of the publisher's call. It begins at the event's tick and ends when the client has
the event. An application that wants spans of its own below it takes `Event.traceparent`.
"""

from __future__ import annotations

from collections.abc import Callable
from time import time_ns
from typing import TYPE_CHECKING

from tidemark.message.batches.trace_context import traced_rows
from tidemark.wire.frames import Deliver

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

#: Spans for events of one frame.
SPANS_MAX = 100


def traced_delivery(
    provider: TracerProvider | None, deliver: Callable[[Deliver], None]
) -> Callable[[Deliver], None]:
    """Return `deliver`, if there is a provider with a span for each sampled event that comes."""
    if provider is None:
        return deliver
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    tracer, propagator = provider.get_tracer("tidemark"), TraceContextTextMapPropagator()

    def delivered(frame: Deliver) -> None:
        deliver(frame)
        for row, traceparent in traced_rows(frame.batch, SPANS_MAX) if frame.batch is not None else ():
            batch = frame.batch
            assert batch is not None
            topic, tick = batch.shapes[int(batch.prelude("shape")[row])].topic, int(batch.ticks[row])
            now = time_ns()
            span = tracer.start_span(
                f"receive {topic}",
                context=propagator.extract({"traceparent": traceparent}),
                kind=SpanKind.CONSUMER,
                attributes={
                    "messaging.system": "tidemark",
                    "messaging.operation.type": "receive",
                    "messaging.destination.name": topic,
                    "messaging.destination.subscription.name": frame.name,
                    "tidemark.pubend": frame.pubend,
                    "tidemark.tick": tick,
                },
                start_time=min(tick * 1_000, now),
            )
            span.end(now)

    return delivered
