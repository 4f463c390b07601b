"""Scanning: selectors that no index can find, so that every event of their topics is held against them.

A range, a list of values, a prefix or a test for NULL leads from an event to the selectors that it may be
true for. A LIKE that begins with a wildcard, `<>`, NOT IN, NOT LIKE and comparisons between fields do not. A
selector is found by any one of the conditions that all have to hold; of alternatives each has to be found.
"""

from __future__ import annotations

from tidemark.matching.selectors.like import Pattern
from tidemark.matching.selectors.selector import paths_of
from tidemark.matching.selectors.tree import (
    OPPOSITE,
    And,
    Between,
    Compare,
    FieldRef,
    In,
    IsNull,
    Like,
    Node,
    Not,
    Or,
)


def is_scanned(node: Node, *, wanted: bool = True) -> bool:
    """Return whether every event has to be looked at for this condition, or for its negation.

    Judged without the types of fields: a field that has no one type makes its conditions costly too.
    """
    match node:
        case Not(operand):
            return is_scanned(operand, wanted=not wanted)
        case And(operands) | Or(operands):
            parts = (is_scanned(operand, wanted=wanted) for operand in operands)
            return all(parts) if isinstance(node, And) == wanted else any(parts)
        case Compare(op, left, right):
            is_simple = _is_field(left, right) or _is_field(right, left)
            return not is_simple or (op if wanted else OPPOSITE[op]) == "<>"
        case Between(operand, low, high):
            return not _is_field(operand, low, high)
        case In(operand, _, negated):
            return not isinstance(operand, FieldRef) or negated == wanted
        case Like(operand, pattern, escape, negated):
            prefix = Pattern.compile(pattern, escape).prefix
            return not isinstance(operand, FieldRef) or negated == wanted or not prefix
        case IsNull() | FieldRef():
            return False
        case _:
            return bool(paths_of(node))


def _is_field(field: Node, *constants: Node) -> bool:
    """Whether this is a field and the others read none."""
    return isinstance(field, FieldRef) and not any(map(paths_of, constants))
