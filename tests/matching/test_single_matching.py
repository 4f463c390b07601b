"""An event that comes alone is matched without arrays, and gets the answer that arrays would give."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import TidemarkError
from tidemark.matching import audience as audience_module
from tidemark.matching.audience import Audience
from tidemark.matching.matcher import Matcher
from tidemark.matching.single import RULES_MAX
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.registry import Registry
from tidemark.message.schema import Schema

OLD = Schema.parse("[a: int, b: long, f: float, d: double, s: string, y: bytes, t: boolean]")
NEW = Schema.parse(
    "[a: int, b: long, f: float, d: double, s: string, y: bytes, t: boolean, note: string?, more: int?,"
    " kind: {small: [] | large: []}, size: {none: [] | some: [w: int, l: string?]}, price: decimal(10, 2),"
    " at: timestamp, any: dynamic]"
)
#: Shapes of an open topic, which disagree about what `a` is.
SHAPES = [
    Schema.parse(text) for text in ("[a: int, s: string]", "[a: double, n: long]", "[s: string, n: int]")
]

INTS = (0, 1, -1, 7, 2**31 - 1, -(2**31))
LONGS = (*INTS, 2**53 + 1, 2**63 - 1, -(2**63))
DOUBLES = (0.0, -0.0, 1.5, 7.0, 1e300, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "a", "ab", "a_%", "Grüße", "\U0010ffff", "x" * 40)
PLAIN = (
    "a > 1",
    "a = 7 OR b = 7",
    "b BETWEEN -1 AND 9007199254740993",
    "f < 2 AND NOT d > 1",
    "d <> 1.5",
    "s LIKE 'a%'",
    "s LIKE 'a!_!%' ESCAPE '!' OR s IN ('Grüße', '')",
    "s IS NULL OR t",
    "NOT t AND a + b > 3",
    "a / b > 0.5",
    "",
    "a IS NOT NULL",
)
OF_NEW = (
    "note IS NULL",
    "note LIKE '%b' AND more >= 1",
    "kind = 'small'",
    "size.some.w > 1",
    "price > 1.25",
    "at > TIMESTAMP '2020-01-01 00:00:00Z'",
    "any = 3",
    "any.x IS NULL",
    "_priority > 3",
    "_key = 'k'",
    "_key IS NULL",
    "_time > TIMESTAMP '2024-01-01'",
    "_topic = 't'",
)


def values(schema: Schema, draw: st.DrawFn) -> dict[str, Any]:
    pools: dict[str, tuple[Any, ...]] = {
        "a": INTS,
        "b": LONGS,
        "f": (0.0, 1.5, -2.25),
        "d": DOUBLES,
        "s": TEXTS,
        "y": (b"", b"\xff\0"),
        "t": (True, False),
        "n": INTS,
        "note": (None, *TEXTS),
        "more": (None, *INTS),
        "kind": ("small", "large"),
        "size": ({"none": {}}, {"some": {"w": 2, "l": None}}, {"some": {"w": 0, "l": "m"}}),
        "price": (0, 1, 2),
        "at": (datetime(2021, 1, 1, tzinfo=UTC),),
        "any": (None, 3, "x", {"x": 1}, [1]),
    }
    fields = [path[0] for path in schema.paths() if len(path) == 1 and path[0] in pools]
    return {field: draw(st.sampled_from(pools[field])) for field in fields}


@st.composite
def messages(draw: st.DrawFn, schema: Schema) -> bytes:
    event = values(schema, draw)
    if schema is SHAPES[1]:
        event["a"] = draw(st.sampled_from(DOUBLES))
    data = bytearray(schema.encode(event))
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 3)))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.sampled_from((len(data), len(data), len(data) // 2, 1, 0)))])


def alone(shape: Shape, message: bytes, key: bytes = b"") -> EventBatch:
    builder = BatchBuilder()
    builder.add(shape, message, key=key, priority=5)
    return builder.build()


def answers(audience: Audience, events: EventBatch) -> list[tuple[list[int], list[int]]]:
    return [(rows.tolist(), members.tolist()) for rows, members in audience.matches(events)]


def agree(registry: Registry, selectors: list[str], batches: list[EventBatch]) -> None:
    """Once without arrays, as far as that goes, and once with them."""
    first, second = Audience(registry), Audience(registry)
    for member, selector in enumerate(selectors, 1):
        for each in (first, second):
            each.add(member, ">", selector)
    for events in batches:
        found = answers(first, events)
        with mock.patch.object(audience_module, "single_matcher", return_value=None):
            assert found == answers(second, events)


@settings(derandomize=True, deadline=None, max_examples=80)
@given(data=st.data())
def test_single_events_of_a_declared_topic_match_as_batches_do(data: st.DataObject) -> None:
    registry = Registry()
    registry.declare("t", OLD)
    is_new = data.draw(st.booleans())
    if is_new:
        registry.declare("t", NEW)
    pool = st.sampled_from((*PLAIN, *OF_NEW) if data.draw(st.booleans()) else PLAIN)
    selectors = data.draw(st.lists(pool, min_size=1, max_size=5))
    keys = st.sampled_from((b"", b"k", b"\xff"))
    batches = [
        alone(Shape("t", schema.fingerprint), message, data.draw(keys))
        for schema in ((OLD, NEW) if is_new else (OLD,))
        for message in data.draw(st.lists(messages(schema), min_size=1, max_size=4))
    ]
    batches.append(alone(Shape("t", 12345), data.draw(messages(OLD))))
    agree(registry, selectors, batches)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(data=st.data())
def test_single_events_of_an_open_topic_match_as_batches_do(data: st.DataObject) -> None:
    registry = Registry()
    batches: list[EventBatch] = []
    for schema in data.draw(st.permutations(SHAPES)):
        registry.open("t", schema)
        message = data.draw(messages(schema))
        batches.append(alone(Shape("t", schema.fingerprint), message))
    pool = st.sampled_from(
        ("a > 1", "a = 7", "s LIKE 'a%'", "n >= 0", "n IS NULL", "nowhere = 1", "", "a < n")
    )
    agree(registry, data.draw(st.lists(pool, min_size=1, max_size=4)), batches)


def declared() -> tuple[Registry, EventBatch]:
    registry = Registry()
    registry.declare("t", OLD)
    event = {"a": 2, "b": 3, "f": 0.5, "d": 2.5, "s": "ab", "y": b"", "t": True}
    return registry, alone(Shape("t", OLD.fingerprint), OLD.encode(event))


def test_few_rules_on_plain_fields_need_no_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, events = declared()
    audience = Audience(registry)
    for member in range(1, 100):
        audience.add(member, "t", f"a > {member % 4}")
    monkeypatch.setattr(Matcher, "match", lambda *_: pytest.fail("arrays"))
    (found,) = answers(audience, events)
    assert found == ([0], [member for member in range(1, 100) if member % 4 < 2])


def test_members_that_come_and_go_are_noticed() -> None:
    registry, events = declared()
    audience = Audience(registry)
    audience.add(1, "t", "a > 1")
    assert answers(audience, events) == [([0], [1])]
    audience.add(2, "t", "s = 'ab'")
    assert answers(audience, events) == [([0], [1, 2])]
    audience.remove(1)
    assert answers(audience, events) == [([0], [2])]
    audience.remove(2)
    assert answers(audience, events) == []


def test_many_rules_are_left_to_the_index() -> None:
    registry, events = declared()
    audience = Audience(registry)
    for member in range(1, 2 * RULES_MAX):
        audience.add(member, "t", f"a < {member}")
    with (
        mock.patch.object(Matcher, "match", side_effect=TidemarkError("arrays")),
        pytest.raises(TidemarkError),
    ):
        answers(audience, events)
