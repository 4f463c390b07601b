"""A selector as a Spark SQL expression: true, false and NULL where the selector is true, false and unknown.

The expression can be put anywhere, also under a NOT, because:
- it never fails at run time, in ANSI mode or out of it: sums that overflow and division by zero are NULL;
- it depends on no setting of the session (see `spark.sql.text`);
- NaN, which Spark orders above all numbers, is NULL wherever it is compared.
Columns are those of `tidemark.message.foreign.arrow.types`; headers are columns by their own names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from math import isnan
from typing import NoReturn

from tidemark.errors import TranslationError
from tidemark.matching.forms.domains import type_at
from tidemark.matching.selectors.like import Pattern
from tidemark.matching.selectors.render import render
from tidemark.matching.selectors.tree import (
    And,
    Arithmetic,
    ArithmeticOp,
    Between,
    Compare,
    CompareOp,
    Constant,
    FieldRef,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Node,
    Not,
    Or,
)
from tidemark.message.batches.columns import FieldTypes
from tidemark.message.types import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    Atomic,
    Dynamic,
    Kind,
    Path,
    Reference,
    Type,
    path_text,
)
from tidemark.spark.sql.decimals import against_constant, common_type, digits_of
from tidemark.spark.sql.like import like_text
from tidemark.spark.sql.text import (
    bytes_text,
    column_text,
    double_text,
    long_text,
    string_text,
    timestamp_text,
)

_ARITHMETIC: dict[ArithmeticOp, str] = {
    "+": "try_add",
    "-": "try_subtract",
    "*": "try_multiply",
    "/": "try_divide",
}
_FLIPPED: dict[CompareOp, CompareOp] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def to_spark_sql(tree: Node, fields: FieldTypes, *, column: Callable[[Path], str] | None = None) -> str:
    """The expression that is true for exactly the events that `tree` matches.

    `column` returns the column of a field, for columns that do not have the field's own path, as may happen
    in variants: `EventColumns(root).text` is such a function. Raises TranslationError for a field whose type
    is known only with the event, and for a comparison that does not fit into Spark's 38 decimal digits.
    """
    return _Writer(fields, column or column_text).condition(tree)


def plain_conjuncts(tree: Node, fields: FieldTypes, *, column: Callable[[Path], str]) -> list[str]:
    """Comparisons of floating-point columns with constants that hold wherever `tree` is true.

    A column inside `nanvl` says nothing to a Parquet reader. These say the same without it, beside the
    condition: for NaN they may be true or false, but there the condition is not true anyway.
    """
    found: list[str] = []
    for node in tree.operands if isinstance(tree, And) else (tree,):
        match node:
            case Compare(op, FieldRef(path), Literal(value)):
                tests = [(op, path, value)]
            case Compare(op, Literal(value), FieldRef(path)):
                tests = [(_FLIPPED[op], path, value)]
            case Between(FieldRef(path), Literal(low), Literal(high), False):
                tests = [(">=", path, low), ("<=", path, high)]
            case _:
                continue
        for op, path, value in tests:
            if op == "<>" or type_at(path, fields) != DOUBLE:
                continue
            if isinstance(value, int | float) and not isinstance(value, bool):
                found.append(f"{column(path)} {op} {double_text(float(value))}")
    return found


@dataclass(frozen=True, slots=True)
class _Value:
    """An expression with one value. Integers are BIGINT and floating-point numbers are DOUBLE."""

    sql: str
    type: Atomic
    may_be_nan: bool = False


class _Writer:
    def __init__(self, fields: FieldTypes, column: Callable[[Path], str]) -> None:
        self._fields = fields
        self._column = column

    def condition(self, node: Node) -> str:
        """A condition as text that binds at least as tightly as NOT."""
        match node:
            case And(operands):
                return f"({' AND '.join(map(self.condition, operands))})"
            case Or(operands):
                return f"({' OR '.join(map(self.condition, operands))})"
            case Not(operand):
                return _negated(True, self.condition(operand))
            case Compare(op, left, right):
                return self._compare(op, left, right)
            case Between(operand, low, high, negated):
                ends = f"({self._compare('>=', operand, low)} AND {self._compare('<=', operand, high)})"
                return _negated(negated, ends)
            case In(operand, values, negated):
                return _negated(negated, self._is_one_of(operand, values))
            case Like(operand, pattern, escape, negated):
                value = self._of_type(STRING, operand)
                return _negated(negated, like_text(value, Pattern.compile(pattern, escape)))
            case IsNull(operand, negated):
                self._type(operand.path)
                return f"{self._column(operand.path)} IS {'NOT ' if negated else ''}NULL"
            case _:
                return self._of_type(BOOLEAN, node)

    def _compare(self, op: CompareOp, left: Node, right: Node) -> str:
        return " ".join(self._test(op, left, right))

    def _test(self, op: CompareOp, left: Node, right: Node) -> tuple[str, CompareOp, str]:
        """Left side, operator and right side of a comparison."""
        a, b = self._value(left), self._value(right)
        if a.type.kind is Kind.DECIMAL and (digits := digits_of(right)) is not None:
            return against_constant(op, a.sql, a.type, digits)
        if b.type.kind is Kind.DECIMAL and (digits := digits_of(left)) is not None:
            return against_constant(_FLIPPED[op], b.sql, b.type, digits)
        if a.type == BOOLEAN and op not in ("=", "<>"):
            _refuse(left, "booleans have no order")
        first, second = _alike(a, b)
        return first, op, second

    def _is_one_of(self, operand: Node, values: tuple[Literal, ...]) -> str:
        """Is the operand equal to any of the values? Values that compare in the same way share one IN."""
        lists: dict[tuple[str, CompareOp], list[str]] = {}
        for value in values:
            left, op, right = self._test("=", operand, value)
            lists.setdefault((left, op), []).append(right)
        tests = [
            f"{left} IN ({', '.join(rights)})" if op == "=" else f"{left} {op} {rights[0]}"
            for (left, op), rights in lists.items()
        ]
        return tests[0] if len(tests) == 1 else f"({' OR '.join(tests)})"

    def _value(self, node: Node) -> _Value:
        match node:
            case Literal(value):
                return _constant(value)
            case FieldRef(path):
                return self._field(path)
            case Negate(operand):
                return self._calculation("-", Literal(0, "0"), operand)
            case Arithmetic(op, left, right):
                return self._calculation(op, left, right)
            case _:
                _refuse(node, "a condition where a value should be")

    def _field(self, path: Path) -> _Value:
        column = self._column(path)
        item = self._type(path)
        if not isinstance(item, Atomic):
            raise TranslationError(f"{path_text(path)}: is not one value; name a field inside it")
        if item == INT:
            return _Value(f"CAST({column} AS BIGINT)", LONG)
        if item == FLOAT:
            return _Value(f"CAST({column} AS DOUBLE)", DOUBLE, may_be_nan=True)
        return _Value(column, item, may_be_nan=item == DOUBLE)

    def _type(self, path: Path) -> Type:
        item = type_at(path, self._fields)
        if item is None:
            raise TranslationError(f"{path_text(path)}: there is no such field, hence no column")
        if isinstance(item, Dynamic | Reference):
            raise TranslationError(f"{path_text(path)}: is dynamic; Spark has no type for it to compare by")
        return item

    def _calculation(self, op: ArithmeticOp, left: Node, right: Node) -> _Value:
        a, b = self._number(left), self._number(right)
        if op != "/" and a.type == b.type == LONG:
            return _Value(f"{_ARITHMETIC[op]}({a.sql}, {b.sql})", LONG)
        return _Value(f"{_ARITHMETIC[op]}({_as_double(a)}, {_as_double(b)})", DOUBLE, may_be_nan=True)

    def _number(self, node: Node) -> _Value:
        value = self._value(node)
        return value if _is_number(value) else _refuse(node, "is not a number")

    def _of_type(self, item: Atomic, node: Node) -> str:
        value = self._value(node)
        return value.sql if value.type == item else _refuse(node, f"is not a {item.kind.value}")


def _constant(value: Constant) -> _Value:
    match value:
        case bool():
            return _Value("true" if value else "false", BOOLEAN)
        case int():
            return _Value(long_text(value), LONG)
        case float():
            return _Value(double_text(value), DOUBLE, may_be_nan=isnan(value))
        case str():
            return _Value(string_text(value), STRING)
        case bytes():
            return _Value(bytes_text(value), BYTES)
        case datetime():
            return _Value(timestamp_text(value), TIMESTAMP)


def _alike(a: _Value, b: _Value) -> tuple[str, str]:
    """Both operands in one type, so that Spark compares them without a promotion of its own."""
    if _is_number(a) and _is_number(b):
        if DOUBLE in (a.type, b.type):
            return _comparable_double(a), _comparable_double(b)
        if a.type != b.type:
            common = common_type(a.type, b.type)
            return f"CAST({a.sql} AS {common})", f"CAST({b.sql} AS {common})"
    elif a.type != b.type:
        raise TranslationError(
            f"{a.sql} ({a.type.kind.value}) never compares with {b.sql} ({b.type.kind.value})"
        )
    return a.sql, b.sql


def _as_double(value: _Value) -> str:
    return value.sql if value.type == DOUBLE else f"CAST({value.sql} AS DOUBLE)"


def _comparable_double(value: _Value) -> str:
    return f"nanvl({value.sql}, CAST(NULL AS DOUBLE))" if value.may_be_nan else _as_double(value)


def _is_number(value: _Value) -> bool:
    return value.type in (LONG, DOUBLE) or value.type.kind is Kind.DECIMAL


def _negated(negated: bool, condition: str) -> str:
    return f"NOT ({condition})" if negated else condition


def _refuse(node: Node, reason: str) -> NoReturn:
    raise TranslationError(f"`{render(node)}`: {reason}")
