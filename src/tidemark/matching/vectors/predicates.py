"""Predicates: which rows of a batch make a condition true.

The truth of a condition over a batch is a pair of arrays, (is true, is false); it is unknown where neither is
set. AND and OR never mix the two arrays, and NOT swaps them: AND is true where all operands are true and
false where any is false. So each array is computed by a program of its own, made of predicates, and a caller
that only needs the rows that match does not pay for the other.
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
    """What a predicate reads."""

    #: number of rows
    count: int
    columns: Mapping[Path, Column]
    #: rows that are not decided yet (None: all); for other rows the predicate may return anything
    wanted: Bools | None = None

    def among(self, rows: Bools) -> Inputs:
        """These inputs, wanted only where `rows` is True too."""
        return Inputs(self.count, self.columns, both(rows, self.wanted))


class Cost(IntEnum):
    """The cost of a predicate; costly ones run later, and only if rows are left to decide."""

    #: an operation or two on arrays of numbers
    ARRAY = 0
    #: many such operations, or bytes gathered from every row
    GATHER = 1
    #: a look at every byte of every row
    SEARCH = 2
    #: a call of a Python function for every row
    PYTHON = 3


@dataclass(frozen=True, slots=True)
class Predicate:
    """A compiled condition: `run` returns a new array, True where it has the truth it was compiled for."""

    run: Callable[[Inputs], Bools]
    cost: Cost = Cost.ARRAY


NEVER = Predicate(lambda inputs: np.zeros(inputs.count, np.bool_))
ALWAYS = Predicate(lambda inputs: np.ones(inputs.count, np.bool_))


def all_of(predicates: Sequence[Predicate]) -> Predicate:
    """The predicate that is true where all of these are; the cheapest run first."""
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
    """The predicate that is true where any of these is; the cheapest run first."""
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
    relevant = [predicate for predicate in predicates if predicate is not neutral]
    return sorted(relevant, key=lambda predicate: predicate.cost) or [neutral]
