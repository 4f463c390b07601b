"""Why an event matches a selector, or does not: each condition with its truth and the values it looked at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidemark.matching.selectors.evaluate import Lookup, evaluate
from tidemark.matching.selectors.render import render
from tidemark.matching.selectors.selector import children_of
from tidemark.matching.selectors.tree import And, FieldRef, Node, Not, Or


@dataclass(frozen=True, slots=True)
class Reason:
    """One condition of a selector, for one event."""

    #: the condition, as a selector
    text: str
    #: "AND", "OR" or "NOT" for a condition that is made of others; "" for one that looks at fields itself
    joint: str
    #: None is unknown: a field that the condition needs is not there
    truth: bool | None
    #: field -> its value in the event, None where it is not there; of a condition that looks at fields itself
    values: dict[str, Any]
    parts: tuple[Reason, ...] = ()


def reason_for(node: Node, lookup: Lookup) -> Reason:
    """Return the truth of a condition, and of all conditions in it, for the event that `lookup` reads."""
    truth = evaluate(node, lookup)
    match node:
        case And(operands):
            return Reason(
                render(node), "AND", truth, {}, tuple(reason_for(each, lookup) for each in operands)
            )
        case Or(operands):
            return Reason(render(node), "OR", truth, {}, tuple(reason_for(each, lookup) for each in operands))
        case Not(operand):
            return Reason(render(node), "NOT", truth, {}, (reason_for(operand, lookup),))
    return Reason(render(node), "", truth, {render(each): lookup(each.path) for each in _fields(node)})


def _fields(node: Node) -> Iterator[FieldRef]:
    if isinstance(node, FieldRef):
        yield node
    for child in children_of(node):
        yield from _fields(child)
