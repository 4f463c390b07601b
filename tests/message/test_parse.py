"""The schema language: what it accepts, what it prints, and where it points when it refuses."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.message.value_strategies import types
from tidemark.errors import SchemaError, SchemaSyntaxError
from tidemark.message.parse import parse, parse_type
from tidemark.message.schema import Schema
from tidemark.message.text import indented, type_text
from tidemark.message.types import (
    DECIMAL,
    EMPTY,
    INT,
    STRING,
    Field,
    List,
    Tuple,
    Type,
    Variant,
    decimal,
    optional,
)

ENVELOPE = """
com.example.envelope: [
  priority: int,
  properties: *( [ name: string, value: string ] )*,
  payload: { absent: [ ] | request: [ topic: string, selector: string ] | reply: int | other: dynamic }
]
"""


@settings(derandomize=True, deadline=None, max_examples=200)
@given(types())
def test_the_text_of_a_type_parses_back_to_the_type(item: Type) -> None:
    assert parse_type(type_text(item)) == item
    assert parse_type(indented(item)) == item


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.text(alphabet='[]{}*()|,:;?." \nabint0#/', max_size=40))
def test_any_text_parses_or_is_is_refused_by_a_schema_error(text: str) -> None:
    with suppress(SchemaError):
        Schema.parse(text)


def test_the_papers_forms_mean_what_they_say() -> None:
    assert parse_type("[ int , [ string , boolean ] ]").fields[0] == Field("", INT)  # type: ignore[union-attr]
    assert parse_type("{ [] | int | *(string)* }") == Variant(
        (Field("", EMPTY), Field("", INT), Field("", List(STRING)))
    )
    assert parse_type("[]") == Tuple(())
    assert parse(ENVELOPE).name == "com.example.envelope"


def test_optional_and_decimal_are_short_forms() -> None:
    assert parse_type("int?") == optional(INT) == parse_type("{ [] | int }")
    assert parse_type("decimal") == DECIMAL
    assert parse_type("decimal(10, 2)") == decimal(10, 2)


def test_comments_and_quoted_names_are_understood() -> None:
    item = parse_type('[ # a comment\n "odd name": int, // another\n "say ""hi""": string ]')
    assert item == Tuple((Field("odd name", INT), Field('say "hi"', STRING)))


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("[a: int", 1, 8, "expected `,` or `]`"),
        ("[a: int, a: long]", 1, 10, "'a' twice"),
        ("int int", 1, 5, "expected the end"),
        ("", 1, 1, "expected a type"),
        ("[a: {}]", 1, 5, "at least one case"),
        ("*(int", 1, 6, "expected `)*`"),
        ("[\n  a: foo bar]", 2, 10, "found `bar`"),
        ('x: "', 1, 4, "must end on its line"),
        ("a: int\na: int", 2, 1, "defined twice"),
        ("int: [a: int]", 1, 1, "choose another name"),
        ("decimal(40, 1)", 1, 1, "1 to 38 digits"),
        ("[" * 40, 1, 18, "nested deeper"),
        ("[a: int, %]", 1, 10, "has no place"),
    ],
)
def test_an_error_points_at_line_and_column(text: str, line: int, column: int, reason: str) -> None:
    with pytest.raises(SchemaSyntaxError) as caught:
        Schema.parse(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[a: nowhere]", "no type 'nowhere'"),
        ("x: [a: x]", "no finite value"),
        ("x: [a: y]; y: [b: x]", "no finite value"),
        ("*([])*", "must hold something"),
        ("[a: int, [a: string]]", "'a' would appear twice"),
        ("[a: int, {[] | a: string}]", "'a' would appear twice"),
    ],
)
def test_a_schema_that_cannot_work_is_refused(text: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        Schema.parse(text)


def test_a_schema_that_explodes_is_refused_quickly() -> None:
    levels = "; ".join(f"s{n}: [a: s{n + 1}, b: s{n + 1}]" for n in range(14)) + "; s14: [x: int]"
    with pytest.raises(SchemaError, match="more than 4096 fields"):
        Schema.parse(levels)
