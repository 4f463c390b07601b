"""Checks of a topology: names are unique, all cells can be reached, trees have no circles.

Each mistake is a ConfigError at the key of the file where it has to be corrected, and says what to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tidemark.broker.overlay.layout import MAIN_TREE, Pair, pair
from tidemark.errors import ConfigError
from tidemark.message.visible import control_problem, visible
from tidemark.node.config.units import HostPort
from tidemark.ticks.token import PUBEND_BYTES_MAX
from tidemark.wire.limits import PUBENDS_MAX

if TYPE_CHECKING:
    from tidemark.node.topology.topology import BrokerPlacement, Bundle, Tree

BROKERS_MAX = 1_000
TREES_MAX = 64


def check(
    placements: Sequence[BrokerPlacement],
    bundles: Sequence[Bundle],
    trees: Sequence[Tree],
    processes: Mapping[str, tuple[str, ...]],
) -> None:
    """Raises ConfigError for the first thing that does not fit."""
    _check_brokers(placements)
    cell_of = {each.name: each.cell for each in placements}
    cells = set(cell_of.values())
    joined: dict[Pair, str] = {}
    for bundle in bundles:
        _check_bundle(bundle, cell_of, cells)
        other = joined.setdefault(pair(*bundle.cells), bundle.name)
        if other != bundle.name:
            raise ConfigError(
                f"{other!r} joins the same two cells; put all links into one",
                key=f"bundles.{bundle.name}.cells",
            )
    _check_reachable(placements, bundles)
    _check_trees(placements, bundles, trees)
    _check_processes(cell_of, processes)


def spanning(bundles: Iterable[Bundle]) -> tuple[str, ...]:
    """Returns the first of these bundles that together join all the cells without a circle."""
    group: dict[str, str] = {}

    def root(cell: str) -> str:
        while group.setdefault(cell, cell) != cell:
            # Each cell that is passed points further up from now on, so that no way stays long.
            group[cell] = cell = group[group[cell]]
        return cell

    chosen = []
    for bundle in bundles:
        a, b = (root(cell) for cell in bundle.cells)
        if a != b:
            group[a] = b
            chosen.append(bundle.name)
    return tuple(chosen)


def check_count(brokers: int) -> None:
    """Raises ConfigError if a topology cannot have so many brokers."""
    if brokers > BROKERS_MAX:
        raise ConfigError(f"{brokers} brokers are over the limit of {BROKERS_MAX}", key="brokers")


def check_pubend(name: str, key: str) -> None:
    """Raises ConfigError unless `name` can be the name of a pubend."""
    if not name or len(name.encode()) > PUBEND_BYTES_MAX:
        raise ConfigError(f"{name!r} is no pubend's name; use 1 to {PUBEND_BYTES_MAX} bytes", key=key)
    check_controls(name, key)


def check_controls(name: str, key: str) -> None:
    """Raises ConfigError if a name has a control character."""
    problem = control_problem(name)
    if problem is not None:
        raise ConfigError(problem, key=key)


def _check_brokers(placements: Sequence[BrokerPlacement]) -> None:
    check_count(len(placements))
    hosts: dict[str, str] = {}
    listening: dict[HostPort, str] = {}
    for each in placements:
        key = f"brokers.{visible(each.name)}"
        check_controls(each.name, key)
        for pubend in each.pubends:
            check_pubend(pubend, f"{key}.pubends")
            other = hosts.setdefault(pubend, each.name)
            if other != each.name:
                reason = f"the pubend {pubend!r} is hosted by {other!r} already; choose another name"
                raise ConfigError(reason, key=f"{key}.pubends")
        if len(hosts) > PUBENDS_MAX:
            raise ConfigError(f"there are more than {PUBENDS_MAX} pubends: no token has more", key="brokers")
        other = listening.setdefault(each.listen, each.name)
        if each.listen.port and other != each.name:
            raise ConfigError(f"{each.listen} is where {other!r} listens already", key=f"{key}.listen")


def _check_bundle(bundle: Bundle, cell_of: Mapping[str, str], known: set[str]) -> None:
    key = f"bundles.{bundle.name}"
    for cell in bundle.cells:
        if cell not in known:
            raise ConfigError(_missing("cell", cell, known), key=f"{key}.cells")
    if bundle.cells[0] == bundle.cells[1]:
        reason = "a bundle joins two cells; the brokers of one cell are linked anyway"
        raise ConfigError(reason, key=f"{key}.cells")
    seen: set[Pair] = set()
    for link in bundle.links or ():
        _check_link(link, bundle, cell_of)
        if pair(*link) in seen:
            raise ConfigError(f"{link[0]} - {link[1]} is there twice", key=f"{key}.links")
        seen.add(pair(*link))
    if bundle.links == ():
        raise ConfigError("has no links; leave `links` out for each to each", key=f"{key}.links")


def _check_link(link: Pair, bundle: Bundle, cell_of: Mapping[str, str]) -> None:
    key = f"bundles.{bundle.name}.links"
    for end in link:
        if end not in cell_of:
            raise ConfigError(_missing("broker", end, cell_of), key=key)
    ends = tuple(cell_of[end] for end in link)
    if ends[0] == ends[1]:
        reason = f"{link[0]} and {link[1]} are both in the cell {ends[0]!r}, and linked anyway: leave it out"
        raise ConfigError(reason, key=key)
    if set(ends) != set(bundle.cells):
        where = " and ".join(bundle.cells)
        raise ConfigError(f"{link[0]} - {link[1]} is no link between the cells {where}", key=key)


def _check_reachable(placements: Sequence[BrokerPlacement], bundles: Sequence[Bundle]) -> None:
    reached = _reached(placements[0].cell, bundles) if placements else set()
    for each in placements:
        if each.cell not in reached:
            raise ConfigError(
                f"the cell {each.cell!r} cannot be reached from {placements[0].cell!r}: join it with "
                f'[bundles.NAME] cells = ["{each.cell}", ...]',
                key=f"brokers.{each.name}.cell",
            )


def _check_trees(
    placements: Sequence[BrokerPlacement], bundles: Sequence[Bundle], trees: Sequence[Tree]
) -> None:
    if len(trees) > TREES_MAX:
        raise ConfigError(f"{len(trees)} trees are over the limit of {TREES_MAX}", key="trees")
    known = {each.name: each for each in bundles}
    pubends = {pubend for each in placements for pubend in each.pubends}
    used: dict[str, str] = {}
    for tree in trees:
        key = f"trees.{tree.name}"
        for name in tree.bundles:
            if name not in known:
                raise ConfigError(_missing("bundle", name, known), key=f"{key}.bundles")
        chosen = [known[name] for name in tree.bundles]
        circle = set(tree.bundles) - set(spanning(chosen))
        if circle:
            reason = f"goes in a circle with {', '.join(sorted(circle))}; leave it out"
            raise ConfigError(reason, key=f"{key}.bundles")
        missed = {each.cell for each in placements} - _reached(placements[0].cell, chosen)
        if missed:
            reason = f"does not reach the cell {min(missed)!r} from {placements[0].cell!r}; add a bundle"
            raise ConfigError(reason, key=f"{key}.bundles")
        for pubend in tree.pubends:
            if pubend not in pubends:
                raise ConfigError(_missing("pubend", pubend, pubends), key=f"{key}.pubends")
            other = used.setdefault(pubend, tree.name)
            if other != tree.name:
                raise ConfigError(f"{pubend!r} uses the tree {other!r} already", key=f"{key}.pubends")
        if tree.name != MAIN_TREE and not tree.pubends:
            raise ConfigError("say which pubends use it: pubends = [...]", key=key)


def _check_processes(cell_of: Mapping[str, str], processes: Mapping[str, tuple[str, ...]]) -> None:
    running: dict[str, str] = {}
    for process, brokers in processes.items():
        key = f"processes.{process}.brokers"
        if not brokers:
            raise ConfigError("say which brokers run in it", key=key)
        for broker in brokers:
            if broker not in cell_of:
                raise ConfigError(_missing("broker", broker, cell_of), key=key)
            other = running.setdefault(broker, process)
            if other != process:
                raise ConfigError(f"{broker!r} runs in the process {other!r} already", key=key)


def _reached(start: str, bundles: Sequence[Bundle]) -> set[str]:
    beside: dict[str, list[str]] = {}
    for each in bundles:
        for here, there in (each.cells, each.cells[::-1]):
            beside.setdefault(here, []).append(there)
    reached, new = {start}, [start]
    while new:
        for cell in beside.get(new.pop(), ()):
            if cell not in reached:
                reached.add(cell)
                new.append(cell)
    return reached


def _missing(what: str, name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    return f"there is no {what} {name!r}; choose one of {', '.join(names) or 'none'}"
