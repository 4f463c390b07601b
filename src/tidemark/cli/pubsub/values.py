"""Events from arguments and from JSON lines: FIELD=VALUE and JSON objects, typed by the topic's schema.

JSON has fewer types than messages, so a declared topic's schema decides what a text stands for. In an open
topic JSON speaks for itself, and what is not JSON is text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import click

from tidemark.errors import EncodeError, MessageError
from tidemark.message.foreign.json.values import untyped_value_of_json, value_of_json
from tidemark.message.members import cases, members, split_option
from tidemark.message.types import Atomic, Kind, Reference, Tuple, Type, Variant

if TYPE_CHECKING:
    from tidemark.message.schema import Schema

#: In a value of FIELD=VALUE: the number of the event, from 1.
NUMBER = "{n}"
#: Kinds whose JSON is text, whatever the text looks like.
_TEXT = (Kind.STRING, Kind.TIMESTAMP, Kind.BYTES, Kind.DECIMAL)

Make = Callable[[int], Any]


def split_fields(arguments: Sequence[str]) -> list[tuple[tuple[str, ...], str]]:
    """Return FIELD=VALUE arguments as pairs of a path and a text; each dot in FIELD separates two levels."""
    fields = []
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{argument!r} is not FIELD=VALUE; write price=10.5, or quote it whole")
        fields.append((tuple(name.split(".")), text))
    return fields


def event_maker(fields: Sequence[tuple[tuple[str, ...], str]], schema: Schema | None) -> Make:
    """Return the function that makes the value of an event from the number of the event."""
    if not any(NUMBER in text for _, text in fields):
        value = _event(fields, schema)
        return lambda _: value
    return lambda number: _event([(path, text.replace(NUMBER, str(number))) for path, text in fields], schema)


def values_of(lines: Iterable[list[str]], schema: Schema | None) -> Iterator[list[Any]]:
    """Values of JSON lines, as many at a time as lines come.

    EncodeError with the line's number for one that is none; the values before it have been given then.
    """
    numbers = count(1)
    for some in lines:
        values: list[Any] = []
        for line in some:
            number = next(numbers)
            if not line.strip():
                continue
            try:
                values.append(_parsed(line, schema))
            except MessageError as error:
                yield values
                raise EncodeError(f"line {number}: {error.reason}", path=error.path) from None
        yield values


def _event(fields: Sequence[tuple[tuple[str, ...], str]], schema: Schema | None) -> Any:
    plain: dict[str, Any] = {}
    for path, text in fields:
        inside = plain
        for part in path[:-1]:
            inside = inside.setdefault(part, {})
            if not isinstance(inside, dict):
                raise click.UsageError(f"{'.'.join(path)}: {part} has a value of its own already")
        inside[path[-1]] = text if _is_text(schema, path) else _json_or_text(text)
    return plain if schema is None else value_of_json(json.dumps(plain), schema)


def _parsed(line: str, schema: Schema | None) -> Any:
    if schema is not None:
        return value_of_json(line, schema)
    value = untyped_value_of_json(line)
    if not isinstance(value, dict):
        raise EncodeError('an event is a JSON object, like {"price": 10.5}')
    return value


def _json_or_text(text: str) -> Any:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    return untyped_value_of_json(text)


def _is_text(schema: Schema | None, path: tuple[str, ...]) -> bool:
    if schema is None:
        return False
    item: Type | None = schema.root
    for part in path:
        item = _inside(item, part, schema)
    found = None if item is None else _core(item, schema)
    return isinstance(found, Atomic) and found.kind in _TEXT


def _inside(item: Type | None, name: str, schema: Schema) -> Type | None:
    """Return the type of a member or case; None if there is none, for which encoding has the better error."""
    match None if item is None else _core(item, schema):
        case Tuple() as found:
            return next((member.type for member in members(found) if member.name == name), None)
        case Variant() as found:
            return next((case.type for case in cases(found) if case.name == name), None)
    return None


def _core(item: Type, schema: Schema) -> Type:
    found, _ = split_option(item)
    while isinstance(found, Reference):
        found, _ = split_option(schema.definitions[found.name])
    return found
