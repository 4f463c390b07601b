"""Events that people write as lines of JSON, read by the topic's schema.

JSON has fewer types than messages, so the schema decides what a JSON value means: a timestamp is an ISO 8601
string, bytes are base64, a decimal is a number or a string of digits. Numbers keep their digits until their
type is known. In a dynamic field the value has the type that JSON gives it.
"""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as Base64Error
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from math import isinf
from typing import Any

from tidemark.errors import EncodeError, MessageError
from tidemark.message.error_path import prefix_path
from tidemark.message.members import cases, members, split_option
from tidemark.message.schema import Schema
from tidemark.message.types import Atomic, Dynamic, Kind, List, Reference, Tuple, Type, Variant


def values_of_lines(text: str, schema: Schema) -> list[Any]:
    """The event of every line that is not blank; EncodeError, with the line's number, if one does not fit."""
    values: list[Any] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            values.append(value_of_json(line, schema))
        except MessageError as error:
            raise EncodeError(f"line {number}: {error.reason}", path=error.path) from None
    return values


def value_of_json(text: str, schema: Schema) -> Any:
    """The value that a JSON text stands for; EncodeError, with the path, if it does not fit the schema."""
    return value_of_plain(parsed_json(text), schema)


def parsed_json(text: str | bytes) -> Any:
    """JSON as `json` parses it, but a number with a point is a Decimal; EncodeError if the text is none."""
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise EncodeError(f"not JSON: {error}") from None


def value_of_plain(plain: Any, schema: Schema) -> Any:
    """The value that parsed JSON stands for; EncodeError, with the path, if it does not fit the schema."""
    value = _typed(schema.root, plain, schema)
    schema.encode(value)
    return value


def _typed(item: Type, plain: Any, schema: Schema) -> Any:
    core, _ = split_option(item)
    if plain is None:
        return None
    match core:
        case Atomic():
            return _atomic(core, plain)
        case Dynamic():
            return untyped_value(plain)
        case Reference():
            return _typed(schema.definitions[core.name], plain, schema)
        case List() if isinstance(plain, list):
            return [_part(at, core.item, part, schema) for at, part in enumerate(plain)]
        case Tuple() if isinstance(plain, dict):
            types = {member.name: member.type for member in members(core)}
            return _fields(types, plain, schema)
        case Variant() if isinstance(plain, dict):
            return _fields({case.name: case.type for case in cases(core)}, plain, schema)
        case _:
            return plain


def _fields(types: dict[str, Type], plain: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """The fields by their types. A key that is not in the schema is kept: encoding will report it."""
    return {
        name: _part(name, types[name], part, schema) if name in types else part
        for name, part in plain.items()
    }


def _part(part: str | int, item: Type, plain: Any, schema: Schema) -> Any:
    try:
        return _typed(item, plain, schema)
    except MessageError as error:
        raise prefix_path(part, error) from None


def _atomic(item: Atomic, plain: Any) -> Any:
    match item.kind, plain:
        case Kind.TIMESTAMP, str():
            return _timestamp(plain)
        case Kind.BYTES, str():
            return _bytes(plain)
        case Kind.DECIMAL, str() | int() if not isinstance(plain, bool):
            return _decimal(str(plain))
        case Kind.FLOAT | Kind.DOUBLE, Decimal():
            return _finite(plain)
        case Kind.FLOAT | Kind.DOUBLE, "NaN" | "Infinity" | "-Infinity":
            return float(plain)
        case _:
            return plain


def _finite(plain: Decimal) -> float:
    """The double nearest to a number; EncodeError if the number is beyond all doubles."""
    number = float(plain)
    if isinf(number):
        raise EncodeError(f"{plain} is beyond what a double can hold, which is about 1.8e308")
    return number


def untyped_value_of_json(text: str) -> Any:
    """The value of JSON that speaks for itself, without a schema; EncodeError if the text is not JSON."""
    return untyped_value(parsed_json(text))


def _timestamp(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise EncodeError(f"{text!r} is no ISO 8601 time, such as 2026-11-15T20:00:00Z") from None
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise EncodeError(f"{text!r} is beyond the years 1 to 9999 in UTC") from None


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise EncodeError(f"{text!r} is not base64, which bytes are in JSON") from None


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise EncodeError(f"{text!r} is not a decimal number") from None


def untyped_value(plain: Any) -> Any:
    """The value of parsed JSON that speaks for itself; EncodeError for a number beyond all doubles."""
    match plain:
        case Decimal():
            return _finite(plain)
        case list():
            return [untyped_value(part) for part in plain]
        case dict():
            return {name: untyped_value(part) for name, part in plain.items()}
        case _:
            return plain
