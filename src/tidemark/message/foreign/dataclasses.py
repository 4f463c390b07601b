"""Dataclasses as schemas, and their instances as message values.

| annotation                             | type                                               |
|----------------------------------------|----------------------------------------------------|
| bool, int, float, Decimal, str, bytes  | boolean, long, double, decimal, string, bytes      |
| datetime                               | timestamp                                          |
| UUID, date                             | string: its text, the date in ISO 8601             |
| Annotated[int, "int"], Int32, Float32  | the atomic type that the text names                |
| X \\| None                              | T?                                                 |
| list[X], tuple[X, ...]                 | *( T )*                                            |
| set[X], frozenset[X]                   | *( T )*, sorted                                    |
| dict[str, X]                           | *( [key: string, value: T] )*, sorted by key       |
| tuple[X, Y]                            | [_0: T, _1: U]                                     |
| a dataclass                            | a tuple of its fields                              |
| A \\| B, of dataclasses                 | { A: ... \\| B: ... }                               |
| Enum of strings, Literal["a", "b"]     | { a: [] \\| b: [] }                                 |
| Enum of integers                       | long                                               |
| Any                                    | dynamic                                            |

Without an annotation, in a dict that is published, a value that messages do not have is converted by the same
table: a UUID or date to its text, an Enum member to its value, a tuple or set to a list (a set is sorted), a
number or datetime64 of numpy to the number or timestamp, an array of numpy to a list, a bytearray to bytes.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from tidemark.errors import DecodeError, EncodeError, SchemaError
from tidemark.message.error_path import prefix_path
from tidemark.message.foreign.binding import (
    AnyBinding,
    AtomBinding,
    Binding,
    ClassBinding,
    EnumerationBinding,
    ListBinding,
    MappingBinding,
    NumberedBinding,
    OptionalBinding,
    TextBinding,
    TupleBinding,
    UnionBinding,
    each,
)
from tidemark.message.foreign.conversions import CONVERSIONS, TEXTS
from tidemark.message.foreign.references import RecurringSchemas
from tidemark.message.parse import parse_type
from tidemark.message.types import (
    ABSENT,
    BOOLEAN,
    BYTES,
    DECIMAL,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    Atomic,
    Kind,
    Type,
    name_problem,
)
from tidemark.message.validate import validate

#: Annotations for the narrow numbers: `qty: Int32`.
Int32 = Annotated[int, "int"]
Float32 = Annotated[float, "float"]

#: Class bindings that are kept; beyond that the least recently used class is read again when needed.
CLASSES_MAX = 1_024

_Instance = TypeVar("_Instance")

_ATOMS: dict[Any, Atomic] = {
    bool: BOOLEAN,
    int: LONG,
    float: DOUBLE,
    Decimal: DECIMAL,
    str: STRING,
    bytes: BYTES,
    datetime: TIMESTAMP,
}
_KINDS: dict[Any, tuple[Kind, ...]] = {
    **{python: (atomic.kind,) for python, atomic in _ATOMS.items()},
    int: (Kind.INT, Kind.LONG),
    float: (Kind.FLOAT, Kind.DOUBLE),
}


def from_dataclass(cls: type) -> tuple[Type, dict[str, Type]]:
    """The type of `cls`, and the definitions of the classes in it that contain themselves.

    Other classes are written out where they stand. SchemaError, with the class and the attribute, for an
    annotation that has no type.
    """
    named = RecurringSchemas()
    root = _class_binding(cls).shape(named)
    validate(root, named.definitions)
    return root, named.definitions


def to_value(instance: Any) -> Any:
    """The message value of a dataclass instance or of another value of the table; in dicts and lists, of all.

    Any other value is returned unchanged. EncodeError, with the path, for an attribute that is not what its
    annotation says.
    """
    try:
        return _plain(instance)
    except RecursionError:
        raise EncodeError("nested without end: it contains itself") from None


def from_value(cls: type[_Instance], value: Any) -> _Instance:
    """An instance of `cls` from a message value; DecodeError, with the path, if the value does not fit.

    Fields that the value lacks take the defaults of the class; keys that the class lacks are ignored.
    """
    try:
        instance = _class_binding(cls).load(value)
    except RecursionError:
        raise DecodeError("nested without end: it contains itself") from None
    assert isinstance(instance, cls)
    return instance


def _plain(instance: Any) -> Any:
    match instance:
        case dict():
            return {key: _plain_entry(key, item) for key, item in instance.items()}
        case list() | tuple():
            return each(_plain, instance, EncodeError)
        case Enum() if not isinstance(instance, str | int):
            return _plain(instance.value)
    convert = next((convert for kind, convert in CONVERSIONS.items() if isinstance(instance, kind)), None)
    if convert is not None:
        return convert(instance)
    if dataclasses.is_dataclass(instance) and not isinstance(instance, type):
        return _class_binding(type(instance)).dump(instance)
    return instance


def _plain_entry(key: Any, item: Any) -> Any:
    try:
        return _plain(item)
    except EncodeError as error:
        raise prefix_path(str(key), error) from None


def _class_binding(cls: Any) -> ClassBinding:
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise SchemaError(f"{cls!r} is not a dataclass")
    python: Any = cls
    return _kept_binding(python)


@lru_cache(maxsize=CLASSES_MAX)
def _kept_binding(cls: type) -> ClassBinding:
    return ClassBinding(cls, _bind_fields)


def _bind_fields(cls: type) -> dict[str, Binding]:
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise SchemaError(
            f"{cls.__qualname__}: {error}; annotations must be resolvable in the class's module"
        ) from None
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    return {name: _Annotation(f"{cls.__qualname__}.{name}").bind(hints[name]) for name in names}


class _Annotation:
    """Reads the annotation of one attribute; `where` names the attribute in errors."""

    def __init__(self, where: str) -> None:
        self._where = where

    def bind(self, annotation: Any) -> Binding:
        origin, args = get_origin(annotation), get_args(annotation)
        if isinstance(annotation, type) and annotation in _ATOMS:
            return AtomBinding(_ATOMS[annotation], annotation)
        if annotation is Any:
            return AnyBinding(_plain)
        if dataclasses.is_dataclass(annotation):
            return _class_binding(annotation)
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            members = {member.value: member for member in annotation}
            if members and all(type(value) is int for value in members):
                return NumberedBinding(members)
            return self._enumeration(members)
        if annotation in TEXTS:
            return TextBinding(annotation, *TEXTS[annotation])
        reader = self._readers().get(origin)
        if reader is None:
            self._fail(f"{annotation!r} has no type in a message (see tidemark.message.foreign.dataclasses)")
        return reader(args)

    def _readers(self) -> dict[Any, Callable[[tuple[Any, ...]], Binding]]:
        return {
            Annotated: self._annotated,
            Literal: self._literal,
            Union: self._union,
            types.UnionType: self._union,
            list: lambda args: ListBinding(self.bind(args[0]), list),
            set: lambda args: ListBinding(self.bind(args[0]), set),
            frozenset: lambda args: ListBinding(self.bind(args[0]), frozenset),
            dict: self._mapping,
            tuple: self._tuple,
        }

    def _annotated(self, args: tuple[Any, ...]) -> Binding:
        python, *extras = args
        texts = [extra for extra in extras if isinstance(extra, str)]
        if not texts:
            return self.bind(python)
        try:
            atomic = parse_type(texts[0])
        except SchemaError as error:
            self._fail(f"{texts[0]!r} is not a type: {error}")
        if not isinstance(atomic, Atomic) or atomic.kind not in _KINDS.get(python, ()):
            self._fail(f"{getattr(python, '__name__', python)} cannot be {texts[0]!r}")
        return AtomBinding(atomic, python)

    def _mapping(self, args: tuple[Any, ...]) -> Binding:
        if args[0] is not str:
            self._fail("the keys of a dict are str: annotate it as dict[str, ...], or use a list of tuples")
        return MappingBinding(self.bind(args[1]))

    def _tuple(self, args: tuple[Any, ...]) -> Binding:
        if len(args) == 2 and args[1] is Ellipsis:
            return ListBinding(self.bind(args[0]), tuple)
        return TupleBinding(tuple(self.bind(arg) for arg in args))

    def _literal(self, args: tuple[Any, ...]) -> Binding:
        binding = self._enumeration({arg: arg for arg in args if arg is not None})
        return OptionalBinding(binding) if None in args else binding

    def _enumeration(self, members: dict[Any, Any]) -> Binding:
        if not members:
            self._fail("an enumeration has at least one member")
        for name in members:
            problem = name_problem(name)
            if name == ABSENT:
                problem = "this is what the missing case is called"
            if problem:
                self._fail(f"the member {name!r} of an enumeration: {problem}")
        return EnumerationBinding(members)

    def _union(self, args: tuple[Any, ...]) -> Binding:
        rest = [arg for arg in args if arg is not types.NoneType]
        item = self.bind(rest[0]) if len(rest) == 1 else self._classes(rest)
        return OptionalBinding(item) if len(rest) < len(args) else item

    def _classes(self, args: list[Any]) -> Binding:
        if not all(dataclasses.is_dataclass(arg) for arg in args):
            self._fail("only dataclasses can be joined with `|`; use Any for a mixture of other types")
        classes = {arg.__name__: _class_binding(arg) for arg in args}
        if len(classes) < len(args):
            self._fail("two classes of a union have the same name")
        return UnionBinding(classes)

    def _fail(self, reason: str) -> NoReturn:
        raise SchemaError(f"{self._where}: {reason}")
