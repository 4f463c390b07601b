"""The command line: arguments in, a call into the house, text or JSON out. No logic lives here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tidemark import __version__
from tidemark.errors import TidemarkError

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")


class _Group(click.Group):
    """Turns our own errors into one clear line and exit code 1, for every command."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TidemarkError as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tidemark")
def main() -> None:
    """Tidemark: durable, content-based publish/subscribe over one log that Spark reads too."""


@main.group()
def schema() -> None:
    """Look at schemas."""


@schema.command("show")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--events",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON lines; show the cases they take.",
)
@JSON
def schema_show(file: Path, events: Path | None, as_json: bool) -> None:
    """Print a schema's natural form, its flat form, and the byte layout of each case met.

    \b
    tidemark schema show trades.schema
    tidemark schema show trades.schema --events sample.jsonl --json
    """
    from tidemark.message.show import describe, render

    found = _schema(file)
    description = describe(found, [found.encode(value) for value in _events(events, found)])
    _print(description, render, as_json)


@main.command()
@click.argument("selector")
@click.option(
    "--schema",
    "file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The topic's schema.",
)
@click.option(
    "--events",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON lines; say which of them match.",
)
@JSON
def explain(selector: str, file: Path, events: Path | None, as_json: bool) -> None:
    """Show what a selector means: its tree, its normal form, what the index uses, which events match.

    \b
    tidemark explain "price > 10 AND symbol LIKE 'A%'" --schema trades.schema
    tidemark explain "qty IN (1, 2)" --schema trades.schema --events sample.jsonl --json
    """
    from tidemark.matching.explain import describe, render

    found = _schema(file)
    values = None if events is None else _events(events, found)
    _print(describe(selector, found, values), render, as_json)


@main.command()
@click.argument("name", required=False)
@click.option("--quick", is_flag=True, help="Smaller sizes: seconds instead of minutes.")
@JSON
def bench(name: str | None, quick: bool, as_json: bool) -> None:
    """Run a benchmark; without a NAME, list them.

    With --json each result is one object a line: bench, case, metric, value, unit, goal, ok.
    """
    from tidemark.lab.bench import BENCHES, run

    if name is None:
        for known in BENCHES.values():
            click.echo(f"{known.name:<12} {known.about}")
        return
    if name not in BENCHES:
        raise click.UsageError(f"there is no benchmark {name!r}; choose one of {', '.join(BENCHES)}")
    sys.exit(run(name, json_output=as_json, quick=quick))


@main.command()
@click.option("--seeds", default=50, show_default=True, help="How many worlds to run.")
@click.option("--from", "first", default=0, show_default=True, help="The first seed.")
@click.option("--calm", is_flag=True, help="No faults.")
@JSON
def sim(seeds: int, first: int, calm: bool, as_json: bool) -> None:
    """Run whole simulated networks, each from one seed, with faults, judged by an oracle.

    Exits 1 if a world broke a promise, and says how to run that seed again.

    \b
    tidemark sim --seeds 200
    tidemark sim --from 17 --seeds 1
    """
    from rich.console import Console
    from rich.progress import Progress

    from tidemark.sim.swarm import run_many

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("worlds", total=seeds)

        def report(seed: int, problem: str | None) -> None:
            progress.advance(task)
            if as_json:
                click.echo(json.dumps({"seed": seed, "ok": problem is None, "problem": problem}))
            elif problem is not None:
                again = f"tidemark sim --from {seed} --seeds 1" + (" --calm" if calm else "")
                click.echo(f"seed {seed}: {problem}\n  again: {again}")

        failed = run_many(first, seeds, faults=not calm, report=report)
    if not as_json:
        click.echo(f"{seeds - failed} of {seeds} worlds kept every promise")
    sys.exit(1 if failed else 0)


@main.command()
@JSON
def demo(as_json: bool) -> None:
    """A short story that shows what Tidemark does, and checks it."""
    from tidemark.lab.demo import run

    sys.exit(run(as_json=as_json))


def _schema(file: Path) -> Any:
    from tidemark.message.foreign.jsonschema import from_json_schema
    from tidemark.message.schema import Schema

    text = file.read_text()
    if file.suffix == ".json":
        return Schema(*from_json_schema(json.loads(text)))
    return Schema.parse(text)


def _events(file: Path | None, schema: Any) -> list[Any]:
    from tidemark.message.foreign.jsonvalues import values_of_lines

    return [] if file is None else values_of_lines(file.read_text(), schema)


def _print(description: dict[str, Any], render: Callable[[dict[str, Any]], str], as_json: bool) -> None:
    click.echo(json.dumps(description, indent=2, ensure_ascii=False) if as_json else render(description))
