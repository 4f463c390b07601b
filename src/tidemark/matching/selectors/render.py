"""A tree as text: the canonical spelling of a selector.

`parse(render(tree)) == tree` for every tree that the parser can make, and the text has no more parentheses
than that takes. Numbers keep their digits as written; keywords are in capitals.
"""

from __future__ import annotations

from datetime import UTC, datetime

from tidemark.matching.selectors.grammar import Level, is_plain
from tidemark.matching.selectors.tree import (
    And,
    Arithmetic,
    Between,
    Compare,
    FieldRef,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Node,
    Not,
    Or,
    TopicMatches,
)
from tidemark.message.types import Path


def render(node: Node) -> str:
    """The canonical text of `node`."""
    return _render(node)[0]


def render_path(path: Path) -> str:
    """A field's path: dotted, with names that are not plain in double quotes."""
    return ".".join(part if is_plain(part) else _quoted(part, '"') for part in path)


def _render(node: Node) -> tuple[str, Level]:
    match node:
        case Literal():
            return _literal(node)
        case FieldRef(path):
            return render_path(path), Level.ATOM
        case Negate() | Arithmetic():
            return _calculation(node)
        case Not(operand):
            return f"NOT {_at(operand, Level.NOT)}", Level.NOT
        case And(operands):
            return " AND ".join(_at(operand, Level.NOT) for operand in operands), Level.AND
        case Or(operands):
            return " OR ".join(_at(operand, Level.AND) for operand in operands), Level.OR
        case TopicMatches(pattern, negated):
            return f"_topic{_not(negated)} MATCHES {_quoted(pattern)}", Level.PREDICATE
        case _:
            return _predicate(node), Level.PREDICATE


def _at(node: Node, level: Level) -> str:
    """The text of `node` in a place that needs something binding at least as tightly as `level`."""
    text, own = _render(node)
    return text if own >= level else f"({text})"


def _predicate(node: Compare | Between | In | Like | IsNull) -> str:
    operand = _at(node.left if isinstance(node, Compare) else node.operand, Level.SUM)
    match node:
        case Compare(op, _, right):
            return f"{operand} {op} {_at(right, Level.SUM)}"
        case Between(_, low, high, negated):
            return f"{operand}{_not(negated)} BETWEEN {_at(low, Level.SUM)} AND {_at(high, Level.SUM)}"
        case In(_, values, negated):
            return f"{operand}{_not(negated)} IN ({', '.join(map(render, values))})"
        case Like(_, pattern, escape, negated):
            ending = f" ESCAPE {_quoted(escape)}" if escape else ""
            return f"{operand}{_not(negated)} LIKE {_quoted(pattern)}{ending}"
        case IsNull(_, negated):
            return f"{operand} IS{_not(negated)} NULL"


def _calculation(node: Negate | Arithmetic) -> tuple[str, Level]:
    if isinstance(node, Negate):
        # "-5" would be parsed as one literal, and "--" begins a comment in other dialects: parentheses keep
        # the sign apart from both.
        text, level = _render(node.operand)
        bare = level is Level.ATOM and not _is_number(node.operand)
        return f"-{text}" if bare else f"-({text})", Level.SIGN
    own, right = (Level.SUM, Level.PRODUCT) if node.op in "+-" else (Level.PRODUCT, Level.SIGN)
    return f"{_at(node.left, own)} {node.op} {_at(node.right, right)}", own


def _literal(literal: Literal) -> tuple[str, Level]:
    value = literal.value
    if _is_number(literal):
        assert literal.text, "a number carries its digits"
        return literal.text, Level.SIGN if literal.text.startswith("-") else Level.ATOM
    if isinstance(value, bool):
        return ("TRUE" if value else "FALSE"), Level.ATOM
    if isinstance(value, bytes):
        return f"X'{value.hex()}'", Level.ATOM
    if isinstance(value, datetime):
        utc = value.astimezone(UTC).replace(tzinfo=None)
        return f"TIMESTAMP '{utc.isoformat(sep=' ')}Z'", Level.ATOM
    assert isinstance(value, str)
    return _quoted(value), Level.ATOM


def _is_number(node: Node) -> bool:
    return (
        isinstance(node, Literal) and isinstance(node.value, int | float) and not isinstance(node.value, bool)
    )


def _quoted(text: str, quote: str = "'") -> str:
    return quote + text.replace(quote, quote * 2) + quote


def _not(negated: bool) -> str:
    return " NOT" if negated else ""
