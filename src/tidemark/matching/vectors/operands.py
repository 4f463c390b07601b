"""Operands: the values that comparisons compare, a whole column at a time.

An operand is a constant, a series that is read or computed from columns, or None for one that is NULL in
every event, such as arithmetic on strings. The domain of an operand says how its values look as arrays;
comparisons are defined between domains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from tidemark.matching.selectors.evaluate import value_of
from tidemark.matching.selectors.tree import Arithmetic, ArithmeticOp, FieldRef, Literal, Negate, Node
from tidemark.matching.vectors import arithmetic, decimals
from tidemark.matching.vectors.predicates import Inputs, both
from tidemark.message.batches.columns import Bools, Decimals
from tidemark.message.types import Atomic, Kind, Path, Type


class Domain(Enum):
    """How values look as arrays (see `Column`), and what they compare with."""

    BOOLEAN = "boolean"
    LONG = "long"
    DOUBLE = "double"
    DECIMAL = "decimal"
    STRING = "string"
    BYTES = "bytes"
    TIMESTAMP = "timestamp"


NUMBERS = (Domain.LONG, Domain.DOUBLE, Domain.DECIMAL)

_DOMAINS: dict[Kind, Domain] = {
    Kind.BOOLEAN: Domain.BOOLEAN,
    Kind.INT: Domain.LONG,
    Kind.LONG: Domain.LONG,
    Kind.FLOAT: Domain.DOUBLE,
    Kind.DOUBLE: Domain.DOUBLE,
    Kind.DECIMAL: Domain.DECIMAL,
    Kind.STRING: Domain.STRING,
    Kind.BYTES: Domain.BYTES,
    Kind.TIMESTAMP: Domain.TIMESTAMP,
}


class Vector(NamedTuple):
    """values[row] as `Column` has them.

    Valid[row] is False where NULL, and `valid` None if no row is NULL.
    """

    values: Any
    valid: Bools | None


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is the same for every row. `text` is how a literal was written, "" if it was computed."""

    value: bool | int | float | str | bytes | datetime
    text: str = ""

    @property
    def domain(self) -> Domain:
        return domain_of(self.value)


@dataclass(frozen=True, slots=True)
class Series:
    """A value for each row. `scale` is the scale of decimals, 0 in all other domains."""

    domain: Domain
    read: Callable[[Inputs], Vector]
    scale: int = 0


Operand = Constant | Series | None


def operand(node: Node, types: Mapping[Path, Type]) -> Operand:
    """The operand of a value node over fields of atomic types."""
    match node:
        case Literal(value, text):
            return Constant(value, text)
        case FieldRef(path):
            return _field(path, types[path])
        case Negate(inner):
            return _negated(node, operand(inner, types))
        case Arithmetic(op, left, right):
            return _calculated(node, op, operand(left, types), operand(right, types))
        case _:
            raise AssertionError("a condition stands where a value should")


def domain_of(value: Any) -> Domain:
    """The domain of a constant."""
    match value:
        case bool():
            return Domain.BOOLEAN
        case int():
            return Domain.LONG
        case float():
            return Domain.DOUBLE
        case str():
            return Domain.STRING
        case bytes():
            return Domain.BYTES
        case datetime():
            return Domain.TIMESTAMP
        case _:
            raise AssertionError(f"a selector has no constant of {type(value)}")


def promoted(series: Series) -> Series:
    """A series of numbers as doubles."""
    match series.domain:
        case Domain.LONG:
            return _mapped(series, Domain.DOUBLE, lambda values: values.astype(np.float64))
        case Domain.DECIMAL:
            return _mapped(series, Domain.DOUBLE, decimals.to_doubles)
        case _:
            assert series.domain is Domain.DOUBLE
            return series


def exactly(series: Series) -> Series:
    """A series of longs or decimals as decimals."""
    if series.domain is Domain.DECIMAL:
        return series
    assert series.domain is Domain.LONG
    return _mapped(series, Domain.DECIMAL, decimals.from_longs)


def _field(path: Path, item: Type) -> Series:
    assert isinstance(item, Atomic)
    scale = item.scale

    def read(inputs: Inputs) -> Vector:
        column = inputs.columns[path]
        assert not isinstance(column.values, Decimals) or column.values.scale == scale
        return Vector(column.values, column.valid)

    return Series(_DOMAINS[item.kind], read, scale)


def _constant(node: Node) -> Constant | None:
    value = value_of(node, lambda _: None)
    return None if value is None else Constant(value)


def _mapped(series: Series, domain: Domain, function: Callable[[Any], Any]) -> Series:
    read = series.read

    def run(inputs: Inputs) -> Vector:
        values, valid = read(inputs)
        return Vector(function(values), valid)

    return Series(domain, run)


def _negated(node: Node, inner: Operand) -> Operand:
    if inner is None or inner.domain not in NUMBERS:
        return None
    if isinstance(inner, Constant):
        return _constant(node)
    if inner.domain is Domain.LONG:
        return _calculated_longs("-", Constant(0), inner)
    return _mapped(promoted(inner), Domain.DOUBLE, np.negative)


def _calculated(node: Node, op: ArithmeticOp, left: Operand, right: Operand) -> Operand:
    if left is None or right is None or left.domain not in NUMBERS or right.domain not in NUMBERS:
        return None
    if isinstance(left, Constant) and isinstance(right, Constant):
        return _constant(node)
    if op != "/" and left.domain is Domain.LONG and right.domain is Domain.LONG:
        return _calculated_longs(op, left, right)
    return _calculated_doubles(op, left, right)


def _calculated_longs(op: ArithmeticOp, left: Constant | Series, right: Constant | Series) -> Series:
    left_read, right_read = _reader(left, np.int64), _reader(right, np.int64)

    def read(inputs: Inputs) -> Vector:
        (a, a_valid), (b, b_valid) = left_read(inputs), right_read(inputs)
        result, fits = arithmetic.calculate_longs(op, a, b)
        return Vector(result, both(both(fits, a_valid), b_valid))

    return Series(Domain.LONG, read)


def _calculated_doubles(op: ArithmeticOp, left: Constant | Series, right: Constant | Series) -> Series:
    left_read, right_read = _reader(left, np.float64), _reader(right, np.float64)

    def read(inputs: Inputs) -> Vector:
        (a, a_valid), (b, b_valid) = left_read(inputs), right_read(inputs)
        return Vector(arithmetic.calculate_doubles(op, a, b), both(a_valid, b_valid))

    return Series(Domain.DOUBLE, read)


def _reader(source: Constant | Series, dtype: type[np.int64 | np.float64]) -> Callable[[Inputs], Vector]:
    """A function that reads one side of a calculation in the type of the calculation.

    A constant is an array without dimensions, because numpy's scalars warn on overflow.
    """
    if isinstance(source, Constant):
        constant = Vector(np.array(source.value, dtype), None)
        return lambda _: constant
    return source.read if dtype is np.int64 else promoted(source).read
