"""Decoded values as Arrow holds them in Python (`to_pylist`, `pa.array`), and back.

The types are those of `message.foreign.arrow.types`. Values are as `decode` returns them, and both directions
keep every value that the table in `message.types` has. Arrow's value differs from the message's own in three
ways: a variant has all its cases as keys, a tuple without fields is True, a dynamic value is JSON text. A
case that the reader's schema does not know (UnknownCase) cannot be converted back: no child is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC
from typing import Any, assert_never

from tidemark.errors import DecodeError, EncodeError, MessageError
from tidemark.message.error_path import prefix_path
from tidemark.message.evolve import UnknownCase
from tidemark.message.foreign.json.text import from_json_text, to_json_text
from tidemark.message.members import Member, cases, members, split_option
from tidemark.message.types import (
    TIMESTAMP,
    Atomic,
    Dynamic,
    Field,
    List,
    Reference,
    Tuple,
    Type,
    Variant,
    is_enumeration,
)

_Convert = Callable[[Type, Any], Any]


def case_type(item: Type) -> Type:
    """The type of the child of a case: the case's type, in a struct of its own if its value may be None."""
    return Tuple((Field("value", item),)) if split_option(item)[1] else item


def to_arrow_value(item: Type, value: Any) -> Any:
    """A decoded value as the Arrow type of `item` has it; EncodeError, with the path, if it does not fit."""
    core, nullable = split_option(item)
    if value is None and (nullable or not isinstance(core, Dynamic | Reference)):
        return _none(nullable, EncodeError)
    match core:
        case Atomic():
            return value
        case Dynamic() | Reference():
            return to_json_text(value)
        case List():
            return _items(to_arrow_value, core, value)
        case Tuple():
            return _to_struct(members(core), value) or True
        case Variant():
            return _to_variant(core, value)
    assert_never(core)


def from_arrow_value(item: Type, value: Any) -> Any:
    """The decoded value of Arrow's value; DecodeError, with the path, if it is not of `item`'s Arrow type."""
    core, nullable = split_option(item)
    if value is None and not isinstance(core, Dynamic):
        return _none(nullable, DecodeError)
    # None is also a dynamic value, and the only one that has no other way to be written in a column.
    if value is None:
        return None
    match core:
        case Atomic():
            return value.astimezone(UTC) if core == TIMESTAMP else value
        case Dynamic() | Reference():
            return from_json_text(value)
        case List():
            return _items(from_arrow_value, core, value)
        case Tuple():
            return {} if value is True else _from_struct(members(core), value)
        case Variant():
            if is_enumeration(core):
                return value
            chosen = _from_struct(_case_members(core), value)
            if len(chosen) != 1:
                raise DecodeError(f"one case must be set, found {', '.join(chosen) or 'none'}")
            return chosen
    assert_never(core)


def _none(nullable: bool, error: type[MessageError]) -> None:
    if not nullable:
        raise error("is missing")


def _items(convert: _Convert, item: List, value: list[Any]) -> list[Any]:
    return [_part(convert, index, item.item, each) for index, each in enumerate(value)]


def _to_struct(keys: Iterable[Member], value: dict[str, Any]) -> dict[str, Any]:
    struct: dict[str, Any] = {}
    for key in keys:
        inner = value.get(key.name)
        if not key.chosen:
            struct[key.name] = _part(to_arrow_value, key.name, key.type, inner)
        elif key.name not in value:
            struct[key.name] = None
        else:
            boxed = {"value": inner} if _is_boxed(key.type) else inner
            struct[key.name] = _part(to_arrow_value, key.name, case_type(key.type), boxed)
    return struct


def _from_struct(keys: Iterable[Member], struct: dict[str, Any]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key in keys:
        inner = struct.get(key.name)
        if not key.chosen:
            value[key.name] = _part(from_arrow_value, key.name, key.type, inner)
        elif inner is not None:
            found = _part(from_arrow_value, key.name, case_type(key.type), inner)
            value[key.name] = found["value"] if _is_boxed(key.type) else found
    return value


def _to_variant(item: Variant, value: Any) -> Any:
    if isinstance(value, UnknownCase):
        # Of a newer writer's case only the name is known, and a struct has no place even for that.
        return value.name if is_enumeration(item) else _to_struct(_case_members(item), {})
    return value if is_enumeration(item) else _to_struct(_case_members(item), _one_case(item, value))


def _is_boxed(item: Type) -> bool:
    return case_type(item) is not item


def _case_members(item: Variant) -> list[Member]:
    return [Member(case.name, case.type, chosen=True) for case in cases(item)]


def _one_case(item: Variant, value: Any) -> dict[str, Any]:
    names = [case.name for case in cases(item)]
    if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in names:
        raise EncodeError(f"choose one case, as {{case: value}}, of {', '.join(names)}")
    return value


def _part(convert: _Convert, part: str | int, item: Type, value: Any) -> Any:
    try:
        return convert(item, value)
    except MessageError as error:
        raise prefix_path(part, error) from None
