"""The rules that every natural schema has to keep: from text, Python, JSON Schema or the wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from difflib import get_close_matches

from tidemark.errors import SchemaError
from tidemark.message.codec.rest import REST_EVERY, Rest, no_rest, resting
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


def validate(root: Type, definitions: Mapping[str, Type], rest: Rest = no_rest) -> None:
    """Raise SchemaError, with the path, unless the schema can be flattened and has finite values."""
    finite = _Names(definitions).finite()
    rules = _Rules(definitions, _Names(definitions).vacuous(), rest)
    for name, item in resting(definitions.items(), rest):
        if name not in finite:
            raise SchemaError(f"the schema {name!r} contains itself always: it has no finite value")
        rules.check(item, (name,), 0)
    rules.check(root, (), 0)


class _Rules:
    """Checks the types of one schema. A type that several fields share is checked once at each depth."""

    def __init__(self, definitions: Mapping[str, Type], vacuous_names: Set[str], rest: Rest) -> None:
        self._definitions = definitions
        self._rest = rest
        #: the named schemas that have only one value
        self._vacuous_names = vacuous_names
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
                if _vacuous(item.item, self._vacuous_names):
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
            if at % REST_EVERY == REST_EVERY - 1:
                self._rest()
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


def _vacuous(item: Type, vacuous_names: Set[str]) -> bool:
    """Has the type only one value? Then a list of it would have nothing to store."""
    match item:
        case Tuple():
            return all(_vacuous(field.type, vacuous_names) for field in item.fields)
        case Variant():
            return len(item.cases) == 1 and _vacuous(item.cases[0].type, vacuous_names)
        case Reference():
            return item.name in vacuous_names
        case _:
            return False


class _Need:
    """What a type, or a named schema, needs before it has a property: so many of its parts that have it."""

    __slots__ = ("missing", "name", "within")

    def __init__(self, missing: int, within: _Need | None = None, name: str = "") -> None:
        self.missing = missing
        #: the need of the type that this one is a part of; None for a named schema, which has a name instead
        self.within = within
        self.name = name


class _Names:
    """Finds the named schemas that have a property which a type has by its parts: the least fixed point.

    That takes time proportional to the text. To look at every name again for each name that was found, or
    at a name again for each reference to it, would take minutes or centuries for some texts of a KiB.
    """

    def __init__(self, definitions: Mapping[str, Type]) -> None:
        self._definitions = definitions
        #: name -> the needs of types that refer to it, until it is found
        self._waiting: dict[str, list[_Need]] = {}
        self.found: set[str] = set()

    def finite(self) -> set[str]:
        """The named schemas that have a finite value."""
        for name, item in self._definitions.items():
            self._finite(item, _Need(1, name=name))
        return self.found

    def vacuous(self) -> set[str]:
        """The named schemas that have only one value."""
        for name, item in self._definitions.items():
            self._vacuous(item, _Need(1, name=name))
        return self.found

    def _finite(self, item: Type, within: _Need) -> None:
        match item:
            case Tuple() if item.fields:
                need = _Need(len(item.fields), within)
                for field in item.fields:
                    self._finite(field.type, need)
            case Variant():
                need = _Need(1, within)
                for case in item.cases:
                    self._finite(case.type, need)
            case Reference() if item.name in self._definitions:
                self._wait(item.name, within)
            case _:
                self._meet(within)

    def _vacuous(self, item: Type, within: _Need) -> None:
        match item:
            case Tuple():
                need = _Need(len(item.fields), within)
                for field in item.fields:
                    self._vacuous(field.type, need)
                if not item.fields:
                    self._meet(within)
            case Variant() if len(item.cases) == 1:
                self._vacuous(item.cases[0].type, within)
            case Reference() if item.name in self._definitions:
                self._wait(item.name, within)
            case _:
                pass  # it has several values, and whatever holds it has too

    def _wait(self, name: str, need: _Need) -> None:
        if name in self.found:
            self._meet(need)
        else:
            self._waiting.setdefault(name, []).append(need)

    def _meet(self, need: _Need) -> None:
        """A part of what `need` is about has the property."""
        met = [need]
        while met:
            each: _Need | None = met.pop()
            while each is not None:
                each.missing -= 1
                if each.missing:
                    break  # other parts are missing, or it was met before
                if each.within is None and each.name not in self.found:
                    self.found.add(each.name)
                    met += self._waiting.pop(each.name, [])
                each = each.within
