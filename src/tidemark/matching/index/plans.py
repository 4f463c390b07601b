"""Plans: the boxes of a selector, by fields and ranges, before they have columns and numbers."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import product
from typing import TypedDict

from tidemark.matching.forms.clause_tree import clauses_to_tree
from tidemark.matching.forms.clauses import Clause, Constraint, OneOf
from tidemark.matching.forms.constraints import as_interval
from tidemark.matching.forms.domains import type_at
from tidemark.matching.forms.normal import normalise
from tidemark.matching.index.ranges import Range, Ranges, ranges_of
from tidemark.matching.selectors.render import render
from tidemark.matching.selectors.tree import Node
from tidemark.message.batches.columns import FieldTypes
from tidemark.message.types import Dynamic, Path, Type

#: A clause that lists values for several fields may need a box for every combination.
BOXES_PER_CLAUSE_MAX = 128


@dataclass(frozen=True, slots=True)
class BoxPlan:
    """One box of a clause: ranges of fields, and conditions that must be true too."""

    clause: Clause
    ranges: tuple[tuple[Path, Range], ...]
    conditions: tuple[Node, ...]


def plans_of(tree: Node, fields: FieldTypes) -> list[BoxPlan]:
    """The plans of the boxes that together hold exactly the events for which the selector is true."""
    clauses = normalise(tree, fields)
    if clauses is None:
        return [BoxPlan(Clause((), (tree,)), (), (tree,))]
    # One clause says IN where a selector may have an OR of fifty comparisons, each compiled to 1,000 bytes.
    whole = clauses_to_tree(clauses, fields) if len(clauses) == 1 else tree
    return [plan for clause in clauses for plan in _plans(clause, whole, fields)]


def declared_type(path: Path, fields: FieldTypes) -> Type:
    """The type of a field or header; `dynamic` for a field that an open topic does not know yet."""
    return type_at(path, fields) or Dynamic()


def _plans(clause: Clause, tree: Node, fields: FieldTypes) -> list[BoxPlan]:
    found: list[tuple[Path, Ranges]] = []
    boxes = 1
    for path, constraint in clause.constraints:
        item = declared_type(path, fields)
        ranges = ranges_of(constraint, item)
        if boxes * len(ranges.alternatives) > BOXES_PER_CLAUSE_MAX:
            assert isinstance(constraint, OneOf)
            ranges = Ranges(ranges_of(as_interval(constraint), item).alternatives, exact=False)
        boxes *= len(ranges.alternatives)
        found.append((path, ranges))
    # Where the ranges are a superset, the whole selector is evaluated as a condition on the candidates.
    conditions = clause.residuals if all(ranges.exact for _, ranges in found) else (tree,)
    return [BoxPlan(clause, ranges, conditions) for ranges in _combinations(found)]


def _combinations(found: Sequence[tuple[Path, Ranges]]) -> list[tuple[tuple[Path, Range], ...]]:
    """Every choice of one alternative for each field."""
    choices = [
        [[(path, each) for each in alternative] for alternative in ranges.alternatives]
        for path, ranges in found
    ]
    return [tuple(side for sides in chosen for side in sides) for chosen in product(*choices)]


class ClauseDescription(TypedDict):
    """How the index finds the events of one clause of a selector."""

    #: the constraints by which events find the boxes of the clause; empty if every event is checked
    access: list[str]
    #: the other constraints
    checks: list[str]
    #: what is evaluated for the whole batch
    conditions: list[str]
    #: how many boxes the clause has
    boxes: int


def explain_plans(
    plans: Sequence[BoxPlan], ways: Sequence[Set[Path]], fields: FieldTypes
) -> list[ClauseDescription]:
    """Describe each clause for people; ways[plan] are the fields that lead to a plan's box."""
    clauses: dict[Clause, ClauseDescription] = {}
    for plan, way in zip(plans, ways, strict=True):
        if plan.clause in clauses:
            clauses[plan.clause]["boxes"] += 1
            continue
        texts = {path: _text(path, constraint, fields) for path, constraint in plan.clause.constraints}
        clauses[plan.clause] = {
            "access": [text for path, text in texts.items() if path in way],
            "checks": [text for path, text in texts.items() if path not in way],
            "conditions": [render(condition) for condition in plan.conditions],
            "boxes": 1,
        }
    return list(clauses.values())


def _text(path: Path, constraint: Constraint, fields: FieldTypes) -> str:
    return render(clauses_to_tree((Clause(((path, constraint),)),), fields))
