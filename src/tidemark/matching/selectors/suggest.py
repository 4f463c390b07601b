"""Suggestions for error messages: what the author of a refused selector probably meant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from tidemark.matching.selectors.render import render, render_path
from tidemark.matching.selectors.tree import Literal, Node
from tidemark.message.types import Path

_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?", re.ASCII)


def nearest(path: Path, candidates: Sequence[Path]) -> str:
    """The candidate that `path` is probably a misspelling of, as text; "" if there is none.

    A candidate that differs in case only comes first, then one with the same last name, then a near spelling.
    """
    wanted = render_path(path).casefold()
    by_name = {render_path(candidate).casefold(): candidate for candidate in reversed(candidates)}
    by_leaf = {render_path(candidate[-1:]).casefold(): candidate for candidate in reversed(candidates)}
    for names in (by_name, by_leaf):
        if wanted in names:
            return render_path(names[wanted])
    close = get_close_matches(wanted, by_name, n=1)
    return render_path(by_name[close[0]]) if close else ""


def rewrite(node: Node, family: str) -> str:
    """How the literal `node` would be written as a value of `family`; "" if it cannot be."""
    if not isinstance(node, Literal):
        return ""
    if family == "string":
        return f"'{node.text}'" if node.text else ""
    if not isinstance(node.value, str):
        return ""
    match family:
        case "timestamp":
            return f"TIMESTAMP {render(node)}"
        case "bytes":
            return f"X'{node.value.encode().hex()}'"
        case "boolean" if node.value.upper() in ("TRUE", "FALSE"):
            return node.value.upper()
        case "number" if _NUMBER.fullmatch(node.value):
            return node.value
        case _:
            return ""
