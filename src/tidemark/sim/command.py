"""The `sim` command: runs seeds, shows the progress, and reports the results.

Results go to standard output, and a progress bar to standard error if that is a terminal. Each function
returns an exit code: 0 when every promise was kept and every planted bug was found, 1 when not, 130 when the
run was interrupted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from time import monotonic

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tidemark.sim.swarm.hunt import HuntResult, hunt
from tidemark.sim.swarm.planted import BUGS
from tidemark.sim.swarm.report import SeedsReport, describe_hunts, render_hunts, replay_command
from tidemark.sim.swarm.swarm import SeedOutcome, run_many, try_seed
from tidemark.sim.swarm.workers import in_order
from tidemark.sim.world.trace import Trace
from tidemark.sim.world.world import START

INTERRUPTED = 130


def run_seeds(first: int, count: int, profile: str, jobs: int, *, as_json: bool) -> int:
    """Run `count` worlds; print each violation with the command that replays its seed, then a report."""
    report, begun = SeedsReport(profile, first), monotonic()
    is_interrupted = False
    with _bar("worlds", count) as advance:

        def add(outcome: SeedOutcome) -> None:
            report.add(outcome)
            report.seconds = monotonic() - begun
            if outcome.violation is not None and not as_json:
                again = replay_command(outcome.seed, profile)
                click.echo(f"seed {outcome.seed}: {outcome.violation}\n  again: {again}")
            advance(f"{report.seeds_per_minute:.0f} seeds/min, {len(report.failures)} failed")

        try:
            run_many(first, count, profile=profile, jobs=min(jobs, count), report=add)
        except KeyboardInterrupt:
            is_interrupted = True
    click.echo(json.dumps(report.as_dict()) if as_json else report.render())
    return INTERRUPTED if is_interrupted else int(bool(report.failures))


def replay(seed: int, profile: str | None, bug: str | None) -> int:
    """Run one world and print every stimulus that its brokers received and every effect they returned."""
    chosen = profile or (BUGS[bug].profile if bug else "swarm")
    outcome = try_seed(seed, chosen, bug, Trace(click.echo, START))
    if outcome.violation is not None:
        click.echo(f"seed {seed}: {outcome.violation}")
        return 1
    click.echo(f"seed {seed}: {outcome.events} events, {outcome.deliveries} deliveries, {outcome.gaps} gaps")
    return 0


def find_planted(
    bugs: Sequence[str], first: int, count: int, profile: str | None, jobs: int, *, as_json: bool
) -> int:
    """Run seeds with each bug planted until a world notices it; print how many seeds that took."""
    hunts: list[HuntResult] = []
    is_interrupted = False
    with _bar("bugs", len(bugs)) as advance:
        look_for = partial(hunt, first=first, count=count, profile=profile)
        try:
            with closing(in_order(look_for, bugs, min(jobs, len(bugs)))) as found:
                for hunted in found:
                    hunts.append(hunted)
                    advance(f"{hunted.bug}: {hunted.seeds} seeds")
        except KeyboardInterrupt:
            is_interrupted = True
    click.echo(json.dumps(describe_hunts(hunts)) if as_json else render_hunts(hunts))
    if is_interrupted:
        return INTERRUPTED
    return int(any(each.seed is None for each in hunts))


@contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar. Yields a function that advances the bar by one and shows the text it is given."""
    console = Console(stderr=True)
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[how]}"),
    )
    with Progress(
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=sys.stdout.isatty(),
    ) as progress:
        task = progress.add_task(what, total=total, how="")
        yield lambda how: progress.update(task, advance=1, how=how)
