"""Random natural types, nested in every way but references, and values that fit them and equal themselves.

Strategies are made once and remembered, because to make and check one takes longer than to draw from it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any

from hypothesis import strategies as st

from tests.type_strategies import atomics, dicts, scaled, single_valued
from tidemark.message.types import (
    EMPTY,
    INT,
    Atomic,
    Dynamic,
    Field,
    Kind,
    List,
    Tuple,
    Type,
    Variant,
    absent_case,
    is_enumeration,
    names_of,
    option_item,
    optional,
)

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f", "g", "h", "odd name", "int", "x_1"])


def _tuples(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    named = st.lists(st.tuples(NAMES, inner), max_size=3, unique_by=lambda field: field[0])
    return named.map(lambda fields: Tuple(tuple(Field(name, item) for name, item in fields)))


def _variants(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    cases = st.lists(
        st.tuples(NAMES, st.one_of(inner, st.just(EMPTY))),
        min_size=1,
        max_size=4,
        unique_by=lambda case: case[0],
    )
    plain = cases.map(lambda parts: Variant(tuple(Field(name, item) for name, item in parts)))
    with_absent = cases.map(
        lambda parts: Variant((Field("", EMPTY), *(Field(name, item) for name, item in parts)))
    )
    return st.one_of(plain, with_absent, inner.map(optional))


def _spliced(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    """A tuple with an unnamed variant inside, as in the paper's optNest schemas.

    A case that can be None itself cannot be told from one that is not chosen: not used here.
    """
    definite = inner.filter(lambda item: not isinstance(item, Variant | Dynamic))
    return st.tuples(inner, definite).map(
        lambda parts: Tuple(
            (
                Field("first", parts[0]),
                Field("", Variant((Field("", EMPTY), Field("second", parts[1]), Field("third", INT)))),
            )
        )
    )


@cache
def types(max_leaves: int = 5) -> st.SearchStrategy[Type]:
    """Natural types of every kind but references."""
    return st.recursive(
        st.one_of(atomics, st.just(Dynamic())),
        lambda inner: st.one_of(
            _tuples(inner),
            _variants(inner),
            _spliced(inner),
            inner.filter(lambda item: not single_valued(item)).map(List),
        ),
        max_leaves=max_leaves,
    )


@cache
def records() -> st.SearchStrategy[Tuple]:
    """Tuples, as topics have them."""
    return _tuples(types(3)).filter(lambda item: isinstance(item, Tuple) and bool(item.fields))  # type: ignore


@cache
def values(item: Type) -> st.SearchStrategy[Any]:
    """Values in the form that decoding gives back."""
    match item:
        case Atomic():
            return _atomic_values(item)
        case Dynamic():
            return st.one_of(
                st.none(),
                st.booleans(),
                st.integers(-(2**63), 2**63 - 1),
                st.floats(allow_nan=False),
                TEXT,
                st.dictionaries(NAMES, st.integers(-9, 9), max_size=3),
                st.lists(TEXT, min_size=1, max_size=2),
            )
        case List():
            return st.lists(values(item.item), max_size=2)
        case Tuple():
            return dicts(item, values)
        case Variant():
            return _variant_values(item)
    raise AssertionError(item)


def _named(name: str, value: Any) -> dict[str, Any]:
    return {name: value}


def _variant_values(item: Variant) -> st.SearchStrategy[Any]:
    some = option_item(item)
    if some is not None:
        # An option of an option cannot tell its two absences apart in Python.
        return st.none() if isinstance(some, Variant) else st.one_of(st.none(), values(some))
    absent = absent_case(item)
    names = names_of(item.cases)
    if is_enumeration(item):
        return st.sampled_from([None if at == absent else name for at, name in enumerate(names)])
    choices = [
        st.none() if at == absent else values(case.type).map(partial(_named, name))
        for at, (case, name) in enumerate(zip(item.cases, names, strict=True))
    ]
    return st.one_of(*choices)


def _atomic_values(item: Atomic) -> st.SearchStrategy[Any]:
    match item.kind:
        case Kind.BOOLEAN:
            return st.booleans()
        case Kind.INT:
            return st.integers(-(2**31), 2**31 - 1)
        case Kind.LONG:
            return st.integers(-(2**63), 2**63 - 1)
        case Kind.FLOAT:
            return st.floats(width=32, allow_nan=False)
        case Kind.DOUBLE:
            return st.floats(allow_nan=False)
        case Kind.STRING:
            return TEXT
        case Kind.BYTES:
            return st.binary(max_size=12)
        case Kind.TIMESTAMP:
            span = (datetime.max.replace(tzinfo=UTC) - datetime.min.replace(tzinfo=UTC)) // timedelta(
                microseconds=1
            )
            start = datetime.min.replace(tzinfo=UTC)
            return st.integers(0, span).map(lambda micros: start + timedelta(microseconds=micros))
        case Kind.DECIMAL:
            bound = 10**item.precision - 1
            return st.integers(-bound, bound).map(lambda number: scaled(number, item.scale))
    raise AssertionError(item)
