"""The disjunctive normal form of a selector: any of at most CLAUSES_MAX clauses.

An event matches the clauses exactly when the selector is true for it. NOT is pushed down to the leaves, AND
and OR are multiplied out. The set of clauses is kept small at every step, so that a selector with too many
clauses is given up after bounded work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemark.matching.forms.clause_algebra import absorb, clause_text, make_clause, meet, unite
from tidemark.matching.forms.clauses import CLAUSES_MAX, EVERYTHING, Absent, Clause, Constraint, OneOf
from tidemark.matching.forms.constraints import one_of
from tidemark.matching.forms.domains import type_at
from tidemark.matching.forms.implication import implied_by_constraint, needs_value
from tidemark.matching.forms.leaves import leaf_clauses
from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.selector import paths_of
from tidemark.matching.selectors.tree import And, Node, Not, Or
from tidemark.message.batches.columns import FieldTypes
from tidemark.message.types import TIMESTAMP, Path

#: Clauses between two steps. It is more than CLAUSES_MAX because a later step may shrink the set again.
_WORK_CLAUSES_MAX = 2 * CLAUSES_MAX
#: Residuals of all clauses between two steps: each is compared with those of the other clauses.
_WORK_RESIDUALS_MAX = 128


def normalise(tree: Node, fields: FieldTypes) -> tuple[Clause, ...] | None:
    """The clauses of a selector, sorted; None when there would be more than CLAUSES_MAX.

    () means that the selector is true for no event, (EVERYTHING,) that it is true for every event.
    """
    clauses = _multiplied(tree, True, fields)
    if clauses is None:
        return None
    settled = (_settled(item, fields) for item in clauses)
    shrunk = _shrunk(item for item in settled if item is not None)
    return None if len(shrunk) > CLAUSES_MAX else tuple(sorted(shrunk, key=clause_text))


def _multiplied(node: Node, wanted: bool, fields: FieldTypes) -> list[Clause] | None:
    """The clauses of the events for which `node` is true (`wanted`) or false (not `wanted`)."""
    match node:
        case Not(operand):
            return _multiplied(operand, not wanted, fields)
        case And(operands) | Or(operands):
            parts = (_multiplied(operand, wanted, fields) for operand in operands)
            return _all(list(parts)) if isinstance(node, And) == wanted else _any(parts)
        case _:
            return leaf_clauses(node, wanted, fields)


def _all(parts: Sequence[list[Clause] | None]) -> list[Clause] | None:
    """The clauses of the events that every part holds: one for each choice of a clause of each part."""
    if [] in parts:
        return []
    product = [EVERYTHING]
    for part in parts:
        met = None if part is None else _product(product, part)
        if met is None:
            return None
        product = met
    return product


def _product(left: Sequence[Clause], right: Sequence[Clause]) -> list[Clause] | None:
    met: dict[Clause, None] = {}
    for a in left:
        for b in right:
            both = meet(a, b)
            if both is not None:
                met[both] = None
        if len(met) > _WORK_CLAUSES_MAX:
            return None
    return None if _is_too_much(met) else _shrunk(met)


def _is_too_much(clauses: Iterable[Clause]) -> bool:
    return sum(len(each.residuals) for each in clauses) > _WORK_RESIDUALS_MAX


def _any(parts: Iterable[list[Clause] | None]) -> list[Clause] | None:
    together: list[Clause] = []
    for part in parts:
        if part is None:
            return None
        together += part
        if len(together) > _WORK_CLAUSES_MAX:
            together = _shrunk(together)
        if len(together) > _WORK_CLAUSES_MAX:
            return None
    return None if _is_too_much(together) else _shrunk(together)


def _shrunk(clauses: Iterable[Clause]) -> list[Clause]:
    united = unite(clauses)
    return absorb(united) if len(united) > 1 else united


def _settled(item: Clause, fields: FieldTypes) -> Clause | None:
    """The clause without the residuals that its own constraints decide.

    None when one of them is never true.
    """
    held = dict(item.constraints)
    undecided: list[Node] = []
    for residual in item.residuals:
        paths = paths_of(residual)
        if any(held.get(path) == Absent() and needs_value(residual, path) for path in paths):
            return None
        path = min(paths)
        constraint = held.get(path) if len(paths) == 1 else None
        if isinstance(constraint, OneOf) and type_at(path, fields) != TIMESTAMP:
            narrowed = _where_true(residual, path, constraint)
            if narrowed is None:
                return None
            held[path] = narrowed
        elif constraint is None or not implied_by_constraint(residual, path, constraint):
            undecided.append(residual)
    return make_clause(held, undecided)


def _where_true(residual: Node, path: Path, constraint: OneOf) -> Constraint | None:
    """The values of `constraint` on `path`, the residual's only field, for which the residual is true."""
    return one_of(frozenset(v for v in constraint.values if evaluate(residual, {path: v}.get) is True))
