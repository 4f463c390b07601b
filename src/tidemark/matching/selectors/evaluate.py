"""The reference evaluator: one selector for one event.

It follows the rules in `matching.selectors.tree` in the plainest way. The batch matcher is tested against it,
and calls it for fields that have no array because their type is known per event only. A value is None (NULL),
bool, int, float, Decimal, str, bytes or an aware datetime. Any comparison with another value, such as a list
or a dict, is unknown.

Trees must have passed `matching.selectors.check`: a condition never stands in the place of a value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from math import isnan
from typing import Any

from tidemark.matching.selectors.like import Pattern
from tidemark.matching.selectors.literals import LONG_MAX, LONG_MIN
from tidemark.matching.selectors.tree import (
    OPERATORS,
    And,
    Arithmetic,
    ArithmeticOp,
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
    TopicMatches,
)
from tidemark.message.codec.scalars import microseconds
from tidemark.message.types import Path

#: path -> the event's value there, None when it has none
Lookup = Callable[[Path], Any]

#: Compiled LIKE patterns kept between calls.
PATTERNS_KEPT_MAX = 256

_COMPARE: dict[CompareOp, Callable[[Any, Any], bool]] = OPERATORS
#: Kinds of values that are compared as they are with values of their own kind.
PLAIN = (int, str, bytes)
_ARITHMETIC: dict[ArithmeticOp, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


def evaluate(node: Node, lookup: Lookup) -> bool | None:
    """The truth of a condition for the event that `lookup` reads: True, False or None for unknown."""
    match node:
        case And(operands):
            return _all([evaluate(operand, lookup) for operand in operands])
        case Or(operands):
            return _not(_all([_not(evaluate(operand, lookup)) for operand in operands]))
        case Not(operand):
            return _not(evaluate(operand, lookup))
        case IsNull(operand, negated):
            return (value_of(operand, lookup) is None) != negated
        case Compare(op, left, right):
            return _compare(op, left, right, lookup)
        case Between(operand, low, high, negated):
            ends = (_compare(">=", operand, low, lookup), _compare("<=", operand, high, lookup))
            return _not_if(negated, _all(ends))
        case In(operand, values, negated):
            differs = _all(_compare("<>", operand, value, lookup) for value in values)
            return _not_if(not negated, differs)
        case Like(operand, pattern, escape, negated):
            value = value_of(operand, lookup)
            known = _pattern(pattern, escape).matches(value) if isinstance(value, str) else None
            return _not_if(negated, known)
        case Literal() | FieldRef():
            value = value_of(node, lookup)
            return value if isinstance(value, bool) else None
        case Negate() | Arithmetic():
            raise AssertionError("a number stands where a condition should")
        case TopicMatches():
            raise AssertionError("the truth of MATCHES was not put in its place")


def value_of(node: Node, lookup: Lookup) -> Any:
    """The value of a literal, field or calculation; None is NULL."""
    match node:
        case Literal(value):
            return value
        case FieldRef(path):
            return lookup(path)
        case Negate(operand):
            return _calculate("-", 0, value_of(operand, lookup))
        case Arithmetic(op, left, right):
            return _calculate(op, value_of(left, lookup), value_of(right, lookup))
        case _:
            raise AssertionError("a condition stands where a value should")


@lru_cache(PATTERNS_KEPT_MAX)
def _pattern(pattern: str, escape: str) -> Pattern:
    return Pattern.compile(pattern, escape)


def _all(truths: Iterable[bool | None]) -> bool | None:
    """The truth of AND: False if any is False, else None if any is unknown, else True."""
    seen = set(truths)
    return False if False in seen else None if None in seen else True


def _not(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def _not_if(negated: bool, truth: bool | None) -> bool | None:
    return _not(truth) if negated else truth


def _compare(op: CompareOp, left: Node, right: Node, lookup: Lookup) -> bool | None:
    a: Any = lookup(left.path) if type(left) is FieldRef else value_of(left, lookup)
    b: Any = right.value if type(right) is Literal else value_of(right, lookup)
    if type(a) is type(b) and type(a) in PLAIN:
        return _COMPARE[op](a, b)  # most comparisons: the kinds below give the same
    if isinstance(a, Decimal):
        b = _as_written(right, b)
    elif isinstance(b, Decimal):
        a = _as_written(left, a)
    if _is_number(a) and _is_number(b):
        return _compare_numbers(op, a, b)
    if isinstance(a, bool) and isinstance(b, bool):
        return _COMPARE[op](a, b) if op in ("=", "<>") else None
    if isinstance(a, datetime) and isinstance(b, datetime):
        return _COMPARE[op](microseconds(a), microseconds(b))
    if any(isinstance(a, kind) and isinstance(b, kind) for kind in (str, bytes)):
        return _COMPARE[op](a, b)
    return None


def _as_written(node: Node, value: Any) -> Any:
    """An approximate literal beside a decimal means its digits, not the nearest double."""
    return Decimal(node.text) if isinstance(node, Literal) and isinstance(value, float) else value


def _compare_numbers(op: CompareOp, a: int | float | Decimal, b: int | float | Decimal) -> bool | None:
    if isinstance(a, float) or isinstance(b, float):
        a, b = float(a), float(b)
        if isnan(a) or isnan(b):
            return None
    return _COMPARE[op](a, b)


def _calculate(op: ArithmeticOp, a: Any, b: Any) -> int | float | None:
    if not (_is_number(a) and _is_number(b)):
        return None
    if op == "/" or not (isinstance(a, int) and isinstance(b, int)):
        a, b = float(a), float(b)
    if op == "/" and b == 0:
        return None
    result: int | float = _ARITHMETIC[op](a, b)
    return None if isinstance(result, int) and not LONG_MIN <= result <= LONG_MAX else result


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)
