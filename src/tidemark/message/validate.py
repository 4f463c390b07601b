"""The rules that every natural schema has to keep: from text, Python, JSON Schema or the wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches

from tidemark.errors import SchemaError
from tidemark.message.members import members
from tidemark.message.types import (
    NESTING_MAX,
    Atomic,
    Dynamic,
    Field,
    Kind,
    List,
    Path,
    Reference,
    Tuple,
    Type,
    Variant,
    names_of,
    path_text,
)


def validate(root: Type, definitions: Mapping[str, Type]) -> None:
    """Raise SchemaError, with the path, unless the schema can be flattened and has finite values."""
    finite = _finite_names(definitions)
    for name, item in definitions.items():
        if name not in finite:
            raise SchemaError(f"the schema {name!r} contains itself always: it has no finite value")
        _check(item, definitions, (name,), 0)
    _check(root, definitions, (), 0)


def _check(item: Type, definitions: Mapping[str, Type], path: Path, depth: int) -> None:
    where = path_text(path) or "the schema"
    if depth > NESTING_MAX:
        raise SchemaError(f"{where}: nested deeper than {NESTING_MAX} levels")
    match item:
        case Tuple():
            keys = [member.name for member in members(item)]
            doubled = [key for key, times in Counter(keys).items() if times > 1]
            if doubled:
                raise SchemaError(f"{where}: the name {min(doubled)!r} would appear twice in one dict")
            _check_all(item.fields, definitions, path, depth)
        case Variant():
            if not item.cases:
                raise SchemaError(f"{where}: a variant has at least one case")
            if len({*names_of(item.cases)}) < len(item.cases):
                raise SchemaError(f"{where}: a variant has two cases of one name")
            _check_all(item.cases, definitions, path, depth)
        case List():
            if _vacuous(item.item, definitions, frozenset()):
                raise SchemaError(f"{where}: the items of a list must hold something")
            _check(item.item, definitions, path, depth + 1)
        case Reference() if item.name not in definitions:
            raise SchemaError(f"{where}: {_unknown(item.name, definitions)}")
        case Atomic() | Dynamic() | Reference():
            pass


def _unknown(name: str, definitions: Mapping[str, Type]) -> str:
    """What is wrong with a name that is neither a type nor a defined schema, and what was probably meant."""
    types = [kind.value for kind in Kind]
    close = get_close_matches(name.lower(), [*types, *definitions], 1, cutoff=0.6)
    if close:
        return f"there is no type {name!r}: did you mean {close[0]}?"
    known = f" and the schemas {', '.join(sorted(definitions))}" if definitions else ""
    return f"there is no type {name!r}: types are {', '.join(types)}{known}"


def _check_all(fields: tuple[Field, ...], definitions: Mapping[str, Type], path: Path, depth: int) -> None:
    for field, name in zip(fields, names_of(fields), strict=True):
        _check(field.type, definitions, (*path, name), depth + 1)


def _vacuous(item: Type, definitions: Mapping[str, Type], seen: frozenset[str]) -> bool:
    """Has the type only one value? Then a list of it would have nothing to store."""
    match item:
        case Tuple():
            return all(_vacuous(field.type, definitions, seen) for field in item.fields)
        case Variant():
            return len(item.cases) == 1 and _vacuous(item.cases[0].type, definitions, seen)
        case Reference() if item.name in definitions and item.name not in seen:
            return _vacuous(definitions[item.name], definitions, seen | {item.name})
        case _:
            return False


def _finite_names(definitions: Mapping[str, Type]) -> set[str]:
    """The named schemas that have a finite value: the least fixed point of `_finite`."""
    infinite = set(definitions)
    while True:
        found = {name for name in infinite if _finite(definitions[name], infinite)}
        if not found:
            return set(definitions) - infinite
        infinite -= found


def _finite(item: Type, infinite: set[str]) -> bool:
    match item:
        case Tuple():
            return all(_finite(field.type, infinite) for field in item.fields)
        case Variant():
            return any(_finite(case.type, infinite) for case in item.cases)
        case Reference():
            return item.name not in infinite
        case _:
            return True
