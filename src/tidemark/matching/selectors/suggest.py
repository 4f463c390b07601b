"""Suggestions for error messages: what the author of a refused selector probably meant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from heapq import nsmallest

from tidemark.matching.selectors.render import render, render_path
from tidemark.matching.selectors.tree import Literal, Node
from tidemark.message.types import Path

#: Near spellings are looked for among so many names, those of the likeliest lengths, of at most so many
#: characters: comparing two names takes time in proportion to the product of their lengths.
NEAR_CANDIDATES_MAX = 128
NEAR_CHARACTERS_MAX = 48
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?", re.ASCII)


def nearest(path: Path, candidates: Sequence[Path]) -> str:
    """The candidate that `path` is probably a misspelling of, as text; "" if there is none.

    A candidate that differs in case only comes first, then one with the same last name, then a near spelling.
    """
    wanted, leaf = _folded(path), ".".join(path).casefold()
    folded = [_folded(candidate) for candidate in candidates]
    for candidate, names in zip(candidates, folded, strict=True):
        if names == wanted:
            return render_path(candidate)
    for candidate, names in zip(candidates, folded, strict=True):
        if names[-1:] == (leaf,):
            return render_path(candidate)
    if len(leaf) > NEAR_CHARACTERS_MAX:
        return ""
    by_name = {".".join(names): candidate for candidate, names in zip(candidates, folded, strict=True)}
    alike = nsmallest(NEAR_CANDIDATES_MAX, by_name, key=lambda name: _distance(name, leaf))
    close = get_close_matches(leaf, [name for name in alike if len(name) <= NEAR_CHARACTERS_MAX], n=1)
    return render_path(by_name[close[0]]) if close else ""


def _folded(path: Path) -> tuple[str, ...]:
    return tuple(part.casefold() for part in path)


def _distance(name: str, wanted: str) -> int:
    """How unlikely it is that a name was meant by one who wrote `wanted`, judged without reading both."""
    return abs(len(name) - len(wanted)) + (name[:1] != wanted[:1])


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
