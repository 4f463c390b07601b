"""Comparisons with decimals as Spark SQL, exactly.

Spark rounds a decimal that needs more than 38 digits, so nothing is left to Spark's own promotions. A
constant is converted to the type of the decimal that it is compared with, and the operator is changed to fit:
for a `decimal(9, 2)`, `x < 0.001` means the same as `x <= 0.00`. Two decimals are compared in a type that
holds both.
"""

from __future__ import annotations

from decimal import ROUND_FLOOR, Context, Decimal

from tidemark.errors import TranslationError
from tidemark.matching.selectors.tree import CompareOp, Literal, Node
from tidemark.message.types import Atomic, Kind, decimal
from tidemark.spark.sql.text import decimal_text, decimal_type

_PRECISION_MAX = 38
_LONG_DIGITS = 19

#: Holds every value of every decimal type, and one unit more.
_WIDE = Context(prec=_PRECISION_MAX + 1)


def digits_of(node: Node) -> Decimal | None:
    """The digits of a numeric literal as written; None for any other node."""
    if (
        not isinstance(node, Literal)
        or isinstance(node.value, bool)
        or not isinstance(node.value, int | float)
    ):
        return None
    return Decimal(node.text) if isinstance(node.value, float) else Decimal(node.value)


def against_constant(op: CompareOp, sql: str, item: Atomic, constant: Decimal) -> tuple[str, CompareOp, str]:
    """Left side, operator and right side of `sql op constant`, for `sql` of the decimal type `item`."""
    unit = Decimal(1).scaleb(-item.scale)
    largest = Decimal(10**item.precision - 1).scaleb(-item.scale, _WIDE)
    least = largest.copy_negate()  # a minus sign would round to 28 digits
    if constant > largest:
        return _decided(op in ("<>", "<", "<="), sql)
    if constant < least:
        return _decided(op in ("<>", ">", ">="), sql)
    floor = constant.quantize(unit, ROUND_FLOOR, _WIDE)
    if floor == constant:
        return sql, op, decimal_text(floor, item)
    if op in ("=", "<>"):
        return _decided(op == "<>", sql)
    if floor < least:
        return _decided(op in (">", ">="), sql)
    return sql, "<=" if op in ("<", "<=") else ">", decimal_text(floor, item)


def common_type(a: Atomic, b: Atomic) -> str:
    """The Spark type in which a decimal compares with a decimal or an integer. Raises TranslationError."""
    (whole_a, scale_a), (whole_b, scale_b) = _digits(a), _digits(b)
    whole, scale = max(whole_a, whole_b), max(scale_a, scale_b)
    if whole + scale > _PRECISION_MAX:
        raise TranslationError(
            f"comparing {_name(a)} with {_name(b)} takes {whole + scale} digits; Spark has {_PRECISION_MAX}"
        )
    return decimal_type(decimal(whole + scale, scale))


def _decided(truth: bool, sql: str) -> tuple[str, CompareOp, str]:
    """A comparison that is `truth` for every value, and NULL for NULL."""
    return sql, "=" if truth else "<>", sql


def _digits(item: Atomic) -> tuple[int, int]:
    """The numbers of digits before and after the point."""
    return (item.precision - item.scale, item.scale) if item.kind is Kind.DECIMAL else (_LONG_DIGITS, 0)


def _name(item: Atomic) -> str:
    return decimal_type(item) if item.kind is Kind.DECIMAL else "an integer"
