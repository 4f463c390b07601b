"""An overlay as people see it: its cells, bundles and trees, with what its brokers say of themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tidemark.cli.output import NOTHING, show_bytes, table

if TYPE_CHECKING:
    from tidemark.node.topology.topology import Topology

#: What of a broker's counters is shown.
RATES = {"events_published": "published", "events_delivered": "delivered"}


@dataclass(frozen=True, slots=True)
class Seen:
    """What one broker answered at one moment."""

    #: monotonic seconds
    at: float
    status: Mapping[str, Any]
    metrics: Mapping[str, float]
    links: Sequence[Mapping[str, Any]]
    routes: Sequence[Mapping[str, Any]]


#: broker -> what it answered; None if it did not
Sight = Mapping[str, Seen | None]


def describe(
    topology: Topology, sight: Sight | None = None, before: Sight | None = None, *, source: str = ""
) -> dict[str, Any]:
    """Everything about an overlay, for scripts and for `draw`; without `sight` only what its file says."""
    layout = topology.layout()
    return {
        "topology": source,
        "version": topology.version,
        "brokers": [
            {
                "name": each.name,
                "cell": each.cell,
                "url": f"tidemark://{each.listen}",
                "pubends": list(each.pubends),
                "draining": each.is_draining,
                "links": list(topology.neighbours(each.name)),
                **_life(each.name, sight, before),
            }
            for each in topology.brokers.values()
        ],
        "bundles": list(_bundles(topology, sight, before)),
        "trees": [
            {
                "name": name,
                "cells": [list(edge) for edge in sorted(edges)],
                "pubends": sorted(p for p in layout.pubends if layout.tree_of.get(p, "main") == name),
            }
            for name, edges in sorted(layout.trees.items())
        ],
    }


def _life(name: str, sight: Sight | None, before: Sight | None) -> dict[str, Any]:
    if sight is None:
        return {}
    seen, earlier = sight.get(name), (before or {}).get(name)
    if seen is None:
        return {"state": "not running", "version": None, "rates": {}}
    rates = {}
    if earlier is not None and earlier.status["incarnation"] == seen.status["incarnation"]:
        seconds = seen.at - earlier.at
        rates = {
            title: round((seen.metrics.get(key, 0) - earlier.metrics.get(key, 0)) / seconds, 1)
            for key, title in RATES.items()
            if seconds
        }
    return {"state": seen.status["state"], "version": seen.status.get("overlay"), "rates": rates}


def _bundles(topology: Topology, sight: Sight | None, before: Sight | None) -> Iterator[dict[str, Any]]:
    for cell, brokers in topology.layout().cells.items():
        inside = [(a, b) for a in brokers for b in brokers if a < b]
        if inside:
            yield {
                "name": cell,
                "cells": [cell],
                "links": [_link(a, b, sight, before) for a, b in inside],
            }
    for bundle in topology.bundles.values():
        yield {
            "name": bundle.name,
            "cells": list(bundle.cells),
            "links": [_link(a, b, sight, before) for a, b in topology.links(bundle.name)],
        }


def _link(a: str, b: str, sight: Sight | None, before: Sight | None) -> dict[str, Any]:
    link: dict[str, Any] = {"from": a, "to": b}
    if sight is None:
        return link
    ends = [_end(sight, *each) for each in ((a, b), (b, a))]
    known = [end for end in ends if end is not None]
    link["up"] = bool(known) and all(end["is_up"] for end in known)
    link["local"] = any(end["is_local"] for end in known)
    link["pubends"] = sorted({*_carried(sight, a, b), *_carried(sight, b, a)})
    for key in ("events", "bytes"):
        rates = [_rate(sight, before, key, *each) for each in ((a, b), (b, a))]
        link[f"{key}_per_second"] = round(sum(rates), 1) if before else None
    return link


def _end(sight: Sight, here: str, there: str) -> Mapping[str, Any] | None:
    seen = sight.get(here)
    return None if seen is None else next((each for each in seen.links if each["peer"] == there), None)


def _rate(sight: Sight, before: Sight | None, key: str, here: str, there: str) -> float:
    now, then = _end(sight, here, there), _end(before or {}, here, there)
    if now is None or then is None:
        return 0.0
    # A link that was made anew counts from the start again.
    grown = now[key] - (then[key] if now[key] >= then[key] else 0)
    seen, earlier = sight[here], (before or {})[here]
    assert seen is not None
    assert earlier is not None
    return float(grown / (seen.at - earlier.at)) if seen.at > earlier.at else 0.0


def _carried(sight: Sight, here: str, there: str) -> list[str]:
    """The pubends that one broker has from the other."""
    seen = sight.get(here)
    return [] if seen is None else [each["pubend"] for each in seen.routes if each["upstream"] == there]


# Drawing.


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
