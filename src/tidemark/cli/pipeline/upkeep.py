"""Commands for an archive that lives: `tidemark pipeline erase` and `tidemark pipeline verify`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from tidemark.cli.connection import Interrupts
from tidemark.cli.options import JSON
from tidemark.cli.output import emit
from tidemark.cli.pipeline.options import BROKERS, MASTER, PATH
from tidemark.message.visible import visible

if TYPE_CHECKING:
    from tidemark.spark.engine.tasks import SessionLender
    from tidemark.spark.stores.folder import Folder
    from tidemark.spark.upkeep.asking import ErasureReport
    from tidemark.spark.upkeep.verifying import Verification

LIGHT = click.option("--light", is_flag=True, help="Do it in this process, without Spark.")


@click.command()
@PATH
@click.option("--topic", required=True, metavar="TOPIC", help="A topic, or a pattern of topics.")
@click.option("--where", required=True, metavar="SELECTOR", help="Which of its events; TRUE for all.")
@click.option("--yes", is_flag=True, help="Do not ask whether it is meant.")
@LIGHT
@MASTER
@BROKERS
@JSON
def erase(
    path: Folder,
    topic: str,
    where: str,
    yes: bool,
    light: bool,
    master: str,
    urls: tuple[str, ...],
    as_json: bool,
) -> None:
    """Erase events from the archive for good: all that match and are published by now.

    The process that writes the archive does it; if none does, this one. Files that have such events are
    rewritten without them, and removed an hour later, when readers that have begun with them are done. An
    erased event is silence: ticks and tokens stay valid. Brokers let go what they hold of that time, and
    whoever lacks it gets it from the archive. What was erased stays noted in _archive/erasures.

    \b
    tidemark pipeline erase --topic customers --where "id = 4711"
    tidemark pipeline erase --topic 'trades.>' --where "account = 'A-17'" --yes --json
    """
    from tidemark.spark.upkeep.asking import erase as erase_events

    if not yes:
        click.confirm(f"Erase from {path} for good: {topic} where {where}?", abort=True, err=True)
    with Interrupts() as interrupts, _sessions(master, light) as sessions:
        report = erase_events(path, urls, topic, where, sleep=interrupts.sleep, sessions=sessions)
    if as_json:
        emit(report.to_json())
    else:
        click.echo(_draw_erasure(report))
    if report.erasure.stage == "asked":
        sys.exit(1)


@click.command()
@PATH
@click.option("--offline", is_flag=True, help="Only read the files; compare with no broker.")
@LIGHT
@MASTER
@BROKERS
@JSON
def verify(
    path: Folder, offline: bool, light: bool, master: str, urls: tuple[str, ...], as_json: bool
) -> None:
    """Compare the archive with what brokers still hold, by checksums, and read all its files.

    Exit codes: 0 all is well, 1 something differs or cannot be read.

    \b
    tidemark pipeline verify
    tidemark pipeline verify --path /var/lib/tidemark/archive --master spark://head:7077
    tidemark pipeline verify --offline --light --json
    """
    from tidemark.spark.locations import check_archive
    from tidemark.spark.upkeep.verifying import verify as verify_archive

    check_archive(path)
    with _sessions(master, light) as sessions:
        found = verify_archive(path, None if offline else urls, sessions)
    if as_json:
        emit(found.to_json())
    else:
        click.echo(_draw_verification(found))
    if found.wrong or found.away:
        sys.exit(1)


@contextmanager
def _sessions(master: str, light: bool) -> Iterator[SessionLender | None]:
    if light:
        yield None
        return
    from contextlib import nullcontext

    from tidemark.spark.engine.session import quiet_session

    with quiet_session("tidemark pipeline", master) as spark:

        def lend() -> Any:
            return nullcontext(spark)

        yield lend


def _draw_erasure(report: ErasureReport) -> str:
    found = report.erasure
    if found.stage == "asked":
        return f"erasure {found.id} is noted, and done by whoever writes the archive"
    lines = [
        f"erased {found.events:,} events of {visible(found.topic)} from {found.files:,} files "
        f"(erasure {found.id}); the files that had them are removed within about an hour"
    ]
    lines += [
        f"{visible(name)}: the broker holds events up to {tick} itself" for name, tick in report.held.items()
    ]
    return "\n".join(lines)


def _draw_verification(found: Verification) -> str:
    lines = [
        f"{found.files:,} files with {found.events:,} events were read; "
        f"{found.compared:,} events in {found.ranges:,} ranges were compared with brokers"
    ]
    lines += [f"{url} does not answer: {visible(reason)}" for url, reason in found.away.items()]
    lines += [f"{visible(each.what)}: {visible(each.wrong)}" for each in found.wrong]
    return "\n".join([*lines, *([] if found.wrong else ["nothing is wrong"])])
