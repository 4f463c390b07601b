"""Types from samples: every value fits its inferred type, and merging does not depend on order."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.type_strategies import dynamic_values, same, types
from tidemark.errors import EncodeError
from tidemark.message.foreign.infer import infer, infer_many, merge
from tidemark.message.parse import parse_type
from tidemark.message.schema import Schema
from tidemark.message.text import type_text
from tidemark.message.types import (
    DOUBLE,
    INT,
    LONG,
    STRING,
    Dynamic,
    Field,
    List,
    Tuple,
    Type,
    Variant,
    optional,
)

quickly = settings(derandomize=True, deadline=None, max_examples=150)


@dataclass
class Node:
    name: str
    next: Node | None = None


def inferred(value: Any) -> str:
    return type_text(infer(value))


def merged(*texts: str) -> str:
    first, *rest = map(parse_type, texts)
    for each in rest:
        first = merge(first, each)
    return type_text(first)


def canonical(item: Type) -> Type:
    """The type with fields and cases in the order of their names."""
    match item:
        case Tuple():
            return Tuple(tuple(sorted((Field(f.name, canonical(f.type)) for f in item.fields), key=by_name)))
        case Variant():
            return Variant(tuple(sorted((Field(f.name, canonical(f.type)) for f in item.cases), key=by_name)))
        case List():
            return List(canonical(item.item))
    return item


def by_name(field: Field) -> tuple[str, str]:
    return field.name, type_text(field.type)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "boolean"),
        (-(2**63), "long"),
        (1.5, "double"),
        (float("nan"), "double"),
        (Decimal("12.50"), "decimal(38, 2)"),
        (Decimal("1E+5"), "decimal(38, 0)"),
        (Decimal("0E+90"), "decimal(38, 0)"),
        ("x", "string"),
        (b"x", "bytes"),
        (datetime(2024, 1, 1, tzinfo=UTC), "timestamp"),
        (None, "dynamic?"),
        ([], "*(dynamic)*"),
        ([1, 2.5], "*(double)*"),
        ([1, "x"], "*(dynamic)*"),
        ([None, 1], "*(long?)*"),
        ([{}, {}], "*(dynamic)*"),
        ({"b": 1, "a": {"c": [{"x": 1}, {"y": "s"}]}}, "[b: long, a: [c: *([x: long?, y: string?])*]]"),
    ],
)
def test_a_sample_has_the_type_of_its_shape(value: Any, text: str) -> None:
    assert inferred(value) == text


def test_a_dataclass_instance_has_its_class_s_type_with_recursion_as_dynamic() -> None:
    assert inferred({"n": Node("a", Node("b"))}) == "[n: [name: string, next: dynamic?]]"


def test_many_samples_say_more_than_none_and_empty_lists_do() -> None:
    samples = [{"a": None, "b": []}, {"a": 5, "b": [1]}, {"b": [2.5]}]
    assert type_text(infer_many(samples)) == "[a: long?, b: *(double)*]"
    assert infer_many([]) == Dynamic()


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ({"a": {"b": [1, {2: 3}]}}, "a.b[1]", "a name is a string, not int"),
        ({"a": 2j}, "a", "complex has no type in a message; use two numbers"),
        ({"at": datetime(2024, 1, 1)}, "at", "use datetime.now(timezone.utc)"),
        ({"at": timedelta(1)}, "at", "use its total_seconds()"),
        ({"a": {1: 2}}, "a", "a name is a string, not int (the key 1)"),
        ({"": 2}, "", "a name has 1 to 255 bytes"),
        ({"x" * 256: 2}, "", "a name has 1 to 255 bytes"),
        ({"a\nb": 2}, "", "control characters"),
        ({"n": 2**63}, "n", "at most 64 bits"),
        ({"d": Decimal("NaN")}, "d", "finite"),
        ({"d": Decimal("1E+38")}, "d", "at most 38 digits"),
        ({"d": Decimal("1E-39")}, "d", "at most 38 digits"),
        ({"odd name": object()}, '"odd name"', "object has no type"),
    ],
)
def test_what_has_no_type_is_named_by_its_path(value: Any, path: str, reason: str) -> None:
    with pytest.raises(EncodeError) as caught:
        infer(value)
    assert caught.value.path == path
    assert reason in caught.value.reason


def test_nesting_is_bounded_also_for_a_value_that_contains_itself() -> None:
    deep: Any = 1
    for _ in range(16):
        deep = [deep]
    Schema(infer(deep))
    with pytest.raises(EncodeError, match="nested deeper than 16"):
        infer([deep])
    loop: dict[str, Any] = {}
    loop["self"] = loop
    with pytest.raises(EncodeError, match="nested deeper than 16"):
        infer(loop)


def test_a_sample_that_is_too_deep_is_not_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    monkeypatch.setattr("tidemark.message.foreign.infer.to_value", pytest.fail)
    with pytest.raises(EncodeError, match="nested deeper than 16"):
        infer(loop)


def test_an_option_counts_as_a_level_of_nesting() -> None:
    deep: Any = None
    for _ in range(16):
        deep = {"a": deep}
    with pytest.raises(EncodeError, match="what may be missing counting as one") as caught:
        infer(deep)
    assert caught.value.path == ".".join("a" * 16)


@pytest.mark.parametrize(
    ("texts", "text"),
    [
        (("int", "long"), "long"),
        (("long", "double"), "double"),
        (("int", "float"), "double"),
        (("long", "string"), "dynamic"),
        (("boolean", "int"), "dynamic"),
        (("decimal(10, 2)", "decimal(6, 4)"), "decimal(12, 4)"),
        (("decimal(38, 2)", "decimal(38, 9)"), "decimal"),
        (("decimal(10, 2)", "double"), "dynamic"),
        (("int?", "long"), "long?"),
        (("long?", "string"), "dynamic?"),
        (("[a: int]", "[b: string]"), "[a: int?, b: string?]"),
        (("[a: int, b: int]", "[b: long?, c: int]", "[a: int]"), "[a: int?, b: long?, c: int?]"),
        (("*(int)*", "*(double)*"), "*(double)*"),
        (("{red: [] | green: []}", "{blue: [] | red: []}"), "{red: [] | green: [] | blue: []}"),
        (("{a: int | b: string}", "{a: long}"), "{a: long | b: string}"),
        (("{red: []}", "{a: int}"), "dynamic"),
        (("{absent: [] | a: int}", "dynamic?"), "dynamic?"),
        (("[x: {absent: [] | a: int}]", "[]"), "[x: {absent: [] | a: int}]"),
        (("[int]", "[string]"), "dynamic"),
        (("[int]", "[int]"), "[int]"),
        (("[a: int]", "*(int)*"), "dynamic"),
    ],
)
def test_merge_gives_the_least_type_that_both_fit(texts: tuple[str, ...], text: str) -> None:
    assert merged(*texts) == text


@quickly
@given(dynamic_values)
def test_a_value_fits_its_inferred_type(value: Any) -> None:
    schema = Schema(infer(value))
    assert same(schema.decode(schema.encode(value)), value)


@quickly
@given(st.lists(dynamic_values, min_size=1, max_size=4))
def test_every_sample_fits_the_type_inferred_from_all(values: list[Any]) -> None:
    schema = Schema(infer_many(values))
    for value in values:
        assert same(schema.decode(schema.encode(value)), value)


@quickly
@given(types(), types())
def test_merge_is_commutative_but_for_order_and_idempotent(a: Type, b: Type) -> None:
    both = merge(a, b)
    assert canonical(both) == canonical(merge(b, a))
    assert merge(a, a) == a
    assert canonical(merge(both, a)) == canonical(both)


@quickly
@given(types(), types(), types())
def test_merge_is_associative_but_for_order(a: Type, b: Type, c: Type) -> None:
    assert canonical(merge(merge(a, b), c)) == canonical(merge(a, merge(b, c)))


def test_merging_atomics_keeps_the_shared_ones() -> None:
    assert merge(INT, INT) is INT
    assert merge(LONG, optional(DOUBLE)) == optional(DOUBLE)
    assert merge(STRING, Dynamic()) == Dynamic()
