"""Events that are not as their schema says: refused where it shows, and harmless where it does not."""

from __future__ import annotations

import pytest

from tests.broker.desk import SCHEMA, Desk, batch, told
from tidemark.broker import topics
from tidemark.broker.effects import AppendEvents
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.schema import Schema
from tidemark.wire.frames import Deliver, Publish, Published, Refused, Subscribe, Topic

TEXTS = Schema.parse("[n: int, text: string]")


def desk() -> Desk:
    made = Desk()
    made.declare()
    made.do(1, Topic("texts", False, (TEXTS.text,)))
    made.pass_time(0.2)
    return made


def raw(shape: Shape, *messages: bytes) -> EventBatch:
    builder = BatchBuilder()
    for message in messages:
        builder.add(shape, message)
    return builder.build()


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (raw(Shape("t", SCHEMA.fingerprint), b""), "the header alone has 4"),
        (raw(Shape("t", SCHEMA.fingerprint), SCHEMA.encode({"n": 1}), b"\x01"), "the header alone has 4"),
        (raw(Shape("t", 12345), SCHEMA.encode({"n": 1})), "no schema has the fingerprint"),
        (raw(Shape("nowhere", SCHEMA.fingerprint), SCHEMA.encode({"n": 1})), "declare it first"),
    ],
)
def test_what_can_be_seen_to_be_wrong_is_refused_and_not_logged(events: EventBatch, reason: str) -> None:
    at = desk()
    (answer,) = at.do(1, Publish("p", "me", 1, events))
    assert isinstance(answer, Refused)
    assert (answer.code, answer.name) == ("schema", "me")
    assert reason in answer.reason
    (answer,) = at.do(1, Publish("p", "me", 1, batch(0)))
    assert isinstance(answer, Published)


def test_an_event_of_an_older_version_that_cannot_be_read_matches_nobody_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics, "check_messages", lambda *_: None)  # as it did not look before
    at = desk()
    at.do(2, Subscribe("s", "texts", "text LIKE 'a%'", True, 10_000))
    at.pass_time(0.3)
    good, bad = TEXTS.encode({"n": 1, "text": "abc"}), TEXTS.encode({"n": 2, "text": "abc"})
    bad = bad.replace(b"abc", b"a\xff\xfe")
    events = raw(Shape("texts", TEXTS.fingerprint), good, bad, good)
    effects = at.finish(at.say(1, Publish("p", "me", 1, events)))
    assert [type(frame) for frame in told(effects, 1)] == [Published]
    delivered = [frame.batch for frame in told(effects, 2) if isinstance(frame, Deliver)]
    assert [each.count for each in delivered if each is not None] == [2]


@pytest.mark.parametrize("count", [1, 2, 100])
def test_an_event_that_cannot_be_decoded_is_refused_with_its_batch_before_it_is_logged(count: int) -> None:
    at, schema = Desk(), Schema.parse("[text: string]")
    at.do(1, Topic("texts", False, (schema.text,)))
    builder = BatchBuilder()
    for _ in range(count - 1):
        builder.add(Shape("texts", schema.fingerprint), schema.encode({"text": "good"}))
    builder.add(Shape("texts", schema.fingerprint), schema.encode({"text": "bad"}).replace(b"bad", b"b\xffd"))
    effects = at.say(1, Publish("p", "publisher", 1, builder.build()))
    (refused,) = told(effects, 1)
    assert isinstance(refused, Refused)
    assert f"event {count - 1} of the batch: not UTF-8" in refused.reason
    assert not any(isinstance(effect, AppendEvents) for effect in effects)
