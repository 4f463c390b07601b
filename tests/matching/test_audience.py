"""The audience: who wants which events, topic by topic, while topics and members come and change."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from random import Random
from typing import Any

import pytest

from tests.matching.numbered_events import SCHEMA, batch
from tidemark.matching import audience as audience_module
from tidemark.matching.audience import MEMBER_BYTES, Audience
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape, concatenate
from tidemark.message.registry import Registry
from tidemark.message.schema import Schema
from tidemark.message.types import INT, Path, Tuple, Type

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


@pytest.mark.parametrize("changes_max", [4, 1_000])
@pytest.mark.parametrize("seed", range(5))
def test_topics_catch_up_with_whoever_came_and_went(
    monkeypatch: pytest.MonkeyPatch, seed: int, changes_max: int
) -> None:
    monkeypatch.setattr(audience_module, "AT_ONCE_MAX", 2)
    monkeypatch.setattr(audience_module, "STEP_MEMBERS", 1)
    monkeypatch.setattr(audience_module, "CHANGES_MAX", changes_max)
    chance, topics = Random(seed), [f"{first}.{second}" for first in "ab" for second in "xyz"]
    audience = Audience(known(*topics))
    members: dict[int, tuple[str, int]] = {}
    for number in range(400):
        lot = chance.random()
        if lot < 0.4:
            pattern, value = chance.choice((">", "a.>", "*.x", "b.*", *topics)), chance.randrange(4)
            member = chance.randrange(20)
            if member in members:
                audience.remove(member)
            audience.add(member, pattern, f"n = {value}" if value else "note = 1")
            members[member] = pattern, value
        elif lot < 0.6 and members:
            gone = chance.choice(sorted(members))
            audience.remove(gone)
            del members[gone]
        else:
            topic, value = chance.choice(topics), chance.randrange(1, 4)
            if chance.random() < 0.3:
                for _ in islice(audience.steps_before(topic), chance.randrange(3)):
                    pass
            wanted = {
                member
                for member, (pattern, asked) in members.items()
                if asked == value and TopicPattern.parse(pattern).matches(topic)
            }
            found = {each for group in matches(audience, batch(value, 9, topic=topic)) for each in group}
            assert found == wanted, number
            assert audience.wants(topic) or not wanted


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


def test_of_a_batch_of_many_topics_a_bounded_number_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audience_module, "WANTED_TOPICS_MAX", 2)
    topics = ("a.1", "a.2", "a.3", "b.1")
    audience = Audience(known(*topics))
    audience.add(1, "a.*", "n = 5")
    mixed = concatenate([batch(4, 5, topic=topic) for topic in topics])
    assert audience.wanted(mixed).tolist() == [False, True, False, True, True, True, False, False]


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


def test_matchers_that_were_not_used_for_long_are_forgotten_and_made_again() -> None:
    names = [f"t{number}" for number in range(10)]
    audience = Audience(known(*names), held_bytes_max=3 * 20 * MEMBER_BYTES)
    for member in range(20):
        audience.add(member, ">", f"n = {member}")
    for _ in range(2):
        for name in names:
            assert matches(audience, batch(3, 4, topic=name)) == {(3,): [0], (4,): [1]}
            assert sum(len(each.joined) for each in audience._topics.values()) <= 3 * 20
    for member in range(20):
        audience.remove(member)
    assert audience._held_bytes == sum(each.held_bytes for each in audience._topics.values())
    assert matches(audience, batch(3, 4, topic="t1")) == {}


def test_members_come_and_go_while_a_matcher_is_made() -> None:
    audience = Audience(known("t"))
    for member in range(40):
        audience.add(member, ">", f"n >= {member}")
    steps = audience.steps_before("t")
    next(steps)
    audience.remove(0)
    audience.remove(30)
    audience.add(50, "t", "n = 0")
    next(steps)
    assert matches(audience, batch(0, 2)) == {(50,): [0], (1, 2): [1]}
    assert list(steps) == []
    assert audience.is_ready("t")


def test_a_selector_is_tried_on_a_topic_without_looking_at_all_its_fields() -> None:
    class Wide:
        open = False

        def type_of(self, path: Path) -> Type | None:
            types: dict[Path, Type] = {("n",): INT, ("order",): Tuple(())}
            return types.get(path)

        def paths(self) -> Sequence[Path]:
            raise AssertionError("all fields are looked at")

    assert Selector.fitting("n = 1", Wide()) is not None
    assert Selector.fitting("m = 1", Wide()) is None
    assert Selector.fitting("order = 1", Wide()) is None
    assert Selector.fitting("n = 'x'", Wide()) is None


def test_a_topic_that_nobody_wants_is_not_read() -> None:
    registry = known("t", "u.v")
    audience = Audience(registry)
    audience.add(1, "t", "n = 5")
    audience.add(2, "u.*", "n = 6")
    audience.add(3, "u.*", "n = 7")
    open_topic = registry.open("shapes", Schema.parse("[n: int]"))
    mixed = concatenate([batch(5), batch(5, topic="shapes")])
    for events in (batch(5, topic="shapes"), batch(5, 6, topic="shapes"), mixed.slice(1, 2)):
        assert matches(audience, events) == {}
        assert not audience.wanted(events).any()
    assert open_topic._reader is None
    assert matches(audience, concatenate([batch(5, topic="shapes"), batch(6, topic="u.v")])) == {(2,): [1]}
    audience.remove(2)
    assert audience.wants("u.v")
    audience.remove(3)
    assert not audience.wants("u.w")
