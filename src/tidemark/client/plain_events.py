"""Events and gaps as JSON objects: the form in which commands and the HTTP door hand them out."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict, cast

from tidemark.client.events import Event, Gap
from tidemark.message.foreign.json.plain import to_json_value


class EventObject(TypedDict):
    """An event."""

    topic: str
    pubend: str
    tick: int
    #: in the form of ISO 8601
    time: str
    key: str
    #: the trace that the event belongs to, if it was published in one
    traceparent: NotRequired[str]
    value: Any
    #: the token of a subscriber that has consumed the event
    checkpoint: str


class GapObject(TypedDict):
    """Ticks of a pubend whose events are gone: those in `(base, upto]`."""

    pubend: str
    base: int
    upto: int
    reason: str
    #: the token of a subscriber that goes on behind the gap
    checkpoint: str


def event_object(event: Event) -> EventObject:
    """Return an event as a JSON object."""
    traceparent = event.traceparent
    found = {
        "topic": event.topic,
        "pubend": event.pubend,
        "tick": event.tick,
        "time": event.time.isoformat(),
        "key": event.key.decode(errors="replace"),
        **({} if traceparent is None else {"traceparent": traceparent}),
        "value": to_json_value(event.value),
        "checkpoint": event.checkpoint.text(),
    }
    return cast(EventObject, found)


def gap_object(gap: Gap) -> GapObject:
    """Return a gap as a JSON object."""
    return {
        "pubend": gap.pubend,
        "base": gap.base,
        "upto": gap.upto,
        "reason": gap.reason,
        "checkpoint": gap.checkpoint.text(),
    }
