"""Random selectors and events, from a seed, over a schema of every atomic kind.

Small pools, so that values meet constants exactly on the edge; and in the pools what goes wrong between two
engines: NaN, infinities, -0.0, the ends of the integers, integers that no double holds, decimals of every
size, and text that a parser of SQL, of LIKE or of regular expressions could take for its own.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from random import Random
from typing import Any, cast

from tidemark.matching.selectors.literals import number
from tidemark.matching.selectors.tree import (
    And,
    Arithmetic,
    ArithmeticOp,
    Between,
    Compare,
    CompareOp,
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
    Kind,
    Path,
    decimal,
)

TYPES: dict[Path, Atomic] = {
    ("b",): BOOLEAN,
    ("c",): BOOLEAN,
    ("i",): INT,
    ("j",): INT,
    ("l",): LONG,
    ("in", "k"): LONG,
    ("f",): FLOAT,
    ("g",): FLOAT,
    ("d",): DOUBLE,
    ("in", "e"): DOUBLE,
    ("m",): decimal(38, 9),
    ("n",): decimal(9, 2),
    ("o",): decimal(38, 38),
    ("p",): decimal(38, 0),
    ("s",): STRING,
    ("odd `name`", "u"): STRING,
    ("y",): BYTES,
    ("z",): BYTES,
    ("t",): TIMESTAMP,
    ("v",): TIMESTAMP,
    ("_topic",): STRING,
    ("_tick",): LONG,
    ("_priority",): INT,
    ("_publisher",): STRING,
    ("_key",): STRING,
    ("_time",): TIMESTAMP,
}

_NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
_INTS = (-(2**31), -7, -1, 0, 1, 2, 5, 2**31 - 1)
_DOUBLES = (-1e30, -2.5, -0.0, 0.0, 0.1, 1.0, 1.5, 2.0, 5.0, 2.0**53, 2.0**63, 1e308, 5e-324)
_SPECIAL = (float("inf"), float("-inf"), float("nan"))
_STRINGS = (
    "", "a", "ab", "aba", "ac", "b", "A", "a%", "a_c", "a\\", "\\", "\\n", "\n", "a\nb", "\r\n", "\t", "\0",
    "it's", '"', "`", "''", "!", "a!b", "!%", "é", "e\u0301", "\ud7ff", "\uffff", "😀", "a😀b", "\U0010ffff",
    "${spark.app.name}", "$", "--", "/*", ";", "?", ":x", "\\Q", "a.c", "(a", "aaaaab",
)  # fmt: skip
_PATTERNS = (
    "", "%", "_", "__", "%%", "a", "a%", "%b", "%b%", "a%b", "a_b", "a_c", "_%", "%_", "%a%b", "%a%a%b",
    "a%a%a%b", "%_%_%", "_%a_%", "%\n%", "%\n", "\\", "%\\%", "\\%", "a\\_c", "%'%", "%😀%", "_😀_",
    "%a%😀%b", "é%", "%!%", "!%", "a!_c", "%$%", "%.%", "%(%", "%a%(%", "%\\%Q", "${%",
)  # fmt: skip
_NUMBERS = (
    *map(str, _INTS), *map(str, (-(2**63), -(2**53) - 1, 2**53, 2**53 + 1, 2**60 + 1, 2**63 - 1)),
    "0.1", "-0.0", ".5", "1.5", "2.", "5.0", "1E3", "0.100000000000000000001", "9007199254740993.0", "2.5",
    "9223372036854775807.0", "-9.3E18", "1E30", "-1E+30", "1e-7", "-2.50", "1e38", "1e300", "-1e-300", "9.99",
    "99999999999999999999999999999999999999.", "-0.001", "-99999999999999999999999999999999999999.5",
    "12345678901234567890123456789.123456789", "1.7976931348623157e308", "5e-324", "0.1234567890123456",
)  # fmt: skip
_UNSCALED = (
    0,
    1,
    -1,
    10,
    100,
    150,
    -250,
    10**9,
    25 * 10**8,
    9007199254740993 * 10**9,
    10**38 - 1,
    1 - 10**38,
)

_POOLS: dict[Kind, Sequence[Any]] = {
    Kind.BOOLEAN: (False, True),
    Kind.INT: _INTS,
    Kind.LONG: (*_INTS, -(2**63), -(2**53) - 1, 2**53, 2**53 + 1, 2**60 + 1, 2**63 - 1),
    Kind.FLOAT: (
        *(struct.unpack("f", struct.pack("f", min(value, 3e38)))[0] for value in _DOUBLES),
        *_SPECIAL,
    ),
    Kind.DOUBLE: (*_DOUBLES, *_SPECIAL),
    Kind.STRING: _STRINGS,
    Kind.BYTES: (b"", b"a", b"a\x00", b"b", b"\x7f", b"\x80", b"\xff"),
    Kind.TIMESTAMP: (
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        _NOON,
        _NOON + timedelta(microseconds=1),
        (_NOON + timedelta(seconds=1)).astimezone(timezone(timedelta(hours=5, minutes=30))),
        datetime(2024, 11, 3, 1, 30, tzinfo=timezone(timedelta(hours=-4))),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ),
}
_OPS: tuple[CompareOp, ...] = ("=", "<>", "<", "<=", ">", ">=")
_NUMERIC = (Kind.INT, Kind.LONG, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL)


class SimpleFields:
    """FieldTypes of a dict."""

    open = False

    def __init__(self, types: dict[Path, Any]) -> None:
        self._types = types

    def type_of(self, path: Path) -> Any:
        """The type at `path`, or None."""
        return self._types.get(path)

    def paths(self) -> Sequence[Path]:
        """Every path there is."""
        return tuple(self._types)


FIELDS = SimpleFields(dict(TYPES))


@dataclass(frozen=True)
class Samples:
    """What one seed gives."""

    random: Random

    def events(self, count: int, types: dict[Path, Atomic] = TYPES) -> list[dict[Path, Any]]:
        """Events as `evaluate` looks them up; about one field in six is absent."""
        return [
            {path: None if self._one_in(6) else self.value(item) for path, item in types.items()}
            for _ in range(count)
        ]

    def value(self, item: Atomic) -> Any:
        """A value of this type."""
        if item.kind is Kind.DECIMAL:
            fitting = [unscaled for unscaled in _UNSCALED if abs(unscaled) < 10**item.precision]
            return Decimal(f"{self.random.choice(fitting)}E-{item.scale}")
        return self.random.choice(_POOLS[item.kind])

    def tree(self, depth: int = 3) -> Node:
        """A well-typed condition."""
        shape = self.random.randrange(5) if depth else 0
        if shape < 2:
            return self.leaf()
        if shape == 2:
            return Not(self.tree(depth - 1))
        operands = tuple(self.tree(depth - 1) for _ in range(self.random.randint(2, 3)))
        return And(operands) if shape == 3 else Or(operands)

    def leaf(self) -> Node:
        """A condition without AND, OR and NOT."""
        shape = self.random.choice(
            ("field", "field", "number", "number", "between", "in", "like", "null", "bare")
        )
        negated = self._one_in(2)
        match shape:
            case "number":
                return Compare(self._op(), self._number(), self._number())
            case "between":
                return Between(self._number(), self._number(1), self._number(1), negated)
            case "in":
                ref, item = self._ref()
                count = self.random.choice((1, 2, 3, 14))
                return In(ref, tuple(self._literal(item) for _ in range(count)), negated)
            case "like":
                pattern = self.random.choice(_PATTERNS)
                escape = self.random.choice(("", "!", "\\", "a"))
                lone = len(pattern) - len(pattern.rstrip(escape or " "))
                return Like(self._ref(Kind.STRING)[0], pattern, "" if lone % 2 else escape, negated)
            case "null":
                return IsNull(self._ref()[0], negated)
            case "bare":
                return self._ref(Kind.BOOLEAN)[0]
        return self._comparison()

    def _comparison(self) -> Node:
        ref, item = self._ref()
        other = self._literal(item) if self._one_in(2) else self._ref(*_family(item.kind))[0]
        op = self._op(2 if item == BOOLEAN else 6)
        return Compare(op, *((ref, other) if self._one_in(2) else (other, ref)))

    def _number(self, depth: int = 2) -> Node:
        shape = self.random.randrange(6) if depth else self.random.randrange(4)
        if shape < 2:
            return self._ref(*_NUMERIC)[0]
        if shape < 4:
            return self._literal(LONG)
        if shape == 4:
            return Negate(self._number(depth - 1))
        op = cast(ArithmeticOp, self.random.choice("+-*/"))
        return Arithmetic(op, self._number(depth - 1), self._number(depth - 1))

    def _literal(self, item: Atomic) -> Literal:
        if item.kind in _NUMERIC:
            text = self.random.choice(_NUMBERS)
            return Literal(number(text), text)
        return Literal(self.random.choice(_POOLS[item.kind]))

    def _ref(self, *kinds: Kind) -> tuple[FieldRef, Atomic]:
        found = [(FieldRef(path), item) for path, item in TYPES.items() if not kinds or item.kind in kinds]
        return self.random.choice(found)

    def _op(self, count: int = 6) -> CompareOp:
        return self.random.choice(_OPS[:count])

    def _one_in(self, count: int) -> bool:
        return self.random.randrange(count) == 0


def _family(kind: Kind) -> tuple[Kind, ...]:
    return _NUMERIC if kind in _NUMERIC else (kind,)
