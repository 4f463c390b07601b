"""How Python annotations and message values correspond: one binding for each kind of annotation.

A binding knows the type of its annotation, `dump`s an attribute to a value of that type (the table in
`message.types`) and `load`s it back. Both check what they are given; a misfit is an error, never a wrong
value. Class bindings find their fields when first asked, so that classes may contain each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

from tidemark.errors import DecodeError, EncodeError, MessageError
from tidemark.message.error_path import prefix_path
from tidemark.message.foreign.references import RecurringSchemas
from tidemark.message.types import EMPTY, Atomic, Dynamic, Field, List, Tuple, Type, Variant, optional


class Binding(Protocol):
    """What every kind of annotation can do."""

    def shape(self, named: RecurringSchemas) -> Type:
        """The type of the annotation; classes that recur are left in `named`."""

    def dump(self, value: Any) -> Any:
        """Attribute to message value; EncodeError."""

    def load(self, value: Any) -> Any:
        """Message value to attribute; DecodeError."""


@dataclass(frozen=True, slots=True)
class AtomBinding:
    """bool, int, float, Decimal, str, bytes, datetime: the value is the attribute."""

    atomic: Atomic
    python: type

    def shape(self, named: RecurringSchemas) -> Type:  # noqa: ARG002
        """Always the atomic."""
        return self.atomic

    def dump(self, value: Any) -> Any:
        """Only checks."""
        return self._checked(value, EncodeError)

    def load(self, value: Any) -> Any:
        """Only checks."""
        return self._checked(value, DecodeError)

    def _checked(self, value: Any, error: type[MessageError]) -> Any:
        if self.python is float and type(value) is int:
            return float(value)
        if not isinstance(value, self.python) or (isinstance(value, bool) and self.python is not bool):
            raise error(f"expected {self.python.__name__}, found {_what(value)}")
        if isinstance(value, datetime) and value.utcoffset() is None:
            raise error("a datetime needs a time zone: use datetime.now(timezone.utc)")
        return value


@dataclass(frozen=True, slots=True)
class AnyBinding:
    """Any: whatever it holds, as `dynamic`. A dataclass instance loses its class."""

    to_value: Callable[[Any], Any]

    def shape(self, named: RecurringSchemas) -> Type:  # noqa: ARG002
        """Always `dynamic`."""
        return Dynamic()

    def dump(self, value: Any) -> Any:
        """A dataclass instance as its dict, anything else as it is."""
        return self.to_value(value)

    def load(self, value: Any) -> Any:
        """As it is."""
        return value


@dataclass(frozen=True, slots=True)
class OptionalBinding:
    """X | None."""

    item: Binding

    def shape(self, named: RecurringSchemas) -> Type:
        """`T?`."""
        return optional(self.item.shape(named))

    def dump(self, value: Any) -> Any:
        """None stays None."""
        return None if value is None else self.item.dump(value)

    def load(self, value: Any) -> Any:
        """None stays None."""
        return None if value is None else self.item.load(value)


@dataclass(frozen=True, slots=True)
class ListBinding:
    """list[X], and tuple[X, ...] which loads as a tuple."""

    item: Binding
    python: type[list[Any]] | type[tuple[Any, ...]]

    def shape(self, named: RecurringSchemas) -> Type:
        """`*( T )*`."""
        return List(self.item.shape(named))

    def dump(self, value: Any) -> Any:
        """A list of dumped items."""
        return each(self.item.dump, value, EncodeError)

    def load(self, value: Any) -> Any:
        """The items in a list, or a tuple."""
        return self.python(each(self.item.load, value, DecodeError))


@dataclass(frozen=True, slots=True)
class TupleBinding:
    """tuple[A, B]: a tuple whose fields are called `_0`, `_1`, ... by their position."""

    items: tuple[Binding, ...]

    def shape(self, named: RecurringSchemas) -> Type:
        """RecurringSchemas by position, so that tuples inside are not spliced."""
        return Tuple(tuple(Field(f"_{index}", item.shape(named)) for index, item in enumerate(self.items)))

    def dump(self, value: Any) -> Any:
        """A dict by position."""
        if not isinstance(value, tuple) or len(value) != len(self.items):
            raise EncodeError(f"expected a tuple of {len(self.items)}, found {_what(value)}")
        return {
            f"_{index}": _dump_field(f"_{index}", item, value[index]) for index, item in enumerate(self.items)
        }

    def load(self, value: Any) -> Any:
        """A tuple from the dict."""
        fields = _a_dict(value)
        return tuple(
            _load_field(f"_{index}", item, fields.get(f"_{index}")) for index, item in enumerate(self.items)
        )


@dataclass(frozen=True, slots=True)
class EnumerationBinding:
    """An Enum of strings, or a Literal of strings: the value is the string."""

    members: Mapping[str, Any]

    def shape(self, named: RecurringSchemas) -> Type:  # noqa: ARG002
        """One empty case a member."""
        return Variant(tuple(Field(name, EMPTY) for name in self.members))

    def dump(self, value: Any) -> Any:
        """The member's string."""
        for name, member in self.members.items():
            if member == value:
                return name
        raise EncodeError(f"expected one of {', '.join(self.members)}, found {value!r}")

    def load(self, value: Any) -> Any:
        """The member of that string."""
        if not isinstance(value, str) or value not in self.members:
            raise DecodeError(f"expected one of {', '.join(self.members)}, found {value!r}")
        return self.members[value]


@dataclass(frozen=True, slots=True)
class UnionBinding:
    """A | B, of dataclasses: a variant whose cases are called as the classes are."""

    classes: Mapping[str, ClassBinding]

    def shape(self, named: RecurringSchemas) -> Type:
        """One case a class."""
        return Variant(tuple(Field(name, item.shape(named)) for name, item in self.classes.items()))

    def dump(self, value: Any) -> Any:
        """{class name: its fields}."""
        for name, item in self.classes.items():
            if type(value) is item.python:
                return {name: _dump_field(name, item, value)}
        raise EncodeError(f"expected one of {', '.join(self.classes)}, found {_what(value)}")

    def load(self, value: Any) -> Any:
        """An instance of the class that the one key names."""
        fields = _a_dict(value)
        known = [name for name in self.classes if name in fields]
        if len(known) != 1 or len(fields) != 1:
            raise DecodeError(f"expected one of {', '.join(self.classes)}, found {list(fields)}")
        return _load_field(known[0], self.classes[known[0]], fields[known[0]])


class ClassBinding:
    """A dataclass: a tuple of its fields. Fields outside `__init__` are derived and not sent."""

    def __init__(self, python: type, bind_fields: Callable[[type], dict[str, Binding]]) -> None:
        self.python = python
        self._bind_fields = bind_fields

    @cached_property
    def fields(self) -> dict[str, Binding]:
        """Each field's binding, in the class's order."""
        return self._bind_fields(self.python)

    @cached_property
    def _defaulted(self) -> frozenset[str]:
        missing = dataclasses.MISSING
        return frozenset(
            field.name
            for field in dataclasses.fields(self.python)
            if field.default is not missing or field.default_factory is not missing
        )

    def shape(self, named: RecurringSchemas) -> Type:
        """The tuple, or a reference where the class contains itself."""
        return named.visit(self.python, self.python.__name__, lambda: self._tuple(named))

    def dump(self, value: Any) -> Any:
        """A dict of the fields."""
        if type(value) is not self.python:
            raise EncodeError(f"expected {self.python.__name__}, found {_what(value)}")
        return {name: _dump_field(name, item, getattr(value, name)) for name, item in self.fields.items()}

    def load(self, value: Any) -> Any:
        """An instance. Keys that are no field are ignored; a field that is absent takes its default."""
        found = _a_dict(value)
        arguments = {
            name: _load_field(name, item, found.get(name))
            for name, item in self.fields.items()
            if not self._takes_default(name, item, found)
        }
        try:
            return self.python(**arguments)
        except (TypeError, ValueError) as error:  # what a class's own checks raise
            raise DecodeError(f"{self.python.__name__} refused its fields: {error}") from error

    def _takes_default(self, name: str, item: Binding, found: dict[Any, Any]) -> bool:
        if name not in self._defaulted or found.get(name) is not None:
            return False
        return name not in found or not isinstance(item, OptionalBinding | AnyBinding)

    def _tuple(self, named: RecurringSchemas) -> Type:
        return Tuple(tuple(Field(name, item.shape(named)) for name, item in self.fields.items()))


def each(convert: Callable[[Any], Any], value: Any, error: type[MessageError]) -> list[Any]:
    """Every item converted; errors carry its index."""
    if not isinstance(value, list | tuple):
        raise error(f"expected a list, found {_what(value)}")
    items: list[Any] = []
    for index, item in enumerate(value):
        try:
            items.append(convert(item))
        except MessageError as problem:
            raise prefix_path(index, problem) from None
    return items


def _dump_field(name: str, item: Binding, value: Any) -> Any:
    try:
        return item.dump(value)
    except EncodeError as error:
        raise prefix_path(name, error) from None


def _load_field(name: str, item: Binding, value: Any) -> Any:
    try:
        return item.load(value)
    except DecodeError as error:
        raise prefix_path(name, error) from None


def _a_dict(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise DecodeError(f"expected a dict, found {_what(value)}")
    return value


def _what(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
