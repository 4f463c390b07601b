"""JSON Schema documents to natural schemas and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.type_strategies import events, types
from tidemark.errors import SchemaError
from tidemark.message.foreign.json.schema import from_json_schema, to_json_schema
from tidemark.message.members import split_option
from tidemark.message.parse import parse
from tidemark.message.text import schema_text
from tidemark.message.types import Field, List, Tuple, Type, Variant, absent_case, optional


def read(document: Any) -> str:
    return schema_text(*from_json_schema(document))


def write(text: str) -> dict[str, Any]:
    parsed = parse(text)
    document = to_json_schema(parsed.root, parsed.definitions)
    assert document.pop("$schema") == "https://json-schema.org/draft/2020-12/schema"
    return document


def in_option_form(item: Type) -> Type:
    """Variants with an `absent` case as options of the rest: the same values, and what reading gives."""
    match item:
        case Tuple():
            return Tuple(tuple(Field(field.name, in_option_form(field.type)) for field in item.fields))
        case List():
            return List(in_option_form(item.item))
        case Variant() if split_option(item)[0] is item:
            absent = absent_case(item)
            rest = [case for at, case in enumerate(item.cases) if at != absent]
            found = Variant(tuple(Field(case.name, in_option_form(case.type)) for case in rest))
            return found if absent is None else optional(found)
        case Variant():
            return optional(in_option_form(split_option(item)[0]))
    return item


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({}, "dynamic"),
        (True, "dynamic"),
        ({"description": "anything"}, "dynamic"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "integer"}, "long"),
        ({"type": "integer", "format": "int32"}, "int"),
        ({"type": "integer", "minimum": 0, "maximum": 255}, "int"),
        ({"type": "integer", "minimum": 0, "maximum": 2**31}, "long"),
        ({"type": "integer", "minimum": 0}, "long"),
        ({"type": "number", "multipleOf": 0.5}, "double"),
        ({"type": "number", "format": "float"}, "float"),
        ({"type": "string", "pattern": "^a"}, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "contentEncoding": "base64"}, "bytes"),
        ({"type": "string", "format": "decimal", "precision": 10, "scale": 2}, "decimal(10, 2)"),
        ({"type": "string", "format": "decimal"}, "decimal"),
        ({"type": ["string", "null"]}, "string?"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": ["integer", "string", "null"]}, "dynamic?"),
        ({"type": "null"}, "dynamic?"),
        ({"type": "array"}, "*(dynamic)*"),
        ({"items": {"type": "integer"}}, "*(long)*"),
        ({"type": "object"}, "dynamic"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "dynamic"),
        ({"type": "object", "properties": {}}, "[]"),
        (
            {
                "properties": {"a": {"type": "integer"}, "b": {"type": ["string", "null"]}, "c": {}},
                "required": ["a", "b", "d"],
                "additionalProperties": False,
            },
            "[a: long, b: string?, c: dynamic?, d: dynamic]",
        ),
        ({"enum": ["a", "b", "a"]}, "{a: [] | b: []}"),
        ({"enum": ["a", None]}, "{a: []}?"),
        ({"type": "string", "enum": ["", "a"]}, "string"),
        ({"enum": ["absent", "present"]}, "string"),
        ({"enum": [1, 2]}, "long"),
        ({"enum": [1, 2.5, None]}, "double?"),
        ({"type": "number", "enum": [1, 2]}, "double"),
        ({"const": "x"}, "{x: []}"),
        ({"const": 5}, "long"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "long?"),
        ({"anyOf": [{"type": "null"}]}, "dynamic?"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}, {"const": None}]}, "dynamic?"),
    ],
)
def test_a_document_has_the_type_it_describes(document: Any, text: str) -> None:
    assert read(document) == text


def test_alternatives_that_are_objects_are_cases_named_by_reference_or_title() -> None:
    document = {
        "$defs": {"Card": {"type": "object", "properties": {"number": {"type": "string"}}}},
        "oneOf": [
            {"$ref": "#/$defs/Card"},
            {
                "type": "object",
                "title": "Cash",
                "properties": {"paid": {"type": "number"}},
                "required": ["paid"],
            },
            {"type": "null"},
        ],
    }
    assert read(document) == "{Card: [number: string?] | Cash: [paid: double]}?"


def test_objects_of_one_required_property_are_cases_named_by_it() -> None:
    def tagged(name: str) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {name: {"type": "integer"}},
            "required": [name],
            "additionalProperties": False,
        }

    assert read({"oneOf": [tagged("a"), tagged("b")]}) == "{a: long | b: long}"


def test_a_schema_that_recurs_becomes_a_named_schema() -> None:
    tree = {
        "type": "object",
        "properties": {
            "value": {"type": "integer"},
            "kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
        },
        "required": ["value", "kids"],
    }
    document = {"$ref": "#/$defs/Tree", "$defs": {"Tree": tree}}
    assert read(document) == "Tree: [value: long, kids: *(Tree)*]"


def test_a_document_that_refers_to_itself_is_called_after_its_title() -> None:
    document = {"title": "Node", "type": "object", "properties": {"next": {"$ref": "#"}}}
    assert read(document) == "Node: [next: Node?]"
    assert read({"type": "object", "properties": {"next": {"$ref": "#"}}}) == "root: [next: root?]"


def test_a_reference_that_does_not_recur_is_written_out_each_time() -> None:
    point = {"properties": {"x": {"type": "number"}}, "required": ["x"]}
    document = {
        "properties": {
            "from": {"$ref": "#/definitions/a~1point%20it"},
            "to": {"$ref": "#/definitions/a~1point%20it"},
        },
        "required": ["from", "to"],
        "definitions": {"a/point it": point},
    }
    assert read(document) == "[from: [x: double], to: [x: double]]"


@pytest.mark.parametrize(
    ("document", "pointer", "reason"),
    [
        ({"properties": {"a/b": {"allOf": []}}}, "#/properties/a~1b/allOf", "not supported"),
        (
            {"properties": {"a": {"patternProperties": {}}}},
            "#/properties/a/patternProperties",
            "not supported",
        ),
        ({"type": "array", "prefixItems": []}, "#/prefixItems", "not supported"),
        ({"items": [{}, {}]}, "#/items", "expected a schema"),
        ({"items": False}, "#/items", "expected a schema"),
        ({"type": "date"}, "#/type", "'date' is not a type of JSON Schema"),
        ({"type": []}, "#/type", "expected a type"),
        ({"type": "object", "properties": []}, "#", "expected properties to be an object"),
        ({"properties": {"": {}}}, "#/properties/", "a name has 1 to 255 bytes"),
        ({"$ref": "https://example.org/x"}, "#/$ref", "only references into the same document"),
        ({"$ref": "#/$defs/Nowhere"}, "#/$ref", "leads nowhere"),
        ({"$ref": "#/$defs/X", "properties": {}}, "#/properties", "not supported beside $ref"),
        ({"anyOf": []}, "#/anyOf", "expected a list of schemas"),
        ({"anyOf": [{"properties": {}}, {"type": "string"}]}, "#/anyOf/0", "needs a title"),
        ({"enum": []}, "#/enum", "expected a list of values"),
        ({"const": 2**70}, "#", "at most 64 bits"),
        ({"type": "string", "format": "decimal", "precision": 40}, "#", "1 to 38 digits"),
        (7, "#", "expected a schema"),
    ],
)
def test_what_cannot_be_read_is_an_error_at_its_pointer(document: Any, pointer: str, reason: str) -> None:
    with pytest.raises(SchemaError) as caught:
        from_json_schema(document)
    assert str(caught.value).startswith(f"{pointer}: ")
    assert reason in str(caught.value)


def test_a_document_that_explodes_or_is_endless_is_refused() -> None:
    step = {
        f"s{n}": {"properties": {key: {"$ref": f"#/$defs/s{n + 1}"} for key in "abcdef"}} for n in range(12)
    }
    with pytest.raises(SchemaError, match="grows too large"):
        from_json_schema({"$ref": "#/$defs/s0", "$defs": {**step, "s12": {}}})
    deep: dict[str, Any] = {}
    for _ in range(1000):
        deep = {"items": deep}
    with pytest.raises(SchemaError, match="nested too deep"):
        from_json_schema(deep)
    with pytest.raises(SchemaError, match="no finite value"):
        from_json_schema({"$ref": "#"})


def test_a_type_is_written_as_json_has_its_values() -> None:
    assert write(
        "[a: int, b: string?, c: {x: decimal(5, 2) | y: []}, [d: bytes], {e: int | f: timestamp}]"
    ) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "format": "int32"},
            "b": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "c": {
                "oneOf": [
                    {
                        "type": "object",
                        "properties": {
                            "x": {"type": "string", "format": "decimal", "precision": 5, "scale": 2}
                        },
                        "required": ["x"],
                        "additionalProperties": False,
                    },
                    {
                        "type": "object",
                        "properties": {"y": {"type": "object", "properties": {}}},
                        "required": ["y"],
                        "additionalProperties": False,
                    },
                ]
            },
            "d": {"type": "string", "contentEncoding": "base64"},
            "e": {"type": "integer", "format": "int32"},
            "f": {"type": "string", "format": "date-time"},
        },
        "required": ["a", "c", "d"],
    }


def test_named_schemas_are_written_as_definitions() -> None:
    assert write("Node: [next: Node?]") == {
        "$ref": "#/$defs/Node",
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
            }
        },
    }


@pytest.mark.parametrize(
    "text",
    ["Node: [next: Node?]", '[kids: *(a."Tr/e ~%é")*]; a."Tr/e ~%é": [kids: *(a."Tr/e ~%é")*, n: int]'],
)
def test_recursion_survives_writing_and_reading(text: str) -> None:
    parsed = parse(text)
    document = to_json_schema(parsed.root, parsed.definitions)
    assert from_json_schema(document) == (parsed.root, parsed.definitions)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(types())
def test_a_type_survives_writing_and_reading(item: Type) -> None:
    found, definitions = from_json_schema(to_json_schema(item))
    assert not definitions
    assert found == in_option_form(item)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(events(types()))
def test_every_tuple_can_be_written(item: Type) -> None:
    found, _ = from_json_schema(to_json_schema(item))
    assert isinstance(found, Tuple)


scalars = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "", "object", "#", "#/$defs/a"])
)
keywords = st.sampled_from(
    [
        "type",
        "properties",
        "required",
        "items",
        "enum",
        "const",
        "oneOf",
        "anyOf",
        "$ref",
        "$defs",
        "title",
        "a",
    ]
)
documents = st.recursive(
    scalars,
    lambda item: st.lists(item, max_size=3) | st.dictionaries(keywords, item, max_size=4),
    max_leaves=12,
)


@settings(derandomize=True, deadline=None, max_examples=400)
@given(documents)
def test_whatever_the_document_it_has_a_type_or_is_refused(document: Any) -> None:
    try:
        found, definitions = from_json_schema(document)
    except SchemaError:
        return
    assert parse(schema_text(found, definitions)).definitions == definitions
