"""The command that shows settings: the value of each, and where the value came from."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tidemark.admin import CONFIG, Setting, ask
from tidemark.cli.options import FILE, JSON, SET, settings
from tidemark.cli.output import emit, table, visible_values


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
        rows = list(ask(which, CONFIG))
    else:
        rows = _settings_here(file, which, settings(given))
    if as_json:
        for row in rows:
            emit(row)
    else:
        click.echo(_render(visible_values(rows)))


def _settings_here(file: Path | None, name: str | None, options: dict[str, str]) -> list[Setting]:
    """The settings that a broker started here would have."""
    from tidemark.node.config.loading import load, show

    found = load(file, broker=name, environment=os.environ, options=options)
    return [Setting(key, value, source) for key, value, source in show(found)]


def _render(rows: list[Setting]) -> str:
    def line(row: Setting) -> tuple[str, str, str]:
        is_default = row.source == "default"
        return row.key, row.value, click.style(row.source, dim=is_default, bold=not is_default)

    return table(("key", "value", "from"), map(line, rows))
