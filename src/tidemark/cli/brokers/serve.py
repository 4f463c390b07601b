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
from tidemark.errors import ConfigError

if TYPE_CHECKING:
    from tidemark.node.node import Node


@click.command()
@click.option("--listen", metavar="HOST:PORT", help="Where clients connect; default 127.0.0.1:7676.")
@click.option("--data-dir", metavar="DIR", help="Where the data is kept; default ./tidemark-data.")
@click.option(
    "--http", metavar="HOST:PORT", help='Where /health and /metrics are; default 127.0.0.1:7677, "" nowhere.'
)
@click.option("--topology", type=FILE, help="Start every process of this file.")
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
    from tidemark.node.config.loading import load
    from tidemark.node.process import archiving
    from tidemark.node.process.process import run

    found = load(
        environment=os.environ, options=options, defaults=archiving.DEFAULTS if has_archive else None
    )
    archive = found.archive_path() if has_archive else None
    beside = (lambda node: archiving.archive_of(found, node.address)) if has_archive else None
    sys.exit(run(found, ready=partial(_print_ready if as_json else _welcome, archive), beside=beside))


@click.command()
@click.option("--config", "file", type=FILE, help="Settings, and where there are several, the brokers.")
@click.option("--broker", "name", metavar="NAME", help="Which of the file's brokers to run.")
@click.option("--process", metavar="NAME", help="Which of the file's processes to run, with all its brokers.")
@click.option("--join", metavar="URL", help="Become a broker of the overlay that this one is in.")
@click.option("--name", "joining", metavar="NAME", help="With --join: what it is called there.")
@click.option("--cell", metavar="CELL", help="With --join: the cell it stands in; default: one of its own.")
@click.option("--listen", metavar="HOST:PORT", help="With --join: where clients and other brokers call it.")
@click.option("--data-dir", metavar="DIR", help="With --join: where the data is kept.")
@click.option("--pubend", "pubends", metavar="NAME", multiple=True, help="With --join: a pubend it hosts.")
@SET
@JSON
def broker(
    file: Path | None,
    name: str | None,
    process: str | None,
    join: str | None,
    joining: str | None,
    cell: str | None,
    listen: str | None,
    data_dir: str | None,
    pubends: tuple[str, ...],
    given: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run a broker of an overlay, as its configuration says; or a new one, that joins a running overlay.

    With --json it prints one object for each when it is ready: broker, url, http, data_dir.

    \b
    tidemark broker --config /etc/tidemark.toml
    tidemark broker --config overlay.toml --broker east
    tidemark broker --config overlay.toml --process machine-1
    tidemark broker --join tidemark://10.0.0.1:7676 --name b9 --cell west --listen 10.0.0.9:7676
    """
    from tidemark.node.config.loading import load
    from tidemark.node.process.process import run

    options = settings(given)
    ready = partial(_print_ready, None) if as_json else None
    if join is not None:
        if joining is None or listen is None:
            raise click.UsageError("--join needs --name and --listen")
        if name is not None or process is not None:
            raise click.UsageError(
                "--join is for a broker that no file has: leave --broker and --process out"
            )
        from tidemark.admin.joining import join_overlay

        options["broker.name"] = joining
        options.setdefault("broker.listen", listen)
        options["storage.data_dir"] = data_dir or options.get("storage.data_dir", f"tidemark-data-{joining}")
        options.setdefault("http.listen", "")
        config = load(file, environment=os.environ, options=options)
        sys.exit(run(join_overlay(join, config, cell or joining, listen, pubends), ready=ready))
    if file is None:
        raise click.UsageError("say what to run: --config FILE, or --join URL")
    if process is not None and name is not None:
        raise click.UsageError("--broker and --process exclude each other")
    names = [name] if process is None else list(_brokers_of(file, process))
    configs = [load(file, broker=each, environment=os.environ, options=options) for each in names]
    sys.exit(run(*configs, ready=ready))


def _brokers_of(file: Path, process: str) -> tuple[str, ...]:
    from tidemark.node.config.loading import processes_of
    from tidemark.node.topology.file import unknown

    found = processes_of(file)
    if process not in found:
        raise ConfigError(unknown(process, list(found)), key="--process", source=str(file))
    return found[process]


def _can_archive() -> bool:
    """Whether an archive can run here; if not, says why."""
    from tidemark.node.process.archiving import missing

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
    from tidemark.node.config.settings import ARCHIVE
    from tidemark.node.process.workers import lay_out

    listen = options.pop("broker.listen", "127.0.0.1:7676")
    data_dir = options.pop("storage.data_dir", "tidemark-data")
    options.pop("http.listen", None)
    archive = Path(data_dir) / ARCHIVE if has_archive else None
    _start_all(lay_out(data_dir, listen, count, options), {}, archive, as_json)


def _start_all(file: Path, options: dict[str, str], archive: Path | None, as_json: bool) -> None:
    """Run a topology until it is stopped, with an archive there or without; does not return."""
    from tidemark.admin.overlay_description import describe
    from tidemark.cli.brokers.overview import draw
    from tidemark.node.config.loading import brokers_of, topology_of
    from tidemark.node.process import archiving
    from tidemark.node.process.topology_runner import run_topology

    if options:
        raise click.UsageError(f"with --topology every broker is as the file says: put settings into {file}")
    described = describe(topology_of(file), source=str(file))
    if as_json:
        emit(described)
    else:
        click.echo(draw(described))
    if archive is None:
        sys.exit(run_topology(file))
    names = brokers_of(file)
    archive_process = archiving.archive_of_all(file, names, archive)
    sys.exit(run_topology(file, archiving.settings_for_all(file, names), archive_process))


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
