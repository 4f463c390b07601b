"""A selector over a whole batch at once, as numpy.

The tree is compiled to predicates (`matching.vectors.predicates`), which take arrays and return one array.
They agree with `matching.selectors.evaluate` on every event. The type of a column is known only when a batch
arrives, because schemas evolve and events of an open topic differ. So a condition is compiled for the types
that the columns have, and the program for each combination of types is kept. The types that are known
beforehand only decide which program is compiled first.

Conditions on fields without arrays (`dynamic`, lists, tuples, variants) are evaluated row by row
(`matching.vectors.rowwise`). All others work on arrays, but for the rare rows that the modules `strings`,
`span_patterns` and `decimals` of this package name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tidemark.matching.forms.domains import type_at
from tidemark.matching.selectors.evaluate import evaluate
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
    Literal,
    Node,
    Not,
    Or,
)
from tidemark.matching.vectors.comparisons import among, compare
from tidemark.matching.vectors.operands import Constant, Domain, operand
from tidemark.matching.vectors.predicates import ALWAYS, NEVER, Cost, Inputs, Predicate, all_of, any_of
from tidemark.matching.vectors.rowwise import hold_rows, present
from tidemark.matching.vectors.span_patterns import SpanPattern
from tidemark.message.batches.columns import Bools, ColumnSource, FieldTypes
from tidemark.message.types import Atomic, Path, Type

#: Combinations of column types for which a condition keeps programs; with one more it drops them all.
PROGRAMS_MAX = 16


@dataclass(slots=True, eq=False)
class Condition:
    """A compiled selector. The arrays that it returns are new: the caller may change them."""

    tree: Node
    paths: tuple[Path, ...]
    _programs: dict[tuple[bool, tuple[Type, ...]], Predicate] = field(default_factory=dict)

    def matched(self, columns: ColumnSource) -> Bools:
        """matched[row]: the selector is true."""
        return self._run(columns, True)

    def truth(self, columns: ColumnSource) -> tuple[Bools, Bools]:
        """is_true[row] and is_false[row]; where neither is set the selector is unknown."""
        return self._run(columns, True), self._run(columns, False)

    def __reduce__(self) -> tuple[type[Condition], tuple[Node, tuple[Path, ...]]]:
        """Programs are closures and are not pickled: a condition compiles again where it is unpickled."""
        return Condition, (self.tree, self.paths)

    def _run(self, columns: ColumnSource, truth: bool) -> Bools:
        held = {path: columns.column(path) for path in self.paths}
        program = self._program(truth, tuple([column.type for column in held.values()]))
        return program.run(Inputs(columns.count, held))

    def _program(self, truth: bool, types: tuple[Type, ...]) -> Predicate:
        program = self._programs.get((truth, types))
        if program is None:
            if len(self._programs) == PROGRAMS_MAX:
                self._programs.clear()
            program = _holds(self.tree, truth, dict(zip(self.paths, types, strict=True)))
            self._programs[truth, types] = program
        return program


def compile_condition(tree: Node, fields: FieldTypes) -> Condition:
    """The compiled condition of a checked tree. The columns may have other types than `fields` says."""
    condition = Condition(tree, tuple(sorted(paths_of(tree))))
    expected = [type_at(path, fields) for path in condition.paths]
    known = tuple([item for item in expected if item is not None])
    if len(known) == len(expected):
        condition._program(True, known)
    return condition


def _holds(node: Node, truth: bool, types: Mapping[Path, Type]) -> Predicate:
    """The predicate that the condition is `truth`, which is True or False."""
    match node:
        case Not(inner):
            return _holds(inner, not truth, types)
        case And(operands) | Or(operands):
            parts = [_holds(each, truth, types) for each in operands]
            return all_of(parts) if isinstance(node, And) == truth else any_of(parts)
        case Between(inner, low, high, negated):
            ends = And((Compare(">=", inner, low), Compare("<=", inner, high)))
            return _holds(ends, truth != negated, types)
        case IsNull(FieldRef(path), negated):
            return _present(path, truth == negated)
        case Compare() | In() | Like() | FieldRef() | Literal():
            return _leaf(node, truth, types)
        case _:
            raise AssertionError("a number stands where a condition should")


def _leaf(
    node: Compare | In | Like | FieldRef | Literal, truth: bool, types: Mapping[Path, Type]
) -> Predicate:
    paths = sorted(paths_of(node))
    if not paths:
        return ALWAYS if evaluate(node, lambda _: None) is truth else NEVER
    assert not isinstance(node, Literal)
    if not all(isinstance(types[path], Atomic) for path in paths):
        return hold_rows(node, paths, truth)
    match node:
        case Compare(op, left, right):
            return compare(op if truth else OPPOSITE[op], operand(left, types), operand(right, types))
        case In(inner, values, negated):
            return _among(inner, values, truth == negated, types)
        case Like(inner, pattern, escape, negated):
            return _like(inner, SpanPattern(pattern, escape), truth == negated, types)
        case _:
            return compare("=", operand(node, types), Constant(truth))


def _among(inner: Node, values: tuple[Literal, ...], negated: bool, types: Mapping[Path, Type]) -> Predicate:
    series = operand(inner, types)
    assert not isinstance(series, Constant)
    constants = [Constant(literal.value, literal.text) for literal in values]
    return NEVER if series is None else among(series, constants, negated)


def _like(inner: Node, pattern: SpanPattern, negated: bool, types: Mapping[Path, Type]) -> Predicate:
    series = operand(inner, types)
    assert not isinstance(series, Constant)
    if series is None or series.domain is not Domain.STRING:
        return NEVER

    def run(inputs: Inputs) -> Bools:
        values, valid = series.read(inputs)
        matched = pattern.matches(values, inputs.wanted)
        if negated:
            np.logical_not(matched, out=matched)
        if valid is not None:
            matched &= valid
        return matched

    return Predicate(run, Cost.SEARCH)


def _present(path: Path, is_present: bool) -> Predicate:
    def run(inputs: Inputs) -> Bools:
        known = present(inputs.columns[path])
        if known is None:
            return np.full(inputs.count, is_present)
        return known.copy() if is_present else ~known

    return Predicate(run)
