"""Conjunctions in normal form: the common language of the index, covering and summaries.

A selector in normal form is a disjunction of clauses; an event matches a clause when every constraint on
a field holds and every residual condition is true. A constraint is a set of values of one field's own
type, so clauses are boxes and events are points: the index asks which boxes hold a point, covering asks
which boxes hold a box.

Constants in constraints are in the field's own domain, so that they compare with plain Python operators:
int for int/long, float for float/double (never NaN, -0.0 folded into 0.0), Decimal for decimal, str for
string, bytes for bytes, bool for boolean, int microseconds for timestamp.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from tidemark.matching.selectors.tree import Node
from tidemark.message.types import Path

#: A constant in a field's own domain.
Value = bool | int | float | Decimal | str | bytes

#: A selector with more clauses than this in normal form is evaluated as a tree instead.
CLAUSES_MAX = 32


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field is one of these values; a single value is equality."""

    values: frozenset[Value]


@dataclass(frozen=True, slots=True)
class Interval:
    """The field lies between low and high; None is an end without bound. At least one end has a bound.

    A string prefix is an interval too: LIKE 'ab%' is from 'ab', included, to 'ac', not included.
    """

    low: Value | None
    high: Value | None
    low_open: bool = False
    high_open: bool = False


@dataclass(frozen=True, slots=True)
class Present:
    """The field IS NOT NULL. OneOf and Interval imply it, so it never stands beside them."""


@dataclass(frozen=True, slots=True)
class Absent:
    """The field IS NULL."""


Constraint = OneOf | Interval | Present | Absent


@dataclass(frozen=True, slots=True)
class Clause:
    """A conjunction: all constraints hold and all residuals are true. An empty clause matches every event.

    `constraints` has at most one entry for each path, sorted by path. `residuals` are conditions that are not
    a set of values of one field (arithmetic, two fields, general LIKE, <>, dynamic fields), sorted by text.
    """

    constraints: tuple[tuple[Path, Constraint], ...]
    residuals: tuple[Node, ...] = ()


EVERYTHING = Clause(())
