"""Topics: their schemas, their newest events, and why one event matches a subscription or does not."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, TypedDict

from starlette.responses import Response

from tidemark.client.events import Event
from tidemark.console.pages.selectors import misfit, rule_of_user
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
    problem = misfit(where, topic, [found])
    before, wrong = _before(visit.query("before"))
    recent = None
    if problem is None and wrong is None:
        try:
            pubends = await visit.watch.pubends_now()
            recent = await newest_events(pubends, topic, where, EVENTS_SHOWN, before=before)
        except RefusedError as error:
            if error.code != "selector":
                raise
            problem = error.reason
    return visit.page(
        "topic.html",
        topic=found,
        where=where,
        before=visit.query("before"),
        problem=problem or wrong,
        recent=recent,
        rows=[shown(event) for event in recent.events] if recent else [],
        rate=_rate(recent.events) if recent and not where and before is None else None,
        age=max(0.0, time.time() - recent.events[0].tick / 1e6) if recent and recent.events else None,
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
    parts: list[tuple[str, str, Reason]] = [("the selector", where, reason_of(where, event))]
    if user:
        rule = await rule_of_user(visit, user, event.topic)
        parts.append((f"the rule of access of {user}", rule, reason_of(rule, event)))
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


class ShownEvent(TypedDict):
    """What the pages show of an event."""

    topic: str
    pubend: str
    tick: int
    key: str
    publisher: str
    value: Any


def shown(event: Event) -> ShownEvent:
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


def reason_of(where: str, event: Event) -> Reason:
    """Return why an event matches a selector, or why it does not."""
    tree = for_topic(parse(where), event.topic, where)
    value = event.value
    headers = {"_key": event.key, "_time": event.time}
    return reason_for(tree, lambda path: headers[path[0]] if path[0] in headers else value_at(value, path))


def _fits(pattern: str, topic: str) -> bool:
    from tidemark.matching.topics import TopicPattern

    return TopicPattern.parse(pattern).matches(topic)


def _rate(events: tuple[Event, ...]) -> float | None:
    """How many events a second these were, the newest first; None if they are too few to say."""
    span = events[0].tick - events[-1].tick if events else 0
    return (len(events) - 1) * 1e6 / span if span else None


def _before(text: str) -> tuple[int | None, str | None]:
    """Return the tick before which to look, None for now, and what is wrong with the text, if anything is."""
    if not text:
        return None, None
    if text.isdecimal() and len(text) <= 18:
        return int(text), None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None, f"give a time such as 2026-11-15T20:00, not {text!r}"
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000_000), None
