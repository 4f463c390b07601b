"""An overlay drawn for a terminal: tables of its brokers and links, and its trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from tidemark.admin.numbers import NOTHING, show_bytes
from tidemark.admin.overlay_description import RATES
from tidemark.cli.output import table


def draw(described: Mapping[str, Any]) -> str:
    """The whole on a page."""
    is_live = any("state" in each for each in described["brokers"])
    parts = [_brokers(described, is_live), _links(described, is_live), _trees(described)]
    return "\n\n".join(part for part in parts if part)


def _brokers(described: Mapping[str, Any], is_live: bool) -> str:
    titles: tuple[str, ...] = ("cell", "broker", "at", "pubends")
    if is_live:
        titles += ("state", *RATES.values())
    rows, cell = [], None
    for each in sorted(described["brokers"], key=lambda each: (each["cell"], each["name"])):
        row = [
            click.style(each["cell"], bold=True) if each["cell"] != cell else "",
            each["name"],
            each["url"].removeprefix("tidemark://"),
            ", ".join(each["pubends"]) or NOTHING,
        ]
        if is_live:
            row += [
                _state(each, described["version"]),
                *(_rate_text(each["rates"].get(t)) for t in RATES.values()),
            ]
        elif each["draining"]:
            row[1] += click.style(" (draining)", fg="yellow")
        rows.append(row)
        cell = each["cell"]
    head = f"overlay version {described['version']}\n" if is_live else ""
    return head + table(titles, rows, right=[5, 6] if is_live else [])


def _state(broker: Mapping[str, Any], version: int) -> str:
    if broker["state"] != "running":
        return click.style(broker["state"], fg="red")
    if broker["version"] != version:
        return click.style(f"goes by version {broker['version']}", fg="yellow")
    return click.style("draining", fg="yellow") if broker["draining"] else click.style("running", fg="green")


def _rate_text(rate: float | None) -> str:
    return NOTHING if rate is None else f"{rate:,.0f}/s"


def _links(described: Mapping[str, Any], is_live: bool) -> str:
    titles: tuple[str, ...] = ("bundle", "cells", "link")
    if is_live:
        titles += ("state", "events", "bytes", "carries")
    rows = []
    for bundle in described["bundles"]:
        cells = " - ".join(bundle["cells"])
        names = ["inside" if len(bundle["cells"]) == 1 else bundle["name"], cells]
        for at, link in enumerate(bundle["links"]):
            row = [*(names if at == 0 else ("", "")), f"{link['from']} - {link['to']}"]
            if is_live:
                row += _link_row(link)
            rows.append(row)
    return table(titles, rows, right=[4, 5] if is_live else []) if rows else ""


def _link_row(link: Mapping[str, Any]) -> list[str]:
    state = click.style("up", fg="green") if link["up"] else click.style("down", fg="red")
    sent = link["bytes_per_second"]
    return [
        state + (" (local)" if link["local"] else ""),
        _rate_text(link["events_per_second"]),
        NOTHING if sent is None else f"{show_bytes(sent)}/s",
        ", ".join(link["pubends"]) or NOTHING,
    ]


def _trees(described: Mapping[str, Any]) -> str:
    parts = []
    hosts = {pubend: each["cell"] for each in described["brokers"] for pubend in each["pubends"]}
    cells = sorted({each["cell"] for each in described["brokers"]})
    for tree in described["trees"]:
        if not tree["cells"] or not (tree["pubends"] or len(described["trees"]) == 1):
            continue
        edges = [tuple(edge) for edge in tree["cells"]]
        # Seen from where most of its pubends are.
        near = [hosts[pubend] for pubend in tree["pubends"]]
        root = max(cells, key=near.count)
        pubends = f"  {', '.join(tree['pubends'])}" if tree["pubends"] else ""
        parts.append(f"{click.style('tree', bold=True)} {tree['name']}{pubends}")
        parts.append("\n".join(branches(root, lambda cell, edges=edges: _beyond(cell, edges))))  # type: ignore[misc]
    return "\n".join(parts)


def _beyond(cell: str, edges: Sequence[tuple[str, ...]]) -> list[str]:
    return sorted(b if a == cell else a for a, b in edges if cell in (a, b))


def branches(name: str, beyond: Callable[[str], list[str]], above: str | None = None) -> list[str]:
    """A tree's lines; `beyond` gives all that a node is joined to, the one above it too."""
    lines = [name]
    below = [each for each in beyond(name) if each != above]
    for at, child in enumerate(below):
        first, other = ("└── ", "    ") if at == len(below) - 1 else ("├── ", "│   ")
        head, *rest = branches(child, beyond, name)
        lines += [first + head, *(other + line for line in rest)]
    return lines
