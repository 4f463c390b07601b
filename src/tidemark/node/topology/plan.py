"""The plan from one topology to another while brokers run: what differs, and steps that lose no event.

The first step adds everything new and takes nothing away. The second drains the brokers that are to be
removed: they get nothing new, and what they hold is consumed. The last step removes them, and the links that
nobody uses any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tidemark.broker.overlay.layout import MAIN_TREE, Pair, pair
from tidemark.errors import ConfigError
from tidemark.node.topology.checks import spanning
from tidemark.node.topology.topology import BrokerPlacement, Bundle, Topology, Tree

ADDED = "added"
CHANGED = "changed"
DRAINED = "drained"
REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between two topologies."""

    #: broker, pubend, link or tree
    kind: str
    name: str
    what: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """A topology on the way to the one that is wanted."""

    #: add, drain, remove or settle
    what: str
    topology: Topology
    #: brokers that have to be running before the next step
    added: tuple[str, ...] = ()
    #: brokers that have to be empty before the next step
    drained: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What is done, in words."""
        match self.what:
            case "add":
                new = ", ".join(self.added)
                return f"add what is new; start {new}" if new else "put the changes into force"
            case "drain":
                return f"drain {', '.join(self.drained)}, and wait until nobody needs them"
            case "remove":
                return "remove what is drained, and the links that nobody uses"
            case _:
                return "remove the links that nobody uses"


def changes(before: Topology, after: Topology) -> list[Change]:
    """Returns the differences between two topologies: brokers, pubends, links and trees, each by name."""
    return [
        *_brokers(before, after),
        *_pubends(before, after),
        *_links(before, after),
        *_trees(before, after),
    ]


def check_change(before: Topology, after: Topology) -> None:
    """Raises ConfigError for a change that would lose events, or that cannot be made."""
    if not before.brokers.keys() & after.brokers.keys():
        raise ConfigError("has no broker in common with the overlay that runs: is it the right file?")
    hosts = before.layout().pubends
    for pubend, host in after.layout().pubends.items():
        was = hosts.get(pubend, host)
        if was != host:
            reason = f"the pubend {pubend!r} has its log at {was!r} and cannot move; add one of another name"
            raise ConfigError(reason, key=f"brokers.{host}.pubends")
    for pubend, host in hosts.items():
        if host in after.brokers and pubend not in after.brokers[host].pubends:
            reason = f"the pubend {pubend!r} goes with its broker only: what it holds would be lost"
            raise ConfigError(reason, key=f"brokers.{host}.pubends")


def steps(before: Topology, after: Topology) -> list[Step]:
    """Returns the topologies to go through, each of a higher version; none if nothing has to be done.

    Raises ConfigError as `check_change` does.
    """
    check_change(before, after)
    removed = tuple(name for name in before.brokers if name not in after.brokers)
    added = tuple(name for name in after.brokers if name not in before.brokers)
    both = _united(before, after)
    if _is_same(both, after):
        both = after
    found: list[Step] = []
    if not _is_same(both, before):
        found.append(Step("add", both, added=added))
    if removed:
        found.append(Step("drain", _drained(both, removed), drained=removed))
    if not _is_same(after, found[-1].topology if found else before):
        found.append(Step("remove" if removed else "settle", after))
    return [
        replace(step, topology=replace(step.topology, version=before.version + at + 1))
        for at, step in enumerate(found)
    ]


def joined(topology: Topology, placement: BrokerPlacement, beside: str) -> Topology:
    """Returns `topology` with one more broker, linked to all brokers of its cell and of the cells next to it.

    If the cell is new, it is joined to the cell `beside`. Raises ConfigError if another broker has the name.
    """
    known = topology.brokers.get(placement.name)
    if known is not None and (known.cell, known.listen) != (placement.cell, placement.listen):
        reason = f"there is a broker {placement.name!r} already, at {known.listen} in the cell {known.cell!r}"
        raise ConfigError(reason, key="broker.name")
    is_new_cell = not topology.cell(placement.cell)
    bundles = [_with_broker(topology, bundle, placement) for bundle in topology.bundles.values()]
    trees = list(topology.trees.values())
    if is_new_cell:
        name = _free_name(f"{placement.cell}-{beside}", topology.bundles)
        bundles.append(Bundle(name, (placement.cell, beside)))
        trees = [replace(tree, bundles=(*tree.bundles, name)) for tree in trees]
    brokers = {**topology.brokers, placement.name: placement}
    return Topology.build(brokers.values(), bundles, trees, topology.processes, version=topology.version + 1)


def _with_broker(topology: Topology, bundle: Bundle, placement: BrokerPlacement) -> Bundle:
    if bundle.links is None or placement.cell not in bundle.cells or placement.name in topology.brokers:
        return bundle
    other = bundle.cells[bundle.cells[0] == placement.cell]
    more = tuple((placement.name, peer) for peer in topology.cell(other))
    return replace(bundle, links=bundle.links + more)


def _free_name(name: str, taken: Iterable[str]) -> str:
    while name in taken:
        name += "-2"
    return name


# Steps.


def _is_same(one: Topology, other: Topology) -> bool:
    """Returns whether the two topologies make no difference to any broker."""
    return one.layout() == other.layout() and _listening(one) == _listening(other)


def _listening(topology: Topology) -> dict[str, object]:
    return {name: (each.listen, topology.calls(name)) for name, each in topology.brokers.items()}


def _drained(topology: Topology, brokers: tuple[str, ...]) -> Topology:
    placements = [
        replace(each, is_draining=each.is_draining or each.name in brokers)
        for each in topology.brokers.values()
    ]
    return Topology.build(placements, topology.bundles.values(), topology.trees.values(), topology.processes)


def _united(before: Topology, after: Topology) -> Topology:
    """Returns a topology with everything of both; where the two differ, as in `after`."""
    brokers = {**before.brokers, **after.brokers}
    cell_of = {name: each.cell for name, each in brokers.items()}
    bundles = _united_bundles(before, after, cell_of)
    by_cells = {pair(*each.cells): each for each in bundles}
    trees = []
    for name in (MAIN_TREE, *(each for each in after.trees if each != MAIN_TREE)):
        wanted = [*_joins(after, name), *_joins(before, name), *by_cells]
        chosen = spanning([by_cells[cells] for cells in dict.fromkeys(wanted) if cells in by_cells])
        pubends = after.trees[name].pubends if name in after.trees else ()
        trees.append(Tree(name, chosen, pubends))
    return Topology.build(brokers.values(), bundles, trees)


def _joins(topology: Topology, tree: str) -> list[Pair]:
    """Returns the pairs of cells that a tree joins."""
    names = topology.trees[tree].bundles if tree in topology.trees else topology.of_main_tree()
    return [pair(*topology.bundles[name].cells) for name in names]


def _united_bundles(before: Topology, after: Topology, cell_of: dict[str, str]) -> list[Bundle]:
    links: dict[Pair, dict[Pair, Pair]] = {}
    names: dict[Pair, str] = {}
    for topology in (after, before):
        for bundle in topology.bundles.values():
            for a, b in topology.links(bundle.name):
                cells = pair(cell_of[a], cell_of[b])
                if cells[0] != cells[1]:
                    links.setdefault(cells, {}).setdefault(pair(a, b), (a, b))
                    if cells not in names:
                        names[cells] = _free_name(bundle.name, names.values())
    return [Bundle(names[cells], cells, tuple(found.values())) for cells, found in links.items()]


# Differences.


def _brokers(before: Topology, after: Topology) -> list[Change]:
    found = []
    for name in sorted(before.brokers.keys() | after.brokers.keys()):
        was, will = before.brokers.get(name), after.brokers.get(name)
        if will is None:
            found.append(Change("broker", name, REMOVED, "drained first"))
        elif was is None:
            found.append(Change("broker", name, ADDED, f"in {will.cell}, at {will.listen}"))
        else:
            found += _one_broker(was, will)
    return found


def _one_broker(was: BrokerPlacement, will: BrokerPlacement) -> list[Change]:
    found = []
    if was.cell != will.cell:
        found.append(Change("broker", was.name, CHANGED, f"from the cell {was.cell} to {will.cell}"))
    if was.listen != will.listen:
        detail = f"listens at {will.listen} instead of {was.listen}: restart it"
        found.append(Change("broker", was.name, CHANGED, detail))
    if was.is_draining != will.is_draining:
        what = DRAINED if will.is_draining else CHANGED
        found.append(Change("broker", was.name, what, "" if will.is_draining else "in use again"))
    return found


def _pubends(before: Topology, after: Topology) -> list[Change]:
    was, will = before.layout().pubends, after.layout().pubends
    return [
        Change("pubend", name, REMOVED if name not in will else ADDED, f"at {was.get(name) or will[name]}")
        for name in sorted(was.keys() ^ will.keys())
    ]


def _links(before: Topology, after: Topology) -> list[Change]:
    was, will = set(before.layout().all_links()), set(after.layout().all_links())
    return [Change("link", f"{a} - {b}", ADDED if (a, b) in will else REMOVED) for a, b in sorted(was ^ will)]


def _trees(before: Topology, after: Topology) -> list[Change]:
    was, will = before.layout(), after.layout()
    found = []
    for name in sorted(was.trees.keys() | will.trees.keys()):
        if was.trees.get(name) != will.trees.get(name):
            what = ADDED if name not in was.trees else REMOVED if name not in will.trees else CHANGED
            edges = ", ".join(f"{a} - {b}" for a, b in sorted(will.trees.get(name, ())))
            found.append(Change("tree", name, what, edges))
    for pubend in sorted(was.pubends.keys() & will.pubends.keys()):
        one, other = (each.tree_of.get(pubend, MAIN_TREE) for each in (was, will))
        if one != other:
            found.append(Change("pubend", pubend, CHANGED, f"from the tree {one} to {other}"))
    return found
