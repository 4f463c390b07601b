"""Clauses as boxes: their intersection, covering, and how a set of clauses shrinks without loss."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemark.matching.forms.clauses import Clause, Constraint, OneOf, Present, Value
from tidemark.matching.forms.constraints import contains, intersect, one_of, ordered
from tidemark.matching.forms.implication import implied_by_constraint, implied_by_residual, needs_value
from tidemark.matching.selectors.render import render
from tidemark.matching.selectors.tree import Node
from tidemark.message.types import Path


def box(path: Path, constraint: Constraint | None) -> list[Clause]:
    """The clauses of one constraint: one, or none for the constraint None that nothing satisfies."""
    return [] if constraint is None else [Clause(((path, constraint),))]


def make_clause(constraints: dict[Path, Constraint], residuals: Iterable[Node]) -> Clause:
    """The clause of these constraints and residuals, in the order that `Clause` asks for."""
    unique = tuple(dict.fromkeys(residuals))
    if len(unique) > 1:
        unique = tuple(sorted(unique, key=render))
    return Clause(tuple(sorted(constraints.items(), key=lambda item: item[0])), unique)


def meet(a: Clause, b: Clause) -> Clause | None:
    """The clause of the events in both clauses; None when there can be none."""
    if not (a.constraints or a.residuals):
        return b
    constraints = dict(a.constraints)
    for path, constraint in b.constraints:
        both = intersect(constraints[path], constraint) if path in constraints else constraint
        if both is None:
            return None
        constraints[path] = both
    return make_clause(constraints, a.residuals + b.residuals)


def covers_clause(a: Clause, b: Clause) -> bool:
    """Does every event in `b` lie in `a`? False also means "not known"."""
    if len(a.constraints) > len(b.constraints) + len(b.residuals):
        return False
    held = dict(b.constraints)
    return all(_holds(path, constraint, held.get(path), b) for path, constraint in a.constraints) and all(
        _follows(residual, held, b) for residual in a.residuals
    )


def absorb(clauses: Sequence[Clause]) -> list[Clause]:
    """The clauses without those that another one covers; of two that cover each other the first stays."""
    kept: list[Clause] = []
    for new in clauses:
        if any(covers_clause(old, new) for old in kept):
            continue
        kept = [old for old in kept if not covers_clause(new, old)]
        kept.append(new)
    return kept


def unite(clauses: Iterable[Clause], values_max: int | None = None) -> list[Clause]:
    """The clauses, with those that differ only in the values listed for one field made one.

    Such a clause lists at most `values_max` values; more values make several clauses.
    """
    united = list(dict.fromkeys(clauses))
    count = len(united) + 1
    while 1 < len(united) < count:  # clauses united at one field may now differ in one other field only
        count = len(united)
        for path in _listed_paths(united):
            united = _unite_at(path, united, values_max)
    return united


def clause_text(item: Clause) -> tuple[str, ...]:
    """A key that sorts clauses the same way in every run."""
    held = (f"{path!r} {_constraint_text(constraint)}" for path, constraint in item.constraints)
    return (*held, *map(render, item.residuals))


def _holds(path: Path, wanted: Constraint, held: Constraint | None, b: Clause) -> bool:
    """Does the value at `path` satisfy `wanted` in every event of `b`?"""
    if held is not None and contains(wanted, held):
        return True
    return isinstance(wanted, Present) and any(needs_value(residual, path) for residual in b.residuals)


def _follows(wanted: Node, held: dict[Path, Constraint], b: Clause) -> bool:
    """Is the residual `wanted` true for every event of `b`?"""
    if wanted in b.residuals or any(implied_by_residual(wanted, given) for given in b.residuals):
        return True
    return any(implied_by_constraint(wanted, path, constraint) for path, constraint in held.items())


def _listed_paths(clauses: Iterable[Clause]) -> list[Path]:
    return sorted({path for item in clauses for path, held in item.constraints if isinstance(held, OneOf)})


def _unite_at(path: Path, clauses: Sequence[Clause], values_max: int | None) -> list[Clause]:
    groups: dict[object, list[Clause]] = {}
    for index, item in enumerate(clauses):
        rest = tuple(pair for pair in item.constraints if pair[0] != path)
        listed = any(isinstance(held, OneOf) for at, held in item.constraints if at == path)
        groups.setdefault((rest, item.residuals) if listed else index, []).append(item)
    return [
        item
        for group in groups.values()
        for item in (_united(path, group, values_max) if len(group) > 1 else group)
    ]


def _united(path: Path, group: Sequence[Clause], values_max: int | None) -> list[Clause]:
    """The clauses of a group that differ only in the values listed at `path`, as few as possible."""
    values = ordered({value for item in group for value in _listed(item, path)})
    size = values_max or len(values)
    pieces = (one_of(frozenset(values[at : at + size])) for at in range(0, len(values), size))
    held = dict(group[0].constraints)
    return [make_clause(held | {path: piece}, group[0].residuals) for piece in pieces if piece is not None]


def _listed(item: Clause, path: Path) -> frozenset[Value]:
    found = dict(item.constraints)[path]
    assert isinstance(found, OneOf)
    return found.values


def _constraint_text(constraint: Constraint) -> str:
    # The repr of a set has its items in the order of their hashes, which changes from run to run.
    return repr(sorted(map(repr, constraint.values))) if isinstance(constraint, OneOf) else repr(constraint)
