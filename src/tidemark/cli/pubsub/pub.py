"""The command that publishes: events from arguments, from JSON lines, or made up, at a pace."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import click

from tidemark.admin import ANSWER_SECONDS, TOPICS, connect
from tidemark.admin.numbers import show_seconds
from tidemark.cli.connection import Interrupts
from tidemark.cli.options import BROKER, JSON, duration
from tidemark.cli.output import emit

if TYPE_CHECKING:
    from tidemark.cli.pubsub.values import Make
    from tidemark.message.schema import Schema
    from tidemark.sync import Client


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The arguments of the command."""

    topic: str
    fields: tuple[str, ...]
    file: str | None
    generate: bool
    count: int | None
    rate: float | None

    def check(self) -> None:
        """Raise UsageError unless the arguments name exactly one source of events."""
        sources = [bool(self.fields), self.file is not None, self.generate]
        if sum(sources) > 1:
            raise click.UsageError("give one source of events: FIELD=VALUE..., --file or --generate")
        if self.file not in (None, "-") and not Path(str(self.file)).is_file():
            raise click.UsageError(f"--file: there is no file {self.file!r}")
        if not any(sources) and sys.stdin.isatty():
            raise click.UsageError(
                f"nothing to publish: tidemark pub {self.topic} FIELD=VALUE..., or JSON lines with --file"
            )


class PublishedSummary(TypedDict):
    """What `--json` prints at the end."""

    published: int
    seconds: float
    #: None if no time has passed
    events_per_second: float | None
    #: None if nothing was published, or if the tick of the last event is not known
    last_tick: int | None


@dataclass(slots=True)
class _Tally:
    """Counts the events that have been published."""

    began: float = field(default_factory=time.monotonic)
    published: int = 0
    last_tick: int | None = None

    def count(self, ticks: Sequence[int | None]) -> None:
        """Count events that are on disk at the broker."""
        self.published += len(ticks)
        self.last_tick = ticks[-1] if ticks else self.last_tick

    def summary(self) -> PublishedSummary:
        """Return the object that `--json` prints at the end."""
        seconds = time.monotonic() - self.began
        return {
            "published": self.published,
            "seconds": round(seconds, 6),
            "events_per_second": round(self.published / seconds, 1) if seconds else None,
            "last_tick": self.last_tick,
        }


@click.command()
@click.argument("topic")
@click.argument("fields", nargs=-1, metavar="[FIELD=VALUE]...")
@click.option("--file", metavar="FILE|-", help="JSON lines, - for standard input.")
@click.option("--generate", is_flag=True, help="Make up events that fit the topic's schema.")
@click.option("--count", type=click.IntRange(min=1), help="How many; the event or file is repeated.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Events a second at most.")
@click.option("--key", default="", help="The key of the events.")
@click.option("--validity", type=duration, help="They are not delivered after this time, like 10s.")
@click.option("--verbose", "-v", is_flag=True, help="Print the tick of each event.")
@BROKER
@JSON
def pub(
    topic: str,
    fields: tuple[str, ...],
    file: str | None,
    generate: bool,
    count: int | None,
    rate: float | None,
    key: str,
    validity: float | None,
    verbose: bool,
    url: str,
    as_json: bool,
) -> None:
    """Publish events; it ends when all are on disk at the broker. Ctrl-C stops after what has been begun.

    VALUE is read by the topic's schema; in an open topic as JSON, else as text. {n} in a VALUE is the
    event's number. Without fields, JSON lines are read from standard input. --rate alone goes on for ever.
    With --json a line {"tick": ...} for each event, and at the end a summary.

    \b
    tidemark pub trades symbol=ACME price=10.5 qty=3
    tidemark pub trades symbol=ACME qty={n} --rate 100 --count 1000
    tidemark pub trades --generate --rate 5000
    tidemark pub trades --file sample.jsonl
    tidemark sub trades --values | tidemark pub copies --file -
    """
    wanted = _Wanted(topic, fields, file, generate, count, rate)
    wanted.check()
    with connect(url) as tm:
        schema = _declared(tm, topic)
        tally = _Tally()
        try:
            with Interrupts() as interrupts:
                for values in _flow(wanted, schema, interrupts):
                    ticks = tm.publish_many(topic, values, key=key, validity=validity)
                    tally.count(ticks)
                    if verbose or as_json:
                        _print_ticks(ticks, as_json)
        except BaseException:
            # The events before the error are on disk, and the summary counts them.
            if tally.published:
                _print_summary(tally.summary(), as_json)
            raise
        _print_summary(tally.summary(), as_json)


def _declared(tm: Client, topic: str) -> Schema | None:
    """Return the newest schema of a declared topic; None if the topic is open, or does not exist yet."""
    from tidemark.message.schema import Schema

    topics = tm.ask(TOPICS, timeout=ANSWER_SECONDS)
    found = next((each for each in topics if each.topic == topic and not each.is_removed), None)
    return None if found is None or found.open else Schema.parse(found.schemas[-1])


def _flow(wanted: _Wanted, schema: Schema | None, interrupts: Interrupts) -> Iterator[list[Any]]:
    from tidemark.cli.pubsub.flow import at_most, made, paced
    from tidemark.cli.pubsub.values import values_of

    make = _maker(wanted, schema)
    if make is None:
        values = at_most(values_of(_lines(wanted, interrupts), schema), wanted.count)
    else:
        is_single = wanted.count is None and wanted.rate is None
        values = made(make, 1 if is_single else wanted.count)
    return paced(values, wanted.rate, interrupts)


def _maker(wanted: _Wanted, schema: Schema | None) -> Make | None:
    """Return the function that makes the events; None if they are read from a file."""
    from tidemark.cli.pubsub.generate import Generator
    from tidemark.cli.pubsub.values import event_maker, split_fields

    if wanted.fields:
        return event_maker(split_fields(wanted.fields), schema)
    if not wanted.generate:
        return None
    if schema is None:
        raise click.ClickException(
            f"{wanted.topic!r} has no schema to make events of: declare it with `tidemark topic create`"
        )
    return Generator(schema)


def _lines(wanted: _Wanted, interrupts: Interrupts) -> Iterator[list[str]]:
    from tidemark.cli.pubsub.flow import lines_again, lines_in, lines_of

    if wanted.file is None or wanted.file == "-":
        return lines_of(sys.stdin.buffer, interrupts)
    file = Path(wanted.file)
    return lines_in(file, interrupts) if wanted.count is None else lines_again(file)


def _print_ticks(ticks: Sequence[int | None], as_json: bool) -> None:
    for tick in ticks:
        if as_json:
            emit({"tick": tick})
        else:
            click.echo(str(tick) if tick is not None else "published; its tick is not known")


def _print_summary(summary: PublishedSummary, as_json: bool) -> None:
    if as_json:
        emit(summary)
        return
    count, seconds = summary["published"], show_seconds(summary["seconds"])
    if count == 1:
        click.echo(f"published 1 event at tick {summary['last_tick']}")
    else:
        rate = f", {summary['events_per_second']:,.0f} events/s" if count else ""
        click.echo(f"published {count:,} events in {seconds}{rate}")
