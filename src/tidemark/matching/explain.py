"""What a selector means and how the index finds its events, for `tidemark explain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

from tidemark.matching.forms.clause_tree import clauses_to_tree
from tidemark.matching.forms.normal import normalise
from tidemark.matching.index.plans import ClauseDescription
from tidemark.matching.matcher import Matcher
from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.render import render as render_node
from tidemark.matching.selectors.selector import Selector, children_of
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
)
from tidemark.message.schema import Schema, value_at

_WORDS: dict[type[Node], str] = {
    And: "AND",
    Or: "OR",
    Not: "NOT",
    Negate: "minus",
    Between: "BETWEEN",
    In: "IN",
    Like: "LIKE",
    IsNull: "IS NULL",
    Literal: "literal",
    FieldRef: "field",
}
_TRUTHS = {True: "true", False: "false", None: "unknown"}


class TreeDescription(TypedDict):
    """A node of a selector's tree, and what is below it."""

    node: str
    children: list[TreeDescription]


class SelectorDescription(TypedDict):
    """What a selector means."""

    selector: str
    canonical: str
    tree: TreeDescription
    #: the clauses of which one has to hold; None if there would be too many
    normal_form: list[str] | None
    index: list[ClauseDescription]
    #: "true", "false" or "unknown" for each event, if there are events
    events: NotRequired[list[str]]
    #: for how many events it is true
    matched: NotRequired[int]


def describe(text: str, schema: Schema, events: Sequence[Any] | None = None) -> SelectorDescription:
    """What `tidemark explain --json` prints; with `events`, also the truth of the selector for each.

    SelectorError if the selector cannot be parsed or does not fit the schema.
    """
    selector = Selector.parse(text, schema)
    clauses = normalise(selector.tree, schema)
    description: SelectorDescription = {
        "selector": text,
        "canonical": render_node(selector.tree),
        "tree": _tree(selector.tree),
        "normal_form": None
        if clauses is None
        else [render_node(clauses_to_tree([c], schema)) for c in clauses],
        "index": Matcher(schema).explain(selector)["clauses"],
    }
    if events is not None:
        truths = [_truth(selector.tree, event) for event in events]
        description["events"] = [_TRUTHS[truth] for truth in truths]
        description["matched"] = sum(truth is True for truth in truths)
    return description


def render(description: SelectorDescription) -> str:
    """What `tidemark explain` prints: the description as text."""
    parts = [
        f"selector   {description['canonical']}",
        "tree\n" + "\n".join(_tree_lines(description["tree"], 1)),
    ]
    normal = description["normal_form"]
    if normal is None:
        parts.append("normal form: too many clauses; the whole tree is evaluated once a batch")
    elif not normal:
        parts.append("normal form: none; no event can ever match")
    else:
        parts.append("normal form (any of)\n" + "\n".join(f"  {clause}" for clause in normal))
    parts.append("index\n" + "\n".join(_index_lines(description["index"])))
    if "events" in description:
        lines = [f"  {number:>4}  {truth}" for number, truth in enumerate(description["events"], start=1)]
        total = len(description["events"])
        parts.append("\n".join(["events", *lines, f"  {description['matched']} of {total} match"]))
    return "\n\n".join(parts)


def _truth(tree: Node, event: Any) -> bool | None:
    return evaluate(tree, lambda path: value_at(event, path))


def _tree(node: Node) -> TreeDescription:
    match node:
        case Compare(op) | Arithmetic(op):
            word: str = op
        case Literal() | FieldRef():
            word = f"{_WORDS[type(node)]} {render_node(node)}"
        case Like(_, pattern):
            word = f"LIKE {pattern!r}"
        case _:
            word = _WORDS[type(node)]
    negated = "NOT " if getattr(node, "negated", False) else ""
    return {"node": negated + word, "children": [_tree(child) for child in children_of(node)]}


def _tree_lines(tree: TreeDescription, depth: int) -> list[str]:
    lines = ["  " * depth + tree["node"]]
    for child in tree["children"]:
        lines += _tree_lines(child, depth + 1)
    return lines


def _index_lines(clauses: Sequence[ClauseDescription]) -> list[str]:
    lines: list[str] = []
    for number, clause in enumerate(clauses, start=1):
        lines.append(f"  clause {number}")
        for key, what in clause.items():
            text = ", ".join(map(str, what)) if isinstance(what, list | tuple | set) else str(what)
            lines.append(f"    {key:<11} {text or 'none'}")
    return lines or ["  nothing is indexed"]
