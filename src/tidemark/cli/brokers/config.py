"""Commands about configuration: what holds, and where it came from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from tidemark.admin.connection import ask
from tidemark.cli.options import FILE, JSON, SET, settings
from tidemark.cli.output import emit, table


@click.group()
def config() -> None:
    """Look at the configuration."""


@config.command("show")
@click.option("--config", "file", type=FILE, help="The file that a broker would be started with.")
@click.option(
    "--broker", "which", metavar="NAME|URL", help="One of the file's brokers; or a running one, by its URL."
)
@SET
@JSON
def config_show(file: Path | None, which: str | None, given: tuple[str, ...], as_json: bool) -> None:
    """Print every setting, its value, and where that came from: default, file, variable or option.

    It reads what a broker started here would read; with a URL a running broker says what it has.

    \b
    tidemark config show
    tidemark config show --config overlay.toml --broker east
    tidemark config show --broker tidemark://127.0.0.1:7676 --json
    """
    if which is not None and "://" in which:
        if file is not None or given:
            raise click.UsageError("a running broker says what it has: leave out --config and --set")
        rows = ask(which, "config")
    else:
        rows = _local(file, which, settings(given))
    if as_json:
        for row in rows:
            emit(row)
    else:
        click.echo(_render(rows))


def _local(file: Path | None, name: str | None, options: dict[str, str]) -> list[dict[str, Any]]:
    from tidemark.node.config.loading import load, show

    found = load(file, broker=name, environment=os.environ, options=options)
    return [{"key": key, "value": value, "source": source} for key, value, source in show(found)]


def _render(rows: list[dict[str, Any]]) -> str:
    def line(row: dict[str, Any]) -> tuple[str, str, str]:
        is_default = row["source"] == "default"
        return row["key"], row["value"], click.style(row["source"], dim=is_default, bold=not is_default)

    return table(("key", "value", "from"), map(line, rows))
