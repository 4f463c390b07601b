"""The checker: holds a selector against a topic's fields, when someone subscribes.

It refuses a selector with a part that could never be true for a reason its author would want to know: a field
that does not exist, types that never compare, a value in the place of a condition, or a condition in the
place of a value. A `dynamic` field, or one that an open topic does not know yet, compares with anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import NoReturn

from tidemark.errors import SelectorTypeError
from tidemark.matching.selectors.like import Pattern
from tidemark.matching.selectors.render import render, render_path
from tidemark.matching.selectors.suggest import nearest, rewrite
from tidemark.matching.selectors.tree import (
    HEADERS,
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
)
from tidemark.message.batches.columns import FieldTypes
from tidemark.message.types import (
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    Atomic,
    Dynamic,
    Kind,
    List,
    Reference,
    Tuple,
    Type,
    Variant,
)

HEADER_TYPES: dict[str, Type] = dict(
    zip(HEADERS, (STRING, LONG, INT, STRING, STRING, TIMESTAMP), strict=True)
)


class Family(Enum):
    """Types that compare with each other."""

    NUMBER = "number"
    STRING = "string"
    BYTES = "bytes"
    TIMESTAMP = "timestamp"
    BOOLEAN = "boolean"
    ANY = "anything"


_FAMILIES = {
    Kind.BOOLEAN: Family.BOOLEAN,
    Kind.STRING: Family.STRING,
    Kind.BYTES: Family.BYTES,
    Kind.TIMESTAMP: Family.TIMESTAMP,
}


def check(tree: Node, fields: FieldTypes, text: str = "", *, hints: bool = True) -> None:
    """Raise SelectorTypeError, with the position in `text`, for the first part of `tree` that is refused.

    Without `hints` the error does not say what its author may have meant: to find that out, all fields have
    to be looked at.
    """
    _Checker(fields, text, hints=hints).condition(tree)


class _Checker:
    def __init__(self, fields: FieldTypes, text: str, *, hints: bool) -> None:
        self._fields = fields
        self._text = text
        self._hints = hints

    def condition(self, node: Node) -> None:
        match node:
            case And(operands) | Or(operands):
                for operand in operands:
                    self.condition(operand)
            case Not(operand):
                self.condition(operand)
            case Compare(op, left, right):
                self._comparable((left, right), ordered=op not in ("=", "<>"))
            case Between(operand, low, high):
                self._comparable((operand, low, high), ordered=True)
            case In(operand, values):
                self._comparable((operand, *values), ordered=False)
            case Like():
                self._like(node)
            case IsNull(operand):
                self._type(operand)
            case _:
                self._bare(node)

    def _bare(self, node: Node) -> None:
        """Check a value in the place of a condition: only a boolean may stand there."""
        family = self._family(node)
        if family not in (Family.BOOLEAN, Family.ANY):
            self._fail(node, f"a condition is due here, but {_named(node, family)} is a value; compare it")

    def _like(self, node: Like) -> None:
        self._only(node.operand, Family.STRING, "LIKE takes a string")
        Pattern.compile(node.pattern, node.escape, position=node.position, text=self._text)

    def _comparable(self, nodes: Sequence[Node], *, ordered: bool) -> None:
        """Check that all nodes are of one family, and of one with an order if `ordered`."""
        families = [self._family(node) for node in nodes]
        known = [
            (node, family) for node, family in zip(nodes, families, strict=True) if family is not Family.ANY
        ]
        for node, family in known:
            first, expected = known[0]
            if family is not expected:
                self._mismatch(first, expected, node, family)
            if ordered and family is Family.BOOLEAN:
                self._fail(node, f"{_named(node, family)} has no order; booleans compare by = and <> only")

    def _mismatch(self, left: Node, left_family: Family, right: Node, right_family: Family) -> NoReturn:
        hint = rewrite(left, right_family.value) or rewrite(right, left_family.value)
        wrong = left if isinstance(left, Literal) and not isinstance(right, Literal) else right
        names = f"{_named(left, left_family)} never compares with {_named(right, right_family)}"
        self._fail(wrong, names + (f"; write {hint}" if hint else ""))

    def _only(self, node: Node, due: Family, reason: str) -> None:
        family = self._family(node)
        if family not in (due, Family.ANY):
            self._fail(node, f"{reason}, not {_named(node, family)}")

    def _family(self, node: Node) -> Family:
        """The family of a value; SelectorTypeError for a condition."""
        match node:
            case Literal(value):
                return _literal_family(value)
            case FieldRef():
                return self._field_family(node)
            case Negate(operand):
                self._only(operand, Family.NUMBER, "`-` takes a number")
                return Family.NUMBER
            case Arithmetic(op, left, right):
                for operand in (left, right):
                    self._only(operand, Family.NUMBER, f"`{op}` takes numbers")
                return Family.NUMBER
            case _:
                self._fail(node, "a value is due here, but this is a condition")

    def _field_family(self, ref: FieldRef) -> Family:
        match self._type(ref):
            case Atomic(kind):
                return _FAMILIES.get(kind, Family.NUMBER)
            case Dynamic() | Reference():
                return Family.ANY
            case List():
                self._fail(ref, f"`{render_path(ref.path)}` is a list; a selector can only ask if it IS NULL")
            case Tuple() | Variant():
                self._whole(ref)

    def _whole(self, ref: FieldRef) -> NoReturn:
        depth = len(ref.path)
        paths = self._fields.paths() if self._hints else ()
        inside = next((path for path in paths if path[:depth] == ref.path and len(path) > depth), None)
        hint = f", such as `{render_path(inside)}`" if inside is not None else ""
        self._fail(ref, f"`{render_path(ref.path)}` is not one value; name a field inside it{hint}")

    def _type(self, ref: FieldRef) -> Type:
        path = ref.path
        if len(path) == 1 and path[0] in HEADER_TYPES:
            return HEADER_TYPES[path[0]]
        found = self._fields.type_of(path)
        if found is not None:
            return found
        is_header = len(path) == 1 and path[0].startswith("_")
        if self._fields.open and not is_header:
            return Dynamic()
        return self._unknown(ref, "header" if is_header else "field")

    def _unknown(self, ref: FieldRef, what: str) -> NoReturn:
        hint = suggestion = ""
        if self._hints:
            suggestion = nearest(ref.path, [*self._fields.paths(), *((header,) for header in HEADERS)])
        if isinstance(self._fields.type_of(ref.path[:-1]), Dynamic | Reference):
            hint = f"; `{render_path(ref.path[:-1])}` is dynamic and a selector cannot look inside it"
        elif suggestion:
            hint = f"; did you mean `{suggestion}`?"
        if self._text[ref.position : ref.position + 1] == '"':
            hint += "; double quotes are for names, text goes in single quotes"
        self._fail(ref, f"there is no {what} `{_short(render_path(ref.path))}`{hint}")

    def _fail(self, node: Node, reason: str) -> NoReturn:
        raise SelectorTypeError(reason, position=node.position, text=self._text)


def _literal_family(value: object) -> Family:
    if isinstance(value, bool):
        return Family.BOOLEAN
    if isinstance(value, str):
        return Family.STRING
    if isinstance(value, bytes):
        return Family.BYTES
    return Family.TIMESTAMP if isinstance(value, datetime) else Family.NUMBER


def _named(node: Node, family: Family) -> str:
    return f"`{_short(render(node))}` ({family.value})"


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "..."
