"""An overlay as a drawing (SVG): cells as boxes on an ellipse, brokers in them, links with their rates."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import cos, hypot, pi, sin
from urllib.parse import quote

from tidemark.admin.overlay_description import LinkDescription, OverlayDescription
from tidemark.message.visible import visible

WIDTH, HEIGHT_MIN = 880, 300
BROKER_WIDTH, BROKER_HEIGHT = 150, 54
#: Between the brokers of a cell, where the rate of a link stands; around them; and for the cell's name.
SPACE, PADDING, NAME_HEIGHT = 30, 14, 22
#: Brokers of a cell above each other; further ones stand in a column beside them.
ROWS_MAX = 4

#: From which broker to which the events of a pubend go.
Way = frozenset[tuple[str, str]]
#: The half length and half width of an arrow.
ARROW = 11, 7


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a broker stands: the middle of its box, its cell, and its column and row there."""

    x: float
    y: float
    cell: str
    column: int
    row: int


@dataclass(frozen=True, slots=True)
class _Box:
    """A cell: its left upper corner and its size."""

    x: float
    y: float
    width: float
    height: float


def draw_overlay(description: OverlayDescription, way: Way = frozenset()) -> str:
    """Return the drawing as SVG. Classes say what is up, down or draining; colours are the page's.

    Links that are on the `way` of a pubend's events have arrows, and the others step back.
    """
    boxes, places, height = _laid_out(description)
    lines = [
        _link(link, places, way)
        for bundle in description.bundles
        for link in bundle.links
        if set(link.ends) <= places.keys()
    ]
    cells = [_cell(name, box) for name, box in boxes.items()]
    brokers = [_broker(description, name, place) for name, place in places.items()]
    title = f"{len(places)} brokers in {len(cells)} cells, and {len(lines)} links"
    return (
        f'<svg class="overlay" viewBox="0 0 {WIDTH} {height:.0f}" role="group" aria-label="{title}">'
        f"{''.join(cells)}{''.join(lines)}{''.join(brokers)}</svg>"
    )


def _laid_out(description: OverlayDescription) -> tuple[dict[str, _Box], dict[str, _Place], float]:
    """The boxes of the cells, the places of the brokers, and the height of the drawing."""
    cells: dict[str, list[str]] = {}
    for each in description.brokers:
        cells.setdefault(each.cell, []).append(each.name)
    sizes = {cell: _size(len(names)) for cell, names in cells.items()}
    widest = max((width for width, _ in sizes.values()), default=0.0)
    tallest = max((height for _, height in sizes.values()), default=0.0)
    # Two cells stand beside each other; more go round from the top, with room for two above each other.
    levels = 1.0 if len(cells) <= 2 else 2.3
    whole = max(HEIGHT_MIN, levels * tallest + 2 * PADDING)
    boxes, places = {}, {}
    for number, (cell, names) in enumerate(cells.items()):
        angle = 2 * pi * number / len(cells) - (pi if len(cells) == 2 else pi / 2)
        reach = 0.0 if len(cells) == 1 else 1.0
        x = WIDTH / 2 + reach * cos(angle) * max(0.0, (WIDTH - widest) / 2 - PADDING)
        y = whole / 2 + reach * sin(angle) * max(0.0, (whole - tallest) / 2 - PADDING)
        width, height = sizes[cell]
        box = boxes[cell] = _Box(x - width / 2, y - height / 2, width, height)
        for at, name in enumerate(names):
            column, row = divmod(at, ROWS_MAX)
            places[name] = _Place(
                box.x + PADDING + BROKER_WIDTH / 2 + column * (BROKER_WIDTH + SPACE),
                box.y + NAME_HEIGHT + PADDING + BROKER_HEIGHT / 2 + row * (BROKER_HEIGHT + SPACE),
                cell,
                column,
                row,
            )
    return boxes, places, whole


def _size(brokers: int) -> tuple[float, float]:
    """The width and height of a cell with so many brokers."""
    columns, rows = -(-brokers // ROWS_MAX), min(brokers, ROWS_MAX)
    return (
        columns * BROKER_WIDTH + (columns - 1) * SPACE + 2 * PADDING,
        rows * BROKER_HEIGHT + (rows - 1) * SPACE + 2 * PADDING + NAME_HEIGHT,
    )


def _cell(name: str, box: _Box) -> str:
    shown, middle = escape(visible(name)), box.x + box.width / 2
    return (
        f'<g class="cell"><title>the cell {shown}</title>'
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}" rx="14"/>'
        f'<text x="{middle:.0f}" y="{box.y + NAME_HEIGHT:.0f}" class="small">{shown}</text></g>'
    )


def _link(link: LinkDescription, places: dict[str, _Place], way: Way) -> str:
    first, last = link.ends if tuple(link.ends) in way else reversed(link.ends)
    start, end = places[first], places[last]
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
    bend = _bend(start, end)
    middle, y = (start.x + end.x) / 2, (start.y + end.y) / 2
    x = middle + bend / 2
    is_upright = start.cell == end.cell and start.column == end.column
    # Beside a line that goes up and down, and above any other.
    at = (x + 24, y + 4) if is_upright else (x, y - 4)
    label = f'<text x="{at[0]:.0f}" y="{at[1]:.0f}" class="rate">{escape(rate)}</text>' if rate else ""
    return (
        f'<g class="link {kind}"><title>{escape(told)}</title>'
        f'<path d="M{start.x:.0f} {start.y:.0f} Q{middle + bend:.0f} {y:.0f} '
        f'{end.x:.0f} {end.y:.0f}"/>'
        f"{_arrow(start, end, bend) if is_on_way else ''}{label}</g>"
    )


def _bend(start: _Place, end: _Place) -> float:
    """By how much a line bows to the right: around the brokers that stand between its ends."""
    is_beside = start.cell == end.cell and start.column == end.column
    return BROKER_WIDTH + 40.0 if is_beside and abs(start.row - end.row) > 1 else 0.0


def _arrow(start: _Place, end: _Place, bend: float) -> str:
    """An arrow on the line, behind its middle, where the rate does not stand."""
    length = hypot(end.x - start.x, end.y - start.y) or 1.0
    dx, dy = (end.x - start.x) / length, (end.y - start.y) / length
    share = 0.5 if bend or length < 2 * BROKER_HEIGHT else 0.62
    x = start.x + share * (end.x - start.x) + bend / 2
    y = start.y + share * (end.y - start.y)
    along, across = ARROW
    corners = (
        (x + along * dx, y + along * dy),
        (x - along * dx - across * dy, y - along * dy + across * dx),
        (x - along * dx + across * dy, y - along * dy - across * dx),
    )
    return f'<polygon points="{" ".join(f"{at:.0f},{up:.0f}" for at, up in corners)}"/>'


def _short(number: float) -> str:
    """A number in few enough characters for a box."""
    if number < 10_000:
        return f"{number:,.0f}"
    return f"{number / 1e3:,.3g}k" if number < 999_500 else f"{number / 1e6:,.3g}M"


def _broker(description: OverlayDescription, name: str, place: _Place) -> str:
    each = next(one for one in description.brokers if one.name == name)
    x, y, quoted = place.x - BROKER_WIDTH / 2, place.y - BROKER_HEIGHT / 2, quote(name, safe="")
    state = each.activity.state if each.activity is not None else "unknown"
    kind = "draining" if each.draining else "up" if state == "running" else "down"
    rates = each.activity.rates if each.activity is not None else {}
    line = state
    if rates:
        line = f"{_short(rates.get('published', 0))}/s in, {_short(rates.get('delivered', 0))}/s out"
    shown = escape(visible(name if len(name) <= 18 else name[:17] + "…"))
    told = escape(visible(f"{name}, cell {each.cell}: {state}; pubends {', '.join(each.pubends) or 'none'}"))
    return (
        f'<a id="broker-{quoted}" href="/overlay?broker={quoted}" aria-label="{told}">'
        f'<g class="broker {kind}"><title>{told}</title>'
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{BROKER_WIDTH}" height="{BROKER_HEIGHT}" rx="8"/>'
        f'<text x="{place.x:.0f}" y="{place.y - 5:.0f}">{shown}</text>'
        f'<text x="{place.x:.0f}" y="{place.y + 15:.0f}" class="small">{escape(line)}</text></g></a>'
    )
