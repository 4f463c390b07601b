"""Topology: which brokers there are, how they are linked, and which of them hosts which pubend.

The cells form a tree, each linked to its parent; the child calls. From one broker a pubend lies either here
or behind exactly one neighbour, and everyone else is behind this broker: that is its route.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tidemark.broker.broker import Route
from tidemark.errors import ConfigError
from tidemark.node.units import Address
from tidemark.ticks.token import PUBEND_BYTES_MAX

BROKERS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Placed:
    """One broker as the topology has it."""

    name: str
    cell: str
    listen: Address
    parent: str | None = None
    pubends: tuple[str, ...] = ()
    #: its own data directory and HTTP address, where the file says them
    data_dir: str | None = None
    http: str | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """All brokers by name; made by `build`, which checks that they form a tree."""

    brokers: Mapping[str, Placed]
    _neighbours: Mapping[str, tuple[str, ...]] = field(repr=False)

    @classmethod
    def build(cls, placed: list[Placed]) -> Topology:
        """ConfigError, at the key that is wrong, unless everything fits together."""
        brokers = {each.name: each for each in placed}
        _check_names(placed)
        _check_tree(brokers)
        neighbours: dict[str, list[str]] = {name: [] for name in brokers}
        for each in placed:
            if each.parent is not None:
                neighbours[each.name].append(each.parent)
                neighbours[each.parent].append(each.name)
        return cls(brokers, {name: tuple(sorted(found)) for name, found in neighbours.items()})

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Those a broker is linked to, whichever side calls."""
        return self._neighbours[name]

    def calls(self, name: str) -> dict[str, Address]:
        """Those a broker calls, and where."""
        parent = self.brokers[name].parent
        return {} if parent is None else {parent: self.brokers[parent].listen}

    def routes(self, name: str) -> dict[str, Route]:
        """Where each pubend lies, seen from a broker."""
        routes: dict[str, Route] = {}
        for host in self.brokers.values():
            upstream = self._next_hop(name, host.name)
            behind = tuple(peer for peer in self.neighbours(name) if peer != upstream)
            routes |= {pubend: Route(upstream, behind) for pubend in host.pubends}
        return routes

    def _next_hop(self, start: str, goal: str) -> str | None:
        """The neighbour of `start` behind which `goal` lies; None if it is `start` itself."""
        if start == goal:
            return None
        below = goal
        for broker in self._upwards(goal):
            if broker == start:
                return below
            below = broker
        return self.brokers[start].parent

    def _upwards(self, name: str) -> Iterator[str]:
        """A broker, its parent, and so on to the root."""
        at: str | None = name
        while at is not None:
            yield at
            at = self.brokers[at].parent


def _check_names(placed: list[Placed]) -> None:
    if len(placed) > BROKERS_MAX:
        raise ConfigError(f"{len(placed)} brokers are over the limit of {BROKERS_MAX}", key="brokers")
    cells: dict[str, str] = {}
    hosts: dict[str, str] = {}
    listening: dict[Address, str] = {}
    for each in placed:
        key = f"brokers.{each.name}"
        other = cells.setdefault(each.cell, each.name)
        if other != each.name:
            reason = f"the cell {each.cell!r} has the broker {other!r} already; a cell has one broker for now"
            raise ConfigError(reason, key=f"{key}.cell")
        for pubend in each.pubends:
            check_pubend(pubend, f"{key}.pubends")
            other = hosts.setdefault(pubend, each.name)
            if other != each.name:
                reason = f"the pubend {pubend!r} is hosted by {other!r} already; choose another name"
                raise ConfigError(reason, key=f"{key}.pubends")
        other = listening.setdefault(each.listen, each.name)
        if each.listen.port and other != each.name:
            raise ConfigError(f"{each.listen} is where {other!r} listens already", key=f"{key}.listen")


def _check_tree(brokers: Mapping[str, Placed]) -> None:
    roots = [name for name, each in brokers.items() if each.parent is None]
    for name, each in brokers.items():
        key = f"brokers.{name}.parent"
        if each.parent is not None and each.parent not in brokers:
            known = ", ".join(sorted(brokers))
            raise ConfigError(f"there is no broker {each.parent!r}; choose one of {known}", key=key)
        path = [name]
        while (parent := brokers[path[-1]].parent) is not None and parent in brokers:
            path.append(parent)
            if parent == name:
                raise ConfigError(
                    f"the links go in a circle ({' -> '.join(path)}); they must form a tree", key=key
                )
            if len(path) > len(brokers):
                break  # a circle further up, which is reported at one of its own
    if len(roots) > 1:
        reason = f"{' and '.join(sorted(roots))} have no parent; exactly one broker, the root, has none"
        raise ConfigError(reason, key="brokers")


def check_pubend(name: str, key: str) -> None:
    """ConfigError unless it can be a pubend's name."""
    if not name or len(name.encode()) > PUBEND_BYTES_MAX:
        raise ConfigError(f"{name!r} is no pubend's name; use 1 to {PUBEND_BYTES_MAX} bytes", key=key)
