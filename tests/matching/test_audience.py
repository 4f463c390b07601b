"""The audience: who wants which events, topic by topic, while topics and members come and change."""

from __future__ import annotations

from typing import Any

from tests.matching.numbered_events import SCHEMA, batch
from tidemark.matching.audience import Audience
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape, concatenate
from tidemark.message.registry import Registry
from tidemark.message.schema import Schema

WIDER = Schema.parse("[n: int, note: string?]")


def known(*topics: str) -> Registry:
    registry = Registry()
    for topic in topics:
        registry.declare(topic, SCHEMA)
    return registry


def noted(topic: str, *notes: str) -> EventBatch:
    builder = BatchBuilder()
    for note in notes:
        builder.add(Shape(topic, WIDER.fingerprint), WIDER.encode({"n": 5, "note": note}))
    return builder.build()


def matches(audience: Audience, events: EventBatch) -> dict[tuple[int, ...], list[int]]:
    return {tuple(members.tolist()): rows.tolist() for rows, members in audience.matches(events)}


def test_rows_are_grouped_by_who_wants_them() -> None:
    audience = Audience(known("t"))
    audience.add(1, "t", "n > 1")
    audience.add(2, "t", "n > 2")
    audience.add(3, "u", "")
    assert matches(audience, batch(0, 2, 3, 4)) == {(1,): [1], (1, 2): [2, 3]}
    assert audience.chosen(2, batch(0, 2, 3, 4)).tolist() == [False, False, True, True]
    audience.remove(1)
    audience.remove(1)
    assert matches(audience, batch(0, 2, 3, 4)) == {(2,): [2, 3]}


def test_rows_of_several_topics_in_one_batch_keep_their_places() -> None:
    audience = Audience(known("t", "u"))
    audience.add(1, "t", "n = 5")
    audience.add(2, ">", "n = 6")
    mixed = concatenate([batch(5, 6), batch(5, 6, topic="u")]).take(batch(2, 0, 3, 1).ticks)
    found = sorted((members.tolist(), rows.tolist()) for rows, members in audience.matches(mixed))
    assert found == [([1], [1]), ([2], [2]), ([2], [3])]
    assert audience.chosen(2, mixed).tolist() == [False, False, True, True]
    assert audience.wanted(mixed).tolist() == [False, True, True, True]


def test_a_topic_that_evolves_lets_in_those_who_did_not_fit() -> None:
    registry = known("t")
    audience = Audience(registry)
    audience.add(1, "t", "n = 5")
    audience.add(2, "t", "note = 'x'")
    assert matches(audience, batch(5)) == {(1,): [0]}
    registry.declare("t", WIDER)
    assert matches(audience, noted("t", "x", "y")) == {(1, 2): [0], (1,): [1]}
    assert matches(audience, batch(5)) == {(1,): [0]}  # written in the older schema: no note


def test_who_wants_something_in_doubt_counts_as_wanting() -> None:
    registry = known("t")
    audience = Audience(registry)
    audience.add(1, "t", "note = 'x'")  # no such field, yet
    assert audience.wanted(batch(1, 2)).tolist() == [True, True]
    assert matches(audience, batch(1, 2)) == {}
    registry.declare("t", WIDER)
    assert audience.wanted(noted("t", "x", "y")).tolist() == [True, False]
    assert audience.wanted(batch(1, 2)).tolist() == [False, False]


def test_of_a_topic_that_is_not_known_everything_is_wanted_by_those_whose_pattern_fits() -> None:
    audience = Audience(known())
    assert audience.wanted(batch(1, 2)).tolist() == [False, False]
    audience.add(1, "u.>", "")
    assert audience.wanted(batch(1, 2)).tolist() == [False, False]
    audience.add(2, "t", "n > 5")
    assert audience.wanted(batch(1, 2)).tolist() == [True, True]


def test_of_a_version_that_is_not_known_everything_is_wanted() -> None:
    audience = Audience(known("t"))
    audience.add(1, "t", "n > 100")
    assert audience.wanted(noted("t", "x")).tolist() == [True]


def test_the_first_row_that_cannot_be_read_is_named() -> None:
    registry = known("t")
    audience = Audience(registry)
    mixed = concatenate([batch(1, 2), noted("t", "x"), batch(3)])
    assert audience.unknown_from(batch(1, 2)) is None
    assert audience.unknown_from(mixed) == 2
    assert audience.unknown_from(batch(1, topic="u")) == 0
    registry.declare("t", WIDER)
    assert audience.unknown_from(mixed) is None


def test_a_shape_that_no_row_has_does_not_matter() -> None:
    audience = Audience(known("t"))
    mixed = concatenate([batch(1, 2), noted("t", "x")]).slice(0, 2)
    assert len(mixed.shapes) == 2
    assert audience.unknown_from(mixed) is None


def test_an_open_topic_knows_new_fields_from_its_next_shape_on() -> None:
    registry = Registry()
    shapes: list[Any] = [Schema.parse("[a: int]"), Schema.parse("[b: string]")]
    registry.open("t", shapes[0])
    audience = Audience(registry)
    audience.add(1, "t", "b = 'x'")
    first, second = BatchBuilder(), BatchBuilder()
    first.add(Shape("t", shapes[0].fingerprint), shapes[0].encode({"a": 1}))
    second.add(Shape("t", shapes[1].fingerprint), shapes[1].encode({"b": "x"}))
    assert matches(audience, first.build()) == {}
    registry.open("t", shapes[1])
    assert matches(audience, second.build()) == {(1,): [0]}
