"""Reading JSON Schema (2020-12). The table in `message.foreign.json.schema` says what becomes what.

Keywords that only restrict values are ignored. Unsupported keywords that would change the shape of a value
raise SchemaError with their JSON pointer. Any document, however large, takes bounded time.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, NoReturn
from urllib.parse import unquote

from tidemark.errors import EncodeError, SchemaError
from tidemark.message.foreign.infer import infer_many, merge, or_absent
from tidemark.message.foreign.references import RecurringSchemas
from tidemark.message.types import (
    ABSENT,
    BOOLEAN,
    BYTES,
    DECIMAL,
    DOUBLE,
    EMPTY,
    FLOAT,
    INT,
    LONG,
    NESTING_MAX,
    STRING,
    TIMESTAMP,
    Dynamic,
    Field,
    List,
    Reference,
    Tuple,
    Type,
    Variant,
    decimal,
    name_problem,
    optional,
)
from tidemark.message.validate import validate

#: Keywords that change the shape of a value in ways that a natural schema cannot express.
UNSUPPORTED = (
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "patternProperties",
    "dependentSchemas",
    "prefixItems",
    "$dynamicRef",
)
#: Subschemas within each other, along references. More than NESTING_MAX, because options and references add a
#: subschema but no level to the type.
SUBSCHEMA_DEPTH_MAX = 4 * NESTING_MAX
#: Subschemas read in all, counted again for each reference to them, since nested references can multiply a
#: small document without end.
SUBSCHEMAS_MAX = 65_536


def from_json_schema(document: Mapping[str, Any] | bool) -> tuple[Type, dict[str, Type]]:
    """The type that a JSON Schema document describes, and the definitions of schemas that recur in it.

    SchemaError, with the JSON pointer, for a part that has no type here.
    """
    reader = _DocumentReader(document)
    root = reader.named.visit("#", _root_name(document), lambda: reader.read(document, "#"))
    validate(root, reader.named.definitions)
    return root, reader.named.definitions


class _DocumentReader:
    """Reads one document.

    `pointer` is the JSON pointer of a subschema, for errors and to notice recursion.
    """

    def __init__(self, document: Any) -> None:
        self._document = document
        self._depth = 0
        self._count = 0
        self.named = RecurringSchemas()

    def read(self, schema: Any, pointer: str) -> Type:
        if schema is True:
            return Dynamic()
        if not isinstance(schema, Mapping):
            _fail(pointer, "expected a schema: an object, or true")
        for keyword in UNSUPPORTED:
            if keyword in schema:
                _fail(f"{pointer}/{keyword}", "this keyword is not supported")
        if self._depth >= SUBSCHEMA_DEPTH_MAX or self._count >= SUBSCHEMAS_MAX:
            _fail(pointer, "the document is nested too deep, or grows too large when references are followed")
        self._depth += 1
        self._count += 1
        item = self._dispatch(schema, pointer)
        self._depth -= 1
        return item

    def _dispatch(self, schema: Mapping[str, Any], pointer: str) -> Type:
        for keyword, reader in (
            ("$ref", self._reference),
            ("oneOf", self._alternatives),
            ("anyOf", self._alternatives),
        ):
            if keyword in schema:
                self._alone(keyword, schema, pointer)
                return reader(schema[keyword], f"{pointer}/{keyword}")
        if "enum" in schema or "const" in schema:
            return self._one_of(schema, pointer)
        return self._typed(schema, pointer)

    def _one_of(self, schema: Mapping[str, Any], pointer: str) -> Type:
        """The type of enum or const: strings make an enumeration, other values have their own type."""
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        if not isinstance(values, list) or not values:
            _fail(f"{pointer}/enum", "expected a list of values")
        rest = [value for value in values if value is not None]
        if rest and all(isinstance(value, str) for value in rest):
            item = _enumeration(rest)
            return or_absent(item) if len(rest) < len(values) else item
        if "type" in schema:
            return self._typed(schema, pointer)
        try:
            return infer_many(values)
        except EncodeError as error:
            _fail(pointer, str(error))

    def _alone(self, keyword: str, schema: Mapping[str, Any], pointer: str) -> None:
        shaping = ("$ref", "oneOf", "anyOf", "enum", "const", "properties", "items")
        beside = [other for other in shaping if other in schema and other != keyword]
        if beside:
            _fail(f"{pointer}/{beside[0]}", f"not supported beside {keyword}")

    def _typed(self, schema: Mapping[str, Any], pointer: str) -> Type:
        names = schema.get("type", _implied(schema))
        if names is None:
            return Dynamic()
        if isinstance(names, str):
            names = [names]
        if not isinstance(names, list) or not names:
            _fail(f"{pointer}/type", "expected a type, or a list of types")
        found = [self._of_type(name, schema, pointer) for name in names if name != "null"]
        item = reduce(merge, found) if found else Dynamic()
        return or_absent(item) if "null" in names else item

    def _of_type(self, name: Any, schema: Mapping[str, Any], pointer: str) -> Type:
        match name:
            case "object":
                return self._object(schema, pointer)
            case "array":
                return List(self.read(schema.get("items", True), f"{pointer}/items"))
            case "string":
                return _string(schema, pointer)
            case "integer":
                return INT if _is_int32(schema) else LONG
            case "number":
                return FLOAT if schema.get("format") == "float" else DOUBLE
            case "boolean":
                return BOOLEAN
        _fail(f"{pointer}/type", f"{name!r} is not a type of JSON Schema")

    def _object(self, schema: Mapping[str, Any], pointer: str) -> Type:
        properties, required = schema.get("properties"), schema.get("required", [])
        if properties is None and not required:
            return Dynamic()  # the schema does not name the keys
        if not isinstance(properties, Mapping | None) or not isinstance(required, list):
            _fail(pointer, "expected properties to be an object and required to be a list")
        known = dict(properties or {})
        fields = [
            self._property(name, schema_of_it, f"{pointer}/properties/{_escaped(name)}", required)
            for name, schema_of_it in [
                *known.items(),
                *((name, True) for name in required if name not in list(known)),
            ]
        ]
        return Tuple(tuple(fields))

    def _property(self, name: Any, schema: Any, pointer: str, required: list[Any]) -> Field:
        problem = name_problem(name)
        if problem:
            _fail(pointer, problem)
        item = self.read(schema, pointer)
        return Field(name, item if name in required else or_absent(item))

    def _reference(self, target: Any, pointer: str) -> Type:
        if not isinstance(target, str) or not (target == "#" or target.startswith("#/")):
            _fail(pointer, f"only references into the same document are supported, not {target!r}")
        where = "#" + unquote(target[1:])
        schema: Any = self._document
        for part in where.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(schema, Mapping) or key not in schema:
                _fail(pointer, f"{target!r} leads nowhere")
            schema = schema[key]
        name = _root_name(self._document) if where == "#" else _last(where)
        return self.named.visit(where, name, lambda: self.read(schema, where))

    def _alternatives(self, schemas: Any, pointer: str) -> Type:
        if not isinstance(schemas, list) or not schemas:
            _fail(pointer, "expected a list of schemas")
        rest = [(schema, f"{pointer}/{at}") for at, schema in enumerate(schemas) if not _is_null(schema)]
        if not rest:
            return optional(Dynamic())
        tags = [_tag(schema) for schema, _ in rest]
        if all(tag is not None for tag in tags):
            item = self._tagged([tag for tag in tags if tag is not None], rest)
        else:
            item = self._chosen(rest)
        return or_absent(item) if len(rest) < len(schemas) else item

    def _tagged(self, tags: list[str], rest: list[tuple[Any, str]]) -> Type:
        """The variant of objects with one property each: the property is the case."""
        return Variant(
            tuple(
                Field(tag, self.read(schema["properties"][tag], f"{where}/properties/{_escaped(tag)}"))
                for tag, (schema, where) in zip(tags, rest, strict=True)
            )
        )

    def _chosen(self, rest: list[tuple[Any, str]]) -> Type:
        items = [self.read(schema, where) for schema, where in rest]
        names = [_case_name(schema) for schema, _ in rest]
        cases = [Field(name, item) for name, item in zip(names, items, strict=True) if name]
        if len(items) == 1 or not any(isinstance(item, Tuple | Reference) for item in items):
            return reduce(merge, items)
        if len(cases) < len(items) and any(isinstance(item, Tuple) for item in items):
            unnamed = rest[names.index("")][1]
            _fail(unnamed, "an object among alternatives needs a title, or to be a $ref, as its case's name")
        return Variant(tuple(cases)) if len(cases) == len(items) else reduce(merge, items)


def _implied(schema: Mapping[str, Any]) -> str | None:
    """The `type` of a schema without that keyword, as its other keywords imply it; None if they do not."""
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema else None


def _string(schema: Mapping[str, Any], pointer: str) -> Type:
    if schema.get("contentEncoding") == "base64":
        return BYTES
    if schema.get("format") == "date-time":
        return TIMESTAMP
    if schema.get("format") != "decimal":
        return STRING
    precision, scale = schema.get("precision", DECIMAL.precision), schema.get("scale", DECIMAL.scale)
    if not (
        isinstance(precision, int)
        and isinstance(scale, int)
        and 0 <= scale <= precision
        and 1 <= precision <= 38
    ):
        _fail(pointer, "a decimal has 1 to 38 digits, of which 0 to all stand after the point")
    return decimal(precision, scale)


def _is_int32(schema: Mapping[str, Any]) -> bool:
    low, high = schema.get("minimum"), schema.get("maximum")
    within = isinstance(low, int) and isinstance(high, int) and low >= -(2**31) and high < 2**31
    return schema.get("format") == "int32" or within


def _enumeration(names: list[str]) -> Type:
    """An enumeration of the strings; the type string if one of them cannot be the name of a case."""
    if ABSENT in names or any(name_problem(name) for name in names):
        return STRING
    return Variant(tuple(Field(name, EMPTY) for name in dict.fromkeys(names)))


def _tag(schema: Any) -> str | None:
    """The property of an object that must have it and can have no other; None for any other schema."""
    if not isinstance(schema, Mapping) or schema.get("additionalProperties") is not False:
        return None
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping) or len(properties) != 1 or required != list(properties):
        return None
    return next((name for name in properties if name_problem(name) is None), None)


def _case_name(schema: Any) -> str:
    """The name of an alternative's case, from its $ref or title; "" when it has none."""
    if not isinstance(schema, Mapping):
        return ""
    name = _last(unquote(schema["$ref"])) if "$ref" in schema else schema.get("title")
    return name if isinstance(name, str) and name_problem(name) is None else ""


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and (schema.get("type") == "null" or schema.get("const", 0) is None)


def _root_name(document: Any) -> str:
    title = document.get("title") if isinstance(document, Mapping) else None
    return title if isinstance(title, str) and title else "root"


def _last(pointer: str) -> str:
    return pointer.rsplit("/", 1)[-1].replace("~1", "/").replace("~0", "~")


def _escaped(name: Any) -> str:
    return str(name).replace("~", "~0").replace("/", "~1")


def _fail(pointer: str, reason: str) -> NoReturn:
    raise SchemaError(f"{pointer}: {reason}")
