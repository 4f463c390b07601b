"""Random selectors, events and clauses over a small schema of every atomic kind.

Constants and values come from the same small pools, so that comparisons are often exactly on an edge, and the
pools hold what goes wrong: the ends of the integers, 2**53 + 1, infinities, -0.0, NaN (in events only),
decimals no double can hold, strings that are prefixes of each other and the last code point.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import cache
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidemark.matching.forms.clauses import Clause
from tidemark.matching.forms.constraints import admits
from tidemark.matching.forms.domains import domain_value
from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.tree import (
    And,
    Arithmetic,
    Between,
    Compare,
    CompareOp,
    FieldRef,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Node,
    Not,
    Or,
)
from tidemark.message.types import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    Atomic,
    Dynamic,
    Kind,
    List,
    Path,
    Type,
    decimal,
    option_item,
)

#: An event as the reference evaluator sees it: absent fields are missing.
Event = dict[Path, Any]


class SimpleFields:
    """FieldTypes of a dict {path: type}; options are unwrapped."""

    def __init__(self, types: dict[Path, Type], *, is_open: bool = False) -> None:
        self.types = types
        self.is_open = is_open

    @property
    def open(self) -> bool:
        """True when unknown fields are NULL rather than an error."""
        return self.is_open

    def type_of(self, path: Path) -> Type | None:
        """The type at `path`, or None."""
        found = self.types.get(path)
        return found and (option_item(found) or found)

    def paths(self) -> Sequence[Path]:
        """Every path there is."""
        return tuple(self.types)


#: Two fields of most kinds, so that fields compare with fields.
TYPES: dict[Path, Type] = {
    ("b",): BOOLEAN,
    ("i",): INT,
    ("j",): INT,
    ("l",): LONG,
    ("in", "k"): LONG,
    ("f",): FLOAT,
    ("d",): DOUBLE,
    ("e",): DOUBLE,
    ("m",): decimal(38, 9),
    ("s",): STRING,
    ("odd name", "u"): STRING,
    ("y",): BYTES,
    ("t",): TIMESTAMP,
    ("z",): Dynamic(),
    ("q",): List(INT),
    ("_priority",): INT,
    ("_key",): STRING,
    ("_time",): TIMESTAMP,
}
FIELDS = SimpleFields(TYPES)

_SECOND = timedelta(seconds=1)
_NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)

_INTS = (-(2**31), -7, -1, 0, 1, 2, 5, 2**31 - 1)
_LONGS = (*_INTS, -(2**63), -(2**53) - 1, 2**53, 2**53 + 1, 2**60 + 1, 2**63 - 1)
_DOUBLES = (-1e30, -2.5, -0.0, 0.0, 0.1, 1.0, 1.5, 2.0, 5.0, float(2**53), 2.0**63, 1e30, 5e-324)
_FLOATS = tuple(struct.unpack("f", struct.pack("f", value))[0] for value in _DOUBLES)
_DECIMALS = ("-2.5", "0", "0.1", "0.100000000000000000001", "1", "1.50", "9007199254740993", "5", "2E+1")
_STRINGS = (
    "",
    "a",
    "ab",
    "aba",
    "abc",
    "ac",
    "b",
    "a%",
    "a_c",
    "\ud7ff",
    "\U0010ffff",
    "z\U0010ffff",
    "it's",
)
_BYTES = (b"", b"a", b"a\x00", b"b", b"\xff")
_INSTANTS = (
    datetime.min.replace(tzinfo=UTC),
    _NOON,
    _NOON + timedelta(microseconds=1),
    (_NOON + _SECOND).astimezone(timezone(timedelta(hours=5, minutes=30))),
    datetime.max.replace(tzinfo=UTC),
)
_NUMBER_TEXTS = (
    *map(str, _LONGS),
    "0.1", "-0.0", ".5", "1.5", "2.", "5.0", "1E3", "0.100000000000000000001", "9007199254740993.0",
    "9223372036854775807.0", "-9.3E18", "4.9e9", "1E30", "-1E+30", "1e-7", "2.5", "-2.50",
)  # fmt: skip
_PATTERNS = (
    "",
    "a",
    "ab%",
    "a%",
    "%",
    "%b",
    "%b%",
    "a_c",
    "_",
    "a\\%",
    "a\\_%",
    "\U0010ffff%",
    "z\U0010ffff%",
    "\ud7ff%",
)

_POOLS: dict[Kind, Sequence[Any]] = {
    Kind.BOOLEAN: (False, True),
    Kind.INT: _INTS,
    Kind.LONG: _LONGS,
    Kind.FLOAT: (*_FLOATS, float("inf"), float("-inf"), float("nan")),
    Kind.DOUBLE: (*_DOUBLES, float("inf"), float("-inf"), float("nan")),
    Kind.DECIMAL: tuple(map(Decimal, _DECIMALS)),
    Kind.STRING: _STRINGS,
    Kind.BYTES: _BYTES,
    Kind.TIMESTAMP: _INSTANTS,
}
_NUMERIC = (Kind.INT, Kind.LONG, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL)
_COMPARE_OPS: tuple[CompareOp, ...] = ("=", "<>", "<", "<=", ">", ">=")


def number(text: str) -> Literal:
    """The numeric literal that the parser makes of `text`."""
    return Literal(float(text) if set(text) & set(".eE") else int(text), text)


def lookup_of(event: Event) -> Callable[[Path], Any]:
    """A function that looks a path of the event up, as `evaluate` wants it."""
    return event.get


def matches(node: Node, event: Event) -> bool:
    """Does the event match, by the reference evaluator?"""
    return evaluate(node, event.get) is True


def clause_matches(clause: Clause, event: Event) -> bool:
    """Does the event lie in the clause, by the definition of a clause?"""
    return all(
        admits(constraint, domain_value(event.get(path))) for path, constraint in clause.constraints
    ) and all(matches(residual, event) for residual in clause.residuals)


def clauses_match(clauses: Iterable[Clause], event: Event) -> bool:
    """Does the event lie in any of the clauses?"""
    return any(clause_matches(clause, event) for clause in clauses)


@cache
def values(kind: Kind) -> SearchStrategy[Any]:
    """A value of a field of this kind, often one that a literal has too."""
    wild: dict[Kind, SearchStrategy[Any]] = {
        Kind.INT: st.integers(-(2**31), 2**31 - 1),
        Kind.LONG: st.integers(-(2**63), 2**63 - 1),
        Kind.FLOAT: st.floats(width=32),
        Kind.DOUBLE: st.floats(),
        Kind.DECIMAL: st.decimals(-(10**6), 10**6, places=9),
        Kind.STRING: st.text(st.characters(codec="utf-8"), max_size=4),
        Kind.BYTES: st.binary(max_size=3),
    }
    pooled = st.sampled_from(_POOLS[kind])
    return st.one_of(pooled, pooled, wild[kind]) if kind in wild else pooled


def _field_values(item: Type) -> SearchStrategy[Any]:
    if isinstance(item, Dynamic):
        return st.one_of([values(kind) for kind in Kind])
    if isinstance(item, List):
        return st.lists(values(Kind.INT), max_size=2)
    assert isinstance(item, Atomic)
    return values(item.kind)


def events(types: dict[Path, Type] = TYPES) -> SearchStrategy[Event]:
    """An event with any subset of the fields."""
    return st.fixed_dictionaries({}, optional={path: _field_values(item) for path, item in types.items()})


@cache
def literals(kind: Kind) -> SearchStrategy[Literal]:
    """A literal that may compare with a field of this kind."""
    if kind in _NUMERIC:
        return st.sampled_from(_NUMBER_TEXTS).map(number)
    return st.sampled_from(_POOLS[kind]).map(Literal)


def _refs(types: dict[Path, Type], *kinds: Kind) -> SearchStrategy[FieldRef]:
    paths = [path for path, item in types.items() if getattr(item, "kind", None) in kinds]
    return st.sampled_from(paths).map(FieldRef)


def _numbers(types: dict[Path, Type]) -> SearchStrategy[Node]:
    """Literals, numeric fields and calculations with them."""
    leaves: SearchStrategy[Node] = st.one_of(_refs(types, *_NUMERIC), literals(Kind.LONG))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(Negate, inner), st.builds(Arithmetic, st.sampled_from("+-*/"), inner, inner)
        ),
        max_leaves=3,
    )


@cache
def _some_literals(kind: Kind) -> SearchStrategy[list[Literal]]:
    return st.lists(literals(kind), min_size=1, max_size=4)


_OPERATORS = st.sampled_from(_COMPARE_OPS)
_EQUALITY = st.sampled_from(_COMPARE_OPS[:2])
_ANY_PATTERN = st.sampled_from(_PATTERNS)


class _Parts:
    """The strategies of which conditions over some fields are made.

    They are made once and not in every draw: to make and check a strategy takes longer than to draw from it.
    """

    def __init__(self, types: dict[Path, Type]) -> None:
        present = {item.kind for item in types.values() if isinstance(item, Atomic)}
        shapes = ["compare", "compare", "between", "in", "null"]
        shapes += ["like"] if Kind.STRING in present else []
        shapes += ["bool"] if Kind.BOOLEAN in present else []
        shapes += ["numbers"] if present & set(_NUMERIC) else []
        self.shapes = st.sampled_from(shapes)
        self.fields = st.sampled_from(list(types)).map(FieldRef)
        self.refs = {kind: _refs(types, kind) for kind in present}
        self.kinds = st.sampled_from(sorted(present, key=lambda kind: kind.value))
        self.booleans: SearchStrategy[Node] = st.one_of(
            *[self.refs[kind] for kind in present & {Kind.BOOLEAN}], st.booleans().map(Literal)
        )
        if present & set(_NUMERIC):
            self.numbers = _numbers(types)
        dynamic = [FieldRef(path) for path, item in types.items() if isinstance(item, Dynamic)]
        #: often None, for a field of the kind that is compared; otherwise a field of any kind
        self.dynamic = st.sampled_from([None, None, None, *dynamic[:1]])


def leaves(types: dict[Path, Type] = TYPES) -> SearchStrategy[Node]:
    """A condition without AND, OR or NOT."""
    return _leaves(_Parts(types))


@st.composite
def _leaves(draw: st.DrawFn, parts: _Parts) -> Node:
    shape = draw(parts.shapes)
    if shape == "like":
        pattern = draw(_ANY_PATTERN)
        escape = "\\" if "\\" in pattern else ""
        return Like(draw(parts.refs[Kind.STRING]), pattern, escape, draw(st.booleans()))
    if shape == "null":
        return IsNull(draw(parts.fields), draw(st.booleans()))
    if shape == "bool":
        return draw(parts.booleans)
    if shape == "numbers":
        return Compare(draw(_OPERATORS), draw(parts.numbers), draw(parts.numbers))
    kind = draw(parts.kinds)
    operand = draw(parts.dynamic) or draw(parts.refs[kind])
    constant = draw(literals(kind))
    if shape == "compare" or kind is Kind.BOOLEAN:
        op = draw(_EQUALITY if kind is Kind.BOOLEAN else _OPERATORS)
        return Compare(op, operand, constant) if draw(st.booleans()) else Compare(op, constant, operand)
    if shape == "between":
        return Between(operand, constant, draw(literals(kind)), draw(st.booleans()))
    return In(operand, tuple(draw(_some_literals(kind))), draw(st.booleans()))


def trees(types: dict[Path, Type] = TYPES, max_leaves: int = 8) -> SearchStrategy[Node]:
    """A well-typed condition."""
    return st.recursive(
        leaves(types),
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.lists(inner, min_size=2, max_size=3).map(lambda nodes: And(tuple(nodes))),
            st.lists(inner, min_size=2, max_size=3).map(lambda nodes: Or(tuple(nodes))),
        ),
        max_leaves=max_leaves,
    )
