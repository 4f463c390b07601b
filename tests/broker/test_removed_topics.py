"""Topics that are removed and created again: what clients are told, what spreads, and how events are read."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.broker.desk import SCHEMA, Desk, batch, sent, told
from tests.broker.test_broker_topics import FIRST, OTHER, WIDER, linked
from tidemark.broker.config import Recovered
from tidemark.broker.effects import Effect, LinkDown, SaveTopic
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.generations import CREATIONS_MAX
from tidemark.message.schema import Schema, fingerprint_of
from tidemark.wire.frames import (
    Answer,
    Ask,
    ClientFrame,
    Deliver,
    Describe,
    Heard,
    Hello,
    Knowledge,
    Publish,
    Published,
    Refused,
    Subscribe,
    Subscribed,
    Topic,
)

TEXTS = Schema.parse(OTHER)


def texts(*values: str) -> EventBatch:
    """Events of the topic t in its second creation, where n is a text."""
    builder = BatchBuilder()
    for value in values:
        builder.add(Shape("t", TEXTS.fingerprint), TEXTS.encode({"n": value}))
    return builder.build()


def removed(at: Desk, generation: int = 1) -> list[ClientFrame]:
    """A client removes the topic t; returns what it is told."""
    return at.do(1, Topic("t", False, (), generation))


def delivered(effects: list[Effect], client: int) -> list[int]:
    """The ticks of the events that a client was delivered."""
    frames = [each for each in told(effects, client) if isinstance(each, Deliver) and each.batch is not None]
    return [tick for each in frames if each.batch is not None for tick in each.batch.ticks.tolist()]


def test_a_removal_is_on_disk_before_its_client_is_told_and_neighbours_hear_of_it_once() -> None:
    at = linked()
    at.do(1, Topic("t", False, (FIRST,)))
    effects = at.say(1, Topic("t", False, (), 1))
    assert SaveTopic("t", False, (), 1) in effects
    assert told(effects, 1) == []
    effects = at.finish(effects)
    assert told(effects, 1) == [Topic("t", False, (FIRST,), 1)]
    assert sent(effects, "left", Topic) == sent(effects, "right", Topic) == [Topic("t", False, (), 1)]
    assert at.finish(at.hear("left", Topic("t", False, (), 1))) == []
    assert removed(at) == [Topic("t", False, (FIRST,), 1)], "asking twice does no harm"
    assert at.broker.counters["topics_removed"] == 1


@pytest.mark.parametrize(
    ("frame", "code", "reason"),
    [
        (Topic("unknown", False, (), 1), "topic", "there is no topic 'unknown'"),
        (Topic("t", False, (), 5), "topic", "not heard of that creation"),
        (Topic("t", False, (FIRST,), 4), "removed", "was removed and created again"),
        (Topic("unknown", False, (FIRST,), 2), "topic", "not heard of the removal"),
    ],
)
def test_a_generation_that_makes_no_sense_is_refused(frame: Topic, code: str, reason: str) -> None:
    at = linked()
    at.do(1, Topic("t", False, (FIRST,)))
    (refused,) = at.do(1, frame)
    assert isinstance(refused, Refused)
    assert (refused.code, reason in refused.reason) == (code, True), refused


def test_a_removed_topic_takes_no_events_and_says_what_to_do() -> None:
    at = Desk()
    at.declare()
    removed(at)
    (refused,) = at.do(1, Publish("p", "me", 1, batch(0)))
    assert isinstance(refused, Refused)
    assert refused.code == "removed"
    assert "tidemark topic create t" in refused.reason
    # As a publisher declares the shape of its event, and as an older client declares anything.
    for is_open in (True, False):
        (refused,) = at.do(1, Topic("t", is_open, (FIRST,)))
        assert isinstance(refused, Refused)
        assert refused.code == "removed"
    assert at.do(1, Topic("u", False, (FIRST,))) == [Topic("u", False, (FIRST,))]


def test_what_was_logged_before_is_acknowledged_after_the_removal() -> None:
    at = Desk()
    at.declare()
    at.do(1, Publish("p", "me", 1, batch(0)))
    removed(at)
    (published,) = at.do(2, Publish("p", "me", 1, batch(0)))  # the answer was lost on the way
    assert isinstance(published, Published)
    assert published.sequence == 1


def test_a_name_that_comes_back_has_fresh_versions() -> None:
    at = linked()
    at.do(1, Topic("t", False, (FIRST, WIDER)))
    removed(at)
    effects = at.finish(at.say(1, Topic("t", False, (OTHER,), 2)))
    assert told(effects, 1) == [Topic("t", False, (OTHER,), 2)]
    assert sent(effects, "left", Topic) == [Topic("t", False, (OTHER,), 2)]
    assert SaveTopic("t", False, (OTHER,), 2) in effects
    assert at.do(1, Describe("t")) == [Topic("t", False, (OTHER,), 2)]
    assert at.do(1, Describe("t", (fingerprint_of(FIRST),))) == [Topic("t", False, (FIRST, WIDER), 1)]
    # A publisher that does not know of that is told to ask again.
    (refused,) = at.do(1, Publish("p", "me", 1, batch(0)))
    assert isinstance(refused, Refused)
    assert "created again" in refused.reason
    (published,) = at.do(1, Publish("p", "me", 1, texts("x")))
    assert isinstance(published, Published)


def test_a_name_cannot_be_created_for_ever() -> None:
    at = linked()
    for generation in range(63, 2 * CREATIONS_MAX, 64):
        at.finish(at.hear("left", Topic("t", False, (FIRST,), generation)))
    at.finish(at.hear("left", Topic("t", False, (FIRST,), 2 * CREATIONS_MAX - 1)))
    (refused,) = at.do(1, Topic("t", False, (FIRST,), 2 * CREATIONS_MAX))
    assert isinstance(refused, Refused)
    assert refused.code == "limit"


@pytest.mark.parametrize(
    "order",
    [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1), (2, 0, 1), (1, 2, 0)],
    ids=lambda order: "".join(map(str, order)),
)
def test_the_order_in_which_neighbours_tell_of_generations_does_not_matter(order: tuple[int, ...]) -> None:
    told_of = [Topic("t", False, (FIRST,)), Topic("t", False, (), 1), Topic("t", False, (OTHER,), 2)]
    at = linked()
    for place in order:
        at.finish(at.hear("left", told_of[place]))
    assert at.do(1, Describe("t")) == [Topic("t", False, (OTHER,), 2)]
    assert at.do(1, Describe("t", (fingerprint_of(FIRST),))) == [Topic("t", False, (FIRST,), 1)]
    at.finish(at.hear("right", Topic("t", False, (), 3)))
    for each in told_of:
        assert sent(at.finish(at.hear("left", each)), "right", Topic) == []
    assert "t" not in at.registry.topics


def test_a_neighbour_that_was_away_does_not_bring_back_what_was_removed() -> None:
    at = linked()
    at.do(1, Topic("t", False, (FIRST,)))
    at.give(LinkDown("right"))
    removed(at)
    at.link("right")
    effects = at.finish(at.hear("right", Hello("right", 2)))
    assert sent(effects, "right", Topic) == [Topic("t", False, (FIRST,), 1)]
    at.finish(at.hear("right", Topic("t", False, (FIRST, WIDER))))  # it knew one more version
    assert at.do(1, Describe("t")) == [Topic("t", False, (FIRST, WIDER), 1)]


def test_all_creations_come_back_from_the_tables() -> None:
    frames = [Topic("t", True, (FIRST,), 1), Topic("t", False, (OTHER,), 2), Topic("u", False, (FIRST,), 1)]
    again = Desk(recovered=replace(Recovered(), topics=frames))
    assert again.do(1, Describe("t")) == [Topic("t", False, (OTHER,), 2)]
    assert again.do(1, Describe("t", (fingerprint_of(FIRST),))) == [Topic("t", True, (FIRST,), 1)]
    assert again.do(1, Describe("u")) == [Topic("u", False, (FIRST,), 1)]
    (answer,) = again.do(1, Ask(1, "topics"))
    assert isinstance(answer, Answer)
    listed = [(each["topic"], each["generation"]) for each in json.loads(answer.payload)]
    assert listed == [("t", 1), ("t", 2), ("u", 1)]


def test_what_is_owed_is_delivered_after_the_removal_and_after_the_name_came_back() -> None:
    at = Desk(upstream="up")
    at.link("up")
    at.finish(at.hear("up", Hello("up", 1)))
    at.declare()
    at.finish(at.say(1, Subscribe("s", "t", "n > 1", True, 10_000)))
    at.finish(at.say(2, Subscribe("all", ">", "", True, 10_000)))
    at.finish(at.hear("up", Knowledge("p", 10, 20, 0, True, (1 << 33) - 1)))
    at.finish(at.hear("up", Heard("p", "b", at.last_said)))
    at.finish(at.hear("up", Knowledge("p", 20, 22, 0, True, (1 << 33) - 1)))
    at.finish(at.hear("up", Topic("t", False, (), 1)))
    effects = at.finish(
        at.hear("up", Knowledge("p", 22, 30, 0, True, (1 << 33) - 1, batch(23, 25, values=(1, 2))))
    )
    assert (delivered(effects, 1), delivered(effects, 2)) == ([25], [23, 25])
    at.finish(at.hear("up", Topic("t", False, (OTHER,), 2)))
    at.finish(at.say(3, Subscribe("texts", "t", "n LIKE 'a%'", False, 10_000)))
    # A broker that had not heard of the removal took the first and the last of these.
    builder = BatchBuilder()
    builder.add(Shape("t", SCHEMA.fingerprint), SCHEMA.encode({"n": 5}))
    builder.add(Shape("t", TEXTS.fingerprint), TEXTS.encode({"n": "abc"}))
    builder.add(Shape("t", TEXTS.fingerprint), TEXTS.encode({"n": "b"}))
    builder.add(Shape("t", SCHEMA.fingerprint), SCHEMA.encode({"n": 1}))
    mixed = builder.build()
    mixed.fill_ticks(np.array((31, 32, 33, 34), np.int64))
    at.finish(at.hear("up", Knowledge("p", 30, 30, 0, True, (1 << 33) - 1)))
    effects = at.finish(at.hear("up", Knowledge("p", 30, 40, 0, True, (1 << 33) - 1, mixed)))
    assert (delivered(effects, 2), delivered(effects, 3)) == ([31, 32, 33, 34], [32])
    at.gone(1)
    (refused,) = at.do(4, Subscribe("s", "t", "n > 1", True, 10_000))
    assert isinstance(refused, Refused), "it does not fit the topic as it is now"
    effects = at.finish(at.say(4, Subscribe("s", "t", "", True, 10_000)))
    assert 31 in delivered(effects, 4)


def test_a_selector_that_does_not_fit_the_topic_that_came_back_is_told_to_its_subscriber() -> None:
    at = Desk()
    at.declare()
    (subscribed,) = at.do(1, Subscribe("s", "t", "n > 1", True, 10_000))
    assert isinstance(subscribed, Subscribed)
    at.do(2, Subscribe("fits", "t", "n IS NOT NULL", True, 10_000))
    at.do(3, Subscribe("also", "*", "n > 1", True, 10_000))
    assert [told(at.finish(at.say(9, Topic("t", False, (), 1))), client) for client in (1, 2, 3)] == [
        [],
        [],
        [],
    ]
    effects = at.finish(at.say(9, Topic("t", False, (OTHER,), 2)))
    for client in (1, 3):
        (refused,) = told(effects, client)
        assert isinstance(refused, Refused)
        assert refused.code == "selector"
    assert told(effects, 2) == []
