"""Overlays: the shapes that simulated worlds have, from a single broker to cells with redundant links."""

from __future__ import annotations

from random import Random

from tidemark.broker.overlay.layout import MAIN_TREE, Layout, Pair, pair

#: The other tree that some pubends of an overlay use.
OTHER_TREE = "other"
BROKERS_MAX = 7


def tree_of(chance: Random) -> Layout:
    """A tree of one to six brokers, each a cell of its own."""
    names = [f"b{n}" for n in range(chance.choice((1, 2, 2, 3, 4, 6)))]
    parents: dict[str, str | None] = {
        name: chance.choice(names[:at]) if at else None for at, name in enumerate(names)
    }
    return Layout.of_tree(parents, _pubends(chance, names))


def overlay_of(chance: Random) -> Layout:
    """One to four cells of one to three brokers, bundles with links missing, one or two trees."""
    cells: dict[str, tuple[str, ...]] = {}
    names: list[str] = []
    for n in range(chance.choice((1, 2, 2, 3, 3, 4))):
        size = min(chance.choice((1, 2, 2, 3)), BROKERS_MAX - len(names))
        if size:
            cells[f"c{n}"] = tuple(f"b{len(names) + at}" for at in range(size))
            names += cells[f"c{n}"]
    trees = {MAIN_TREE: spanning_tree(chance, list(cells))}
    if chance.random() < 0.4:
        trees[OTHER_TREE] = spanning_tree(chance, list(cells))
    links: set[Pair] = set()
    for a, b in sorted({edge for tree in trees.values() for edge in tree}):
        links |= bundle_of(chance, cells[a], cells[b])
    pubends = _pubends(chance, names)
    tree_of_pubend = {pubend: chance.choice(sorted(trees)) for pubend in pubends}
    return Layout(cells, frozenset(links), pubends, trees, tree_of_pubend)


def spanning_tree(chance: Random, cells: list[str]) -> frozenset[Pair]:
    """A random tree of the cells: in a random order, each cell is joined to one before it."""
    order = chance.sample(cells, len(cells))
    return frozenset(pair(name, chance.choice(order[:at])) for at, name in enumerate(order) if at)


def bundle_of(chance: Random, here: tuple[str, ...], there: tuple[str, ...]) -> set[Pair]:
    """Links between two cells, some of them missing."""
    every = [pair(a, b) for a in here for b in there]
    return {link for link in every if chance.random() < 0.7} or {chance.choice(every)}


def _pubends(chance: Random, names: list[str]) -> dict[str, str]:
    return {f"p{n}": chance.choice(names) for n in range(chance.choice((1, 1, 2, 3)))}
