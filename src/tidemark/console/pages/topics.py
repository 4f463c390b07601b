"""Topics: their schemas, their newest events, and why one event matches a subscription or does not."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from tidemark.client.events import Event
from tidemark.console.pages.selectors import checked_selector, rule_of_user
from tidemark.console.pages.site import Visit
from tidemark.console.problems import ProblemError
from tidemark.console.recent_events import HostedPubend, events_of, newest_events
from tidemark.errors import RefusedError
from tidemark.matching.reasons import Reason, reason_for
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.topic_conditions import for_topic
from tidemark.message.foreign.json.plain import to_json_value
from tidemark.message.schema import value_at
from tidemark.wire.answers import TOPICS

#: Events that a topic's page shows.
EVENTS_SHOWN = 50


async def list_topics(visit: Visit) -> Response:
    """Show all topics."""
    async with visit.site.connections.use(visit.caller) as client:
        topics = [each for each in await client.ask(TOPICS) if not each.is_removed]
    wanted = visit.query("q").lower()
    found = [each for each in topics if wanted in each.topic.lower()]
    return visit.page("topics.html", topics=found, total=len(topics), wanted=visit.query("q"))


async def show_topic(visit: Visit) -> Response:
    """Show one topic, and its newest events that match a selector."""
    topic = visit.request.path_params["topic"]
    where = visit.query("where")
    async with visit.site.connections.use(visit.caller) as client:
        topics = [each for each in await client.ask(TOPICS) if not each.is_removed]
        found = next((each for each in topics if each.topic == topic), None)
    if found is None:
        raise ProblemError(404, "unknown", f"there is no topic {topic!r}")
    problem = checked_selector(where)
    recent = None
    if problem is None:
        try:
            recent = await newest_events(await visit.watch.pubends(), topic, where, EVENTS_SHOWN)
        except RefusedError as error:
            if error.code != "selector":
                raise
            problem = error.reason
    view = await visit.watch.view()
    names = sorted(name for name, each in view.subscriptions.items() if each.status.durable)
    return visit.page(
        "topic.html",
        topic=found,
        where=where,
        problem=problem,
        recent=recent,
        rows=[shown(event) for event in recent.events] if recent else [],
        rate=_rate(recent.events, recent.reach_us) if recent and not where else None,
        subscriptions=names,
    )


async def explain_match(visit: Visit) -> Response:
    """Show why one event matches a selector or subscription, condition by condition, or why it does not."""
    view = await visit.watch.view()
    event = await _one_event(visit, visit.query("pubend"), visit.query("tick"))
    name, user = visit.query("subscription"), visit.query("user")
    hosted = view.subscriptions.get(name)
    if name and hosted is None:
        raise ProblemError(404, "unknown", f"there is no subscription {name!r}")
    where = hosted.status.selector if hosted is not None else visit.query("where")
    parts: list[tuple[str, str, Reason]] = [("the selector", where, _reason(where, event))]
    if user:
        rule = await rule_of_user(visit, user, event.topic)
        parts.append((f"the rule of access of {user}", rule, _reason(rule, event)))
    fits = hosted is None or _fits(hosted.status.pattern, event.topic)
    return visit.page(
        "why.html",
        event=shown(event),
        name=name,
        user=user,
        where=where,
        pattern=hosted.status.pattern if hosted is not None else event.topic,
        fits=fits,
        parts=parts,
        matches=fits and all(reason.truth is True for _, _, reason in parts),
        subscriptions=sorted(name for name, each in view.subscriptions.items() if each.status.durable),
    )


def shown(event: Event) -> dict[str, Any]:
    """Return what the pages show of an event."""
    return {
        "topic": event.topic,
        "pubend": event.pubend,
        "tick": event.tick,
        "key": event.key.decode(errors="replace"),
        "publisher": event.publisher,
        "value": to_json_value(event.value),
    }


async def _one_event(visit: Visit, pubend: str, tick: str) -> Event:
    if not tick.isdecimal() or len(tick) > 18:
        raise ProblemError(400, "request", f"a tick is a whole number, not {tick!r}")
    hosted: HostedPubend | None = next(
        (each for each in await visit.watch.pubends() if each.status.pubend == pubend), None
    )
    if hosted is None:
        raise ProblemError(404, "unknown", f"there is no pubend {pubend!r} that can be read now")
    base = int(tick) - 1
    fetched = await hosted.client._fetch(pubend, base, base + 1)
    events = await events_of(hosted.client, pubend, base, fetched.upto, fetched.batch)
    if not events:
        raise ProblemError(
            404, "unknown", "that event was let go, or there never was one, or you may not see it"
        )
    return events[0]


def _reason(where: str, event: Event) -> Reason:
    tree = for_topic(parse(where), event.topic, where)
    value = event.value
    headers = {"_key": event.key, "_time": event.time}
    return reason_for(tree, lambda path: headers[path[0]] if path[0] in headers else value_at(value, path))


def _fits(pattern: str, topic: str) -> bool:
    from tidemark.matching.topics import TopicPattern

    return TopicPattern.parse(pattern).matches(topic)


def _rate(events: tuple[Event, ...], reach_us: int) -> float | None:
    """About how many events a second were published over the time that was looked at; None if unknown."""
    if len(events) < 2:
        return None
    span = events[0].tick - events[-1].tick
    return (len(events) - 1) * 1e6 / span if span else reach_us / 1e6
