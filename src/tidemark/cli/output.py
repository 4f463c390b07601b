"""The output of commands: JSON lines and aligned columns.

Colours are click's styles, which click leaves out where the output is no terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from tidemark.message.visible import visible, visible_json

if TYPE_CHECKING:
    from tidemark.admin import JsonObject


T = TypeVar("T")


def emit(value: object) -> None:
    """Print a value as JSON on one line; dataclasses of `tidemark.admin` may be in it."""
    click.echo(visible_json(value, default=_to_json))


def _to_json(value: JsonObject) -> object:
    return value.to_json()


def emit_either(value: T, render: Callable[[T], str], as_json: bool) -> None:
    """Print a value as JSON for scripts, or as the text that `render` makes of it."""
    if as_json:
        emit(value)
    else:
        click.echo(render(visible_values(value)))


def visible_values(value: T) -> T:
    """Return a value for showing as text: every string in it, at any depth, is `visible`.

    Commands that print no JSON call this on all that a broker, a file or a publisher has said, before they
    add line ends and colours of their own.
    """
    return cast(T, _visible(value))


def _visible(value: Any) -> Any:
    if type(value) is str:
        return visible(value)
    if type(value) in (list, tuple):
        return type(value)(map(_visible, value))
    if type(value) is dict:
        return {_visible(name): _visible(part) for name, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{each.name: _visible(getattr(value, each.name)) for each in fields(value) if each.init}
        )
    return value


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = ()) -> str:
    """Return rows as aligned columns under their titles; the columns numbered in `right` align right."""
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
