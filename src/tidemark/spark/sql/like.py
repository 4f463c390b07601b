"""LIKE as Spark SQL, in linear time.

Spark runs a LIKE as a Java regular expression. With several `%`, that expression tries every place of one for
every place of the other: a thousand characters that `'%a%a%b'` does not match take seconds. For such patterns
atomic groups do what `matching.selectors.like` does: they take the leftmost place and never try a second one.
"""

from __future__ import annotations

from tidemark.matching.selectors.like import Pattern, Segment
from tidemark.spark.sql.text import string_text

_ESCAPE = "!"


def like_text(operand: str, pattern: Pattern) -> str:
    """Spark SQL that tests whether `operand`, Spark SQL for a string, is like the pattern."""
    later = [segment for segment in pattern.segments[1:] if segment.text]
    if len(later) > 1:
        return f"{operand} RLIKE {string_text(_regex(pattern))}"
    return f"{operand} LIKE {string_text(_like(pattern))} ESCAPE '{_ESCAPE}'"


def _like(pattern: Pattern) -> str:
    # Always with an ESCAPE: without one, a backslash escapes in Spark, while in a selector nothing does.
    return "%".join(map(_like_segment, pattern.segments))


def _like_segment(segment: Segment) -> str:
    return "".join(
        "_" if index in segment.wild else _ESCAPE + character if character in "%_" + _ESCAPE else character
        for index, character in enumerate(segment.text)
    )


def _regex(pattern: Pattern) -> str:
    first, *middle, last = map(_regex_segment, pattern.segments)
    return rf"(?s)\A{first}" + "".join(f"(?>.*?{segment})" for segment in middle) + rf".*{last}\z"


def _regex_segment(segment: Segment) -> str:
    return "".join(
        "." if index in segment.wild else _regex_character(character)
        for index, character in enumerate(segment.text)
    )


def _regex_character(character: str) -> str:
    return character if character.isascii() and character.isalnum() else rf"\x{{{ord(character):x}}}"
