"""Commands about overlays: draw one, compare one with its file, and change one while it runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidemark.admin import (
    OverlayDescription,
    StepProgress,
    TopologyPlan,
    apply_plan,
    ask_all_brokers,
    describe_overlay,
    find_topology,
    plan_change,
)
from tidemark.admin.topology_changes import step_items
from tidemark.cli.brokers.overview import draw
from tidemark.cli.connection import Interrupts
from tidemark.cli.options import BROKER_DEFAULT, BROKER_VARIABLE, FILE, JSON, duration
from tidemark.cli.output import emit, emit_either, table, visible_values
from tidemark.cli.watching.screen import watch
from tidemark.message.visible import visible

if TYPE_CHECKING:
    from tidemark.node.topology.plan import Step

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

        emit_either(describe_overlay(topology_of(file), source=str(file)), draw, as_json)
        return
    latest = ask_all_brokers(find_topology([url]), url)

    def describe_again() -> OverlayDescription:
        nonlocal latest
        # The topology is asked for each time, since it may have changed.
        topology = find_topology([url])
        before, latest = latest, ask_all_brokers(topology, url)
        return describe_overlay(topology, latest, before, like=url)

    with Interrupts() as interrupts:
        if is_watched and not as_json:
            watch(lambda: draw(visible_values(describe_again())), interval, interrupts)
            return
        while interrupts.sleep(interval):
            emit_either(describe_again(), draw, as_json)
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
    plan = _plan(file, url)
    _show_plan(file, plan, as_json)
    sys.exit(1 if plan.changes else 0)


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
    plan = _plan(file, url)
    _show_plan(file, plan, as_json)
    if not plan.steps:
        return
    if not yes:
        click.confirm("Go on?", abort=True)
    progress = _JsonProgress() if as_json else _TextProgress(file)
    apply_plan(plan, wait_seconds=wait, is_forced=force, progress=progress)
    if not as_json:
        click.echo(f"done: version {plan.steps[-1].topology.version}")


def _plan(file: Path, url: str | None) -> TopologyPlan:
    from tidemark.node.config.loading import topology_of

    return plan_change(topology_of(file), url)


def _show_plan(file: Path, plan: TopologyPlan, as_json: bool) -> None:
    if as_json:
        emit(plan)
        return
    if not plan.changes:
        click.echo(f"the overlay is as in {file}, version {plan.version}")
        return
    rows = [
        (click.style(each.what, fg=_COLOURS[each.what]), each.kind, each.name, each.detail)
        for each in visible_values(list(plan.changes))
    ]
    click.echo(table(("what", "kind", "name", "detail"), rows))
    click.echo("\n" + "\n".join(f"{at}. {step.sentence}" for at, step in enumerate(plan.steps, 1)))


class _JsonProgress(StepProgress):
    """A line of JSON for each step."""

    def taken(self, step: Step, not_running: Sequence[str]) -> None:
        emit({**step_items(step), "not_running": list(not_running)})


class _TextProgress(StepProgress):
    """A line for each step, and one for each broker that has to be started or is not empty yet."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def taken(self, step: Step, not_running: Sequence[str]) -> None:
        del not_running
        click.echo(f"version {step.topology.version}: {step.sentence}")

    def to_start(self, names: Sequence[str]) -> None:
        for name in names:
            click.echo(f"  start it: tidemark broker --config {self._file} --broker {visible(name)}")

    def still_draining(self, reason: str) -> None:
        click.echo(f"  {visible(reason)}")
