"""Commands about overlays: draw one, compare one with its file, and change one while it runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemark.admin.overlay_description import Sight, describe
from tidemark.admin.overlay_queries import holding, look, overlay_at, propose, urls_of
from tidemark.cli.brokers.overview import draw
from tidemark.cli.connection import Interrupts
from tidemark.cli.options import BROKER_DEFAULT, BROKER_VARIABLE, FILE, JSON, duration
from tidemark.cli.output import emit, emit_either, table
from tidemark.cli.watching.screen import watch

if TYPE_CHECKING:
    from tidemark.node.topology.plan import Change, Step
    from tidemark.node.topology.topology import Topology

#: How often a broker that is waited for is looked at.
LOOK_SECONDS = 0.25
_COLOURS = {"added": "green", "removed": "red", "drained": "yellow", "changed": "cyan"}

ANY_BROKER = click.option(
    "--broker",
    "url",
    metavar="URL",
    envvar=BROKER_VARIABLE,
    show_envvar=True,
    help="A running broker of the overlay; default: the first of the FILE's that answers.",
)


@click.group()
def topology() -> None:
    """Look at overlays, and change them."""


@topology.command("show")
@click.argument("file", required=False, type=FILE)
@click.option(
    "--broker",
    "url",
    metavar="URL",
    envvar=BROKER_VARIABLE,
    default=BROKER_DEFAULT,
    show_default=True,
    show_envvar=True,
    help="Without a FILE: any running broker of the overlay.",
)
@click.option("--watch", "is_watched", is_flag=True, help="Go on until Ctrl-C.")
@click.option("--interval", type=duration, default="1s", show_default=True, help="What rates are taken over.")
@JSON
def topology_show(file: Path | None, url: str, is_watched: bool, interval: float, as_json: bool) -> None:
    """Draw the cells, bundles and trees of a file; or of a running overlay, with link states and rates.

    \b
    tidemark topology show overlay.toml
    tidemark topology show --broker tidemark://127.0.0.1:7676
    tidemark topology show --watch
    """
    if file is not None:
        from tidemark.node.config.loading import topology_of

        emit_either(describe(topology_of(file), source=str(file)), draw, as_json)
        return
    before: Sight = look(overlay_at([url])[0])

    def again() -> dict[str, Any]:
        nonlocal before
        # Asked for each time: it may have changed.
        now = overlay_at([url])[0]
        earlier, before = before, look(now)
        return describe(now, before, earlier)

    with Interrupts() as interrupts:
        if is_watched and not as_json:
            watch(lambda: draw(again()), interval, interrupts)
            return
        while interrupts.sleep(interval):
            emit_either(again(), draw, as_json)
            if not is_watched:
                return


@topology.command("plan")
@click.argument("file", type=FILE)
@ANY_BROKER
@JSON
def topology_plan(file: Path, url: str | None, as_json: bool) -> None:
    """Show how a running overlay differs from a file, and the steps of `apply`.

    Exits 0 if nothing differs, 1 if something does.

    \b
    tidemark topology plan overlay.toml
    """
    before, after = _both(file, url)
    differences, way = _plan(before, after)
    _show_plan(file, before, differences, way, as_json)
    sys.exit(1 if differences else 0)


@topology.command("apply")
@click.argument("file", type=FILE)
@ANY_BROKER
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--wait", type=duration, default="60s", show_default=True, help="For each step, at most.")
@click.option("--force", is_flag=True, help="Also remove brokers that do not run, with what only they have.")
@JSON
def topology_apply(file: Path, url: str | None, yes: bool, wait: float, force: bool, as_json: bool) -> None:
    """Change a running overlay so that it is as a file says, without losing anything.

    What is new is added first; start the new brokers when it says so. Brokers that are to go are drained,
    which ends when everybody has what they hold, and only then removed: their processes end by themselves.
    It can be interrupted, and run again.

    \b
    tidemark topology apply overlay.toml
    tidemark topology apply overlay.toml --yes --wait 10m
    """
    before, after = _both(file, url)
    differences, way = _plan(before, after)
    _show_plan(file, before, differences, way, as_json)
    if not way:
        return
    if not yes:
        click.confirm("Go on?", abort=True)
    for step in way:
        _take(step, file, wait, is_forced=force, as_json=as_json)
    if not as_json:
        click.echo(f"done: version {way[-1].topology.version}")


def _both(file: Path, url: str | None) -> tuple[Topology, Topology]:
    from tidemark.node.config.loading import topology_of

    after = topology_of(file)
    before, _ = overlay_at([url] if url is not None else urls_of(after).values())
    return before, after


def _plan(before: Topology, after: Topology) -> tuple[list[Change], list[Step]]:
    from tidemark.node.topology.plan import changes, steps

    return changes(before, after), steps(before, after)


def _show_plan(
    file: Path, before: Topology, differences: Sequence[Change], way: Sequence[Step], as_json: bool
) -> None:
    described = {
        "version": before.version,
        "changes": [
            {"kind": each.kind, "name": each.name, "what": each.what, "detail": each.detail}
            for each in differences
        ],
        "steps": [_described(step) for step in way],
    }
    if as_json:
        emit(described)
        return
    if not differences:
        click.echo(f"the overlay is as in {file}, version {before.version}")
        return
    rows = [
        (click.style(each.what, fg=_COLOURS[each.what]), each.kind, each.name, each.detail)
        for each in differences
    ]
    click.echo(table(("what", "kind", "name", "detail"), rows))
    click.echo("\n" + "\n".join(f"{at}. {_text(step)}" for at, step in enumerate(way, 1)))


def _described(step: Step) -> dict[str, Any]:
    return {
        "step": step.what,
        "version": step.topology.version,
        "added": list(step.added),
        "drained": list(step.drained),
    }


def _text(step: Step) -> str:
    match step.what:
        case "add":
            return "add what is new" + (f"; start {', '.join(step.added)}" if step.added else "")
        case "drain":
            return f"drain {', '.join(step.drained)}, and wait until nobody needs them"
        case "remove":
            return "remove what is drained, and the links that nobody uses"
        case _:
            return "remove the links that nobody uses"


# Steps.


def _take(step: Step, file: Path, wait: float, *, is_forced: bool, as_json: bool) -> None:
    """One step, until everybody is where it leads."""
    refused = propose(step.topology, is_forced=is_forced)
    problems = {name: problem for name, problem in refused.items() if problem != "not running"}
    if problems or len(refused) == len(step.topology.brokers):
        name, problem = next(iter((problems or refused).items()))
        raise click.ClickException(f"{name} did not take it: {problem}")
    if as_json:
        emit({**_described(step), "not_running": sorted(refused)})
    else:
        click.echo(f"version {step.topology.version}: {_text(step)}")
    until = time.monotonic() + wait
    missing = [name for name in step.added if name in refused]
    for name in missing:
        if not as_json:
            click.echo(f"  start it: tidemark broker --config {file} --broker {name}")
    for name in missing:
        _wait_for_start(step, name, until)
    for name in step.drained:
        _wait_for_drain(step, name, until, is_forced=is_forced, is_quiet=as_json)


def _wait_for_start(step: Step, name: str, until: float) -> None:
    url = urls_of(step.topology)[name]
    while holding(url) is None:
        if time.monotonic() > until:
            raise click.ClickException(f"{name} does not run: start it, and apply the file again")
        time.sleep(LOOK_SECONDS)


def _wait_for_drain(step: Step, name: str, until: float, *, is_forced: bool, is_quiet: bool) -> None:
    url, told = urls_of(step.topology)[name], None
    while (reasons := holding(url)) != []:
        if reasons is None and is_forced:
            return
        why = "it does not run: start it, or use --force if what only it has may be lost"
        text = f"{name}: {'; '.join(reasons[:3])}" if reasons is not None else f"{name}: {why}"
        if time.monotonic() > until:
            raise click.ClickException(f"{text}. Apply the file again to go on")
        if text != told and not is_quiet:
            click.echo(f"  {text}")
        told = text
        time.sleep(LOOK_SECONDS)
