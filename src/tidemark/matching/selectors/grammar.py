"""The rules that lexer, parser and render share: reserved words, plain names, precedence.

A plain name follows Java's rules for identifiers, as JMS asks: letters, digits, `_`, currency signs and their
Unicode relatives, not starting with a digit. Any other name, and every keyword, is written in double quotes.
"""

from __future__ import annotations

from enum import IntEnum
from unicodedata import category

KEYWORDS = frozenset(
    ("AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"),
)

_START = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"))
# Java also allows invisible format characters inside names. They are left out, so that no two different names
# look alike.
_PART = _START | {"Nd", "Mn", "Mc"}


class Level(IntEnum):
    """How tightly a construct binds; where a tighter one is needed it takes parentheses."""

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
    """Can a plain name continue with `character`?"""
    return category(character) in _PART


def keyword(word: str) -> str:
    """The keyword that `word` is, in capitals, or ""."""
    # Only ASCII counts: the capital of a dotless i is "I" too.
    upper = word.upper() if word.isascii() else ""
    return upper if upper in KEYWORDS else ""


def is_plain(name: str) -> bool:
    """Can `name` stand in a selector without quotes?"""
    return bool(name) and starts_name(name[0]) and all(map(continues_name, name)) and not keyword(name)
