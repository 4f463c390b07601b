"""A topology as text: the TOML that people write too, without paths and settings of single machines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark.node.topology.topology import BrokerPlacement, Bundle, Topology, Tree

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_text(topology: Topology) -> str:
    """Returns the tables of a topology as TOML, in its order; equal topologies have equal texts."""
    tables = [
        *(_table("brokers", each.name, _broker(each)) for each in topology.brokers.values()),
        *(_table("bundles", each.name, _bundle(each)) for each in topology.bundles.values()),
        *(_table("trees", each.name, _tree(each)) for each in topology.trees.values()),
    ]
    return "\n".join(tables)


def quoted(value: str) -> str:
    """Returns `value` as a TOML string."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _table(kind: str, name: str, lines: Iterator[str]) -> str:
    key = name if _BARE.fullmatch(name) else quoted(name)
    return f"[{kind}.{key}]\n" + "".join(f"{line}\n" for line in lines)


def _broker(placement: BrokerPlacement) -> Iterator[str]:
    yield f"cell = {quoted(placement.cell)}"
    yield f"listen = {quoted(str(placement.listen))}"
    if placement.pubends:
        yield f"pubends = {_list(placement.pubends)}"
    if placement.is_draining:
        yield "draining = true"


def _bundle(bundle: Bundle) -> Iterator[str]:
    yield f"cells = {_list(bundle.cells)}"
    if bundle.links is not None:
        yield f"links = [{', '.join(map(_list, bundle.links))}]"


def _tree(tree: Tree) -> Iterator[str]:
    yield f"bundles = {_list(tree.bundles)}"
    if tree.pubends:
        yield f"pubends = {_list(tree.pubends)}"


def _list(names: Sequence[str]) -> str:
    return f"[{', '.join(map(quoted, names))}]"
