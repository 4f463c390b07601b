"""A selector as the rest of Tidemark holds it: its text and its checked tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidemark.errors import SelectorTypeError
from tidemark.matching.selectors.check import check
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.topic_conditions import for_topic
from tidemark.matching.selectors.tree import (
    TRUE,
    And,
    Arithmetic,
    Between,
    Compare,
    FieldRef,
    In,
    IsNull,
    Like,
    Negate,
    Node,
    Not,
    Or,
)
from tidemark.message.batches.columns import FieldTypes
from tidemark.message.types import Path


@dataclass(frozen=True, slots=True)
class Selector:
    """A condition on events: its text as written, and its tree."""

    text: str
    tree: Node

    @classmethod
    def parse(cls, text: str, fields: FieldTypes, topic: str = "") -> Selector:
        """The selector of a text for the events of a topic with these fields.

        Its tree has the truth of `_topic MATCHES ...` for `topic` in it, and what cannot be reached then is
        not checked. SelectorError, with the position, if the text is no selector or does not fit the fields.
        """
        tree = for_topic(parse(text), topic, text)
        check(tree, fields, text)
        return cls(text, tree)

    @classmethod
    def fitting(cls, text: str, fields: FieldTypes, topic: str = "") -> Selector | None:
        """The same, but None if the text does not fit the fields; nothing is found out about what was meant.

        SelectorError if the text is no selector.
        """
        tree = for_topic(parse(text), topic, text)
        try:
            check(tree, fields, text, hints=False)
        except SelectorTypeError:
            return None
        return cls(text, tree)

    def __str__(self) -> str:
        return self.text or "TRUE"


#: The selector of a subscriber that gave none.
EVERYTHING = Selector("", TRUE)


def children_of(node: Node) -> tuple[Node, ...]:
    """The nodes directly under `node`, left to right."""
    match node:
        case And(operands) | Or(operands):
            return operands
        case Compare(_, left, right) | Arithmetic(_, left, right):
            return left, right
        case Between(operand, low, high):
            return operand, low, high
        case In(operand, values):
            return operand, *values
        case Like(operand) | IsNull(operand) | Not(operand) | Negate(operand):
            return (operand,)
        case _:
            return ()


def nodes_of(tree: Node) -> Iterator[Node]:
    """`tree` and every node under it, each before its children."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(children_of(node)))


def paths_of(tree: Node) -> frozenset[Path]:
    """Every field and header that the condition reads."""
    return frozenset(node.path for node in nodes_of(tree) if isinstance(node, FieldRef))
