"""Python values that messages do not have: what they become, and how a dataclass reads them back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from tidemark.errors import DecodeError, EncodeError, SchemaError
from tidemark.message.foreign.dataclasses import from_value
from tidemark.message.schema import Schema

IDENTITY = UUID("12345678-1234-5678-1234-567812345678")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(Enum):
    LOW = 1
    HIGH = 10


class Urgency(IntEnum):
    LATER = 1
    NOW = 2


CONVERTED: list[tuple[Any, Any]] = [
    (IDENTITY, "12345678-1234-5678-1234-567812345678"),
    (date(2026, 11, 16), "2026-11-16"),
    (Colour.RED, "red"),
    (Level.HIGH, 10),
    (Urgency.NOW, 2),
    ((1, 2), [1, 2]),
    ({3, 1, 2}, [1, 2, 3]),
    (frozenset({"b", "a"}), ["a", "b"]),
    (np.int64(7), 7),
    (np.int8(7), 7),
    (np.float32(0.5), 0.5),
    (np.float64(0.5), 0.5),
    (np.bool_(True), True),
    (np.str_("x"), "x"),
    (np.datetime64("2026-11-16T10:00:00.000001"), datetime(2026, 11, 16, 10, 0, 0, 1, UTC)),
    (np.array([1.5, 2.5]), [1.5, 2.5]),
    (np.array(["2026-11-16"], "M8[D]"), [datetime(2026, 11, 16, tzinfo=UTC)]),
    (bytearray(b"ab"), b"ab"),
    (memoryview(b"ab"), b"ab"),
]


@pytest.mark.parametrize(("value", "expected"), CONVERTED, ids=lambda each: type(each).__name__)
def test_a_value_is_converted_at_any_depth(value: Any, expected: Any) -> None:
    nested, plain = ({"a": each, "b": {"c": [each]}} for each in (value, expected))
    inferred = Schema.of(nested)
    assert inferred == Schema.of(plain)
    assert inferred.decode(inferred.encode(nested)) == plain
    dynamic = Schema.parse("[a: dynamic]")
    assert dynamic.decode(dynamic.encode({"a": value})) == {"a": expected}


def test_a_declared_topic_takes_what_its_types_hold() -> None:
    schema = Schema.parse("[id: string, day: string, level: int, prices: *(double)*, at: timestamp?]")
    value = {
        "id": IDENTITY,
        "day": date(2026, 11, 16),
        "level": Level.LOW,
        "prices": np.array([1.0, 2.0]),
        "at": np.datetime64("NaT"),
    }
    assert schema.decode(schema.encode(value)) == {
        "id": str(IDENTITY),
        "day": "2026-11-16",
        "level": 1,
        "prices": [1.0, 2.0],
        "at": None,
    }


@pytest.mark.parametrize(
    ("value", "path", "text"),
    [
        ({"a": {1, "b"}}, "a", "the items of a set need an order"),
        ({"a": [1j]}, "a[0]", "complex has no type in a message; use two numbers"),
        ({"a": object()}, "a", "object has no type in a message"),
    ],
)
def test_a_value_without_a_conversion_is_refused_with_its_path(value: Any, path: str, text: str) -> None:
    with pytest.raises(EncodeError, match=text) as raised:
        Schema.of(value)
    assert raised.value.path == path


def test_the_error_of_a_wrong_value_is_that_of_the_value_as_it_was_given() -> None:
    with pytest.raises(EncodeError) as raised:
        Schema.parse("[id: long]").encode({"id": IDENTITY})
    assert "UUID" in str(raised.value)


@dataclass
class Order:
    id: UUID
    day: date
    colour: Colour
    level: Level
    tags: set[str]
    marks: frozenset[int]
    amounts: dict[str, float]
    spans: tuple[int, ...]
    price: float
    nested: dict[str, dict[str, date]]
    parent: UUID | None = None


ORDER = Order(
    IDENTITY,
    date(2026, 11, 16),
    Colour.BLUE,
    Level.HIGH,
    {"b", "a"},
    frozenset({3, 1}),
    {"y": 2.0, "x": 1.0},
    (1, 2),
    1.5,
    {"k": {"l": date(2026, 1, 1)}},
)


def test_a_dataclass_reads_back_what_it_wrote() -> None:
    schema = Schema.of(Order)
    message = schema.encode(ORDER)
    assert from_value(Order, schema.decode(message)) == ORDER
    assert schema.decode(message)["amounts"] == [{"key": "x", "value": 1.0}, {"key": "y", "value": 2.0}]
    assert schema.decode(message)["tags"] == ["a", "b"]
    assert schema.text.startswith("[id: string, day: string, colour: {red: [] | blue: []}, level: long")


def test_equal_sets_and_dicts_have_equal_messages() -> None:
    schema = Schema.of(Order)
    again = Order(**{**vars(ORDER), "tags": {"a", "b"}, "amounts": {"x": 1.0, "y": 2.0}})
    assert schema.encode(again) == schema.encode(ORDER)


def test_a_number_of_numpy_fits_an_annotation() -> None:
    order: Any = Order(**{**vars(ORDER), "price": np.float32(0.25)})
    assert from_value(Order, Schema.of(Order).decode(Schema.of(Order).encode(order))).price == 0.25


@pytest.mark.parametrize(
    ("field", "wrong", "text"),
    [
        ("id", "12345678", "id: expected UUID, found str"),
        ("day", datetime(2026, 11, 16, tzinfo=UTC), "day: expected date, found datetime"),
        ("level", 10, "level: expected one of Level.LOW, Level.HIGH, found 10"),
        ("amounts", {1: 1.0}, "amounts: expected a dict with keys of text, found dict"),
        ("amounts", {"x": "y"}, "amounts.x: expected float, found str"),
        ("tags", {1}, r"tags\[0\]: expected str, found int"),
    ],
)
def test_an_attribute_that_does_not_fit_its_annotation_is_refused(field: str, wrong: Any, text: str) -> None:
    with pytest.raises(EncodeError, match=text):
        Schema.of(Order).encode(Order(**{**vars(ORDER), field: wrong}))


@pytest.mark.parametrize(
    ("field", "wrong", "text"),
    [
        ("id", "12345678", "id: expected the text of a UUID, found '12345678'"),
        ("day", 5, "day: expected the text of a date, found 5"),
        ("level", 5, "level: expected one of 1, 10, found 5"),
        ("amounts", [1], r"amounts\[0\]: expected a dict, found int"),
    ],
)
def test_a_value_that_does_not_fit_a_class_is_refused(field: str, wrong: Any, text: str) -> None:
    value = Schema.of(Order).decode(Schema.of(Order).encode(ORDER))
    with pytest.raises(DecodeError, match=text):
        from_value(Order, {**value, field: wrong})


def test_the_keys_of_a_dict_are_text() -> None:
    @dataclass
    class Wrong:
        counts: dict[int, int]

    with pytest.raises(SchemaError, match="the keys of a dict are str"):
        Schema.of(Wrong)
