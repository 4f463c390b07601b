"""Commands that run brokers: `up` without configuration, or a whole topology; `broker` with."""

from __future__ import annotations

import os
import sys
from functools import partial
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
@click.option("--no-pipeline", is_flag=True, help="Start no archive beside the broker.")
@SET
@JSON
def up(
    listen: str | None,
    data_dir: str | None,
    http: str | None,
    topology: Path | None,
    workers: int | None,
    no_pipeline: bool,
    given: tuple[str, ...],
    as_json: bool,
) -> None:
    """Start a broker here, that hosts publishers and subscribers; Ctrl-C stops it.

    An archive of all events is written beside it, by a process of its own, if the package's extra `spark` is
    installed: see `tidemark pipeline status`. With --json it prints one object when it is ready: broker, url,
    http, data_dir, archive. Exit codes: 0 stopped as told, 1 could not start, 3 the disk failed.

    \b
    tidemark up
    tidemark up --no-pipeline
    tidemark up --listen 0.0.0.0:7676 --data-dir /var/lib/tidemark
    tidemark up --set storage.durability=os --set archive.retain=90d
    tidemark up --workers 4
    tidemark up --topology three.toml
    """
    if topology is not None and workers is not None:
        raise click.UsageError("--topology and --workers exclude each other")
    flags = {"broker.listen": listen, "storage.data_dir": data_dir, "http.listen": http}
    options = settings(given) | {key: value for key, value in flags.items() if value is not None}
    has_archive = not no_pipeline and _can_archive()
    if workers is not None:
        _start_workers(workers, options, has_archive, as_json)
    if topology is not None:
        _start_all(topology, options, topology.parent / "tidemark-archive" if has_archive else None, as_json)
    from tidemark.node import archiving
    from tidemark.node.configload import load
    from tidemark.node.process import run

    found = load(
        environment=os.environ, options=options, defaults=archiving.DEFAULTS if has_archive else None
    )
    archive = found.archive_path() if has_archive else None
    beside = (lambda node: archiving.archive_of(found, node.address)) if has_archive else None
    sys.exit(run(found, ready=partial(_print_ready if as_json else _welcome, archive), beside=beside))


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
    sys.exit(run(found, ready=partial(_print_ready, None) if as_json else None))


def _can_archive() -> bool:
    """Whether an archive can run here; if not, says why."""
    from tidemark.node.archiving import missing

    found = missing()
    if found is not None:
        click.echo(
            f"no archive (not installed: {found}): history is kept by the broker only; "
            "pip install 'tidemark[spark]', or start it with ./run up",
            err=True,
        )
    return found is None


def _start_workers(count: int, options: dict[str, str], has_archive: bool, as_json: bool) -> None:
    """Run several brokers in place of one until they are stopped; does not return."""
    from tidemark.node.config import ARCHIVE
    from tidemark.node.workers import lay_out

    listen = options.pop("broker.listen", "127.0.0.1:7676")
    data_dir = options.pop("storage.data_dir", "tidemark-data")
    options.pop("http.listen", None)
    archive = Path(data_dir) / ARCHIVE if has_archive else None
    _start_all(lay_out(data_dir, listen, count, options), {}, archive, as_json)


def _start_all(file: Path, options: dict[str, str], archive: Path | None, as_json: bool) -> None:
    """Run a topology until it is stopped, with an archive there or without; does not return."""
    from tidemark.cli.tree import describe_file, draw_file
    from tidemark.node import archiving
    from tidemark.node.children import run_topology
    from tidemark.node.configload import brokers_of

    if options:
        raise click.UsageError(f"with --topology every broker is as the file says: put settings into {file}")
    described = describe_file(file)
    if as_json:
        emit(described)
    else:
        click.echo(draw_file(described))
    if archive is None:
        sys.exit(run_topology(file))
    names = brokers_of(file)
    companion = archiving.archive_of_all(file, names, archive)
    sys.exit(run_topology(file, archiving.settings_for_all(file, names), companion))


def _ready(archive: Path | None, node: Node) -> dict[str, Any]:
    return {
        "broker": node.config.broker.name,
        "url": f"tidemark://{node.address}",
        "http": None if node.http_address is None else f"http://{node.http_address}",
        "data_dir": node.config.storage.data_dir,
        "archive": None if archive is None else str(archive),
    }


def _print_ready(archive: Path | None, node: Node) -> None:
    emit(_ready(archive, node))
    sys.stdout.flush()


def _welcome(archive: Path | None, node: Node) -> None:
    ready = _ready(archive, node)
    flag = "" if ready["url"].endswith("//127.0.0.1:7676") else f" --broker {ready['url']}"
    history = f"\n  history {ready['archive']}" if ready["archive"] else ""
    health = f"\n  health  {ready['http']}/health" if ready["http"] else ""
    click.echo(
        f"{click.style('tidemark is up', bold=True)} at {ready['url']}\n"
        f"  data    {ready['data_dir']}{history}{health}\n"
        f"  try     tidemark sub hello{flag}\n"
        f"          tidemark pub hello text=world{flag}\n"
        "  stop    Ctrl-C"
    )
