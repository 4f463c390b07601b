"""Commands of the laboratory: benchmarks, the papers' figures, the simulator and the demo."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from tidemark.cli.options import JSON


@click.command()
@click.argument("name", required=False)
@click.option("--quick", is_flag=True, help="Smaller sizes: seconds instead of minutes.")
@click.option("--check", is_flag=True, help="Exit 1 when a goal is missed.")
@click.option("--minutes", type=click.FloatRange(0.1), help="How long it lasts, for soak.")
@click.option(
    "--case",
    metavar="CASE",
    help="Only this part of it, for spark (reading, archive, deep, sink) and hostile (an attack).",
)
@click.option(
    "--before",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Compare with the results of an earlier run, made with --json.",
)
@click.option(
    "--page",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Write its grids into a page, between the marks of the benchmark.",
)
@JSON
def bench(
    name: str | None,
    quick: bool,
    check: bool,
    minutes: float | None,
    case: str | None,
    before: Path | None,
    page: Path | None,
    as_json: bool,
) -> None:
    """Run a benchmark; without a NAME, list them.

    With --json each result is one object a line: bench, case, metric, value, unit, goal, ok.

    \b
    tidemark bench
    tidemark bench matching --quick --json
    tidemark bench hostile --check
    tidemark bench steps --json > before.jsonl; tidemark bench steps --before before.jsonl
    tidemark bench peers --page docs/performance.md
    tidemark bench spark --case sink
    tidemark bench hostile --case "all together"
    """
    from tidemark.lab.bench import BENCHES, run

    if name is None:
        for known in BENCHES.values():
            click.echo(f"{known.name:<12} {known.about}")
        return
    if name not in BENCHES:
        raise click.UsageError(f"there is no benchmark {name!r}; choose one of {', '.join(BENCHES)}")
    code = run(
        name,
        json_output=as_json,
        quick=quick,
        check=check,
        minutes=minutes,
        before=before,
        page=page,
        case=case,
    )
    sys.exit(code)


@click.command()
@click.argument("name")
@click.option("--real", is_flag=True, help="On real processes instead of simulated time.")
@click.option("--quick", is_flag=True, help="Smaller sizes, to see that it works; the verdicts mean little.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="out",
    show_default=True,
    help="Where the files go.",
)
@JSON
def lab(name: str, real: bool, quick: bool, out: Path, as_json: bool) -> None:
    """Run an experiment of the papers, or all of them: CSV, PNG and a page with the verdict for each figure.

    NAME is one of those that `list` names; docs collects what has been run in docs/figures.md. all runs every
    one of them, in the simulator and on real processes, and then does what docs does, unless it is quick.

    \b
    tidemark lab list
    tidemark lab mops
    tidemark lab dsn03-crash --real
    tidemark lab docs
    """
    from tidemark.lab.figures import command

    sys.exit(command.run(name, out, real=real, quick=quick, as_json=as_json))


@click.command()
@click.option("--seeds", type=click.IntRange(1), help="How many worlds to run (50; of each bug at most 500).")
@click.option("--from", "first", default=0, show_default=True, help="The first seed.")
@click.option(
    "--profile",
    type=click.Choice(
        ["swarm", "network", "crashes", "disk", "hostile", "calm", "thin", "narrow", "access", "mixed"]
    ),
    help="What goes wrong (swarm: a bit of everything).",
)
@click.option("--jobs", type=click.IntRange(1), help="Worlds at a time (as many as there are cores).")
@click.option("--trace", is_flag=True, help="Run one seed and print what its brokers were told and did.")
@click.option("--planted", is_flag=False, flag_value="all", help="Look for a bug planted on purpose, or all.")
@JSON
def sim(
    seeds: int | None,
    first: int,
    profile: str | None,
    jobs: int | None,
    trace: bool,
    planted: str | None,
    as_json: bool,
) -> None:
    """Run whole simulated networks, each from one seed, with faults, judged by an oracle.

    Exits 1 if a world broke a promise, or a planted bug was not found; says how to run that seed again.

    \b
    tidemark sim --seeds 200
    tidemark sim --from 17 --seeds 1 --trace
    tidemark sim --planted all
    """
    from tidemark.sim import command
    from tidemark.sim.swarm.planted import BUGS

    if planted is not None and planted not in (*BUGS, "all"):
        raise click.UsageError(f"there is no planted bug {planted!r}; choose all or one of {', '.join(BUGS)}")
    if trace:
        if seeds not in (None, 1) or planted == "all" or as_json:
            raise click.UsageError("--trace prints one seed, as text: --from SEED --seeds 1")
        sys.exit(command.replay(first, profile, planted))
    jobs = jobs or os.cpu_count() or 1
    if planted is not None:
        bugs = list(BUGS) if planted == "all" else [planted]
        sys.exit(command.find_planted(bugs, first, seeds or 500, profile, jobs, as_json=as_json))
    sys.exit(command.run_seeds(first, seeds or 50, profile or "swarm", jobs, as_json=as_json))


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(1), default=60.0, show_default=True, help="How long to fuzz."
)
@click.option("--seed", type=int, help="What is said follows from it (one by chance).")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="A directory for data and logs, which stay there.",
)
@click.option(
    "--core", is_flag=True, help="A broker's core in memory in place of a process: many more frames."
)
@click.option(
    "--secure", is_flag=True, help="A broker with accounts, at which hostile clients may do little."
)
@JSON
def fuzz(
    seconds: float, seed: int | None, keep: Path | None, core: bool, secure: bool, as_json: bool
) -> None:
    """Send well-formed frames with hostile values to a real broker, as clients and as neighbours.

    A publisher and a durable subscriber beside them must not notice. Exits 1 if they did, or if the broker
    ended, and prints the seed and what was said last.

    \b
    tidemark fuzz --seconds 600
    tidemark fuzz --seed 7 --json
    tidemark fuzz --core --seconds 60
    tidemark fuzz --secure --seconds 60
    """
    from random import randrange

    from tidemark.lab.fuzz import command

    chosen = randrange(1_000_000) if seed is None else seed
    if core and keep is not None:
        raise click.UsageError("--core writes no files: leave out --keep")
    if core and secure:
        raise click.UsageError("--core has no accounts: leave out --secure")
    if core:
        sys.exit(command.run_core(seconds, chosen, as_json=as_json))
    sys.exit(command.run(seconds, chosen, as_json=as_json, directory=keep, is_secured=secure))


@click.command()
@click.option(
    "--places", type=click.IntRange(0), default=200, show_default=True, help="Bits that are flipped."
)
@click.option("--seed", default=0, show_default=True, help="Which bits.")
@JSON
def damage(places: int, seed: int, as_json: bool) -> None:
    """Harm a broker's data directory in one place at a time, start the broker, and judge by ledgers.

    Every file is deleted and replaced by an older copy, and bits are flipped. Each time everybody comes back;
    what is missing must have been told. Exits 1 if something was missing and nobody was told.

    With --json each harm is one object a line: moment, harm, where, offset, bit, outcome, detail.

    \b
    tidemark damage
    tidemark damage --places 2000 --json
    """
    from tidemark.lab.damage import command

    sys.exit(command.damage(places, seed, as_json=as_json))


@click.command()
@click.option(
    "--no-spark", is_flag=True, help="Without the archive, and with the sums at the end done without a JVM."
)
@JSON
def demo(no_spark: bool, as_json: bool) -> None:
    """A short story that shows what Tidemark does, and checks it.

    Real processes are killed and come back, and write ledgers; a broker lets go what is archived, and who
    was away is healed from the archive; at the end the audit on Spark compares the ledgers.
    Exits 0 only if everything was delivered exactly once and in order.

    \b
    tidemark demo
    tidemark demo --no-spark --json | jq .ok
    """
    from tidemark.lab.demo.demo import run

    sys.exit(run(as_json=as_json, with_spark=not no_spark))
