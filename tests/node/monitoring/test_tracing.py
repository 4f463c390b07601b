"""A trace of one event, from the publisher over three brokers to the subscriber, at an OTLP receiver."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from tests.live_node import OverlayNodes, config_at, live_node
from tests.node.monitoring.otlp_receiver import OtlpReceiver, Received, otlp_receiver
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark import sync
from tidemark.errors import ConfigError, EncodeError
from tidemark.message.batches.batch import BatchBuilder, Shape
from tidemark.node.config.settings import TracingSection
from tidemark.node.monitoring.tracing import TracingWatcher

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def provider_for(receiver: OtlpReceiver, service: str) -> TracerProvider:
    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"{receiver.endpoint}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def came(receiver: OtlpReceiver, name: str) -> Received:
    eventually(lambda: receiver.named(name))
    found = receiver.named(name)
    assert found is not None
    return found


def test_a_trace_goes_from_the_publisher_over_every_hop_to_the_subscriber(tmp_path: Path) -> None:
    with otlp_receiver() as receiver:
        nodes = OverlayNodes(tmp_path, "east", "middle", "west", **{"tracing.endpoint": receiver.endpoint})
        publishers, subscribers = provider_for(receiver, "shop"), provider_for(receiver, "billing")
        try:
            with (
                sync.connect(nodes.url("east"), tracer_provider=publishers) as shop,
                sync.connect(nodes.url("west"), tracer_provider=subscribers) as billing,
            ):
                shop.create_topic("orders", "[n: int]")
                with billing.subscribe("orders", where="n > 1", durable="bills", ack="client") as sub:
                    eventually(lambda: "east" in sub.checkpoint)
                    with publishers.get_tracer("shop").start_as_current_span("checkout"):
                        shop.publish("orders", {"n": 5})
                    shop.publish("orders", {"n": 0}, traceparent=TRACEPARENT)
                    event = sub.next(PATIENCE_SECONDS)
                    assert event is not None
                    assert (event["n"], event.publisher.startswith("publisher-")) == (5, True)
                    assert " " not in event.publisher
                checkout, publish = came(receiver, "checkout"), came(receiver, "publish orders")
                logged, first = came(receiver, "log at east"), came(receiver, "pass on to middle")
                second, matched = came(receiver, "pass on to west"), came(receiver, "match at west")
                told, received = came(receiver, "deliver to bills"), came(receiver, "receive orders")
                chain = [checkout, publish, logged, first, second, matched, told]
                assert [each.parent for each in chain] == ["", *(each.span for each in chain[:-1])]
                assert received.parent == publish.span
                assert {each.trace for each in (*chain, received)} == {checkout.trace}
                assert (event.traceparent or "").startswith(f"00-{publish.trace}-{publish.span}-")
                assert [each.service for each in (publish, logged, received)] == [
                    "shop",
                    "tidemark",
                    "billing",
                ]
                assert (matched.attributes["tidemark.matched"], matched.attributes["tidemark.broker"]) == (
                    1,
                    "west",
                )
                assert (
                    matched.attributes["tidemark.tick"] == event.tick == publish.attributes["tidemark.tick"]
                )
                # What nobody behind a hop wants is not passed on, and so not matched there: the trace ends.
                eventually(
                    lambda: [each for each in receiver.spans if each.trace == TRACEPARENT.split("-")[1]]
                )
                # The subscriber comes back and has acknowledged nothing: a catchup stream tells it again.
                with billing.subscribe("orders", where="n > 1", durable="bills", ack="client") as sub:
                    assert sub.next(PATIENCE_SECONDS) == event
                assert came(receiver, "catch up to bills").parent == publish.span
        finally:
            nodes.close()
            publishers.shutdown()
            subscribers.shutdown()


def test_an_event_that_nobody_wants_says_so_in_its_trace(tmp_path: Path) -> None:
    with otlp_receiver() as receiver, live_node(tmp_path, tracing__endpoint=receiver.endpoint) as node:
        with sync.connect(node.url) as tm:
            tm.create_topic("t", "[n: int]")
            with tm.subscribe("t", where="n > 1") as sub:
                eventually(lambda: sub.checkpoint)
                tm.publish("t", {"n": 0}, traceparent=TRACEPARENT)
                assert came(receiver, "match at tidemark").attributes["tidemark.matched"] == 0
        page = node.metrics()
        assert "tidemark_spans_total 2.0" in page
        assert "tidemark_spans_lost_total 0.0" in page


def test_an_event_that_is_not_sampled_carries_nothing_and_makes_no_spans(tmp_path: Path) -> None:
    with otlp_receiver() as receiver, live_node(tmp_path, tracing__endpoint=receiver.endpoint) as node:
        provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
        with sync.connect(node.url, tracer_provider=provider) as tm:
            tm.create_topic("t", "[n: int]")
            with tm.subscribe("t") as sub:
                tm.publish_many("t", [{"n": 1}])
                event = sub.next(PATIENCE_SECONDS)
                assert event is not None
                assert event.traceparent is None
                with pytest.raises(EncodeError, match="is not int"):
                    tm.publish("t", {"n": "no number"})
        assert "tidemark_spans_total 0.0" in node.metrics()
        assert not receiver.spans


def test_spans_are_bounded_in_a_second_and_those_that_nobody_takes_are_counted() -> None:
    builder = BatchBuilder()
    for number in range(5):
        builder.add(Shape("t", 1), b"", publisher=f"p 00-{number + 1:032x}-{1:016x}-01")
    batch = builder.build()
    batch.count_ticks(1)
    with otlp_receiver(status=400) as receiver:
        watcher = TracingWatcher(TracingSection(receiver.endpoint, spans_per_second=2), "b")

        def counted() -> dict[str, float]:
            return {each.name: each.samples[0].value for each in watcher.families() if "spans" in each.name}

        watcher.logged("main", batch)
        found = counted()
        assert found["tidemark_spans"] + found["tidemark_spans_over_limit"] == 5
        assert found["tidemark_spans_over_limit"] >= 1
        asyncio.run(watcher.close())
        eventually(lambda: counted()["tidemark_spans_lost"] == found["tidemark_spans"])


def test_an_endpoint_is_an_address(tmp_path: Path) -> None:
    from tidemark.node.monitoring.watcher import watcher_of

    with pytest.raises(ConfigError, match="http://HOST:PORT"):
        watcher_of(config_at(tmp_path, tracing__endpoint="127.0.0.1:4318"))
