"""Hypothesis strategies for natural types and for the values of a type, and when two values are the same.

What other worlds (Arrow, JSON Schema, Spark) can hold too. `message/value_strategies.py` goes further in what
types are nested in what, and stays with values that equal themselves. Strategies are made once and kept,
because to make and check one takes longer than to draw from it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, partial
from typing import Any

from hypothesis import strategies as st

from tidemark.message.members import split_option
from tidemark.message.types import (
    ABSENT,
    BOOLEAN,
    BYTES,
    DOUBLE,
    EMPTY,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    Atomic,
    Dynamic,
    Field,
    Kind,
    List,
    Tuple,
    Type,
    Variant,
    absent_case,
    decimal,
    is_enumeration,
    is_spliced,
    names_of,
    optional,
)

NAMES = ("a", "b", "c", "d e", "É")
PLAIN = (BOOLEAN, INT, LONG, FLOAT, DOUBLE, STRING, BYTES, TIMESTAMP)

decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: decimal(p, s)))
atomics = st.sampled_from(PLAIN) | decimals


def tuples(item: st.SearchStrategy[Type], *, least: int = 0) -> st.SearchStrategy[Type]:
    """Tuples of up to four named fields."""
    fields = st.dictionaries(st.sampled_from(NAMES), item, min_size=least, max_size=4)
    return fields.map(lambda found: Tuple(tuple(Field(name, each) for name, each in found.items())))


@cache
def enumerations() -> st.SearchStrategy[Type]:
    """Enumerations of one to three cases."""
    names = st.lists(st.sampled_from(("red", "green", "blue")), min_size=1, max_size=3, unique=True)
    return names.map(lambda found: Variant(tuple(Field(name, EMPTY) for name in found)))


def variants(item: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    """Variants of named cases, some with `absent`; never enumerations."""
    cases = st.dictionaries(st.sampled_from(NAMES), item, min_size=1, max_size=3)
    absent = st.sampled_from([(), (Field(ABSENT, EMPTY),)])
    both = st.tuples(absent, cases.map(lambda found: tuple(Field(n, t) for n, t in found.items())))
    return both.map(lambda pair: Variant(pair[0] + pair[1])).filter(lambda found: not is_enumeration(found))


def options(item: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    """Options of types that are not optional."""
    return item.map(lambda found: found if split_option(found)[1] else optional(found))


def lists(item: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    """Lists of what can be told apart."""
    return item.filter(lambda found: not single_valued(found)).map(List)


@cache
def plain_types() -> st.SearchStrategy[Type]:
    """Atomics, non-empty tuples, lists and options: what every other world has too."""
    return st.recursive(
        atomics, lambda item: tuples(item, least=1) | lists(item) | options(item), max_leaves=6
    )


@cache
def types() -> st.SearchStrategy[Type]:
    """All of the natural types but references and unnamed fields."""
    return st.recursive(
        atomics | st.just(Dynamic()) | enumerations(),
        lambda item: tuples(item) | lists(item) | options(item) | variants(item),
        max_leaves=6,
    )


def events(item: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    """Tuples with unnamed fields too: a number called by its position, a spliced tuple and variant."""
    spliced = Tuple((Field("t1", LONG), Field("t2", optional(STRING))))
    chosen = Variant((Field(ABSENT, EMPTY), Field("v1", LONG), Field("v2", Tuple((Field("x", STRING),)))))
    extra = st.sampled_from([(), (Field("", INT), Field("", spliced)), (Field("", chosen),)])

    def joined(pair: tuple[Type, tuple[Field, ...]]) -> Type:
        assert isinstance(pair[0], Tuple)
        return Tuple(pair[0].fields + pair[1])

    return st.tuples(tuples(item, least=1), extra).map(joined)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
timestamps = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))

_VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.BOOLEAN: st.booleans(),
    Kind.INT: st.integers(-(2**31), 2**31 - 1),
    Kind.LONG: st.integers(-(2**63), 2**63 - 1),
    Kind.FLOAT: st.floats(width=32),
    Kind.DOUBLE: st.floats(),
    Kind.STRING: texts,
    Kind.BYTES: st.binary(max_size=8),
    Kind.TIMESTAMP: timestamps,
}

dynamic_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats()
    | texts
    | st.binary(max_size=4)
    | timestamps
    | st.decimals(-1000, 1000, places=3),
    lambda item: (
        st.lists(item, max_size=3)
        | st.dictionaries(st.sampled_from(("a", "b", "$bytes", "$x")), item, max_size=3)
    ),
    max_leaves=5,
)


@cache
def values_of(item: Type) -> st.SearchStrategy[Any]:
    """Values of a type as decoding gives them."""
    match item:
        case Atomic(kind=Kind.DECIMAL):
            bound = 10**item.precision - 1
            return st.integers(-bound, bound).map(lambda n: scaled(n, item.scale))
        case Atomic():
            return _VALUES[item.kind]
        case Dynamic():
            return dynamic_values
        case List():
            return st.lists(values_of(item.item), max_size=3)
        case Tuple():
            return dicts(item, values_of)
        case Variant():
            return st.one_of([_case_values(item, at) for at in range(len(item.cases))])
    raise AssertionError(item)


def dicts(item: Tuple, values: Callable[[Type], st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Values of a tuple, given those of its fields; what is spliced lies beside them."""
    parts: list[st.SearchStrategy[Any]] = []
    for field, name in zip(item.fields, names_of(item.fields), strict=True):
        inner = values(field.type)
        if is_spliced(field):
            parts.append(inner.map(lambda value: value or {}))
        else:
            parts.append(inner.map(partial(_named, name)))
    return st.tuples(*parts).map(lambda found: {key: value for part in found for key, value in part.items()})


def _named(name: str, value: Any) -> dict[str, Any]:
    return {name: value}


def _case_values(item: Variant, at: int) -> st.SearchStrategy[Any]:
    if at == absent_case(item):
        return st.none()
    inner = values_of(item.cases[at].type)
    name = names_of(item.cases)[at]
    if is_enumeration(item):
        return st.just(name)
    if split_option(item)[0] is not item:
        return inner
    return inner.map(lambda value: {name: value})


def same(a: Any, b: Any) -> bool:
    """Equal, NaN being equal to itself, a missing key being None, and 1 not being True."""
    if isinstance(a, dict) and isinstance(b, dict):
        return all(same(a.get(key), b.get(key)) for key in a | b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack("d", a) == struct.pack("d", b) or a == b or (a != a and b != b)
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def single_valued(item: Type) -> bool:
    """Whether the type has a single value, so that of a list of it only the length is known."""
    match item:
        case Tuple():
            return all(single_valued(field.type) for field in item.fields)
        case Variant():
            return len(item.cases) == 1 and single_valued(item.cases[0].type)
    return False


def scaled(unscaled: int, scale: int) -> Decimal:
    """The decimal with all digits of its type, zeros at the end too."""
    return Decimal(f"{unscaled}E-{scale}")
