"""Commands about durable subscriptions: list, show, remove, move forward."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import click

from tidemark.admin import (
    REMOVE,
    SEEK,
    SELECT,
    SUBSCRIPTION,
    SUBSCRIPTIONS,
    SubscriptionStatus,
    ask,
    is_catching_up,
    recall_of,
    worst_lag,
)
from tidemark.admin.numbers import NOTHING, show_bytes, show_seconds, show_time
from tidemark.cli.options import BROKER, JSON
from tidemark.cli.output import emit, emit_either, table, visible_values
from tidemark.errors import ConfigError, TidemarkError
from tidemark.message.visible import visible

#: state of a recall from the archive -> what people read
RECALLS = {"waiting": "waiting for the archive", "under way": "from the archive"}


@click.group()
def subs() -> None:
    """Look after subscriptions."""


@subs.command("list")
@click.option("--all", "is_all", is_flag=True, help="Also those that are not durable.")
@BROKER
@JSON
def subs_list(is_all: bool, url: str, as_json: bool) -> None:
    """List the subscriptions that the broker hosts.

    \b
    tidemark subs list
    tidemark subs list --json | jq -r 'select(.connected | not) | .name'
    """
    found = [each for each in ask(url, SUBSCRIPTIONS) if is_all or each.durable]
    if as_json:
        for each in found:
            emit(each)
    elif found:
        click.echo(_listed(visible_values(found)))
    else:
        click.echo("no durable subscriptions here: tidemark sub TOPIC --durable NAME makes one")


@subs.command("show")
@click.argument("name")
@BROKER
@JSON
def subs_show(name: str, url: str, as_json: bool) -> None:
    """Show one subscription: what it wants, and how far it has got in each pubend.

    \b
    tidemark subs show audit
    """
    emit_either(ask(url, SUBSCRIPTION, name=name), _shown, as_json)


@subs.command("rm")
@click.argument("name")
@click.option("--force", is_flag=True, help="Also if somebody is connected with it.")
@BROKER
@JSON
def subs_rm(name: str, force: bool, url: str, as_json: bool) -> None:
    """Remove a subscription for good: brokers keep nothing for it any more.

    \b
    tidemark subs rm audit
    """
    done = ask(url, REMOVE, name=name, force=force)
    emit_either(done, lambda done: f"removed {done.removed}", as_json)


@subs.command("seek")
@click.argument("name")
@click.option(
    "--to",
    "goal",
    required=True,
    metavar="now|TIME|TOKEN",
    help="now; a time in UTC like 2026-11-15T20:00:00; so long ago like 10m; a tick; a checkpoint token.",
)
@BROKER
@JSON
def subs_seek(name: str, goal: str, url: str, as_json: bool) -> None:
    """Move a subscription forward while nobody is connected: what lies before is acknowledged unseen.

    To see events again, subscribe with an older checkpoint: tidemark sub --from-checkpoint.

    \b
    tidemark subs seek audit --to now
    tidemark subs seek audit --to 10m
    """
    now = datetime.now(UTC)
    emit_either(ask(url, SEEK, name=name, to=parse_goal(goal, now)), _shown, as_json)


@subs.command("select")
@click.argument("name")
@click.option(
    "--where", required=True, metavar="SELECTOR", help="What it gets from now on; empty: everything."
)
@BROKER
@JSON
def subs_select(name: str, where: str, url: str, as_json: bool) -> None:
    """Change the selector of a subscription while nobody is connected, for events from now on.

    What it is owed already stays. Its program has to subscribe with the new selector, or it changes it back.

    \b
    tidemark subs select audit --where "price > 100"
    """
    emit_either(ask(url, SELECT, name=name, where=where), _shown, as_json)


def parse_goal(text: str, moment: datetime, option: str = "--to", now: str = "now") -> str | int:
    """Return a position as the broker takes it: the word for `now`, a tick, or the text of a token.

    `moment` is the present. `option` is the option that the error names if the text is none of these.
    """
    from tidemark.node.config.units import parse_duration
    from tidemark.ticks import CheckpointToken
    from tidemark.ticks.token_text import PREFIX

    if text == now:
        return text
    if text.startswith(PREFIX):
        try:
            return CheckpointToken.parse(text).text()
        except TidemarkError as error:
            raise click.BadParameter(visible(str(error)), param_hint=option) from None
    if text.isdecimal():
        # A number that is too long to be a tick is too long to be read as one, too.
        return _checked_tick(int(text[:20]), text, moment, option)
    try:
        if re.fullmatch(r"[\d.]+ *[a-z]+", text):
            return _tick(moment) - parse_duration(text)
        found = datetime.fromisoformat(text)
    except (ConfigError, ValueError):
        raise click.BadParameter(
            f"{text!r} is not understood; write {now}, 2026-11-15T20:00:00, 10m (ago) or a checkpoint token",
            param_hint=option,
        ) from None
    return _checked_tick(
        _tick(found.replace(tzinfo=UTC) if found.tzinfo is None else found), text, moment, option
    )


def _checked_tick(tick: int, text: str, moment: datetime, option: str) -> int:
    """Return the tick; BadParameter if it is further in the future than clocks can be apart."""
    from tidemark.ticks.tick import CLOCKS_APART_MAX

    now = _tick(moment)
    if tick > now + CLOCKS_APART_MAX:
        raise click.BadParameter(
            f"{text[:40]} is in the future: it is {moment:%Y-%m-%dT%H:%M:%S} now, which is the tick {now}",
            param_hint=option,
        )
    return tick


def _tick(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def _listed(found: list[SubscriptionStatus]) -> str:
    rows = [
        (each.name, state_of(each), show_seconds(worst_lag(each)), each.pattern, each.selector or NOTHING)
        for each in found
    ]
    return table(("name", "state", "lag", "topic", "where"), rows, right=[2])


def state_of(subscription: SubscriptionStatus) -> str:
    """Return the state of a subscription in a few coloured words."""
    if not subscription.connected:
        return click.style("away", fg="yellow")
    recall = recall_of(subscription)
    if recall is not None:
        return click.style(RECALLS[recall], fg="red" if recall == "waiting" else "cyan")
    if is_catching_up(subscription):
        return click.style("catching up", fg="cyan")
    return click.style("live", fg="green")


def _shown(found: SubscriptionStatus) -> str:
    rows = [
        (
            pubend,
            show_time(each.start),
            show_time(each.acknowledged),
            f"{each.owed_events:,}{'' if each.is_exact else '+'}",
            show_bytes(each.owed_bytes),
            show_seconds(None if each.lag_us is None else each.lag_us / 1e6),
            RECALLS.get(each.recall or "", "yes" if each.catching_up else ""),
        )
        for pubend, each in found.pubends.items()
    ]
    changing = "  (a changed selector is coming into force)" if found.changing else ""
    return (
        f"{click.style(found.name, bold=True)}: {state_of(found)}"
        f"{'' if found.durable else ', not durable'}\n"
        f"  topic       {found.pattern}\n"
        f"  where       {found.selector or NOTHING}{changing}\n"
        f"  credit      {found.credit:,}\n"
        f"  checkpoint  {found.checkpoint}\n\n"
        + table(
            ("pubend", "started", "acknowledged", "owed", "bytes", "oldest", "catching up"),
            rows,
            right=[3, 4, 5],
        )
    )
