"""JSON Schema (2020-12) and natural schemas: the table of what becomes what, and the writer.

| JSON Schema                                       | type                                              |
|---------------------------------------------------|---------------------------------------------------|
| boolean, string                                   | boolean, string                                   |
| integer                                           | int if `format` is int32 or its bounds say so,    |
|                                                   | else long                                         |
| number                                            | double; float if `format` is float                |
| string of `format` date-time                      | timestamp                                         |
| string of `contentEncoding` base64                | bytes                                             |
| string of `format` decimal, `precision`, `scale`  | decimal (these three keywords are ours)           |
| object with `properties`                          | a tuple; a property that is not `required` is     |
|                                                   | optional                                          |
| object without                                    | dynamic                                           |
| array of `items`                                  | a list                                            |
| `enum`, `const` of strings                        | an enumeration; a string if one cannot be a name  |
| `null` among types or alternatives                | an option of the rest                             |
| `oneOf`, `anyOf` of objects of one required       | a variant, its cases called after the properties  |
| property each, and no additional ones             |                                                   |
| `oneOf`, `anyOf` of other objects                 | a variant, its cases called after `$ref`/`title`  |
| other alternatives                                | the least type they all fit, at worst dynamic     |
| `$ref`                                            | what it refers to; a reference where that recurs  |
| `{}`, true                                        | dynamic                                           |

Writing goes from right to left, and describes the values of the table in `message.types` as JSON has them.
The cases of a spliced variant are written as optional properties; the document does not express that only one
of them may be set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never
from urllib.parse import quote

from tidemark.message.foreign.json.reader import from_json_schema
from tidemark.message.members import cases, members, split_option
from tidemark.message.types import (
    Atomic,
    Dynamic,
    Field,
    Kind,
    List,
    Reference,
    Tuple,
    Type,
    Variant,
    absent_case,
    is_enumeration,
    option_item,
)

__all__ = ["from_json_schema", "to_json_schema"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_ATOMIC: dict[Kind, dict[str, Any]] = {
    Kind.BOOLEAN: {"type": "boolean"},
    Kind.INT: {"type": "integer", "format": "int32"},
    Kind.LONG: {"type": "integer", "format": "int64"},
    Kind.FLOAT: {"type": "number", "format": "float"},
    Kind.DOUBLE: {"type": "number"},
    Kind.STRING: {"type": "string"},
    Kind.BYTES: {"type": "string", "contentEncoding": "base64"},
    Kind.TIMESTAMP: {"type": "string", "format": "date-time"},
}


def to_json_schema(item: Type, definitions: Mapping[str, Type] | None = None) -> dict[str, Any]:
    """A JSON Schema document for the values of a type."""
    document: dict[str, Any] = {"$schema": DIALECT, **_schema(item)}
    if definitions:
        document["$defs"] = {name: _schema(found) for name, found in definitions.items()}
    return document


def _schema(item: Type) -> dict[str, Any]:
    match item:
        case Atomic(kind=Kind.DECIMAL):
            return {
                "type": "string",
                "format": "decimal",
                "precision": item.precision,
                "scale": item.scale,
            }
        case Atomic():
            return dict(_ATOMIC[item.kind])
        case Tuple():
            return _object(item)
        case List():
            return {"type": "array", "items": _schema(item.item)}
        case Variant():
            return _variant(item)
        case Reference():
            return {"$ref": "#/$defs/" + quote(item.name.replace("~", "~0").replace("/", "~1"))}
        case Dynamic():
            return {}
    assert_never(item)


def _object(item: Tuple) -> dict[str, Any]:
    keys = list(members(item))
    schema = {"type": "object", "properties": {key.name: _schema(key.type) for key in keys}}
    required = [key.name for key in keys if not key.chosen and not split_option(key.type)[1]]
    return {**schema, "required": required} if required else schema


def _variant(item: Variant) -> dict[str, Any]:
    some = option_item(item)
    if some is not None:
        return {"anyOf": [_schema(some), {"type": "null"}]}
    null = [{"type": "null"}] if absent_case(item) is not None else []
    if is_enumeration(item):
        return {"enum": [*(case.name for case in cases(item)), *(None for _ in null)]}
    return {"oneOf": [*map(_tagged, cases(item)), *null]}


def _tagged(case: Field) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {case.name: _schema(case.type)},
        "required": [case.name],
        "additionalProperties": False,
    }
