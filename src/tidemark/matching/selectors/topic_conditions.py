"""Conditions on the topic: `_topic MATCHES 'trades.>'` has one truth for all events of a topic.

A selector for several topics can ask each for other fields: `_topic MATCHES 'trades.>' AND price > 10 OR
_topic MATCHES 'orders.>' AND qty > 5`. For one topic the truth of every MATCHES is known, so that it is put
in its place, and what can no longer be reached is left out before anything is checked against the topic's
fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemark.errors import SelectorTypeError
from tidemark.matching.selectors.tree import FALSE, TRUE, And, Node, Not, Or, TopicMatches
from tidemark.matching.topics import TopicPattern

#: the truth of a MATCHES; None where it is not the same for all topics in question
Truth = Callable[[TopicMatches], bool | None]


def for_topic(tree: Node, topic: str, text: str = "") -> Node:
    """The tree for events of `topic`, without MATCHES; `tree` itself if it has none.

    SelectorTypeError if there is a MATCHES and no topic, as when a selector is tried on a bare schema.
    """

    def truth(node: TopicMatches) -> bool:
        if not topic:
            raise SelectorTypeError(
                "MATCHES needs a topic, and none is named here", position=node.position, text=text
            )
        return TopicPattern.parse(node.pattern).matches(topic) != node.negated

    return _resolved(tree, truth)


def narrowed(tree: Node, pattern: TopicPattern) -> Node:
    """The tree for events of the topics of `pattern`: a MATCHES stays only where they differ in it."""

    def truth(node: TopicMatches) -> bool | None:
        asked = TopicPattern.parse(node.pattern)
        if asked.covers(pattern):
            return not node.negated
        return None if asked.intersects(pattern) else node.negated

    return _resolved(tree, truth)


def for_pattern(tree: Node, pattern: TopicPattern) -> Node | None:
    """The tree for events of all topics of `pattern`, without MATCHES; None if they differ in one."""
    found = narrowed(tree, pattern)
    return None if _has_matches(found) else found


def _has_matches(node: Node) -> bool:
    match node:
        case TopicMatches():
            return True
        case Not(operand):
            return _has_matches(operand)
        case And(operands) | Or(operands):
            return any(map(_has_matches, operands))
        case _:
            return False


def _resolved(node: Node, truth: Truth) -> Node:
    match node:
        case TopicMatches():
            found = truth(node)
            return node if found is None else TRUE if found else FALSE
        case Not(operand, position):
            inner = _resolved(operand, truth)
            if inner is operand:
                return node
            return FALSE if inner == TRUE else TRUE if inner == FALSE else Not(inner, position)
        case And(operands, position):
            return _joined(node, operands, truth, FALSE, lambda left: And(left, position))
        case Or(operands, position):
            return _joined(node, operands, truth, TRUE, lambda left: Or(left, position))
        case _:
            return node


def _joined(
    node: And | Or,
    operands: Sequence[Node],
    truth: Truth,
    decisive: Node,
    joined: Callable[[tuple[Node, ...]], Node],
) -> Node:
    """AND or OR of the operands that are left; `decisive` as soon as one operand has that truth.

    Only a MATCHES decides: a literal that the selector's author wrote stays, and what stands beside it is
    checked.
    """
    found = [_resolved(operand, truth) for operand in operands]
    if all(new is old for new, old in zip(found, operands, strict=True)):
        return node
    changed = [new for new, old in zip(found, operands, strict=True) if new is not old]
    if decisive in changed:
        return decisive
    neutral = TRUE if decisive is FALSE else FALSE
    left = tuple(new for new, old in zip(found, operands, strict=True) if new is old or new != neutral)
    if not left:
        return neutral
    return left[0] if len(left) == 1 else joined(left)
