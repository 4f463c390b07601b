"""A topology as people see it: a tree in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tidemark.errors import ConfigError


def describe_file(file: Path) -> dict[str, Any]:
    """The brokers of a topology file; ConfigError, at the key, unless they fit together."""
    from tidemark.node.configload import brokers_of, load

    names = brokers_of(file)
    if not names:
        raise ConfigError("has no [brokers.NAME] tables", source=str(file))
    topology = load(file, broker=names[0]).topology
    return {
        "topology": str(file),
        "brokers": [
            {
                "name": each.name,
                "url": f"tidemark://{each.listen}",
                "parent": each.parent,
                "cell": each.cell,
                "pubends": list(each.pubends),
                "links": list(topology.neighbours(each.name)),
                "routes": [
                    {"pubend": pubend, "upstream": route.upstream, "downstream": list(route.downstream)}
                    for pubend, route in sorted(topology.routes(each.name).items())
                ],
            }
            for each in topology.brokers.values()
        ],
    }


def draw_file(described: Mapping[str, Any]) -> str:
    """A topology file as a tree."""
    brokers = {each["name"]: each for each in described["brokers"]}
    (root,) = (name for name, each in brokers.items() if each["parent"] is None)

    def below(name: str) -> list[str]:
        return [each["name"] for each in brokers.values() if each["parent"] == name]

    def label(name: str) -> str:
        each = brokers[name]
        return f"{click.style(name, bold=True)} {each['url']}{_pubends(each['pubends'])}"

    return "\n".join(_branches(root, below, label))


def draw_neighbourhood(status: Mapping[str, Any], routes: Sequence[Mapping[str, Any]]) -> str:
    """What a running broker knows: itself, its neighbours, and the pubends behind each."""
    me = status["broker"]

    def label(name: str) -> str:
        here = None if name == me else name
        pubends = _pubends([each["pubend"] for each in routes if each["upstream"] == here])
        if name == me:
            return f"{click.style(name, bold=True)} tidemark://{status['listen']}{pubends}"
        is_up = status["links"][name]
        state = click.style("up", fg="green") if is_up else click.style("down", fg="red")
        return f"{click.style(name, bold=True)} link {state}" + pubends.replace("pubends", "towards", 1)

    return "\n".join(_branches(me, lambda name: sorted(status["links"]) if name == me else [], label))


def _pubends(names: Sequence[str]) -> str:
    return f"  pubends {', '.join(names)}" if names else ""


def _branches(
    name: str, below: Callable[[str], list[str]], label: Callable[[str], str], indent: str = ""
) -> list[str]:
    lines = [label(name)]
    children = below(name)
    for at, child in enumerate(children):
        first, other = ("└── ", "    ") if at == len(children) - 1 else ("├── ", "│   ")
        head, *rest = _branches(child, below, label)
        lines += [indent + first + head, *(indent + other + line for line in rest)]
    return lines
