"""Reading a topology: the tables [brokers.NAME], [bundles.NAME], [trees.NAME] and [processes.NAME] of a file.

A broker may also name a `parent`, which is short for a bundle of the one link by which it calls that broker.
Every mistake is a ConfigError that says where it is and what to write instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tidemark.broker.overlay.layout import Pair, pair
from tidemark.errors import ConfigError
from tidemark.message.codec.rest import Rest, no_rest
from tidemark.message.foreign.toml_text import read_toml
from tidemark.node.config.units import parse_address
from tidemark.node.config.values import names_of, text_of
from tidemark.node.topology.checks import check_count
from tidemark.node.topology.topology import OF_FILE, BrokerPlacement, Bundle, Topology, Tree
from tidemark.wire.limits import OVERLAY_BYTES_MAX

#: kind of table -> the keys that it may have
TABLES: Mapping[str, tuple[str, ...]] = {
    "brokers": ("cell", "data_dir", "draining", "http", "listen", "parent", "pubends"),
    "bundles": ("cells", "links"),
    "trees": ("bundles", "pubends"),
    "processes": ("brokers",),
}
#: keys of a broker whose values are text
TEXTS = ("cell", "data_dir", "http", "listen", "parent")


def take_topology(document: dict[str, Any], source: str) -> Topology | None:
    """Take the tables of a topology out of `document`. Returns the topology, or None if there are none.

    Raises ConfigError, which names `source`, if they do not fit together.
    """
    tables = {kind: document.pop(kind, {}) for kind in TABLES}
    if not any(tables.values()):
        return None
    try:
        for kind, found in tables.items():
            _check_tables(kind, found)
        if not tables["brokers"]:
            raise ConfigError("there are no brokers: write [brokers.NAME]", key="brokers")
        return _built(tables, source)
    except ConfigError as error:
        raise ConfigError(error.reason, key=error.key, source=source) from None


def parse_topology(text: str, version: int, source: str = "", *, rest: Rest = no_rest) -> Topology:
    """Returns the topology that `to_text` wrote. Raises ConfigError if `text` is anything else."""
    try:
        document = read_toml(text, OVERLAY_BYTES_MAX, rest)
    except ValueError as error:
        raise ConfigError(f"is not TOML: {error}", source=source) from None
    tables = {kind: document.pop(kind, {}) for kind in TABLES}
    if document:
        raise ConfigError(unknown(next(iter(document)), list(TABLES)), source=source)
    for kind, found in tables.items():
        _check_tables(kind, found)
    return _built(tables, source, version)


def unknown(name: str, known: Sequence[str]) -> str:
    """Returns the sentence about a name that is none of `known`, with the nearest one if there is one."""
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"is not known; did you mean {close[0]!r}?"
    return f"is not known; choose one of {', '.join(known)}"


def _built(tables: Mapping[str, Mapping[str, Any]], source: str, version: int = OF_FILE) -> Topology:
    check_count(len(tables["brokers"]))
    placements = [_placement(name, table, source) for name, table in tables["brokers"].items()]
    parents = {name: table["parent"] for name, table in tables["brokers"].items() if "parent" in table}
    if parents and tables["bundles"]:
        key = f"brokers.{next(iter(parents))}.parent"
        raise ConfigError("[bundles.NAME] say how cells are joined here: leave `parent` out", key=key)
    bundles = [_bundle(name, table) for name, table in tables["bundles"].items()]
    return Topology.build(
        placements,
        bundles or _of_parents(parents, {each.name: each.cell for each in placements}),
        [_tree(name, table) for name, table in tables["trees"].items()],
        {name: _names(f"processes.{name}", table, "brokers") for name, table in tables["processes"].items()},
        version=version,
    )


def _check_tables(kind: str, tables: Any) -> None:
    if not isinstance(tables, dict):
        raise ConfigError(f"write a table for each: [{kind}.NAME]", key=kind)
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ConfigError(f"write a table for each: [{kind}.NAME]", key=f"{kind}.{name}")
        for each in table:
            if each not in TABLES[kind]:
                raise ConfigError(unknown(each, TABLES[kind]), key=f"{kind}.{name}.{each}")


def _placement(name: str, table: Mapping[str, Any], source: str) -> BrokerPlacement:
    key = f"brokers.{name}"
    if "listen" not in table:
        raise ConfigError('say where it listens: listen = "127.0.0.1:7676"', key=key)
    texts = {each: text_of(table.get(each), f"{key}.{each}") for each in TEXTS}
    if not name or "/" in name or name.startswith("."):
        raise ConfigError("a broker's name has no slash and does not start with a dot", key=key)
    is_draining = table.get("draining", False)
    if not isinstance(is_draining, bool):
        raise ConfigError(f"{is_draining!r} is neither true nor false", key=f"{key}.draining")
    return BrokerPlacement(
        name,
        texts["cell"] or name,
        _at(f"{key}.listen", parse_address, texts["listen"] or ""),
        _names(key, table, "pubends"),
        is_draining,
        # A relative path in a file starts at that file.
        str(Path(source).parent / (texts["data_dir"] or f"tidemark-data-{name}")),
        texts["http"] if "http" in table else "",
    )


def _bundle(name: str, table: Mapping[str, Any]) -> Bundle:
    key = f"bundles.{name}"
    cells = _names(key, table, "cells", is_repeated=True)
    if len(cells) != 2:
        raise ConfigError('name the two cells that it joins: cells = ["east", "west"]', key=f"{key}.cells")
    links = table.get("links")
    if links is None:
        return Bundle(name, (cells[0], cells[1]))
    if not isinstance(links, list) or not all(_is_pair(each) for each in links):
        reason = f'{links!r} is no list of links; write links = [["e1", "w1"], ["e2", "w2"]]'
        raise ConfigError(reason, key=f"{key}.links")
    return Bundle(name, (cells[0], cells[1]), tuple((a, b) for a, b in links))


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(each, str) for each in value)


def _tree(name: str, table: Mapping[str, Any]) -> Tree:
    key = f"trees.{name}"
    return Tree(name, _names(key, table, "bundles"), _names(key, table, "pubends"))


def _names(key: str, table: Mapping[str, Any], name: str, *, is_repeated: bool = False) -> tuple[str, ...]:
    value = table.get(name, [])
    if is_repeated and isinstance(value, list) and len(value) == 2 and value[0] == value[1]:
        return (str(value[0]), str(value[1]))  # `checks` has a better sentence about two equal cells
    found: tuple[str, ...] = _at(f"{key}.{name}", names_of, value)
    return found


def _at(key: str, parse: Any, value: Any) -> Any:
    try:
        return parse(value)
    except ConfigError as error:
        raise ConfigError(error.reason, key=key) from None


# Parents.


def _of_parents(parents: Mapping[str, Any], cell_of: Mapping[str, str]) -> list[Bundle]:
    """Returns the bundles that `parents` stand for; the child calls its parent."""
    if not parents:
        return []
    _check_parents(parents, cell_of)
    links: dict[Pair, list[Pair]] = {}
    for name, parent in parents.items():
        links.setdefault(pair(cell_of[name], cell_of[parent]), []).append((name, parent))
    return [
        Bundle(f"{cell_of[each[0][0]]}-{cell_of[each[0][1]]}", _cells(each[0], cell_of), tuple(each))
        for each in links.values()
    ]


def _cells(link: Pair, cell_of: Mapping[str, str]) -> Pair:
    return cell_of[link[0]], cell_of[link[1]]


def _check_parents(parents: Mapping[str, Any], cell_of: Mapping[str, str]) -> None:
    sound: set[str] = set()  # brokers from which the way up ends at a root
    for name, parent in parents.items():
        key = f"brokers.{name}.parent"
        if parent not in cell_of:
            known = ", ".join(sorted(cell_of))
            raise ConfigError(f"there is no broker {parent!r}; choose one of {known}", key=key)
        path = [name]
        while (above := parents.get(path[-1])) is not None and len(path) <= len(cell_of):
            if above in sound:
                break
            path.append(above)
            if above == name:
                reason = f"the links go in a circle ({' -> '.join(path)}); they must form a tree"
                raise ConfigError(reason, key=key)
        if len(path) <= len(cell_of):
            sound.update(path)
        if cell_of[parent] == cell_of[name]:
            reason = f"{parent!r} is in the same cell, and linked anyway: leave it out"
            raise ConfigError(reason, key=key)
    with_parent = {cell_of[name] for name in parents}
    roots = sorted(set(cell_of.values()) - with_parent)
    if len(roots) > 1:
        reason = f"{' and '.join(roots)} have no parent; exactly one cell, the root, has none"
        raise ConfigError(reason, key="brokers")
