"""The commands that subscribe: events and gaps as they come, as text or JSON lines."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from tidemark.admin import TOPICS, connect, listen
from tidemark.admin.numbers import show_time
from tidemark.cli.connection import Interrupts
from tidemark.cli.options import BROKER, JSON, duration
from tidemark.cli.output import emit
from tidemark.cli.pubsub.checkpoint_file import CheckpointFile
from tidemark.message.visible import visible

if TYPE_CHECKING:
    from tidemark.client.events import Event, Gap
    from tidemark.sync import Client, Subscription
    from tidemark.ticks import CheckpointToken

#: A checkpoint file is written at most this often, and whenever nothing comes.
SAVE_SECONDS = 0.2

Form = Literal["text", "json", "values"]


@dataclass(slots=True)
class _Reading:
    """Reads one subscription: prints its events, stops in time, and keeps the checkpoint token."""

    subscription: Subscription[Event | Gap]
    form: Form
    count: int | None
    wait: float | None
    file: CheckpointFile | None
    is_acknowledging: bool
    seen: int = 0
    _saved_at: float = 0.0

    def run(self, interrupts: Interrupts) -> None:
        """Print events until interrupted, until the count is reached, or until none came for too long."""
        heard = time.monotonic()
        while not interrupts.is_interrupted and (self.count is None or self.seen < self.count):
            item = self._next(interrupts)
            now = time.monotonic()
            if item is not None:
                heard = now
                self.print(item)
            elif self.wait is not None and now - heard >= self.wait:
                break
            if item is None or now - self._saved_at >= SAVE_SECONDS:
                self.keep()
        self.keep()

    def _next(self, interrupts: Interrupts) -> Event | Gap | None:
        seconds = SAVE_SECONDS if self.wait is None else min(SAVE_SECONDS, self.wait)
        try:
            with interrupts.waiting():
                return self.subscription.next(seconds)
        except KeyboardInterrupt:
            return None

    def print(self, item: Event | Gap) -> None:
        """Print an event to standard output, and a gap as a line of its own that cannot be overlooked."""
        from tidemark.client.events import Gap

        if isinstance(item, Gap):
            _print_gap(item, self.form)
        else:
            self.seen += 1
            _print_event(item, self.form)

    def keep(self) -> None:
        """Consume the events that were printed: flush the output, then save the token, then acknowledge."""
        sys.stdout.flush()
        self._saved_at = time.monotonic()
        if self.file is not None and self.file.save(self.subscription.checkpoint) and self.is_acknowledging:
            self.subscription.ack(self.subscription.checkpoint)


@click.command()
@click.argument("topic")
@click.option("--where", default="", metavar="SELECTOR", help="Only events for which this is true.")
@click.option("--durable", metavar="NAME", help="Go on where this name was, also after being away.")
@click.option("--from-checkpoint", "token", metavar="TOKEN", help="Start behind this checkpoint token.")
@click.option(
    "--checkpoint-file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Start behind the token in this file, and keep it there.",
)
@click.option(
    "--start",
    "begin",
    metavar="earliest|TIME|TOKEN",
    help="Where it starts, if --durable NAME is new: earliest; a time in UTC; so long ago like 2h; a token.",
)
@click.option(
    "--ack",
    type=click.Choice(["auto", "client"]),
    help="auto: what was printed is acknowledged. client: nothing is, the next one sees it again.",
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after so many events.")
@click.option("--wait", type=duration, help="Stop when no event came for so long, like 5s.")
@click.option("--values", is_flag=True, help="Only the fields, as JSON lines that `pub --file -` reads.")
@click.option("--push", metavar="ADDRESS", help="Listen here and be called, with no open connection.")
@click.option(
    "--lease",
    type=duration,
    default="60s",
    show_default=True,
    help="With --push: the broker waits this long for one that does not answer.",
)
@BROKER
@JSON
def sub(
    topic: str,
    where: str,
    durable: str | None,
    token: str | None,
    path: Path | None,
    begin: str | None,
    ack: Literal["auto", "client"] | None,
    count: int | None,
    wait: float | None,
    values: bool,
    push: str | None,
    lease: float,
    url: str,
    as_json: bool,
) -> None:
    """Print the events of a topic or pattern as they come. Ctrl-C stops.

    With --json an event is a line {"topic", "pubend", "tick", "time", "key", "value", "checkpoint"}, and a
    gap, history that brokers have let go, a line {"gap": {...}}. With --count it exits with 1 if fewer came.

    \b
    tidemark sub trades --where "price > 10 AND symbol LIKE 'A%'"
    tidemark sub "trades.>" --durable audit --json
    tidemark sub trades --durable audit --checkpoint-file audit.token --values >> audit.jsonl
    tidemark sub trades --start earliest
    tidemark sub trades --durable replay --start 2026-11-15T20:00:00
    tidemark sub alarms --push 127.0.0.1:0 --lease 10m
    tidemark tail trades --count 10 --wait 5s
    """
    given = {"--from-checkpoint": token, "--checkpoint-file": path, "--ack": ack}
    for option in [name for name, value in given.items() if value and durable is None]:
        raise click.UsageError(f"{option} needs a place that is kept under a name: add --durable NAME")
    if token and path:
        raise click.UsageError("give --from-checkpoint or --checkpoint-file, not both")
    if token and begin:
        raise click.UsageError("give --from-checkpoint or --start, not both")
    if values and as_json:
        raise click.UsageError("give --values or --json, not both")
    file = None if path is None else CheckpointFile(path)
    start = _start(token, file) | ({} if begin is None else {"start": _begin(begin)})
    mode = None if durable is None else _mode(ack, file)
    form: Form = "json" if as_json else "values" if values else "text"
    if push is not None:
        _check_address(push)
    with (
        connect(url, durable) if push is None else listen(url, push, lease, durable) as tm,
        tm.subscribe(topic, where, durable=durable, ack=mode, gaps=True, **start) as subscription,
        Interrupts() as interrupts,
    ):
        _tell_if_there_is_no_topic(tm, topic)
        reading = _Reading(subscription, form, count, wait, file, ack != "client")
        reading.run(interrupts)
    if count is not None and reading.seen < count and not interrupts.is_interrupted:
        raise click.ClickException(f"{reading.seen} of {count} events came; then none for {wait:g} s")


tail = click.Command(
    "tail", callback=sub.callback, params=sub.params, help=sub.help, short_help="The same as sub."
)


def _tell_if_there_is_no_topic(tm: Client, pattern: str) -> None:
    """Say on standard error that the command waits for a topic, so that a misspelt name is noticed."""
    from tidemark.matching.topics import TopicPattern

    wanted = TopicPattern.parse(pattern)
    if wanted.is_exact and tm.schemas(pattern):
        return
    # An open topic may have no shapes yet.
    if not any(wanted.matches(each.topic) and not each.is_removed for each in tm.ask(TOPICS)):
        what = f"no topic {pattern!r}" if wanted.is_exact else f"no topic that {pattern!r} matches"
        text = f"there is {what} yet: waiting for one (`tidemark topic list` shows all)"
        click.echo(click.style(visible(text), fg="yellow"), err=True)


def _start(token: str | None, file: CheckpointFile | None) -> dict[str, Any]:
    if token is not None:
        return {"checkpoint": _parsed(token, "--from-checkpoint")}
    return {} if file is None else {"checkpoint": file.load()}


def _check_address(text: str) -> None:
    from tidemark.client.connecting.addresses import parse_listen
    from tidemark.errors import ConfigError

    try:
        parse_listen(text)
    except ConfigError as error:
        raise click.BadParameter(error.reason, param_hint="--push") from None


def _parsed(text: str, option: str) -> CheckpointToken:
    """Return the token that an option gives; BadParameter, which names the option, if it is none."""
    from tidemark.errors import TidemarkError
    from tidemark.ticks import CheckpointToken

    try:
        return CheckpointToken.parse(text)
    except TidemarkError as error:
        raise click.BadParameter(visible(str(error)), param_hint=option) from None


def _begin(text: str) -> Any:
    """Return the start as `Client.subscribe` takes it; BadParameter if the text is no start."""
    from datetime import UTC, datetime, timedelta

    from tidemark.cli.watching.subs import parse_goal

    if text == "earliest":
        return text
    goal = parse_goal(text, datetime.now(UTC), "--start", now="earliest")
    if isinstance(goal, int):
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=goal)
    return _parsed(goal, "--start")


def _mode(
    ack: Literal["auto", "client"] | None, file: CheckpointFile | None
) -> Literal["gathered", "client"]:
    """Return who acknowledges: with a checkpoint file this command does, once the file has the token."""
    return "client" if file is not None or ack == "client" else "gathered"


def _print_event(event: Event, form: Form) -> None:
    from tidemark.client.plain_events import event_object
    from tidemark.message.foreign.json.plain import to_json_value

    match form:
        case "values":
            emit(to_json_value(event.value))
        case "json":
            emit(event_object(event))
        case "text":
            fields = " ".join(
                f"{click.style(visible(name), dim=True)}={_shown(part)}"
                for name, part in to_json_value(event.value).items()
            )
            moment = click.style(event.time.strftime("%H:%M:%S.%f"), dim=True)
            click.echo(f"{moment} {click.style(visible(event.topic), bold=True)} {fields}")


def _shown(part: Any) -> str:
    return visible(part if isinstance(part, str) and part else json.dumps(part, ensure_ascii=False))


def _print_gap(gap: Gap, form: Form) -> None:
    from tidemark.client.plain_events import gap_object

    if form == "json":
        emit({"gap": gap_object(gap)})
        return
    text = (
        f"*** GAP in {visible(gap.pubend)}, {gap.reason}: what there was after {show_time(gap.base)} "
        f"and up to {show_time(gap.upto)} will not come ***"
    )
    click.echo(click.style(text, fg="red", bold=True), err=form == "values")
