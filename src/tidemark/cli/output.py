"""What commands print: JSON lines, aligned columns, and message values.

Colours are click's styles: they are left out where the output is no terminal.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

import click


def emit(value: Any) -> None:
    """One JSON object, on one line."""
    click.echo(json.dumps(value, ensure_ascii=False))


def emit_either(value: Any, render: Callable[[Any], str], as_json: bool) -> None:
    """JSON for scripts, or text."""
    if as_json:
        emit(value)
    else:
        click.echo(render(value))


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = ()) -> str:
    """Columns side by side; those numbered in `right` are aligned there."""
    cells = [[click.style(title, bold=True) for title in titles], *map(list, rows)]
    widths = [max(_width(row[at]) for row in cells) for at in range(len(titles))]
    to_right = frozenset(right)
    return "\n".join(
        "  ".join(_padded(cell, widths[at], at in to_right) for at, cell in enumerate(row)).rstrip()
        for row in cells
    )


def _width(cell: str) -> int:
    return len(click.unstyle(cell))


def _padded(cell: str, width: int, is_right: bool) -> str:
    space = " " * (width - _width(cell))
    return space + cell if is_right else cell + space


def to_json_value(value: Any) -> Any:
    """A message value as `tidemark pub` reads it back: times ISO 8601, bytes base64, decimals as digits."""
    match value:
        case float() if not isfinite(value):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        case bytes():
            return b64encode(value).decode()
        case Decimal():
            return str(value)
        case datetime():
            return value.astimezone(UTC).isoformat()
        case list():
            return [to_json_value(part) for part in value]
        case dict():
            return {name: to_json_value(part) for name, part in value.items()}
    return value
