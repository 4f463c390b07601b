"""A leaf of a selector, or its negation, as clauses.

A leaf is a condition without AND, OR and NOT. A leaf on one field of an atomic type and constants is a set of
values of that field; a leaf on constants alone is true or not for every event; any other leaf stays a
residual. Negation is exact (see `matching.selectors.tree`), so a negated leaf is a leaf: the opposite
comparison, or the negated form of the same condition.
"""

from __future__ import annotations

from math import isinf, isnan
from typing import Any

from tidemark.matching.forms.clause_algebra import box, meet
from tidemark.matching.forms.clauses import EVERYTHING, Absent, Clause, Constraint, OneOf, Present
from tidemark.matching.forms.constraints import one_of
from tidemark.matching.forms.domains import comparison, is_comparable, prefixed, type_at
from tidemark.matching.selectors.evaluate import evaluate, value_of
from tidemark.matching.selectors.like import Pattern
from tidemark.matching.selectors.tree import (
    MIRRORED,
    OPPOSITE,
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
)
from tidemark.message.batches.columns import FieldTypes
from tidemark.message.types import Atomic, Kind, Path


def leaf_clauses(leaf: Node, wanted: bool, fields: FieldTypes) -> list[Clause]:
    """The clauses of the events for which `leaf` is true (`wanted`) or false (not `wanted`)."""
    match leaf:
        case Compare(op, left, right):
            return _compare(op if wanted else OPPOSITE[op], left, right, fields)
        case Between(operand, low, high, negated):
            return _between(Between(operand, low, high, negated == wanted), fields)
        case In(operand, values, negated):
            return _in(In(operand, values, negated == wanted), fields)
        case Like(operand, pattern, escape, negated):
            return _like(Like(operand, pattern, escape, negated == wanted), fields)
        case IsNull(FieldRef(path), negated):
            return box(path, Present() if negated == wanted else Absent())
        case FieldRef(path):
            if _atomic(leaf, fields, Kind.BOOLEAN):
                return box(path, OneOf(frozenset((wanted,))))
            return _residual(leaf if wanted else Not(leaf))
        case _:
            return _known(leaf, wanted)


def _compare(op: CompareOp, left: Node, right: Node, fields: FieldTypes) -> list[Clause]:
    if _is_constant(left):
        op, left, right = MIRRORED[op], right, left
    if not _is_constant(right):
        return _residual(Compare(op, left, right))
    if _is_constant(left):
        return _known(Compare(op, left, right))
    value = value_of(right, _no_field)
    if value is None or (isinstance(value, float) and isnan(value)):
        return []
    item = _atomic(left, fields)
    literal = _as_literal(right, value, item)
    if item is None or literal is None:
        return _residual(Compare(op, left, right))
    assert isinstance(left, FieldRef)
    return _field_compare(left, item, op, literal)


def _field_compare(ref: FieldRef, item: Atomic, op: CompareOp, literal: Literal) -> list[Clause]:
    if not is_comparable(item, literal):
        return []
    if item.kind is Kind.BOOLEAN:
        if op in ("=", "<>"):
            return box(ref.path, OneOf(frozenset((literal.value is (op == "="),))))
        return []  # booleans have no order, so the comparison is unknown
    return (
        _residual(Compare(op, ref, literal)) if op == "<>" else box(ref.path, comparison(item, op, literal))
    )


def _between(leaf: Between, fields: FieldTypes) -> list[Clause]:
    """The clauses of two comparisons if one of them becomes a set of values, else one residual."""
    ends = _is_constant(leaf.low) or _is_constant(leaf.high)
    if not (_is_constant(leaf.operand) or (ends and _atomic(leaf.operand, fields))):
        return _residual(leaf)
    ops: tuple[CompareOp, CompareOp] = ("<", ">") if leaf.negated else (">=", "<=")
    lows = _compare(ops[0], leaf.operand, leaf.low, fields)
    highs = _compare(ops[1], leaf.operand, leaf.high, fields)
    if leaf.negated:
        return lows + highs
    met = (meet(low, high) for low in lows for high in highs)
    return [clause for clause in met if clause is not None]


def _in(leaf: In, fields: FieldTypes) -> list[Clause]:
    if _is_constant(leaf.operand):
        return _known(leaf)
    item = _atomic(leaf.operand, fields)
    if item is None:
        return _residual(leaf)
    assert isinstance(leaf.operand, FieldRef)
    if leaf.negated:
        return _residual(leaf) if all(is_comparable(item, value) for value in leaf.values) else []
    return _listed(leaf.operand.path, item, leaf.values)


def _listed(path: Path, item: Atomic, values: tuple[Literal, ...]) -> list[Clause]:
    """One clause for all literals that equal a single value, one for each that equals a run of integers."""
    if item.kind is Kind.BOOLEAN:
        return box(path, one_of(frozenset(value.value for value in values if isinstance(value.value, bool))))
    equal = [comparison(item, "=", value) for value in values if is_comparable(item, value)]
    single = frozenset(value for found in equal if isinstance(found, OneOf) for value in found.values)
    runs = (found for found in equal if found is not None and not isinstance(found, OneOf))
    return box(path, one_of(single)) + [clause for run in runs for clause in box(path, run)]


def _like(leaf: Like, fields: FieldTypes) -> list[Clause]:
    if _is_constant(leaf.operand):
        return _known(leaf)
    item = _atomic(leaf.operand, fields)
    if item is not None and item.kind is not Kind.STRING:
        return []
    pattern = Pattern.compile(leaf.pattern, leaf.escape)
    if item is None or leaf.negated or not (pattern.prefix or pattern.is_exact or pattern.is_prefix):
        return _residual(leaf)
    assert isinstance(leaf.operand, FieldRef)
    exact: Constraint = OneOf(frozenset((pattern.prefix,)))
    found = box(leaf.operand.path, exact if pattern.is_exact else prefixed(pattern.prefix))
    if pattern.is_exact or pattern.is_prefix:
        return found
    # Its prefix leads to it, and the whole of it is held against the events that have the prefix.
    return [Clause(each.constraints, (leaf,)) for each in found]


def _known(leaf: Node, wanted: bool = True) -> list[Clause]:
    """The clauses of a condition on constants, which has the wanted truth for every event or for none."""
    return [EVERYTHING] if evaluate(leaf, _no_field) is wanted else []


def _residual(leaf: Node) -> list[Clause]:
    return [Clause((), (leaf,))]


def _as_literal(node: Node, value: Any, item: Atomic | None) -> Literal | None:
    """A constant as the literal that compares with the field in the same way; None when there is none."""
    if isinstance(node, Literal):
        return node
    # A calculated double compares with a decimal as a double, a literal by its digits; an infinite double
    # cannot be written at all.
    if isinstance(value, float) and (isinf(value) or (item and item.kind is Kind.DECIMAL)):
        return None
    return Literal(value, repr(value))


def _atomic(node: Node, fields: FieldTypes, kind: Kind | None = None) -> Atomic | None:
    """The type of the field that `node` is, if it is atomic and of this kind; else None."""
    found = type_at(node.path, fields) if isinstance(node, FieldRef) else None
    return found if isinstance(found, Atomic) and kind in (None, found.kind) else None


def _is_constant(node: Node) -> bool:
    match node:
        case Negate(operand):
            return _is_constant(operand)
        case Arithmetic(_, left, right):
            return _is_constant(left) and _is_constant(right)
        case _:
            return isinstance(node, Literal)


def _no_field(path: Path) -> Any:
    raise AssertionError(f"a constant reads the field {path}")
