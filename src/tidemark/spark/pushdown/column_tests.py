"""A test of one column, as another engine makes it, turned into a selector that is true for the same events.

An engine that pushes a condition down keeps the rows for which the condition is true; false and unknown are
the same to it. So a test is translated together with the truth that is wanted of it, NOT having been moved
inwards, and only that one truth has to be met exactly. Where that is impossible, TranslationError is raised:
nothing is approximated.

NaN is what differs most. To a selector, NaN compares as unknown, so an event with NaN is never matched by a
comparison; an engine that would keep such a row has to test for itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from typing import Any, NoReturn
from typing import Literal as Choice

from tidemark.errors import SelectorError, TranslationError
from tidemark.matching.forms.domains import type_at
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.render import render
from tidemark.matching.selectors.tree import (
    FALSE,
    And,
    Compare,
    CompareOp,
    FieldRef,
    In,
    IsNull,
    Like,
    Literal,
    Node,
    Or,
)
from tidemark.message.batches.columns import FieldTypes
from tidemark.message.types import BOOLEAN, STRING, Atomic, Dynamic, Kind, Path, Reference, path_text

TextOp = Choice["starts", "ends", "contains"]

_INVERSE: dict[CompareOp, CompareOp] = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_WILDCARDS: dict[TextOp, tuple[str, str]] = {"starts": ("", "%"), "ends": ("%", ""), "contains": ("%", "%")}
_LIKE_ESCAPE = "\\"
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
#: Far beyond Spark's decimals and within what a double can approximate.
_EXPONENT_MAX = 100


@dataclass(frozen=True, slots=True)
class ColumnTest:
    """`path op value`. For "in" the value is a sequence, for "null" there is none."""

    op: CompareOp | TextOp | Choice["in", "null"]
    path: Path
    value: Any = None
    #: for NULL the test is false (or true, if it tests for NULL) rather than unknown
    null_is_false: bool = False


def selector(test: ColumnTest, wanted: bool, fields: FieldTypes, true_for_nan: Collection[CompareOp]) -> Node:
    """The selector that is true exactly where `test` is `wanted`. Raises TranslationError if there is none.

    `true_for_nan` are the comparisons that, to the engine, hold between NaN and any number.
    """
    item = type_at(test.path, fields)
    if item is None or isinstance(item, Dynamic | Reference):
        _refuse(test, "is not a field of a known type")
    ref = FieldRef(test.path)
    if test.op == "null":
        return IsNull(ref, negated=not wanted)
    if not isinstance(item, Atomic):
        _refuse(test, "is not one value")
    if item.kind in (Kind.FLOAT, Kind.DOUBLE) and (test.op in true_for_nan) == wanted:
        _refuse(test, "would have to be true for NaN")
    match test.op:
        case "in":
            return _one_of(test, wanted, ref, item)
        case "starts" | "ends" | "contains":
            return _like(test, test.op, wanted, ref, item)
        case op:
            return _comparison(test, op, wanted, ref, item)


def joined(kind: type[And] | type[Or], nodes: Sequence[Node]) -> Node:
    """All, or any, of one or more conditions, in the form that the parser makes: flat, not nested."""
    operands: list[Node] = []
    for node in nodes:
        operands += node.operands if isinstance(node, And | Or) and isinstance(node, kind) else [node]
    return operands[0] if len(operands) == 1 else kind(tuple(operands))


def is_writable(node: Node) -> bool:
    """Can the selector be sent as text? Not if it is over the limits, or if no text parses to it."""
    try:
        return parse(render(node)) == node
    except SelectorError:
        return False


def _comparison(test: ColumnTest, op: CompareOp, wanted: bool, ref: FieldRef, item: Atomic) -> Node:
    if test.value is None:
        return IsNull(ref, negated=not wanted) if test.null_is_false and op == "=" else FALSE
    if item == BOOLEAN and op not in ("=", "<>"):
        _refuse(test, "has no order")
    node = Compare(op if wanted else _INVERSE[op], ref, _constant(test, item, test.value))
    return _or_null(test, wanted, ref, node)


def _one_of(test: ColumnTest, wanted: bool, ref: FieldRef, item: Atomic) -> Node:
    known = [value for value in test.value if value is not None]
    if not wanted and not test.value:
        _refuse(test, "NOT IN () is for each engine to explain")
    if not known or (not wanted and len(known) < len(test.value)):
        return FALSE  # at best unknown: the NULL in the list may be the one
    node = In(ref, tuple(_constant(test, item, value) for value in known), negated=not wanted)
    return _or_null(test, wanted, ref, node)


def _or_null(test: ColumnTest, wanted: bool, ref: FieldRef, node: Node) -> Node:
    return Or((IsNull(ref), node)) if test.null_is_false and not wanted else node


def _like(test: ColumnTest, op: TextOp, wanted: bool, ref: FieldRef, item: Atomic) -> Node:
    if item != STRING or not isinstance(test.value, str):
        return FALSE if test.value is None else _refuse(test, "is not a test of strings")
    before, after = _WILDCARDS[op]
    escape = _LIKE_ESCAPE if "%" in test.value or "_" in test.value else ""
    text = "".join(escape + each if each in ("%", "_", escape) else each for each in test.value)
    return Like(ref, before + text + after, escape, negated=not wanted)


def _constant(test: ColumnTest, item: Atomic, value: Any) -> Literal:
    """The literal that compares with a field of type `item` just as `value` does."""
    found: Literal | None = None
    match item.kind, value:
        case (Kind.BOOLEAN, bool()) | (Kind.STRING, str()):
            found = Literal(value)
        case Kind.BYTES, bytes() | bytearray():
            found = Literal(bytes(value))
        case Kind.TIMESTAMP, datetime():
            found = _instant(value)
        case (_, bool()):
            pass
        case (Kind.INT | Kind.LONG | Kind.DECIMAL, int()) if _LONG_MIN <= value <= _LONG_MAX:
            found = Literal(value, str(value))
        case (Kind.FLOAT | Kind.DOUBLE, float() | int()):
            found = _double(value)
        case Kind.DECIMAL, Decimal():
            found = _decimal(value)
    return found if found is not None else _refuse(test, f"does not compare with {value!r} here as there")


def _instant(value: datetime) -> Literal | None:
    # A subclass may hold nanoseconds; without a zone it is no instant; near year 1 it may not exist in UTC.
    if type(value) is not datetime or value.utcoffset() is None:
        return None
    try:
        return Literal(value.astimezone(UTC))
    except OverflowError:
        return None


def _double(value: float) -> Literal | None:
    try:
        nearest = float(value)
    except OverflowError:
        return None
    if nearest != value or not isfinite(nearest):
        return None
    return Literal(nearest, repr(nearest))


def _decimal(value: Decimal) -> Literal | None:
    if not value.is_finite() or abs(value.adjusted()) > _EXPONENT_MAX:
        return None
    if value == value.to_integral_value() and _LONG_MIN <= value <= _LONG_MAX:
        return Literal(int(value), str(int(value)))
    text = f"{value:f}"
    text = text.rstrip("0") if "." in text else text + "."
    return Literal(float(text), text)


def _refuse(test: ColumnTest, reason: str) -> NoReturn:
    raise TranslationError(f"{path_text(test.path)}: {reason}")
