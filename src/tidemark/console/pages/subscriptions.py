"""Subscriptions: what each is owed, where it is; and changes of one, shown before they are made."""

from __future__ import annotations

import time
from datetime import datetime
from urllib.parse import quote

from starlette.responses import Response

from tidemark.admin.broker_snapshot import lags_of
from tidemark.console.door.requests import start_of
from tidemark.console.pages.selectors import misfit
from tidemark.console.pages.site import Visit, counted
from tidemark.console.pages.topics import reason_of
from tidemark.console.problems import ProblemError
from tidemark.console.recent_events import newest_events
from tidemark.console.watch import WatchedSubscription
from tidemark.errors import RefusedError
from tidemark.ticks import CheckpointToken
from tidemark.wire.answers import REMOVE, SEEK, SELECT, SUBSCRIPTION, TOPICS

#: Subscriptions on one page.
SHOWN_MAX = 500
#: change -> its title
_TITLES = {"remove": "Remove", "seek": "Move", "selector": "Change the selector of"}
#: Events that an old and a new selector are compared on.
COMPARED = 200


async def list_subscriptions(visit: Visit) -> Response:
    """Show the subscriptions of all brokers, those that are owed most first."""
    view = await visit.watch.view()
    wanted = visit.query("q").lower()
    is_all = visit.query("all") == "1"
    is_slow = visit.query("slow") == "1"
    found = [
        each
        for name, each in view.subscriptions.items()
        if (is_all or each.status.durable)
        and wanted in name.lower()
        and (not is_slow or each.status.slow or each.status.gaps)
    ]
    found.sort(key=_order)
    return visit.page(
        "subscriptions.html",
        view=view,
        found=found[:SHOWN_MAX],
        total=len(found),
        wanted=visit.query("q"),
        is_all=is_all,
        is_slow=is_slow,
    )


async def show_subscription(visit: Visit) -> Response:
    """Show one subscription, and the forms that change it."""
    return await _subscription_page(visit, await _hosted(visit))


async def _subscription_page(
    visit: Visit, hosted: WatchedSubscription, refused: ProblemError | None = None
) -> Response:
    """Show one subscription; with what is wrong with a change that was asked for, below its form."""
    client = await visit.watch.client_of(hosted.broker)
    status = await client.ask(SUBSCRIPTION, name=hosted.status.name)
    lag = next(iter(lags_of([status], hosted.broker)), None)
    catch_up = None
    if lag is not None:
        catch_up = visit.watch.catch_ups.look(lag.name, lag.owed_events, time.monotonic())
    return visit.page(
        "subscription.html",
        200 if refused is None else refused.status,
        hosted=hosted,
        one=status,
        at=f"/subscriptions/{quote(status.name, safe='')}",
        lag=lag,
        catch_up=catch_up,
        what=visit.query("what"),
        to=visit.query("to", "now"),
        where=visit.query("where", status.selector),
        problem="" if refused is None else refused.reason,
    )


async def preview_change(visit: Visit) -> Response:
    """Show what a change of a subscription would mean, with a button that makes it."""
    hosted = await _hosted(visit)
    what, name = visit.query("what"), hosted.status.name
    to = visit.query("where") if what == "selector" else visit.query("to", "now") if what == "seek" else ""
    try:
        meaning = await _meaning(visit, hosted, what, to)
    except ProblemError as problem:
        return await _subscription_page(visit, hosted, problem)
    return visit.page("confirm.html", name=name, what=what, to=to, meaning=meaning, title=_TITLES[what])


async def _meaning(visit: Visit, hosted: WatchedSubscription, what: str, to: str) -> list[str]:
    """Return what a change means, as sentences; ProblemError if it cannot be made."""
    name = hosted.status.name
    owed = 0 if hosted.lag is None else hosted.lag.owed_events
    if what == "remove":
        meaning = [
            f"The subscription {name!r} ends for good; its name can be taken by a new one.",
            f"What it is owed, {counted(owed, 'event')}, is not delivered to it any more.",
            "Brokers release what they hold for it alone.",
        ]
        if hosted.status.connected:
            meaning.append("Somebody is connected under this name now, and will be told that it is gone.")
        return meaning
    if what not in ("seek", "selector"):
        raise ProblemError(404, "request", f"there is no change {what!r}")
    if hosted.status.connected:
        raise ProblemError(409, "taken", "somebody is connected under this name: stop that program first")
    if what == "seek":
        _goal(to)
        skipped = f"What it is owed now, {counted(owed, 'event')}," if to == "now" else f"What is before {to}"
        goes_on = "with what is published from now on" if to == "now" else f"at {to}"
        return [
            f"The subscription {name!r} goes on {goes_on}; what lies before is acknowledged for it.",
            f"{skipped} is never delivered to it.",
            "A subscription only moves forward: a place that it has passed is refused.",
        ]
    compared = await _compared(visit, hosted, to)
    return [
        f"From now on {name!r} gets the events for which this is true: {to or 'TRUE'}",
        compared,
        f"What it is owed already ({counted(owed, 'event')}) is still delivered by the old selector: "
        f"{hosted.status.selector or 'TRUE'}",
        "The program of this subscription has to subscribe with the new selector, or it changes it back.",
    ]


async def _compared(visit: Visit, hosted: WatchedSubscription, where: str) -> str:
    """Return how many of the last events match a new selector, and how many the old one, as a sentence.

    ProblemError 422 if the new one cannot be read, or fits no topic of the subscription.
    """
    pattern = hosted.status.pattern
    async with visit.site.connections.use(visit.caller) as client:
        problem = misfit(where, pattern, await client.ask(TOPICS))
    if problem is not None:
        raise ProblemError(422, "selector", problem)
    try:
        recent = await newest_events(await visit.watch.pubends_now(), pattern, "", COMPARED)
    except RefusedError as error:
        if error.code != "denied":
            raise
        return f"You may not read {pattern}: how many events match is not told."
    old, new = (
        sum(reason_of(text, event).truth is True for event in recent.events)
        for text in (hosted.status.selector, where)
    )
    return (
        f"Of the last {len(recent.events):,} events of {pattern} it would have got {new:,}; by the old "
        f"selector it got {old:,}."
    )


async def make_change(visit: Visit) -> Response:
    """Make a change of a subscription that was shown before."""
    form = await visit.form()
    hosted = await _hosted(visit)
    name, what = hosted.status.name, form.get("what", "")
    client = await visit.watch.client_of(hosted.broker)
    if what == "remove":
        await client.ask(REMOVE, name=name, force=hosted.status.connected)
        told = f"The subscription {name} was removed."
    elif what == "seek":
        await client.ask(SEEK, name=name, to=_goal(form.get("to", "")))
        told = f"The subscription {name} was moved to {form.get('to', '')}."
    elif what == "selector":
        await client.ask(SELECT, name=name, where=form.get("to", ""))
        told = f"The selector of {name} was changed."
    else:
        raise ProblemError(404, "request", f"there is no change {what!r}")
    visit.watch.forget_subscriptions()
    return visit.go("/subscriptions", told)


async def _hosted(visit: Visit) -> WatchedSubscription:
    name = visit.request.path_params["name"]
    found = (await visit.watch.view()).subscriptions.get(name)
    if found is None:
        # The subscription may have been made since the subscriptions were last asked for.
        visit.watch.forget_subscriptions()
        found = (await visit.watch.view()).subscriptions.get(name)
    if found is None:
        raise ProblemError(404, "unknown", f"there is no subscription {name!r}")
    return found


def _goal(text: str) -> str | int:
    """Return a place as the broker takes it: "now", a tick, or the text of a token."""
    if text == "now":
        return "now"
    start = start_of(text)
    if isinstance(start, CheckpointToken):
        return start.text()
    if isinstance(start, datetime):
        return round(start.timestamp() * 1_000_000)
    raise ProblemError(400, "request", "give now, a time such as 2026-11-15T20:00:00, or a token")


def _order(each: WatchedSubscription) -> tuple[float, int, str]:
    lag = each.lag
    return (-(lag.lag_seconds or 0.0) if lag else 0.0, -(lag.owed_events if lag else 0), each.status.name)
