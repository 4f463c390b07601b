"""Subscriptions: what each is owed, where it is; and changes of one, shown before they are made."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from starlette.responses import Response

from tidemark.admin.broker_snapshot import lags_of
from tidemark.console.door.requests import start_of
from tidemark.console.pages.selectors import checked_selector
from tidemark.console.pages.site import Visit
from tidemark.console.problems import ProblemError
from tidemark.console.watch import HostedSubscription
from tidemark.ticks import CheckpointToken
from tidemark.wire.answers import REMOVE, SEEK, SUBSCRIPTION

#: Subscriptions on one page.
SHOWN_MAX = 500


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
    hosted = await _hosted(visit)
    client = await visit.watch.client_of(hosted.broker)
    status = await client.ask(SUBSCRIPTION, name=hosted.status.name)
    lag = next(iter(lags_of([status], hosted.broker)), None)
    catch_up = None
    if lag is not None:
        catch_up = visit.watch.catch_ups.look(lag.name, lag.owed_events, time.monotonic())
    return visit.page("subscription.html", hosted=hosted, one=status, lag=lag, catch_up=catch_up)


async def preview_change(visit: Visit) -> Response:
    """Show what a change of a subscription would mean, with a button that makes it."""
    hosted = await _hosted(visit)
    what = visit.query("what")
    lag = hosted.lag
    owed = 0 if lag is None else lag.owed_events
    name = hosted.status.name
    if what == "remove":
        meaning = [
            f"The subscription {name!r} ends for good; its name can be taken by a new one.",
            f"The {owed:,} events that it is owed are not delivered to it any more.",
            "Brokers release what they hold for it alone.",
        ]
        if hosted.status.connected:
            meaning.append("Somebody is connected under this name now, and will be told that it is gone.")
        to = ""
    elif what == "seek":
        to = visit.query("to", "now")
        _goal(to)
        meaning = [
            f"The subscription {name!r} goes on at {to}; what lies before is acknowledged for it.",
            f"It is owed {owed:,} events now; those before {to} are never delivered to it.",
            "A subscription only moves forward: a place that it has passed changes nothing.",
        ]
    elif what == "selector":
        to = visit.query("where")
        problem = checked_selector(to)
        if problem is not None:
            raise ProblemError(422, "selector", problem)
        if hosted.status.connected:
            raise ProblemError(
                409,
                "taken",
                "somebody is connected under this name: a selector is changed by its own program",
            )
        meaning = [
            f"From now on {name!r} gets the events for which this is true: {to or 'TRUE'}",
            f"What it is owed already ({owed:,} events) is still delivered by the old selector: "
            f"{hosted.status.selector or 'TRUE'}",
            "The program of this subscription has to subscribe with the new selector, or it changes it back.",
        ]
    else:
        raise ProblemError(404, "request", f"there is no change {what!r}")
    return visit.page("confirm.html", name=name, what=what, to=to, meaning=meaning)


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
        # A client of its own: the subscription is let go with its connection.
        pattern, where = hosted.status.pattern, form.get("to", "")
        url = (await visit.watch.view()).brokers[hosted.broker].url
        async with visit.site.connections.made(visit.caller, url=url) as own:
            await own.subscribe(pattern, where, durable=name, ack="client")
        told = f"The selector of {name} was changed."
    else:
        raise ProblemError(404, "request", f"there is no change {what!r}")
    visit.watch.forget_subscriptions()
    return visit.go("/subscriptions", told)


async def _hosted(visit: Visit) -> HostedSubscription:
    name = visit.request.path_params["name"]
    found = (await visit.watch.view()).subscriptions.get(name)
    if found is None:
        # It may have come since the subscriptions were last asked for.
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
        return round(start.astimezone(UTC).timestamp() * 1_000_000)
    raise ProblemError(400, "request", "give now, a time such as 2026-11-15T20:00:00, or a token")


def _order(each: HostedSubscription) -> tuple[float, int, str]:
    lag = each.lag
    return (-(lag.lag_seconds or 0.0) if lag else 0.0, -(lag.owed_events if lag else 0), each.status.name)
