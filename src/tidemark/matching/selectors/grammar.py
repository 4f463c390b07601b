"""What the lexer, the parser and render agree on: reserved words, plain names, how tightly things bind.

A plain name follows Java's rules for identifiers, as JMS asks: letters, digits, `_`, currency signs and their
Unicode relatives, not starting with a digit. Anything else, and every keyword, is a name in double quotes.
"""

from __future__ import annotations

from enum import IntEnum
from unicodedata import category

KEYWORDS = frozenset(
    ("AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"),
)

_START = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"))
# Java also ignores invisible format characters inside names; two names that look alike must not differ.
_PART = _START | {"Nd", "Mn", "Mc"}


class Level(IntEnum):
    """How tightly a construct binds; one that stands where a tighter one is due takes parentheses."""

    OR = 1
    AND = 2
    NOT = 3
    PREDICATE = 4
    SUM = 5
    PRODUCT = 6
    SIGN = 7
    ATOM = 8


def starts_name(character: str) -> bool:
    """Can a plain name start with `character`?"""
    return category(character) in _START


def continues_name(character: str) -> bool:
    """Can a plain name go on with `character`?"""
    return category(character) in _PART


def keyword(word: str) -> str:
    """The keyword that `word` is, in capitals, or ""."""
    # Only ASCII counts: the capital of a dotless i is "I" too.
    upper = word.upper() if word.isascii() else ""
    return upper if upper in KEYWORDS else ""


def is_plain(name: str) -> bool:
    """Can `name` stand in a selector without quotes?"""
    return bool(name) and starts_name(name[0]) and all(map(continues_name, name)) and not keyword(name)
