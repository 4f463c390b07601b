"""Conditions that Spark and Arrow push down, as selectors.

A condition is taken only if the selector keeps exactly the rows that the engine itself would keep; see
`spark.pushdown.column_tests`. Spark's filters are recognised by the names of their classes, so this module
does not import pyspark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, TypeVar

from tidemark.errors import TranslationError
from tidemark.matching.selectors.tree import And, CompareOp, Node
from tidemark.message.batches.columns import FieldTypes
from tidemark.message.types import Path
from tidemark.spark.pushdown.arrow_filters import from_arrow_expression
from tidemark.spark.pushdown.column_tests import ColumnTest, TextOp, is_writable, joined, selector

__all__ = ["from_arrow_expression", "from_spark_filters"]

Filter = TypeVar("Filter")

#: To Spark, NaN equals itself and is greater than any number.
_TRUE_FOR_NAN: tuple[CompareOp, ...] = (">", ">=")

_COMPARISONS: dict[str, CompareOp] = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_TEXT_TESTS: dict[str, TextOp] = {
    "StringStartsWith": "starts",
    "StringEndsWith": "ends",
    "StringContains": "contains",
}

#: PySpark hands a decimal over rounded to Python's usual 28 digits: one with so many digits may have been
#: rounded.
_DIGITS_ROUNDED = 28


def from_spark_filters(
    filters: Iterable[Filter],
    fields: FieldTypes,
    *,
    field: Callable[[Path], Path | None] | None = None,
) -> tuple[Node | None, list[Filter]]:
    """One selector for the filters (of pyspark.sql.datasource) that it can express, and those left to Spark.

    The selector is None if it can express none of them. `field` returns the field that a column holds, or
    None for a column that holds none; without it, a field has the path of its column.
    """
    taken: list[Node] = []
    left: list[Filter] = []
    for each in filters:
        try:
            test, wanted = _test(each, field or _same)
            node = selector(test, wanted, fields, _TRUE_FOR_NAN)
        except TranslationError:
            left.append(each)
            continue
        if is_writable(joined(And, [*taken, node])):
            taken.append(node)
        else:
            left.append(each)
    return (joined(And, taken) if taken else None), left


def _test(condition: Any, field: Callable[[Path], Path | None]) -> tuple[ColumnTest, bool]:
    """The test inside a filter, and whether the filter keeps the rows for which it is true or false."""
    wanted = True
    while type(condition).__name__ == "Not":
        condition, wanted = condition.child, not wanted
    name = type(condition).__name__
    path = field(tuple(getattr(condition, "attribute", ())))
    if not path:
        raise TranslationError(f"{name}: is not a test of a field")
    if name in ("IsNull", "IsNotNull"):
        return ColumnTest("null", path), wanted == (name == "IsNull")
    value = condition.value
    _refuse_rounded(value if name == "In" else [value])
    if name == "In":
        return ColumnTest("in", path, value), wanted
    if name in _COMPARISONS:
        return ColumnTest(_COMPARISONS[name], path, value, null_is_false=name == "EqualNullSafe"), wanted
    if name in _TEXT_TESTS:
        return ColumnTest(_TEXT_TESTS[name], path, value), wanted
    raise TranslationError(f"{name}: is not a filter that is known here")


def _refuse_rounded(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, Decimal) and len(value.as_tuple().digits) >= _DIGITS_ROUNDED:
            raise TranslationError(f"{value}: may have been rounded on its way here")


def _same(path: Path) -> Path:
    return path
