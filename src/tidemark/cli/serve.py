"""Commands that run brokers: `up` without configuration, or a whole topology; `broker` with."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemark.cli.options import FILE, JSON, SET, settings
from tidemark.cli.output import emit

if TYPE_CHECKING:
    from tidemark.node.node import Node


@click.command()
@click.option("--listen", metavar="HOST:PORT", help="Where clients connect; default 127.0.0.1:7676.")
@click.option("--data-dir", metavar="DIR", help="Where the data is kept; default ./tidemark-data.")
@click.option(
    "--http", metavar="HOST:PORT", help='Where /health and /metrics are; default 127.0.0.1:7677, "" nowhere.'
)
@click.option("--topology", type=FILE, help="Start every broker of this file, a process each.")
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Start N linked brokers, for more cores."
)
@SET
@JSON
def up(
    listen: str | None,
    data_dir: str | None,
    http: str | None,
    topology: Path | None,
    workers: int | None,
    given: tuple[str, ...],
    as_json: bool,
) -> None:
    """Start a broker here, that hosts publishers and subscribers; Ctrl-C stops it.

    With --json it prints one object when it is ready: broker, url, http, data_dir. Exit codes: 0 stopped as
    told, 1 could not start, 3 the disk failed.

    \b
    tidemark up
    tidemark up --listen 0.0.0.0:7676 --data-dir /var/lib/tidemark
    tidemark up --set storage.durability=os --set retention.max_bytes=10GiB
    tidemark up --workers 4
    tidemark up --topology three.toml
    """
    if topology is not None and workers is not None:
        raise click.UsageError("--topology and --workers exclude each other")
    flags = {"broker.listen": listen, "storage.data_dir": data_dir, "http.listen": http}
    options = settings(given) | {key: value for key, value in flags.items() if value is not None}
    if workers is not None:
        _start_workers(workers, options, as_json)
    if topology is not None:
        _start_all(topology, options, as_json)
    from tidemark.node.configload import load
    from tidemark.node.process import run

    found = load(environment=os.environ, options=options)
    sys.exit(run(found, ready=_print_ready if as_json else _welcome))


@click.command()
@click.option(
    "--config", "file", type=FILE, required=True, help="Settings, and where there are several, the brokers."
)
@click.option("--broker", "name", metavar="NAME", help="Which of the file's brokers to run.")
@SET
@JSON
def broker(file: Path, name: str | None, given: tuple[str, ...], as_json: bool) -> None:
    """Run one broker of an overlay, as its configuration says.

    With --json it prints one object when it is ready: broker, url, http, data_dir.

    \b
    tidemark broker --config /etc/tidemark.toml
    tidemark broker --config overlay.toml --broker east
    """
    from tidemark.node.configload import load
    from tidemark.node.process import run

    found = load(file, broker=name, environment=os.environ, options=settings(given))
    sys.exit(run(found, ready=_print_ready if as_json else None))


def _start_workers(count: int, options: dict[str, str], as_json: bool) -> None:
    """Run several brokers in place of one until they are stopped; does not return."""
    from tidemark.node.workers import lay_out

    listen = options.pop("broker.listen", "127.0.0.1:7676")
    data_dir = options.pop("storage.data_dir", "tidemark-data")
    options.pop("http.listen", None)
    _start_all(lay_out(data_dir, listen, count, options), {}, as_json)


def _start_all(file: Path, options: dict[str, str], as_json: bool) -> None:
    """Run a topology until it is stopped; does not return."""
    from tidemark.cli.tree import describe_file, draw_file
    from tidemark.node.children import run_topology

    if options:
        raise click.UsageError(f"with --topology every broker is as the file says: put settings into {file}")
    described = describe_file(file)
    if as_json:
        emit(described)
    else:
        click.echo(draw_file(described))
    sys.exit(run_topology(file))


def _ready(node: Node) -> dict[str, Any]:
    return {
        "broker": node.config.broker.name,
        "url": f"tidemark://{node.address}",
        "http": None if node.http_address is None else f"http://{node.http_address}",
        "data_dir": node.config.storage.data_dir,
    }


def _print_ready(node: Node) -> None:
    emit(_ready(node))
    sys.stdout.flush()


def _welcome(node: Node) -> None:
    ready = _ready(node)
    flag = "" if ready["url"].endswith("//127.0.0.1:7676") else f" --broker {ready['url']}"
    health = f"\n  health  {ready['http']}/health" if ready["http"] else ""
    click.echo(
        f"{click.style('tidemark is up', bold=True)} at {ready['url']}\n"
        f"  data    {ready['data_dir']}{health}\n"
        f"  try     tidemark sub hello{flag}\n"
        f"          tidemark pub hello text=world{flag}\n"
        "  stop    Ctrl-C"
    )
