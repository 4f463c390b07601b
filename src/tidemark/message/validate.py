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
    name_at,
    names_of,
    path_text,
)


def validate(root: Type, definitions: Mapping[str, Type]) -> None:
    """Raise SchemaError, with the path, unless the schema can be flattened and has finite values."""
    finite = _finite_names(definitions)
    rules = _Rules(definitions)
    for name, item in definitions.items():
        if name not in finite:
            raise SchemaError(f"the schema {name!r} contains itself always: it has no finite value")
        rules.check(item, (name,), 0)
    rules.check(root, (), 0)


class _Rules:
    """Checks the types of one schema. A type that several fields share is checked once at each depth."""

    def __init__(self, definitions: Mapping[str, Type]) -> None:
        self._definitions = definitions
        #: identity and depth of the tuples and variants that keep the rules; the schema holds them all
        self._sound: set[tuple[int, int]] = set()

    def check(self, item: Type, path: Path, depth: int) -> None:
        """Raise SchemaError, with the path, unless a type at this depth keeps the rules."""
        if depth > NESTING_MAX:
            raise _broken(path, f"nested deeper than {NESTING_MAX} levels")
        match item:
            case Tuple():
                self._check_names(item, path)
                self._check_all(item.fields, path, depth)
                self._sound.add((id(item), depth))
            case Variant():
                if not item.cases:
                    raise _broken(path, "a variant has at least one case")
                if len({*names_of(item.cases)}) < len(item.cases):
                    raise _broken(path, "a variant has two cases of one name")
                self._check_all(item.cases, path, depth)
                self._sound.add((id(item), depth))
            case List():
                if _vacuous(item.item, self._definitions, frozenset()):
                    raise _broken(path, "the items of a list must hold something")
                self.check(item.item, path, depth + 1)
            case Reference() if item.name not in self._definitions:
                raise _broken(path, _unknown(item.name, self._definitions))
            case Atomic() | Dynamic() | Reference():
                pass

    def _check_names(self, item: Tuple, path: Path) -> None:
        """Raise SchemaError if two values would have one key in the dict of a tuple."""
        keys = [field.name for field in item.fields]
        if "" in keys:
            keys = [member.name for member in members(item)]
        if len({*keys}) < len(keys):
            doubled = min(key for key, times in Counter(keys).items() if times > 1)
            raise _broken(path, f"the name {doubled!r} would appear twice in one dict")

    def _check_all(self, fields: tuple[Field, ...], path: Path, depth: int) -> None:
        depth += 1
        for at, field in enumerate(fields):
            item = field.type
            is_sound = type(item) is Atomic or (id(item), depth) in self._sound
            if not is_sound or depth > NESTING_MAX:
                self.check(item, (*path, field.name or name_at(at)), depth)


def _broken(path: Path, reason: str) -> SchemaError:
    return SchemaError(f"{path_text(path) or 'the schema'}: {reason}")


def _unknown(name: str, definitions: Mapping[str, Type]) -> str:
    """What is wrong with a name that is neither a type nor a defined schema, and what was probably meant."""
    types = [kind.value for kind in Kind]
    close = get_close_matches(name.lower(), [*types, *definitions], 1, cutoff=0.6)
    if close:
        return f"there is no type {name!r}: did you mean {close[0]}?"
    known = f" and the schemas {', '.join(sorted(definitions))}" if definitions else ""
    return f"there is no type {name!r}: types are {', '.join(types)}{known}"


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
