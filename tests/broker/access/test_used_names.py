"""Whoever has rules is sent batches that name the topics and publishers of their events, and no others.

A batch that is published may have events of several topics. What is taken out of it for a subscriber keeps
the whole dictionary, which would tell of topics and publishers that a rule keeps from the subscriber.
"""

from __future__ import annotations

from tests.broker.access.test_access_control import ALICE, LAKE, PAULA, come, subscribe, values
from tests.broker.desk import MORNING, SCHEMA, Desk, batch, told
from tidemark.access.document import AccessDocument
from tidemark.message.batches.batch import EventBatch, concatenate
from tidemark.wire.frames import ClientFrame, Deliver, Fetch, Fetched, Publish, Topic

DOCUMENT = AccessDocument.parse(
    """
[users.alice]
roles = ["reader"]
[users.paula]
roles = ["writer"]
[users.lake]
roles = ["lake"]
[roles.reader]
subscribe = ["t"]
durable = ["{user}.*"]
[roles.writer]
publish = [">"]
declare = [">"]
publisher = ["*"]
[roles.lake]
pipeline = true
""",
    1,
)
MIXED = concatenate([batch(1, values=[4]), batch(2, topic="secret", values=[5]), batch(3, values=[6])])


def desk() -> Desk:
    made = Desk(access=DOCUMENT)
    for client in (ALICE, PAULA, LAKE):
        come(made, client, DOCUMENT)
    for topic in ("t", "secret"):
        assert made.do(PAULA, Topic(topic, False, (SCHEMA.text,)))
    made.pass_time(0.2)
    return made


def batches(frames: list[ClientFrame]) -> list[EventBatch]:
    found = [each.batch for each in frames if isinstance(each, Deliver | Fetched)]
    return [each for each in found if each is not None]


def topics(frames: list[ClientFrame]) -> list[str]:
    """The topics that dictionaries of batches name."""
    return [shape.topic for each in batches(frames) for shape in each.shapes]


def test_a_subscriber_with_rules_is_told_the_names_of_its_own_events_alone() -> None:
    at = desk()
    at.do(ALICE, subscribe(pattern=">"))
    at.pass_time(0.3)
    found = told(at.finish(at.say(PAULA, Publish("p", "desk", 1, MIXED))), ALICE)
    assert values(found) == [4, 6]
    assert topics(found) == ["t"]


def test_so_is_one_that_returns() -> None:
    at = desk()
    at.do(ALICE, subscribe(pattern=">"))
    at.pass_time(0.3)
    at.gone(ALICE)
    come(at, ALICE, DOCUMENT)
    at.finish(at.say(PAULA, Publish("p", "desk", 1, MIXED)))
    found = at.do(ALICE, subscribe(pattern=">")) + told(at.pass_time(0.5), ALICE)
    assert values(found) == [4, 6]
    assert topics(found) == ["t"]


def test_a_bulk_read_names_no_other_topics() -> None:
    at = desk()
    at.finish(at.say(PAULA, Publish("p", "desk", 1, MIXED)))
    at.finish(at.say(PAULA, Publish("p", "other", 1, batch(1, topic="secret", values=[7]))))
    fetch = Fetch(1, "p", MORNING - 1, 2**60, ">", "", 100_000)
    seen = at.do(ALICE, fetch)
    assert values(seen) == [4, 6]
    assert topics(seen) == ["t"]
    everything = at.do(LAKE, fetch)
    assert values(everything) == [4, 5, 6, 7]
    assert sorted(topics(everything)) == ["secret", "t"]
