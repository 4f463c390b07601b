"""An overlay as a drawing (SVG): cells as boxes on a circle, brokers in them, links with their rates."""

from __future__ import annotations

from html import escape
from math import cos, hypot, pi, sin
from urllib.parse import quote

from tidemark.admin.overlay_description import LinkDescription, OverlayDescription
from tidemark.message.visible import visible

WIDTH, HEIGHT = 880, 460
BROKER_WIDTH, BROKER_HEIGHT, SPACE = 150, 54, 14


#: From which broker to which the events of a pubend go.
Way = frozenset[tuple[str, str]]
#: The half length and half width of an arrow.
ARROW = 11, 7


def draw_overlay(description: OverlayDescription, way: Way = frozenset()) -> str:
    """Return the drawing as SVG. Classes say what is up, down or draining; colours are the page's.

    Links that are on the `way` of a pubend's events have arrows, and the others step back.
    """
    places = _places(description)
    lines = [
        _link(link, places, way)
        for bundle in description.bundles
        for link in bundle.links
        if set(link.ends) <= places.keys()
    ]
    brokers = [_broker(description, name, at) for name, at in places.items()]
    title = f"{len(places)} brokers and {len(lines)} links"
    return (
        f'<svg class="overlay" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">'
        f"{''.join(lines)}{''.join(brokers)}</svg>"
    )


def _places(description: OverlayDescription) -> dict[str, tuple[float, float]]:
    """Broker -> the middle of its box: cells stand on an ellipse, brokers of a cell above each other."""
    cells: dict[str, list[str]] = {}
    for each in description.brokers:
        cells.setdefault(each.cell, []).append(each.name)
    places = {}
    for number, names in enumerate(cells.values()):
        angle = 2 * pi * number / len(cells) - pi / 2
        reach = 0.0 if len(cells) == 1 else 1.0
        x = WIDTH / 2 + reach * cos(angle) * (WIDTH / 2 - BROKER_WIDTH / 2 - 10)
        y = HEIGHT / 2 + reach * sin(angle) * (HEIGHT / 2 - 90)
        step = BROKER_HEIGHT + SPACE
        for row, name in enumerate(names):
            places[name] = (x, y + (row - (len(names) - 1) / 2) * step)
    return places


def _link(link: LinkDescription, places: dict[str, tuple[float, float]], way: Way) -> str:
    first, last = link.ends if tuple(link.ends) in way else reversed(link.ends)
    (x1, y1), (x2, y2) = places[first], places[last]
    activity = link.activity
    kind = "down" if activity is not None and not activity.up else "up"
    is_on_way = (first, last) in way
    if way:
        kind += " way" if is_on_way else " aside"
    carried = ", ".join(activity.pubends) if activity is not None else ""
    rate = (
        ""
        if activity is None or activity.events_per_second is None
        else f"{activity.events_per_second:,.0f}/s"
    )
    why = f"; {activity.why}" if activity is not None and activity.why else ""
    told = visible(f"{link.ends[0]} and {link.ends[1]}: {carried or 'carries nothing now'}{why}")
    label = (
        f'<text x="{(x1 + x2) / 2:.0f}" y="{(y1 + y2) / 2 - 4:.0f}" class="rate">{escape(rate)}</text>'
        if rate
        else ""
    )
    return (
        f'<g class="link {kind}"><title>{escape(told)}</title>'
        f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}"/>'
        f"{_arrow(x1, y1, x2, y2) if is_on_way else ''}{label}</g>"
    )


def _arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """An arrow on the line, behind its middle, where the rate does not stand."""
    length = hypot(x2 - x1, y2 - y1) or 1.0
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    x, y = x1 + 0.62 * (x2 - x1), y1 + 0.62 * (y2 - y1)
    along, across = ARROW
    corners = (
        (x + along * dx, y + along * dy),
        (x - along * dx - across * dy, y - along * dy + across * dx),
        (x - along * dx + across * dy, y - along * dy - across * dx),
    )
    return f'<polygon points="{" ".join(f"{at:.0f},{up:.0f}" for at, up in corners)}"/>'


def _broker(description: OverlayDescription, name: str, at: tuple[float, float]) -> str:
    each = next(one for one in description.brokers if one.name == name)
    x, y = at[0] - BROKER_WIDTH / 2, at[1] - BROKER_HEIGHT / 2
    state = each.activity.state if each.activity is not None else "unknown"
    kind = "draining" if each.draining else "up" if state == "running" else "down"
    rates = each.activity.rates if each.activity is not None else {}
    line = f"{rates.get('published', 0):,.0f} in, {rates.get('delivered', 0):,.0f} out" if rates else state
    shown = escape(visible(name if len(name) <= 18 else name[:17] + "…"))
    told = escape(visible(f"{name}, cell {each.cell}: {state}; pubends {', '.join(each.pubends) or 'none'}"))
    return (
        f'<a href="/overlay?broker={quote(name, safe="")}"><g class="broker {kind}"><title>{told}</title>'
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{BROKER_WIDTH}" height="{BROKER_HEIGHT}" rx="8"/>'
        f'<text x="{at[0]:.0f}" y="{at[1] - 5:.0f}">{shown}</text>'
        f'<text x="{at[0]:.0f}" y="{at[1] + 15:.0f}" class="small">{escape(line)}</text></g></a>'
    )
