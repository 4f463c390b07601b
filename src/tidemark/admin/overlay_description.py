"""An overlay described: its cells, bundles and trees, with what its brokers say of themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
