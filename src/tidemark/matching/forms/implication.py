"""Implication: is a residual condition certainly true, given a constraint or another condition that is?

Only two cases are decided, because they are cheap: a condition on one operand and literals follows from a
constraint on that field, or from another such condition on the same operand. False means "not known".

The second case needs no types, so that `a > 10` follows from `a > 20` for a field whose type is not known.
Whatever number `a` is, its comparison with a literal is monotone in the double nearest to the literal, so
literals with different nearest doubles are ordered alike for integers, doubles and decimals.
"""

from __future__ import annotations

from typing import Any

from tidemark.matching.forms.clauses import Constraint, Interval, OneOf, Value
from tidemark.matching.forms.domains import domain_value, order
from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.selector import paths_of
from tidemark.matching.selectors.tree import (
    Between,
    Compare,
    CompareOp,
    FieldRef,
    In,
    Like,
    Literal,
    Node,
    Not,
)
from tidemark.message.types import Path

#: `operand op literal` without the operand
_Comparison = tuple[CompareOp, Literal]

#: op -> the signs that x - c can have when `x op c` is true
_SIGNS: dict[CompareOp, frozenset[int]] = {
    "=": frozenset((0,)),
    "<>": frozenset((-1, 1)),
    "<": frozenset((-1,)),
    "<=": frozenset((-1, 0)),
    ">": frozenset((1,)),
    ">=": frozenset((0, 1)),
}


def needs_value(residual: Node, path: Path) -> bool:
    """Is `residual` certainly not true when the field is NULL?"""
    match residual:
        case Between(operand, negated=True):  # one end can make it true though the other end is NULL
            return path in paths_of(operand)
        case Compare() | Between() | In() | Like() | FieldRef() | Not(FieldRef()):
            return path in paths_of(residual)
        case _:
            return False


def implied_by_constraint(wanted: Node, path: Path, given: Constraint) -> bool:
    """Is `wanted` true for every value that `given` admits at `path`?"""
    if not isinstance(given, OneOf | Interval) or paths_of(wanted) != {path}:
        return False
    match wanted:
        case Compare("<>", FieldRef(), Literal() as literal):
            return _excludes(given, literal)
        case In(FieldRef(), values, negated=True):
            return all(_excludes(given, literal) for literal in values)
    return isinstance(given, OneOf) and all(
        evaluate(wanted, {path: value}.get) is True for value in given.values
    )


def implied_by_residual(wanted: Node, given: Node) -> bool:
    """Is `wanted` true whenever `given` is?"""
    wanted_operand, wanted_ways = _ways(wanted)
    given_operand, given_ways = _ways(given)
    if wanted_operand is None or wanted_operand != given_operand:
        return False
    return all(any(_all_follow(way, given_way) for way in wanted_ways) for given_way in given_ways)


def _excludes(given: OneOf | Interval, literal: Literal) -> bool:
    """Is no value that `given` admits equal to the literal?"""
    if isinstance(given, OneOf):
        return all(order(value, literal) in (-1, 1) for value in given.values)
    return _is_beyond(given.low, given.low_open, literal, 1) or _is_beyond(
        given.high, given.high_open, literal, -1
    )


def _is_beyond(end: Value | None, is_open: bool, literal: Literal, side: int) -> bool:
    if end is None:
        return False
    found = order(end, literal)
    return found == side or (found == 0 and is_open)


def _ways(node: Node) -> tuple[Node | None, list[list[_Comparison]]]:
    """The operand, and the ways in which the node is true, each a list of comparisons that all hold.

    The operand is None for a node that is not that simple.
    """
    match node:
        case Compare(op, operand, Literal() as literal):
            return operand, [[(op, literal)]]
        case Between(operand, Literal() as low, Literal() as high, negated):
            return operand, [[("<", low)], [(">", high)]] if negated else [[(">=", low), ("<=", high)]]
        case In(operand, values, negated):
            return operand, [[("<>", v) for v in values]] if negated else [[("=", v)] for v in values]
        case _:
            return None, []


def _all_follow(wanted: list[_Comparison], given: list[_Comparison]) -> bool:
    return all(any(_comparison_follows(comparison, other) for other in given) for comparison in wanted)


def _comparison_follows(wanted: _Comparison, given: _Comparison) -> bool:
    """Is `x op c` true whenever `x op' c'` is? Decided by the sign of c' - c and the signs of x - c'."""
    distance = _distance(given[1], wanted[1])
    if distance is None:
        return False
    signs = _SIGNS[given[0]]
    if distance == 0:
        return signs <= _SIGNS[wanted[0]]
    # If x is at c' or beyond it, seen from c, then x is on that side of c; if nearer, x may be on either
    # side.
    return -distance not in signs and distance in _SIGNS[wanted[0]]


def _distance(a: Literal, b: Literal) -> int | None:
    """The sign of a - b if every number compares with a and b in that order; None if that depends on it."""
    if a == b and type(a.value) is type(b.value):
        return 0
    if type(a.value) in (int, float) and type(b.value) in (int, float):
        left: Any = float(a.value)  # type: ignore[arg-type]  # the line above says it is a number
        right: Any = float(b.value)  # type: ignore[arg-type]  # likewise
        return None if left == right else 1 if left > right else -1
    if type(a.value) is not type(b.value):
        return None
    left, right = domain_value(a.value), domain_value(b.value)
    return int(left > right) - int(left < right)
