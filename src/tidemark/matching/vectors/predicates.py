"""Predicates: which rows of a batch make a condition true.

A condition's truth over a batch is a pair of arrays, (is true, is false), and unknown where neither. AND, OR
and NOT never mix the two arrays but by swapping them: AND is true where all are true and false where any is
false. So each array is computed by a program of its own, made of predicates, and whoever only asks which rows
match never pays for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from tidemark.message.batches.columns import Bools, Column
from tidemark.message.types import Path


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a predicate reads. Rows outside `wanted` are already decided: any answer will do for them."""

    count: int
    columns: Mapping[Path, Column]
    wanted: Bools | None = None

    def among(self, rows: Bools) -> Inputs:
        """The same, wanted only where `rows` is True too."""
        return Inputs(self.count, self.columns, both(rows, self.wanted))


class Cost(IntEnum):
    """What a predicate takes; dearer ones run later, and only if rows are left to decide."""

    #: An operation or two on arrays of numbers.
    ARRAY = 0
    #: Many of them, or bytes gathered from every row.
    GATHER = 1
    #: A look at every byte of every row.
    SEARCH = 2
    #: Python for every row.
    PYTHON = 3


@dataclass(frozen=True, slots=True)
class Predicate:
    """`run` gives a new array each time: True where the condition has the truth that was asked for."""

    run: Callable[[Inputs], Bools]
    cost: Cost = Cost.ARRAY


NEVER = Predicate(lambda inputs: np.zeros(inputs.count, np.bool_))
ALWAYS = Predicate(lambda inputs: np.ones(inputs.count, np.bool_))


def all_of(predicates: Sequence[Predicate]) -> Predicate:
    """True where every predicate is, cheapest first."""
    if NEVER in predicates:
        return NEVER
    first, *rest = _by_cost(predicates, ALWAYS)

    def run(inputs: Inputs) -> Bools:
        result = first.run(inputs)
        for predicate in rest:
            if predicate.cost == Cost.ARRAY:
                result &= predicate.run(inputs)
            elif result.any():
                result &= predicate.run(inputs.among(result))
        return result

    return Predicate(run, rest[-1].cost) if rest else first


def any_of(predicates: Sequence[Predicate]) -> Predicate:
    """True where some predicate is, cheapest first."""
    if ALWAYS in predicates:
        return ALWAYS
    first, *rest = _by_cost(predicates, NEVER)

    def run(inputs: Inputs) -> Bools:
        result = first.run(inputs)
        for predicate in rest:
            if predicate.cost == Cost.ARRAY:
                result |= predicate.run(inputs)
            elif not result.all():
                result |= predicate.run(inputs.among(~result))
        return result

    return Predicate(run, rest[-1].cost) if rest else first


def both(left: Bools | None, right: Bools | None) -> Bools | None:
    """left & right, where None is all True."""
    if left is None:
        return right
    return left if right is None else left & right


def _by_cost(predicates: Sequence[Predicate], neutral: Predicate) -> list[Predicate]:
    told = [predicate for predicate in predicates if predicate is not neutral]
    return sorted(told, key=lambda predicate: predicate.cost) or [neutral]
