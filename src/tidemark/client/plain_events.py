"""Events and gaps as JSON objects: the form in which commands and the HTTP door hand them out."""

from __future__ import annotations

from typing import Any

from tidemark.client.events import Event, Gap
from tidemark.message.foreign.json.plain import to_json_value


def event_object(event: Event) -> dict[str, Any]:
    """Return an event as a JSON object, with the token of a subscriber that has consumed it."""
    traceparent = event.traceparent
    return {
        "topic": event.topic,
        "pubend": event.pubend,
        "tick": event.tick,
        "time": event.time.isoformat(),
        "key": event.key.decode(errors="replace"),
        **({} if traceparent is None else {"traceparent": traceparent}),
        "value": to_json_value(event.value),
        "checkpoint": event.checkpoint.text(),
    }


def gap_object(gap: Gap) -> dict[str, Any]:
    """Return a gap as a JSON object, with the token of a subscriber that goes on behind it."""
    return {
        "pubend": gap.pubend,
        "base": gap.base,
        "upto": gap.upto,
        "reason": gap.reason,
        "checkpoint": gap.checkpoint.text(),
    }
