"""Commands that run brokers: `up` without configuration, or a whole topology; `broker` with."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import NoReturn

import click

from tidemark.admin import starting
from tidemark.admin.joining import join_overlay, settings_to_join
from tidemark.admin.overlay_description import describe_overlay
from tidemark.admin.starting import LISTEN_DEFAULT, BrokerReady
from tidemark.cli.options import FILE, JSON, SET, settings
from tidemark.cli.output import emit, emit_either


@click.command()
@click.option("--listen", metavar="HOST:PORT", help="Where clients connect; default 127.0.0.1:7676.")
@click.option("--data-dir", metavar="DIR", help="Where the data is kept; default ./tidemark-data.")
@click.option(
    "--http", metavar="HOST:PORT", help='Where /health and /metrics are; default 127.0.0.1:7677, "" nowhere.'
)
@click.option("--topology", type=FILE, help="Start every process of this file.")
@click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Start N linked brokers behind one address, for more cores.",
)
@click.option("--no-pipeline", is_flag=True, help="Start no archive beside the broker.")
@click.option(
    "--console",
    metavar="HOST:PORT",
    help='Where the console beside it is; default 127.0.0.1:7678 if --listen is not given, "" nowhere.',
)
@click.option(
    "--secure", is_flag=True, help="Ask clients who they are, over TLS; what that needs is made at first."
)
@SET
@JSON
def up(
    listen: str | None,
    data_dir: str | None,
    http: str | None,
    topology: Path | None,
    workers: int | None,
    no_pipeline: bool,
    console: str | None,
    secure: bool,
    given: tuple[str, ...],
    as_json: bool,
) -> None:
    """Start a broker here, that hosts publishers and subscribers; Ctrl-C stops it.

    An archive of all events is written beside it, by a process of its own, if the package's extra `spark` is
    installed: see `tidemark pipeline status`. With --json it prints one object when it is ready: broker, url,
    http, data_dir, archive, console. Exit codes: 0 stopped as told, 1 could not start, 3 the disk failed.

    \b
    tidemark up
    tidemark up --no-pipeline
    tidemark up --listen 0.0.0.0:7676 --data-dir /var/lib/tidemark
    tidemark up --set storage.durability=os --set archive.retain=90d
    tidemark up --secure
    tidemark up --workers 4 --secure
    tidemark up --topology three.toml
    """
    if topology is not None and workers is not None:
        raise click.UsageError("--topology and --workers exclude each other")
    flags = {"broker.listen": listen, "storage.data_dir": data_dir, "http.listen": http}
    options = settings(given) | {key: value for key, value in flags.items() if value is not None}
    if secure:
        if topology is not None:
            raise click.UsageError("--secure is for brokers without a file: write [security] into the file")
        options |= _secured(options, as_json)
    has_archive = not no_pipeline and _can_archive()
    where = _console_address(console, is_default=listen is None and topology is None)
    if workers is not None:
        file, archive = starting.lay_out_workers(workers, options)
        front = options.get("broker.listen", LISTEN_DEFAULT)
        _run_topology(file, archive if has_archive else None, where, as_json, front)
    if topology is not None:
        if options:
            raise click.UsageError(
                f"with --topology every broker is as the file says: put settings into {topology}"
            )
        _run_topology(topology, topology.parent / "tidemark-archive" if has_archive else None, where, as_json)
    told = _print_json if as_json else _welcome
    sys.exit(starting.run_alone(options, told, has_archive=has_archive, console=where))


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

    options = settings(given)
    run = partial(starting.run_brokers, ready=_print_json if as_json else None)
    if join is not None:
        if joining is None or listen is None:
            raise click.UsageError("--join needs --name and --listen")
        if name is not None or process is not None:
            raise click.UsageError(
                "--join is for a broker that no file has: leave --broker and --process out"
            )
        config = load(
            file, environment=os.environ, options=settings_to_join(joining, listen, data_dir, options)
        )
        sys.exit(run([join_overlay(join, config, cell or joining, listen, pubends)]))
    if file is None:
        raise click.UsageError("say what to run: --config FILE, or --join URL")
    if process is not None and name is not None:
        raise click.UsageError("--broker and --process exclude each other")
    names = [name] if process is None else list(starting.brokers_of_process(file, process))
    sys.exit(run([load(file, broker=each, environment=os.environ, options=options) for each in names]))


def _secured(options: dict[str, str], as_json: bool) -> dict[str, str]:
    """Return the settings of a secured broker; what it needs is made, and told, the first time."""
    from tidemark.admin.contexts import Context, load_contexts, save_contexts
    from tidemark.admin.securing import ADMINISTRATOR, secure_here
    from tidemark.node.config.units import parse_address

    data = Path(options.get("storage.data_dir", starting.DATA_DIRECTORY_DEFAULT))
    listen = parse_address(options.get("broker.listen", LISTEN_DEFAULT))
    directory = (data.parent / f"{data.name}-security").absolute()
    found = secure_here(directory, options.get("broker.name", "tidemark"), listen.host)
    os.environ.update(found.pipeline)
    if found.is_new:
        host = "127.0.0.1" if listen.host in ("0.0.0.0", "::") else listen.host
        url = f"tidemark+tls://{host}:{listen.port}"
        made = Context(url, ADMINISTRATOR, password_file=str(found.password_file), ca=str(found.ca))
        save_contexts({**load_contexts(), data.name: made})
        if not as_json:
            click.echo(
                f"{click.style('secured', bold=True)}: an authority, a certificate and the user "
                f"{ADMINISTRATOR} were made in {directory}\n"
                f"  log in  tidemark --context {data.name} ..., with the password in {found.password_file}\n"
                f"  access  tidemark --context {data.name} access show"
            )
    return dict(found.settings)


def _can_archive() -> bool:
    """Whether an archive can run here; if not, print what is missing."""
    lacking = starting.what_an_archive_lacks()
    if lacking is not None:
        click.echo(
            f"no archive (not installed: {lacking}): history is kept by the broker only; "
            "pip install 'tidemark[spark]', or start it with ./run up",
            err=True,
        )
    return lacking is None


def _console_address(given: str | None, *, is_default: bool) -> str | None:
    """Return where the console is to be; None, and if it was to be one the reason is printed, if nowhere."""
    from tidemark.node.process.console_process import LISTEN_DEFAULT as CONSOLE_DEFAULT

    where = CONSOLE_DEFAULT if given is None and is_default else given
    if not where:
        return None
    reason = starting.why_no_console(where)
    if reason is not None and given is not None:
        raise click.UsageError(f"--console: {reason}")
    if reason is not None:
        click.echo(f"no console ({reason})", err=True)
        return None
    return where


def _run_topology(
    file: Path, archive: Path | None, console: str | None, as_json: bool, front: str | None = None
) -> NoReturn:
    """Draw a topology, run it until it is stopped, and end this process. `front`: the address of workers."""
    from tidemark.cli.brokers.overview import draw
    from tidemark.node.config.loading import topology_of

    topology = topology_of(file)
    scheme = starting.scheme_of(file)
    emit_either(describe_overlay(topology, source=str(file), like=scheme), draw, as_json)
    url = scheme + (front or ",".join(str(each.listen) for each in topology.brokers.values()))
    shown = f"http://{console}" if console else None
    if as_json:
        emit({"url": url, "console": shown})
    else:
        where = f"\n{click.style('see', bold=True)}   {shown}" if shown else ""
        click.echo(f"\n{click.style('use', bold=True)}   {url}{where}\nstop  Ctrl-C")
    sys.stdout.flush()
    sys.exit(starting.run_topology_file(file, archive, console, front))


def _print_json(ready: BrokerReady) -> None:
    emit(ready)
    sys.stdout.flush()


def _welcome(ready: BrokerReady) -> None:
    use = _context_of(ready.url)
    flag = "" if use or ready.url.endswith(f"//{LISTEN_DEFAULT}") else f" --broker {ready.url}"
    history = f"\n  history {ready.archive}" if ready.archive else ""
    health = f"\n  health  {ready.http}/health" if ready.http else ""
    console = f"\n  console {ready.console}" if ready.console else ""
    click.echo(
        f"{click.style('tidemark is up', bold=True)} at {ready.url}\n"
        f"  data    {ready.data_dir}{history}{health}{console}\n"
        f"  try     tidemark{use} sub hello{flag}\n"
        f"          tidemark{use} pub hello text=world{flag}\n"
        "  stop    Ctrl-C"
    )


def _context_of(url: str) -> str:
    """Return the option that logs in at a secured broker, if there is a context for it; otherwise \"\"."""
    from tidemark.admin.contexts import load_contexts

    if not url.startswith("tidemark+tls:"):
        return ""
    found = next((name for name, each in load_contexts().items() if each.url == url), None)
    return "" if found is None else f" --context {found}"
