"""JSON objects as frozen dataclasses: one way to write them, and one to read them without trust.

The fields of a dataclass are the keys of its object, in the order in which they are declared. A field holds a
string, a number, a boolean, another such dataclass, None, or any of these in a `tuple[X, ...]` (a JSON array)
or a `Mapping[str, X]` (a JSON object whose keys are data).

A reader skips keys that it does not know, because a newer broker may say more, and takes the default of a
field whose key is absent. It raises WireError where a key without a default is absent, or where a value is of
another type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from math import isfinite
from types import UnionType
from typing import Any, Self, TypeVar, get_args, get_origin, get_type_hints

from tidemark.errors import WireError

#: How deep the arguments of a question may nest, and how many digits their numbers may have.
ARGUMENTS_DEPTH_MAX = 16
DIGITS_MAX = 32
#: Longer arguments have a document in them, or a token: one long text, and few values besides.
SHORT_CHARACTERS_MAX = 8 << 10
LONG_VALUES_MAX = 1_024

#: where a value, or a text, begins
_BEGINNING = re.compile(r'[\[{,"]')
#: `_decode(text, at)` -> the JSON value that begins at text[at], and where it ends
_decode = json.JSONDecoder().raw_decode
_T = TypeVar("_T")
_Read = Callable[[Any], Any]


class JsonObject:
    """The base of dataclasses that are JSON objects."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return the object as `json.loads` would give it."""
        found: dict[str, Any] = json.loads(dumps(self))
        return found

    def json_items(self) -> dict[str, Any]:
        """Return key -> value of this object alone; `dumps` goes on with the dataclasses among the values."""
        kind: Any = type(self)
        return {name: getattr(self, name) for name in _names_of(kind)}

    @classmethod
    def from_json(cls, found: object) -> Self:
        """Return the dataclass of an object that `json.loads` gave; WireError if the object does not fit."""
        return read_json(cls, found)


def dumps(value: object, *, ensure_ascii: bool = True) -> str:
    """Return `value`, which may be a dataclass or contain some, as JSON text."""
    return json.dumps(value, ensure_ascii=ensure_ascii, default=_as_object)


def read_json(kind: type[_T], found: object) -> _T:
    """Return `found`, which `json.loads` gave, as a value of the type; WireError if it does not fit."""
    wanted: Any = kind
    try:
        value: _T = _reader_of(wanted)(found)
    except _MisfitError as error:
        where = ".".join(error.path) or "the whole"
        raise WireError(f"the answer of the broker is not as expected: {where} {error}") from None
    return value


def read_arguments(text: str) -> dict[str, Any]:
    """Return the JSON object that a stranger gives as arguments; WireError if the text is anything else.

    Of long arguments only the first few beginnings of values are looked at: megabytes of brackets would take
    the time of an event loop otherwise. The object nests at most ARGUMENTS_DEPTH_MAX deep and has finite
    numbers, whole ones of at most DIGITS_MAX digits, so that whatever is done with its values, such as
    printing them, is bounded too.
    """
    try:
        if len(text) > SHORT_CHARACTERS_MAX:
            _check_values(text)
        found = json.loads(text, parse_int=_short_integer, parse_float=_finite, parse_constant=_no_constant)
    except RecursionError:
        raise WireError(f"the arguments nest deeper than {ARGUMENTS_DEPTH_MAX}") from None
    except ValueError as error:
        raise WireError(f"the arguments are not JSON: {error}") from None
    if not isinstance(found, dict):
        raise WireError("the arguments have to be a JSON object")
    _check_depth(found)
    return found


def _check_values(text: str) -> None:
    """WireError if a JSON text has more than LONG_VALUES_MAX values, ValueError if a text in it is none."""
    values = texts = at = 0
    while (found := _BEGINNING.search(text, at)) is not None:
        if found.group() == '"':
            _, at = _decode(text, found.start())
            texts += 1
        else:
            at = found.end()
            values += 1
        # With each value there is at most one key.
        if values > LONG_VALUES_MAX or texts > 2 * LONG_VALUES_MAX:
            raise WireError(f"arguments of this length have at most {LONG_VALUES_MAX} values")


def _short_integer(digits: str) -> int:
    if len(digits) > DIGITS_MAX:
        raise ValueError(f"a number of {len(digits)} digits is over the limit of {DIGITS_MAX}")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise ValueError(f"{digits[:DIGITS_MAX]} is too large for a number")
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _check_depth(found: object) -> None:
    level = [found]
    for _ in range(ARGUMENTS_DEPTH_MAX):
        level = [
            item
            for each in level
            if isinstance(each, dict | list)
            for item in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise WireError(f"the arguments nest deeper than {ARGUMENTS_DEPTH_MAX}")


class _MisfitError(Exception):
    """A value does not fit; `path` leads to the value and grows while the error passes outward."""

    def __init__(self, reason: str, *path: str) -> None:
        super().__init__(reason)
        self.path = list(path)


def _as_object(value: object) -> dict[str, Any]:
    if not isinstance(value, JsonObject):
        raise TypeError(f"{value!r} has no JSON")
    return value.json_items()


@cache
def _names_of(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


@cache
def _reader_of(kind: Any) -> _Read:
    """The function that reads values of a type."""
    arguments = get_args(kind)
    if is_dataclass(kind):
        return _object_reader(kind)
    if isinstance(kind, UnionType):
        (some,) = [each for each in arguments if each is not type(None)]
        read = _reader_of(some)
        return lambda found: None if found is None else read(found)
    if get_origin(kind) is tuple:
        return _array_reader(arguments[0])
    if get_origin(kind) in (dict, Mapping):
        return _mapping_reader(arguments[1])
    # In Python a boolean is an integer, too; in JSON it is none.
    accepted = {float: (float, int)}.get(kind, (kind,))

    def read_plain(found: Any) -> Any:
        if type(found) not in accepted:
            raise _MisfitError(f"is {found!r:.40} and not of type {kind.__name__}")
        return found

    return read_plain


def _object_reader(kind: Any) -> _Read:
    hints = get_type_hints(kind)
    readers = {each.name: _reader_of(hints[each.name]) for each in fields(kind)}
    needed = [
        each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING
    ]

    def read(found: Any) -> Any:
        if not isinstance(found, dict):
            raise _MisfitError("is not a JSON object")
        for name in needed:
            if name not in found:
                raise _MisfitError(f"has no {name!r}")
        return kind(**{name: _within(name, readers[name], found[name]) for name in readers if name in found})

    return read


def _array_reader(kind: Any) -> _Read:
    read = _reader_of(kind)

    def read_all(found: Any) -> Any:
        if not isinstance(found, list):
            raise _MisfitError("is not a JSON array")
        return tuple(_within(str(at), read, each) for at, each in enumerate(found))

    return read_all


def _mapping_reader(kind: Any) -> _Read:
    read = _reader_of(kind)

    def read_all(found: Any) -> Any:
        if not isinstance(found, dict):
            raise _MisfitError("is not a JSON object")
        return {name: _within(name, read, each) for name, each in found.items()}

    return read_all


def _within(name: str, read: _Read, found: Any) -> Any:
    try:
        return read(found)
    except _MisfitError as error:
        error.path.insert(0, name)
        raise
