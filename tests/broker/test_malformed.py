"""Events that are not as their schema says: refused where it shows, and harmless where it does not."""

from __future__ import annotations

import pytest

from tests.broker.desk import SCHEMA, Desk, batch, told
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
        (raw(Shape("t", SCHEMA.fingerprint), b""), "shorter than the header"),
        (raw(Shape("t", SCHEMA.fingerprint), SCHEMA.encode({"n": 1}), b"\x01"), "shorter than the header"),
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


def test_an_event_that_cannot_be_read_matches_nobody_and_stops_nothing() -> None:
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
