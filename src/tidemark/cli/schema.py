"""Commands about schemas and selectors in files; no broker is needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tidemark.cli.options import FILE, JSON
from tidemark.cli.topic import read_schema
from tidemark.message.visible import visible, visible_json

_Described = TypeVar("_Described")


@click.group()
def schema() -> None:
    """Look at schemas."""


@schema.command("show")
@click.argument("file", type=FILE)
@click.option("--events", type=FILE, help="JSON lines; show the cases they take.")
@JSON
def schema_show(file: Path, events: Path | None, as_json: bool) -> None:
    """Print a schema's natural form, its flat form, and the byte layout of each case met.

    \b
    tidemark schema show trades.schema
    tidemark schema show trades.schema --events sample.jsonl --json
    """
    from tidemark.message.show import describe, render

    found = read_schema(str(file))
    description = describe(found, [found.encode(value) for value in _events(events, found)])
    _print(description, render, as_json)


@click.command()
@click.argument("selector")
@click.option("--schema", "file", required=True, type=FILE, help="The topic's schema.")
@click.option("--events", type=FILE, help="JSON lines; say which of them match.")
@JSON
def explain(selector: str, file: Path, events: Path | None, as_json: bool) -> None:
    """Show what a selector means: its tree, its normal form, what the index uses, which events match.

    \b
    tidemark explain "price > 10 AND symbol LIKE 'A%'" --schema trades.schema
    tidemark explain "qty IN (1, 2)" --schema trades.schema --events sample.jsonl --json
    """
    from tidemark.matching.explain import describe, render

    found = read_schema(str(file))
    values = None if events is None else _events(events, found)
    _print(describe(selector, found, values), render, as_json)


def _events(file: Path | None, schema: Any) -> list[Any]:
    from tidemark.message.foreign.json.values import values_of_lines

    return [] if file is None else values_of_lines(file.read_text(), schema)


def _print(description: _Described, render: Callable[[_Described], str], as_json: bool) -> None:
    text = visible_json(description, indent=2) if as_json else render(description)
    click.echo("\n".join(map(visible, text.split("\n"))))
