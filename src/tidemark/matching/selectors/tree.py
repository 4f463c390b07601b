"""The selector's tree: the parser makes it, and every other module of this package reads it.

A tree is an immutable value. `position` (the character where a node starts) is for error messages and does
not count in comparisons, so equal conditions are equal trees wherever they were written.

What a selector means is defined here. A condition is true, false or unknown; an event matches when it is
true.
- A field that is absent is NULL; any operation with NULL is unknown, except IS [NOT] NULL.
- NaN, wherever it comes from, compares as unknown; it is not NULL.
- Numbers promote as in Java: integers stay 64-bit integers, anything with a double is done in doubles.
  Integer + - * that overflow 64 bits are NULL. `/` is true division in doubles; by zero it is NULL.
- A decimal compares exactly with decimals, integers and literals (a literal's digits are taken as
  written), in doubles with a double field; arithmetic on decimals is done in doubles.
- Strings and bytes compare by code point / byte; = and <> need no order.
- Values of unlike types (only possible for `dynamic` fields, whose type is known per event) compare as
  unknown; a comparison that can never be of like types is refused when the selector is checked.
Because every operation on an unknown operand is unknown, NOT (a > b) is exactly a <= b, and normal forms are
exact.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from typing import Literal as Choice

from tidemark.message.types import Path

#: Headers of an event, which a selector can use like fields. Types: string, long (microseconds), int, string.
HEADERS = ("_topic", "_tick", "_priority", "_publisher", "_key", "_time")

CompareOp = Choice["=", "<>", "<", "<=", ">", ">="]
ArithmeticOp = Choice["+", "-", "*", "/"]

#: NOT (a op b) is a OPPOSITE[op] b: where one of the two is NULL or NaN, neither is true.
OPPOSITE: dict[CompareOp, CompareOp] = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
#: a op b is b MIRRORED[op] a.
MIRRORED: dict[CompareOp, CompareOp] = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
#: The operators of Python that compare as the selector's do, for values and for arrays.
OPERATORS: dict[CompareOp, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

#: The values of literals. A float is an approximate literal; a datetime is timezone-aware.
Constant = bool | int | float | str | bytes | datetime


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. `text` keeps a number's digits as written, for exact comparison with decimals."""

    value: Constant
    text: str = ""
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A field by its path, or a header (a path of one name out of HEADERS)."""

    path: Path
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Negate:
    """-operand."""

    operand: Node
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """left op right, over numbers."""

    op: ArithmeticOp
    left: Node
    right: Node
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Compare:
    """left op right."""

    op: CompareOp
    left: Node
    right: Node
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Between:
    """operand [NOT] BETWEEN low AND high, both ends included."""

    operand: Node
    low: Node
    high: Node
    negated: bool = False
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class In:
    """operand [NOT] IN (values)."""

    operand: Node
    values: tuple[Literal, ...]
    negated: bool = False
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Like:
    """operand [NOT] LIKE pattern [ESCAPE escape]: % any run, _ any one character."""

    operand: Node
    pattern: str
    escape: str = ""
    negated: bool = False
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class IsNull:
    """operand IS [NOT] NULL; never unknown."""

    operand: FieldRef
    negated: bool = False
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """NOT operand."""

    operand: Node
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class And:
    """True if all operands are (two or more)."""

    operands: tuple[Node, ...]
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Or:
    """True if any operand is (two or more)."""

    operands: tuple[Node, ...]
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class TopicMatches:
    """_topic [NOT] MATCHES pattern: a topic pattern. It has one truth for all events of a topic.

    `matching.selectors.topic_conditions` replaces it by that truth before the tree is checked or evaluated.
    """

    pattern: str
    negated: bool = False
    position: int = field(default=0, compare=False)


Node = (
    Literal | FieldRef | Negate | Arithmetic | Compare | Between | In | Like | IsNull | Not | And | Or
    | TopicMatches
)  # fmt: skip

TRUE = Literal(True)
FALSE = Literal(False)
