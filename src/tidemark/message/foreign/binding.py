"""How Python annotations and message values correspond: one binding for each kind of annotation.

A binding knows the type of its annotation. `dump` converts an attribute to a value of that type (the table in
`message.types`), `load` converts it back. Both check what they are given and raise an error for a value that
does not fit. The binding of a class finds its fields when they are first needed, so that classes may contain
each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from tidemark.errors import DecodeError, EncodeError, MessageError
from tidemark.message.error_path import prefix_path
from tidemark.message.foreign.conversions import of_numpy, sorted_list
from tidemark.message.foreign.references import RecurringSchemas
from tidemark.message.types import (
    EMPTY,
    LONG,
    STRING,
    Atomic,
    Dynamic,
    Field,
    List,
    Tuple,
    Type,
    Variant,
    optional,
)


class Binding(Protocol):
    """What the binding of every kind of annotation offers."""

    def shape(self, named: RecurringSchemas) -> Type:
        """The type of the annotation; definitions of classes that recur are added to `named`."""

    def dump(self, value: Any) -> Any:
        """The message value of an attribute; EncodeError if the attribute is not what the annotation says."""

    def load(self, value: Any) -> Any:
        """The attribute of a message value; DecodeError if the value does not fit the annotation."""


@dataclass(frozen=True, slots=True)
class AtomBinding:
    """bool, int, float, Decimal, str, bytes, datetime: the message value is the attribute itself."""

    atomic: Atomic
    python: type

    def shape(self, named: RecurringSchemas) -> Type:  # noqa: ARG002
        """The atomic type."""
        return self.atomic

    def dump(self, value: Any) -> Any:
        """The attribute itself, after a check."""
        return self._checked(value, EncodeError)

    def load(self, value: Any) -> Any:
        """The value itself, after a check."""
        return self._checked(value, DecodeError)

    def _checked(self, value: Any, error: type[MessageError]) -> Any:
        if self.python is float and type(value) is int:
            return float(value)
        if isinstance(value, np.generic):
            value = of_numpy(value)
        if not isinstance(value, self.python) or (isinstance(value, bool) and self.python is not bool):
            raise error(f"expected {self.python.__name__}, found {_type_name(value)}")
        if isinstance(value, datetime) and value.utcoffset() is None:
            raise error("a datetime needs a time zone: use datetime.now(timezone.utc)")
        return value


@dataclass(frozen=True, slots=True)
class AnyBinding:
    """Any: a `dynamic` value. A dataclass instance becomes a dict and is loaded as one."""

    to_value: Callable[[Any], Any]

    def shape(self, named: RecurringSchemas) -> Type:  # noqa: ARG002
        """`dynamic`."""
        return Dynamic()

    def dump(self, value: Any) -> Any:
        """The dict of a dataclass instance; anything else unchanged."""
        return self.to_value(value)

    def load(self, value: Any) -> Any:
        """The value, unchanged."""
        return value


@dataclass(frozen=True, slots=True)
class OptionalBinding:
    """X | None."""

    item: Binding

    def shape(self, named: RecurringSchemas) -> Type:
        """`T?`."""
        return optional(self.item.shape(named))

    def dump(self, value: Any) -> Any:
        """None for None, else what the item's binding returns."""
        return None if value is None else self.item.dump(value)

    def load(self, value: Any) -> Any:
        """None for None, else what the item's binding returns."""
        return None if value is None else self.item.load(value)


@dataclass(frozen=True, slots=True)
class TextBinding:
    """UUID, date: the message value is the text of the attribute."""

    python: type
    write: Callable[[Any], str]
    read: Callable[[str], Any]

    def shape(self, named: RecurringSchemas) -> Type:  # noqa: ARG002
        """`string`."""
        return STRING

    def dump(self, value: Any) -> Any:
        """The text of the attribute."""
        # A datetime is a date too, and would lose its time.
        if not isinstance(value, self.python) or isinstance(value, datetime):
            raise EncodeError(f"expected {self.python.__name__}, found {_type_name(value)}")
        return self.write(value)

    def load(self, value: Any) -> Any:
        """The attribute that the text stands for."""
        try:
            return self.read(value)
        except (TypeError, ValueError, AttributeError):
            raise DecodeError(f"expected the text of a {self.python.__name__}, found {value!r}") from None


@dataclass(frozen=True, slots=True)
class NumberedBinding:
    """An Enum of integers: the message value is the integer."""

    #: integer -> member
    members: Mapping[int, Any]

    def shape(self, named: RecurringSchemas) -> Type:  # noqa: ARG002
        """`long`."""
        return LONG

    def dump(self, value: Any) -> Any:
        """The integer of the member."""
        for number, member in self.members.items():
            if member is value:
                return number
        raise EncodeError(f"expected one of {_listed(self.members.values())}, found {value!r}")

    def load(self, value: Any) -> Any:
        """The member of that integer."""
        if type(value) is not int or value not in self.members:
            raise DecodeError(f"expected one of {_listed(self.members)}, found {value!r}")
        return self.members[value]


@dataclass(frozen=True, slots=True)
class MappingBinding:
    """dict[str, X]: a list of tuples of a key and a value, sorted by key."""

    item: Binding

    def shape(self, named: RecurringSchemas) -> Type:
        """`*( [key: string, value: T] )*`."""
        return List(Tuple((Field("key", STRING), Field("value", self.item.shape(named)))))

    def dump(self, value: Any) -> Any:
        """The list of the entries, so that equal dicts have equal messages."""
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise EncodeError(f"expected a dict with keys of text, found {_type_name(value)}")
        return [{"key": key, "value": _dump_field(key, self.item, value[key])} for key in sorted(value)]

    def load(self, value: Any) -> Any:
        """The dict of the entries; of two with one key the later one counts."""
        entries = each(_as_dict, value, DecodeError)
        return {entry.get("key"): _load_field("value", self.item, entry.get("value")) for entry in entries}


@dataclass(frozen=True, slots=True)
class ListBinding:
    """list[X], tuple[X, ...], set[X] or frozenset[X]."""

    item: Binding
    python: type[list[Any]] | type[tuple[Any, ...]] | type[set[Any]] | type[frozenset[Any]]

    def shape(self, named: RecurringSchemas) -> Type:
        """`*( T )*`."""
        return List(self.item.shape(named))

    def dump(self, value: Any) -> Any:
        """The list of the items' message values; those of a set are sorted."""
        if isinstance(value, set | frozenset) and issubclass(self.python, set | frozenset):
            return sorted_list(each(self.item.dump, list(value), EncodeError))
        return each(self.item.dump, value, EncodeError)

    def load(self, value: Any) -> Any:
        """The loaded items, in a list, tuple or set as annotated."""
        return self.python(each(self.item.load, value, DecodeError))


@dataclass(frozen=True, slots=True)
class TupleBinding:
    """tuple[A, B]: a tuple whose fields are called `_0`, `_1`, ... by their position."""

    items: tuple[Binding, ...]

    def shape(self, named: RecurringSchemas) -> Type:
        """A tuple whose fields are named by position, so that tuples inside it are not spliced."""
        return Tuple(tuple(Field(f"_{index}", item.shape(named)) for index, item in enumerate(self.items)))

    def dump(self, value: Any) -> Any:
        """A dict with the position of each item as its key."""
        if not isinstance(value, tuple) or len(value) != len(self.items):
            raise EncodeError(f"expected a tuple of {len(self.items)}, found {_type_name(value)}")
        return {
            f"_{index}": _dump_field(f"_{index}", item, value[index]) for index, item in enumerate(self.items)
        }

    def load(self, value: Any) -> Any:
        """The tuple of the dict's values."""
        fields = _as_dict(value)
        return tuple(
            _load_field(f"_{index}", item, fields.get(f"_{index}")) for index, item in enumerate(self.items)
        )


@dataclass(frozen=True, slots=True)
class EnumerationBinding:
    """An Enum of strings, or a Literal of strings: the message value is the string."""

    #: string -> member
    members: Mapping[str, Any]

    def shape(self, named: RecurringSchemas) -> Type:  # noqa: ARG002
        """A variant with an empty case for each member."""
        return Variant(tuple(Field(name, EMPTY) for name in self.members))

    def dump(self, value: Any) -> Any:
        """The string of the member."""
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
    """A | B, of dataclasses: a variant with a case for each class, named as the class."""

    classes: Mapping[str, ClassBinding]

    def shape(self, named: RecurringSchemas) -> Type:
        """A variant with a case for each class."""
        return Variant(tuple(Field(name, item.shape(named)) for name, item in self.classes.items()))

    def dump(self, value: Any) -> Any:
        """{name of the class: dict of its fields}."""
        for name, item in self.classes.items():
            if type(value) is item.python:
                return {name: _dump_field(name, item, value)}
        raise EncodeError(f"expected one of {', '.join(self.classes)}, found {_type_name(value)}")

    def load(self, value: Any) -> Any:
        """An instance of the class that the dict's only key names."""
        fields = _as_dict(value)
        known = [name for name in self.classes if name in fields]
        if len(known) != 1 or len(fields) != 1:
            raise DecodeError(f"expected one of {', '.join(self.classes)}, found {list(fields)}")
        return _load_field(known[0], self.classes[known[0]], fields[known[0]])


class ClassBinding:
    """A dataclass: a tuple of its fields. Fields that are not in `__init__` are derived and not sent."""

    def __init__(self, python: type, bind_fields: Callable[[type], dict[str, Binding]]) -> None:
        self.python = python
        self._bind_fields = bind_fields

    @cached_property
    def fields(self) -> dict[str, Binding]:
        """The binding of each field, in the order of the class."""
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
        """The tuple of the fields' types, or a reference where the class contains itself."""
        return named.visit(self.python, self.python.__name__, lambda: self._tuple(named))

    def dump(self, value: Any) -> Any:
        """The dict of the fields' message values."""
        if type(value) is not self.python:
            raise EncodeError(f"expected {self.python.__name__}, found {_type_name(value)}")
        return {name: _dump_field(name, item, getattr(value, name)) for name, item in self.fields.items()}

    def load(self, value: Any) -> Any:
        """An instance of the class. Unknown keys are ignored; a field that is absent takes its default."""
        found = _as_dict(value)
        arguments = {
            name: _load_field(name, item, found.get(name))
            for name, item in self.fields.items()
            if not self._takes_default(name, item, found)
        }
        try:
            return self.python(**arguments)
        except (TypeError, ValueError) as error:  # raised by checks in the class itself
            raise DecodeError(f"{self.python.__name__} refused its fields: {error}") from error

    def _takes_default(self, name: str, item: Binding, found: dict[Any, Any]) -> bool:
        if name not in self._defaulted or found.get(name) is not None:
            return False
        return name not in found or not isinstance(item, OptionalBinding | AnyBinding)

    def _tuple(self, named: RecurringSchemas) -> Type:
        return Tuple(tuple(Field(name, item.shape(named)) for name, item in self.fields.items()))


def each(convert: Callable[[Any], Any], value: Any, error: type[MessageError]) -> list[Any]:
    """The list of the converted items; an error of `convert` gets the item's index into its path."""
    if not isinstance(value, list | tuple):
        raise error(f"expected a list, found {_type_name(value)}")
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


def _as_dict(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise DecodeError(f"expected a dict, found {_type_name(value)}")
    return value


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values))


def _type_name(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
