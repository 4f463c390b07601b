"""The domains of constraints: how a comparison with a literal becomes a set of one field's values.

The set is exactly the values for which the comparison is true by the rules of `matching.selectors.tree`, at
every edge: integers compare with approximate literals by Java's promotion, decimals with the literal's digits
as written, doubles have no -0.0, timestamps are whole microseconds, prefixes are ranges of code points.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from tidemark.matching.forms.clauses import Constraint, Interval, OneOf, Present, Value
from tidemark.matching.forms.constraints import interval
from tidemark.matching.selectors.check import HEADER_TYPES
from tidemark.matching.selectors.tree import CompareOp, Literal
from tidemark.matching.vectors.promotion import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, integer_bounds
from tidemark.message.batches.columns import FieldTypes
from tidemark.message.codec.scalars import EPOCH, microseconds
from tidemark.message.types import Atomic, Kind, Path, Type

_SURROGATES = range(0xD800, 0xE000)
_CODE_POINT_MAX = 0x10FFFF

_LITERAL_TYPES: dict[Kind, tuple[type, ...]] = {
    Kind.BOOLEAN: (bool,),
    Kind.INT: (int, float),
    Kind.LONG: (int, float),
    Kind.FLOAT: (int, float),
    Kind.DOUBLE: (int, float),
    Kind.DECIMAL: (int, float),
    Kind.STRING: (str,),
    Kind.BYTES: (bytes,),
    Kind.TIMESTAMP: (datetime,),
}


def type_at(path: Path, fields: FieldTypes) -> Type | None:
    """The type of a field or header, or None when it has none yet."""
    header = HEADER_TYPES.get(path[0]) if len(path) == 1 else None
    return header or fields.type_of(path)


def instant(since: int) -> datetime:
    """The datetime of a number of microseconds: the inverse of `microseconds`."""
    return EPOCH + timedelta(microseconds=since)


#: The least and the greatest value of the kinds that are integers; of timestamps, those that a datetime has.
RANGES: dict[Kind, tuple[int, int]] = {
    Kind.INT: (INT32_MIN, INT32_MAX),
    Kind.LONG: (INT64_MIN, INT64_MAX),
    Kind.TIMESTAMP: (
        microseconds(datetime.min.replace(tzinfo=UTC)),
        microseconds(datetime.max.replace(tzinfo=UTC)),
    ),
}


def domain_value(value: Any) -> Any:
    """An event's value in the domain of constraints: microseconds for a datetime, else the value itself."""
    return microseconds(value) if isinstance(value, datetime) else value


def exact_decimal(literal: Literal) -> Decimal:
    """The literal's digits as a Decimal, without trailing zeros, so that equal values have equal digits."""
    assert not isinstance(literal.value, bool | str | bytes | datetime)
    # Constructing is exact; Decimal's own normalize() would round to the context's precision.
    sign, digits, exponent = Decimal(literal.text or literal.value).as_tuple()
    assert isinstance(exponent, int)
    kept = len(digits)
    while kept > 1 and digits[kept - 1] == 0:
        kept -= 1
    if digits[:kept] == (0,):
        return Decimal(0)
    return Decimal((sign, digits[:kept], exponent + len(digits) - kept))


def is_comparable(item: Atomic, literal: Literal) -> bool:
    """Are a field of this type and the literal of like types? If not, comparing them is unknown."""
    # A bool is an int to isinstance, but no number to a selector.
    return type(literal.value) in _LITERAL_TYPES[item.kind]


def comparison(item: Atomic, op: CompareOp, literal: Literal) -> Constraint | None:
    """The constraint of the values v with `v op literal`, which is comparable; None when there are none."""
    assert op != "<>"
    assert is_comparable(item, literal)
    if item.kind in RANGES:
        return _integers(op, domain_value(literal.value), *RANGES[item.kind])
    return _compared(op, _constant(item, literal))


def prefixed(prefix: str) -> Constraint:
    """The constraint of the strings that start with `prefix`."""
    if not prefix:
        return Present()
    high = successor(prefix)
    return Interval(prefix, high, high_open=high is not None)


def successor(prefix: str) -> str | None:
    """The least string above all strings that start with `prefix`; None when there is none."""
    kept = prefix.rstrip(chr(_CODE_POINT_MAX))
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def order(value: Value, literal: Literal) -> int | None:
    """-1, 0 or 1 for a field's value below, equal to or above the literal; None when the types are unlike."""
    constant: Any = domain_value(literal.value)
    if isinstance(value, Decimal) and type(constant) in (int, float):
        constant = exact_decimal(literal)
    elif {type(value), type(constant)} == {int, float}:
        value, constant = float(value), float(constant)
    if type(value) is not type(constant):
        return None
    left: Any = value
    return int(left > constant) - int(left < constant)


def _constant(item: Atomic, literal: Literal) -> Value:
    value = literal.value
    if item.kind is Kind.DECIMAL:
        return exact_decimal(literal)
    if item.kind in (Kind.FLOAT, Kind.DOUBLE):
        assert isinstance(value, int | float)
        return float(value) + 0.0  # -0.0 + 0.0 is 0.0
    assert not isinstance(value, datetime)
    return value


def _integers(op: CompareOp, c: int | float, least: int, greatest: int) -> Constraint | None:
    """The constraint of the integers v of [least, greatest] with `v op c`, as a closed interval.

    It has no bound at `least` or `greatest`; None when there are no such integers.
    """
    if isinstance(c, float):
        bounds = integer_bounds(op, c, least, greatest)
    else:
        bounds = {"=": (c, c), "<": (least, c - 1), "<=": (least, c), ">": (c + 1, greatest)}.get(
            op, (c, greatest)
        )
    if bounds is None:
        return None
    low, high = max(bounds[0], least), min(bounds[1], greatest)
    if low > high:
        return None
    return interval(
        low if low == high or low > least else None, high if low == high or high < greatest else None
    )


def _compared(op: CompareOp, c: Value) -> Constraint | None:
    if op == "=":
        return OneOf(frozenset((c,)))
    if op in (">", ">="):
        return Present() if (op, c) in ((">=", ""), (">=", b"")) else Interval(c, None, low_open=op == ">")
    if c in ("", b""):  # nothing is below the empty string
        return OneOf(frozenset((c,))) if op == "<=" else None
    return Interval(None, c, high_open=op == "<")
