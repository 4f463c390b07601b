"""Trying a selector: over the newest events of a topic, before anybody subscribes with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.responses import Response

from tidemark.admin.access_changes import try_access
from tidemark.console.pages.site import Visit
from tidemark.console.recent_events import newest_events
from tidemark.console.watch import OverlayView
from tidemark.errors import SelectorError, TidemarkError
from tidemark.matching.explain import describe, render
from tidemark.matching.forms.covering import covers_selector
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.topics import TopicPattern
from tidemark.message.foreign.infer import infer_many
from tidemark.message.foreign.json.plain import to_json_value
from tidemark.message.schema import Schema
from tidemark.wire.answers import ACCESS, TOPICS, TopicStatus

#: Events that a selector is tried on, unless the form says otherwise, and at the most.
LAST, LAST_MAX = 200, 2_000
PREVIEW = 20


async def try_selector(visit: Visit) -> Response:
    """Show what a selector would have matched, what the index makes of it, and whom it covers."""
    topic, where = visit.query("topic"), visit.query("where")
    last = _last(visit.query("last"))
    async with visit.site.connections.use(visit.caller) as client:
        topics = [each for each in await client.ask(TOPICS) if not each.is_removed]
    values: dict[str, Any] = {"problem": None, "found": None, "names": [each.topic for each in topics]}
    if topic:
        problem = checked_selector(where)
        if problem is None:
            try:
                values["found"] = await _tried(visit, topic, where, last, topics)
            except SelectorError as error:
                problem = str(error)
        values["problem"] = problem
    return visit.page("try.html", topic=topic, where=where, last=last, **values)


def _last(text: str) -> int:
    """Return on how many events a selector is tried, if a form says so."""
    if not text.isdecimal():
        return LAST
    return max(1, int(text)) if len(text) <= len(str(LAST_MAX)) and int(text) <= LAST_MAX else LAST_MAX


async def _tried(visit: Visit, topic: str, where: str, last: int, topics: Any) -> dict[str, Any]:
    recent = await newest_events(await visit.watch.pubends_now(), topic, "", last)
    values = [event.value for event in recent.events]
    schema = _schema_of(topic, topics, values)
    described = describe(where or "TRUE", schema, values)
    truths = described["events"]
    explained = described.copy()
    del explained["events"]
    matched = [value for value, truth in zip(values, truths, strict=True) if truth == "true"]
    view = await visit.watch.view()
    return {
        "looked": len(values),
        "matched": described["matched"],
        "unknown": sum(truth == "unknown" for truth in truths),
        "preview": [to_json_value(value) for value in matched[:PREVIEW]],
        "explained": render(explained),
        "covered": _covered(topic, where, schema, view),
    }


def _schema_of(topic: str, topics: Any, values: list[Any]) -> Schema:
    """The newest schema of a declared topic; of an open one, the least that its newest events fit."""
    status = next((each for each in topics if each.topic == topic), None)
    if status is not None and not status.open:
        return Schema.parse(status.schemas[-1])
    return Schema(infer_many(values or [{}]))


def _covered(topic: str, where: str, schema: Schema, view: OverlayView) -> list[str]:
    """The durable subscriptions of the topic that get nothing that this selector would not get."""
    mine = Selector.parse(where, schema, topic)
    found = []
    for name, each in view.subscriptions.items():
        if not each.status.durable or not TopicPattern.parse(each.status.pattern).matches(topic):
            continue
        try:
            other = Selector.parse(each.status.selector, schema, topic)
        except TidemarkError:
            continue
        if covers_selector(mine, other, schema):
            found.append(name)
    return sorted(found)


def checked_selector(where: str) -> str | None:
    """Return what is wrong with a selector, with the place under it; None if nothing is."""
    try:
        parse(where)
    except SelectorError as error:
        return str(error)
    return None


def misfit(where: str, pattern: str, topics: Iterable[TopicStatus]) -> str | None:
    """Return what is wrong with a selector, with the place under it; None if nothing is.

    It has to fit one of the declared topics of the pattern, unless there is none, or an open one.
    """
    problem = checked_selector(where)
    if problem is not None:
        return problem
    try:
        wanted = TopicPattern.parse(pattern)
    except TidemarkError as error:
        return str(error)
    for each in topics:
        if each.is_removed or not wanted.matches(each.topic):
            continue
        if each.open or not each.schemas:
            return None
        try:
            Selector.parse(where, Schema.parse(each.schemas[-1]), each.topic)
        except SelectorError as error:
            problem = problem or str(error)
        else:
            return None
    return problem


async def rule_of_user(visit: Visit, user: str, topic: str) -> str:
    """Return the selector by which a user's access to a topic is limited; "" if the broker is open.

    RefusedError if the caller may not administer.
    """
    async with visit.site.connections.use(visit.caller) as client:
        found = await client.ask(ACCESS)
    if found.mode == "open":
        return ""
    answer = try_access(found.text, user, topic)
    return answer.sees if answer.subscribe else "FALSE"
