"""Clauses back to a selector's tree: the inverse of `normalise`.

The tree can be rendered and parsed again, and its normal form is the clauses it was made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

from tidemark.matching.forms.clauses import Absent, Clause, Constraint, Interval, OneOf, Present, Value
from tidemark.matching.forms.constraints import ordered
from tidemark.matching.forms.domains import instant, successor, type_at
from tidemark.matching.selectors.literals import LONG_MAX, LONG_MIN
from tidemark.matching.selectors.tree import (
    FALSE,
    TRUE,
    And,
    Between,
    Compare,
    FieldRef,
    In,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
    Or,
)
from tidemark.message.batches.columns import FieldTypes
from tidemark.message.types import TIMESTAMP, Path

_ESCAPE = "\\"


def clauses_to_tree(clauses: Sequence[Clause], fields: FieldTypes | None = None) -> Node:
    """The condition that any of the clauses holds. Without `fields` no field is taken for a timestamp."""
    branches = [_branch(clause, fields) for clause in clauses]
    if not branches:
        return FALSE
    return branches[0] if len(branches) == 1 else Or(tuple(_flat(Or, branches)))


def _branch(clause: Clause, fields: FieldTypes | None) -> Node:
    conditions: list[Node] = []
    for path, constraint in clause.constraints:
        is_timestamp = fields is not None and type_at(path, fields) == TIMESTAMP
        conditions += _conditions(path, constraint, is_timestamp)
    conditions = _flat(And, (*conditions, *clause.residuals))
    if not conditions:
        return TRUE
    return conditions[0] if len(conditions) == 1 else And(tuple(conditions))


def _flat(kind: type[And] | type[Or], nodes: Iterable[Node]) -> list[Node]:
    """The nodes, with the operands in place of each node of this kind: a chain of ANDs is one AND."""
    return [operand for node in nodes for operand in (node.operands if isinstance(node, kind) else (node,))]


def _conditions(path: Path, constraint: Constraint, is_timestamp: bool) -> list[Node]:
    ref = FieldRef(path)
    match constraint:
        case Absent():
            return [IsNull(ref)]
        case Present():
            return [IsNull(ref, negated=True)]
        case OneOf(values):
            return [_listed(ref, [_literal(value, is_timestamp) for value in ordered(values)])]
        case Interval():
            return _ranged(ref, constraint, is_timestamp)


def _listed(ref: FieldRef, literals: list[Literal]) -> Node:
    if len(literals) > 1:
        return In(ref, tuple(literals))
    if isinstance(literals[0].value, bool):
        return ref if literals[0].value else Not(ref)
    return Compare("=", ref, literals[0])


def _ranged(ref: FieldRef, bounds: Interval, is_timestamp: bool) -> list[Node]:
    if _is_prefix(bounds):
        assert isinstance(bounds.low, str)
        return [_like(ref, bounds.low)]
    low = None if bounds.low is None else _literal(bounds.low, is_timestamp)
    high = None if bounds.high is None else _literal(bounds.high, is_timestamp)
    if low and high and not (bounds.low_open or bounds.high_open):
        return [Between(ref, low, high)]
    ends: list[Node] = []
    if low:
        ends.append(Compare(">" if bounds.low_open else ">=", ref, low))
    if high:
        ends.append(Compare("<" if bounds.high_open else "<=", ref, high))
    return ends


def _is_prefix(bounds: Interval) -> bool:
    if not isinstance(bounds.low, str) or bounds.low_open or not bounds.high_open:
        return False
    return bool(bounds.low) and bounds.high == successor(bounds.low)


def _like(ref: FieldRef, prefix: str) -> Like:
    if not any(special in prefix for special in "%_"):
        return Like(ref, prefix + "%")
    escaped = "".join(_ESCAPE + c if c in ("%", "_", _ESCAPE) else c for c in prefix)
    return Like(ref, escaped + "%", _ESCAPE)


def _literal(value: Value, is_timestamp: bool) -> Literal:
    if isinstance(value, bool | str | bytes):
        return Literal(value)
    if isinstance(value, Decimal):
        return _decimal(value)
    if is_timestamp:
        assert isinstance(value, int)
        return Literal(instant(value))
    return Literal(value, repr(value))


def _decimal(value: Decimal) -> Literal:
    """A whole number if an exact literal can hold it, else an approximate literal with the same digits."""
    if LONG_MIN <= value <= LONG_MAX and value == int(value):
        return Literal(int(value), str(int(value)))
    text = str(value)
    if not set(text) & set(".E"):
        text += ".0"
    return Literal(float(text), text)
