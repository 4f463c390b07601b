"""An overlay drawn for a terminal: tables of its brokers and links, and its trees."""

from __future__ import annotations

from collections.abc import Callable

import click

from tidemark.admin import BrokerDescription, LinkDescription, OverlayDescription
from tidemark.admin.numbers import NOTHING, show_bytes
from tidemark.admin.overlay_description import RATES
from tidemark.cli.output import table


def draw(overlay: OverlayDescription) -> str:
    """Return the whole overlay as text."""
    parts = [_brokers(overlay), _links(overlay), _trees(overlay)]
    return "\n\n".join(part for part in parts if part)


def _brokers(overlay: OverlayDescription) -> str:
    is_live = overlay.is_live
    titles: tuple[str, ...] = ("cell", "broker", "at", "pubends")
    if is_live:
        titles += ("state", *RATES.values())
    rows, cell = [], None
    for each in sorted(overlay.brokers, key=lambda each: (each.cell, each.name)):
        row = [
            click.style(each.cell, bold=True) if each.cell != cell else "",
            each.name,
            each.url.partition("://")[2],
            ", ".join(each.pubends) or NOTHING,
        ]
        if each.activity is not None:
            rates = [each.activity.rates.get(title) for title in RATES.values()]
            row += [_state(each, overlay.version), *map(_rate_text, rates)]
        elif each.draining:
            row[1] += click.style(" (draining)", fg="yellow")
        rows.append(row)
        cell = each.cell
    head = f"overlay version {overlay.version}\n" if is_live else ""
    return head + table(titles, rows, right=[5, 6] if is_live else [])


def _state(broker: BrokerDescription, version: int) -> str:
    assert broker.activity is not None
    if broker.activity.state != "running":
        return click.style(broker.activity.state, fg="red")
    if broker.activity.version != version:
        return click.style(f"goes by version {broker.activity.version}", fg="yellow")
    return click.style("draining", fg="yellow") if broker.draining else click.style("running", fg="green")


def _rate_text(rate: float | None) -> str:
    return NOTHING if rate is None else f"{rate:,.0f}/s"


def _links(overlay: OverlayDescription) -> str:
    is_live = overlay.is_live
    titles: tuple[str, ...] = ("bundle", "cells", "link")
    if is_live:
        titles += ("state", "events", "bytes", "deaths", "delay", "carries", "why")
    rows = []
    for bundle in overlay.bundles:
        names = ["inside" if len(bundle.cells) == 1 else bundle.name, " - ".join(bundle.cells)]
        for at, link in enumerate(bundle.links):
            rows.append([*(names if at == 0 else ("", "")), " - ".join(link.ends), *_activity_cells(link)])
    return table(titles, rows, right=[4, 5, 6, 7] if is_live else []) if rows else ""


def _activity_cells(link: LinkDescription) -> list[str]:
    """What the columns of a running overlay say of a link; nothing of one that is read from a file."""
    activity = link.activity
    if activity is None:
        return []
    state = click.style("up", fg="green") if activity.up else click.style("down", fg="red")
    sent, condition = activity.bytes_per_second, activity.condition
    delay = None if condition is None else condition.delay_seconds
    return [
        state + (" (local)" if activity.local else ""),
        _rate_text(activity.events_per_second),
        NOTHING if sent is None else f"{show_bytes(sent)}/s",
        NOTHING if condition is None else str(condition.deaths),
        NOTHING if delay is None else f"{delay * 1e3:.3g} ms",
        ", ".join(activity.pubends) or NOTHING,
        activity.why,
    ]


def _trees(overlay: OverlayDescription) -> str:
    parts = []
    hosts = {pubend: each.cell for each in overlay.brokers for pubend in each.pubends}
    cells = sorted({each.cell for each in overlay.brokers})
    for tree in overlay.trees:
        if not tree.cells or not (tree.pubends or len(overlay.trees) == 1):
            continue
        # The root is the cell that has most of the tree's pubends.
        root = max(cells, key=[hosts[pubend] for pubend in tree.pubends].count)
        pubends = f"  {', '.join(tree.pubends)}" if tree.pubends else ""
        parts.append(f"{click.style('tree', bold=True)} {tree.name}{pubends}")
        parts.append("\n".join(branches(root, _neighbours_in(tree.cells))))
    return "\n".join(parts)


def _neighbours_in(edges: tuple[tuple[str, str], ...]) -> Callable[[str], list[str]]:
    """The function that gives the neighbours of a cell in a tree with these edges."""
    return lambda cell: sorted(b if a == cell else a for a, b in edges if cell in (a, b))


def branches(name: str, beyond: Callable[[str], list[str]], above: str | None = None) -> list[str]:
    """Return the lines of a tree; `beyond` gives the neighbours of a node, also the one above it."""
    lines = [name]
    below = [each for each in beyond(name) if each != above]
    for at, child in enumerate(below):
        first, other = ("└── ", "    ") if at == len(below) - 1 else ("├── ", "│   ")
        head, *rest = branches(child, beyond, name)
        lines += [first + head, *(other + line for line in rest)]
    return lines
