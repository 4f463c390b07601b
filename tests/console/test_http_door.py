"""The HTTP door: publishing in every form, and streams that resume exactly where they were."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.live_console import LiveConsole, live_console
from tests.live_node import LiveNode, live_node
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark import sync
from tidemark.client.plain_events import event_object


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    with live_node(tmp_path_factory.mktemp("door")) as node:
        yield node


@pytest.fixture(scope="module")
def console(node: LiveNode) -> Iterator[LiveConsole]:
    with live_console(node.url) as console:
        yield console


def stored(node: LiveNode, topic: str, count: int) -> list[dict[str, Any]]:
    """The first `count` events of a topic, from its beginning."""
    with sync.connect(node.url) as tm, tm.subscribe(topic, start="earliest") as subscription:
        return [dict(subscription.next(60) or {}) for _ in range(count)]


def test_an_event_is_on_disk_when_the_answer_comes(node: LiveNode, console: LiveConsole) -> None:
    reply = console.post("plain", {"price": 10.5, "symbol": "ACME"})
    assert reply.status == 201, reply.text
    assert reply.json["events"] == 1
    assert isinstance(reply.json["ticks"][0], int)
    assert stored(node, "plain", 1) == [{"price": 10.5, "symbol": "ACME"}]


def test_many_events_keep_their_order(node: LiveNode, console: LiveConsole) -> None:
    assert console.post("many", [{"n": n} for n in range(500)]).json["events"] == 500
    lines = "\n".join(json.dumps({"n": n}) for n in range(500, 600)).encode()
    assert console.post("many", lines, "application/x-ndjson").json["events"] == 100
    assert [each["n"] for each in stored(node, "many", 600)] == list(range(600))


def test_a_declared_topic_decides_what_json_stands_for(node: LiveNode, console: LiveConsole) -> None:
    with sync.connect(node.url) as tm:
        tm.create_topic("typed", "[price: decimal, at: timestamp]")
    body = b'{"price": 123456789012.123456789, "at": "2026-11-17T05:00:00Z"}'
    assert console.post("typed", body).status == 201
    (event,) = stored(node, "typed", 1)
    assert str(event["price"]) == "123456789012.123456789"
    assert event["at"].isoformat() == "2026-11-17T05:00:00+00:00"
    wrong = console.post("typed", [{"price": 1, "at": "2026-11-17"}, {"price": "x", "at": "2026-11-17"}])
    assert wrong.status == 422
    assert wrong.json["error"]["code"] == "schema"
    assert "event 2" in wrong.json["error"]["reason"]


def test_cloud_events_come_structured_batched_and_binary(node: LiveNode, console: LiveConsole) -> None:
    attributes = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "sold"}
    structured = {**attributes, "data": {"item": "tea"}}
    assert console.post("cloud", structured, "application/cloudevents+json").status == 201
    batch = [{**structured, "id": "2"}, {**structured, "id": "3"}]
    assert console.post("cloud", batch, "application/cloudevents-batch+json").json["events"] == 2
    headers = {"ce_specversion": "1.0", "ce_id": "4", "ce_source": "/shop", "ce_type": "sold"}
    assert console.post("cloud", {"item": "tea"}, **headers).status == 201
    events = stored(node, "cloud", 4)
    assert [each["ce_id"] for each in events] == ["1", "2", "3", "4"]
    assert {each["item"] for each in events} == {"tea"}
    lacking = console.post("cloud", {"specversion": "1.0"}, "application/cloudevents+json")
    assert (lacking.status, lacking.json["error"]["code"]) == (422, "schema")


def test_an_arrow_stream_is_published(node: LiveNode, console: LiveConsole) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"n": [1, 2, 3], "name": ["a", None, "c"]})
    written = io.BytesIO()
    with pa.ipc.new_stream(written, table.schema) as stream:
        stream.write_table(table)
    assert console.post("arrow", written.getvalue(), "application/vnd.apache.arrow.stream").status == 201
    assert stored(node, "arrow", 3) == [{"n": 1, "name": "a"}, {"n": 2}, {"n": 3, "name": "c"}]
    assert console.post("arrow", b"x", "application/vnd.apache.arrow.stream").status == 400


def test_a_request_that_is_repeated_with_its_key_is_logged_once(node: LiveNode) -> None:
    for attempt in range(3):
        # Each console is a new process in effect: only the broker can know of the repetition.
        with live_console(node.url) as console:
            reply = console.post("once", [{"n": 1}, {"n": 2}], Idempotency_Key="order-17")
            assert reply.status == 201, (attempt, reply.text)
    with live_console(node.url) as console:
        console.post("once", {"n": 3})
        assert [each["n"] for each in stored(node, "once", 3)] == [1, 2, 3]
        assert console.post("once", {"n": 8}, Idempotency_Key="order-18").status == 201
        other = console.post("once", {"n": 9}, Idempotency_Key="order-18")
        assert (other.status, other.json["error"]["code"]) == (422, "sequence")


def test_the_trace_context_of_a_sampled_request_goes_with_its_events(
    node: LiveNode, console: LiveConsole
) -> None:
    sampled, other = (f"00-{'5' * 32}-{'7' * 16}-{flags}" for flags in ("01", "00"))
    for traceparent in (sampled, other, "nonsense"):
        assert console.post("traced", {"n": 1}, traceparent=traceparent).status == 201
    with sync.connect(node.url) as tm, tm.subscribe("traced", start="earliest") as sub:
        events = [event for _, event in zip(range(3), sub, strict=False)]
    assert [event.traceparent for event in events] == [sampled, None, None]
    assert [event_object(event).get("traceparent") for event in events] == [sampled, None, None]
    by_name = f"_publisher = '{events[0].publisher}'"
    with sync.connect(node.url) as tm, tm.subscribe("traced", where=by_name, start="earliest") as sub:
        assert sub.next(PATIENCE_SECONDS) == events[0]


def test_nothing_of_a_request_is_published_if_one_event_cannot_be(
    node: LiveNode, console: LiveConsole
) -> None:
    body = b'[{"n": 1}, {"n": 99999999999999999999999999}]'
    assert console.post("whole", body).status == 422
    assert console.post("whole", {"n": 5}).status == 201
    assert stored(node, "whole", 1) == [{"n": 5}]


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("POST", "/topics/t/events", "{", {"Content-Type": "application/json"}, 400),
        ("POST", "/topics/t/events", "7", {"Content-Type": "application/json"}, 422),
        ("POST", "/topics/t/events", "[" * 100_000, {"Content-Type": "application/json"}, 400),
        ("POST", "/topics/t/events", "a=1", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ("POST", "/topics/t/events", None, {}, 415),
        ("POST", "/topics/t/events?priority=10", "{}", {"Content-Type": "application/json"}, 400),
        ("POST", "/topics/t/events?prority=1", "{}", {"Content-Type": "application/json"}, 400),
        ("POST", "/topics/a..b/events", '{"n": 1}', {"Content-Type": "application/json"}, 422),
        ("POST", "/topics/t/events", "{}", {"Content-Length": "99999999"}, 413),
        ("POST", "/topics/t/events", "{}", {"Authorization": "Digest x"}, 400),
        ("GET", "/topics/t/events?where=price+%3E", None, {}, 422),
        ("GET", "/topics/t/events?start=yesterday", None, {}, 400),
        ("GET", "/topics/t/events?ack_seconds=0", None, {}, 400),
        ("GET", "/topics/t/events?wher=x", None, {}, 400),
        ("GET", "/topics/t/events", None, {"Last-Event-ID": "tm1.nonsense"}, 400),
        ("GET", "/nowhere", None, {}, 404),
        ("PUT", "/topics/t/events", None, {}, 405),
        ("PUT", "/subscriptions/nobody/checkpoint", "tm1.", {}, 422),
    ],
)  # fmt: skip
def test_bad_requests_get_a_clear_error(
    console: LiveConsole, method: str, path: str, body: str | None, headers: dict[str, str], status: int
) -> None:
    reply = console.ask(method, path, body, headers)
    assert reply.status == status, reply.text
    error = reply.json["error"]
    assert error["code"]
    assert len(error["reason"]) > 10


def test_a_page_of_another_site_changes_nothing(console: LiveConsole) -> None:
    headers = {"Content-Type": "application/json", "Origin": "https://evil.example"}
    assert console.ask("POST", "/topics/t/events", '{"n": 1}', headers).status == 403
    rebound = {"Content-Type": "application/json", "Host": "evil.example"}
    assert console.ask("POST", "/topics/t/events", '{"n": 1}', rebound).status == 421
    assert "access-control-allow-origin" not in console.ask("GET", "/openapi.json", None, headers).headers


def test_a_page_of_an_allowed_site_may(node: LiveNode) -> None:
    with live_console(node.url, origins=("https://shop.example",)) as console:
        headers = {"Content-Type": "application/json", "Origin": "https://shop.example"}
        reply = console.ask("POST", "/topics/allowed/events", '{"n": 1}', headers)
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (201, "https://shop.example")
        preflight = console.ask("OPTIONS", "/topics/allowed/events", None, headers)
        assert preflight.status == 204
        assert "Idempotency-Key" in preflight.headers["access-control-allow-headers"]


def test_a_stream_resumes_behind_the_last_id(console: LiveConsole) -> None:
    with console.stream("/topics/resumed/events?where=n%20%3E%3D%2010") as stream:
        stream.wait_open()
        console.post("resumed", [{"n": n} for n in range(20)])
        assert [each["n"] for each in stream.values(5)] == [10, 11, 12, 13, 14]
        last = stream.last_id
    console.post("resumed", [{"n": n} for n in range(20, 30)])
    with console.stream("/topics/resumed/events?where=n%20%3E%3D%2010", Last_Event_ID=last) as stream:
        assert [each["n"] for each in stream.values(15)] == list(range(15, 30))


def test_a_stream_starts_in_the_past(console: LiveConsole) -> None:
    console.post("past", [{"n": n} for n in range(3)])
    with console.stream("/topics/past/events?start=earliest") as stream:
        assert [each["n"] for each in stream.values(3)] == [0, 1, 2]


def test_a_durable_stream_ends_to_be_acknowledged(node: LiveNode, console: LiveConsole) -> None:
    path = "/topics/kept/events?durable=browser&ack_seconds=1&start=earliest"
    console.post("kept", [{"n": n} for n in range(4)])
    with console.stream(path) as stream:
        assert [each["n"] for each in stream.values(4)] == [0, 1, 2, 3]
        last = stream.last_id
        assert stream.next() is None
    # Nothing was acknowledged yet: a browser that has lost its place gets everything again.
    with console.stream(path) as stream:
        assert [each["n"] for each in stream.values(1)] == [0]
    with console.stream(path, Last_Event_ID=last) as stream:
        stream.wait_open()
        console.post("kept", {"n": 4})
        assert [each["n"] for each in stream.values(1)] == [4]
    with sync.connect(node.url) as tm:
        (one,) = [each for each in tm.ask("subscriptions") if each["name"] == "browser"]
        assert one["durable"]


def test_a_reader_acknowledges_while_the_stream_is_open(console: LiveConsole) -> None:
    with console.stream("/topics/acked/events?durable=acker") as stream:
        stream.wait_open()
        console.post("acked", [{"n": 1}, {"n": 2}])
        stream.values(2)
        reply = console.ask("PUT", "/subscriptions/acker/checkpoint", stream.last_id)
        assert reply.status == 200, reply.text
    console.post("acked", {"n": 3})
    with console.stream("/topics/acked/events?durable=acker") as stream:
        assert [each["n"] for each in stream.values(1)] == [3]


def test_a_second_reader_takes_a_durable_stream_over(console: LiveConsole) -> None:
    with console.stream("/topics/two/events?durable=twice") as first:
        first.wait_open()
        with console.stream("/topics/two/events?durable=twice") as second:
            second.wait_open()
            assert first.next() == (
                "refused",
                {"code": "taken", "reason": "another reader has opened this durable subscription"},
            )
            console.post("two", {"n": 1})
            assert [each["n"] for each in second.values(1)] == [1]


def test_a_stream_goes_on_over_a_restart_of_the_broker(tmp_path: Path) -> None:
    path = "/topics/lasting/events?durable=lasting"
    with live_node(tmp_path) as node, live_console(node.url) as console, console.stream(path) as stream:
        stream.wait_open()
        console.post("lasting", {"n": 1})
        assert stream.values(1) == [{"n": 1}]
        node.stop()
        refused = console.post("lasting", {"n": 0})
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        node.start()
        eventually(lambda: console.post("lasting", {"n": 2}, Idempotency_Key="2").status == 201)
        assert stream.values(1) == [{"n": 2}]


def test_a_gap_is_an_event_of_its_own_type(tmp_path: Path) -> None:
    with live_node(tmp_path, pubends__main__min_retain="0s") as node, live_console(node.url) as console:
        with console.stream("/topics/gone/events") as stream:
            stream.wait_open()
            console.post("gone", {"n": 1})
            assert stream.values(1) == [{"n": 1}]
            first = stream.last_id
            (second,) = console.post("gone", {"n": 2}).json["ticks"]
            stream.values(1)
        with sync.connect(node.url) as tm:
            while not all((each["lost"] or 0) >= second for each in tm.ask("pubends")):
                console.post("gone", {"n": 3})
        with console.stream("/topics/gone/events", Last_Event_ID=first) as stream:
            kind, gap = stream.next() or ("", {})
            assert (kind, gap["reason"]) == ("gap", "released")


def test_the_openapi_document_names_what_there_is(console: LiveConsole) -> None:
    document = console.ask("GET", "/openapi.json").json
    assert document["openapi"].startswith("3.1")
    operations = {(path, method) for path, item in document["paths"].items() for method in item}
    assert operations == {
        ("/topics/{topic}/events", "post"),
        ("/topics/{topic}/events", "get"),
        ("/subscriptions/{name}/checkpoint", "put"),
    }
    given = document["paths"]["/topics/{topic}/events"]["get"]["parameters"]
    queries = {each["name"] for each in given if each["in"] == "query"}
    assert queries == {"where", "durable", "start", "ack_seconds", "last_event_id"}
    assert "409" in document["paths"]["/topics/{topic}/events"]["post"]["responses"]
