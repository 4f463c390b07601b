"""Events in the bodies of requests: JSON, CloudEvents and Arrow, as values that a client publishes.

A declared topic's schema says what a JSON text stands for; in an open topic JSON speaks for itself. Of a
CloudEvent the data are the fields, and its attributes are fields named `ce_id`, `ce_source` and so on: all of
them in an open topic, and those that its schema has in a declared one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.console.door.arrow_bodies import rows_of_arrow
from tidemark.console.problems import ProblemError
from tidemark.errors import EncodeError
from tidemark.message.foreign.infer import infer
from tidemark.message.foreign.json.values import parsed_json, untyped_value, value_of_plain
from tidemark.message.schema import Schema

JSON = "application/json"
LINES = "application/x-ndjson"
CLOUD_EVENT = "application/cloudevents+json"
CLOUD_EVENTS = "application/cloudevents-batch+json"
ARROW = "application/vnd.apache.arrow.stream"
TYPES = (JSON, LINES, CLOUD_EVENT, CLOUD_EVENTS, ARROW)
#: Events in one request.
EVENTS_MAX = 100_000
ATTRIBUTE = "ce_"
#: What the CloudEvents of version 1.0 must have.
_REQUIRED = ("id", "source", "type")


@dataclass(frozen=True, slots=True)
class TopicForm:
    """How values of a topic are written: by the newest schema of a declared one, or as they come."""

    topic: str
    schema: Schema | None

    def value(self, plain: Any) -> Any:
        """Return the event that parsed JSON stands for; EncodeError if it does not fit."""
        if self.schema is not None:
            return value_of_plain(plain, self.schema)
        value = untyped_value(plain)
        if not isinstance(value, dict):
            raise EncodeError('an event is a JSON object, like {"price": 10.5}')
        # Events of a request are published together, so none is begun with if one of them has no type.
        infer(value)
        return value

    def has(self, name: str) -> bool:
        """Whether an event of the topic may have a field of this name."""
        return self.schema is None or self.schema.holder((name,)) is not None


def values_of(form: TopicForm, content_type: str, headers: Mapping[str, str], body: bytes) -> Sequence[Any]:
    """Return the events of a body, in order.

    ProblemError 415 for another type of content, 400 if the body is not of its type; EncodeError, with the
    number of the event, for one that does not fit the topic.
    """
    kind = content_type.partition(";")[0].strip().lower()
    match kind:
        case "application/json" if headers.get("ce-specversion"):
            return [_of_cloud_event(form, _in_headers(headers, _json(body)))]
        case "application/json":
            return _fitting(form, _listed(_json(body)))
        case "application/x-ndjson":
            lines = [line for line in _text(body).split("\n") if line.strip()]
            return _fitting(form, [_json(line.encode()) for line in lines])
        case "application/cloudevents+json":
            return [_of_cloud_event(form, _json(body))]
        case "application/cloudevents-batch+json":
            found = _json(body)
            if not isinstance(found, list):
                raise ProblemError(400, "request", "a batch of CloudEvents is a JSON array")
            return [_of_cloud_event(form, each) for each in _bounded(found)]
        case "application/vnd.apache.arrow.stream":
            return rows_of_arrow(body, EVENTS_MAX)
    raise ProblemError(
        415, "request", f"the type of content {kind or 'none'!r} is not one of {', '.join(TYPES)}"
    )


def _fitting(form: TopicForm, plain: Sequence[Any]) -> list[Any]:
    values = []
    for number, each in enumerate(_bounded(plain), start=1):
        try:
            values.append(form.value(each))
        except EncodeError as error:
            if len(plain) == 1:
                raise
            raise EncodeError(f"event {number}: {error.reason}", path=error.path) from None
    return values


def _of_cloud_event(form: TopicForm, found: Any) -> Any:
    if not isinstance(found, dict):
        raise ProblemError(400, "request", "a CloudEvent is a JSON object")
    lacking = [name for name in _REQUIRED if not isinstance(found.get(name), str) or not found[name]]
    if lacking:
        raise ProblemError(
            422, "schema", f"a CloudEvent has {', '.join(_REQUIRED)}; {lacking[0]} is not there"
        )
    data = found.get("data", {})
    fields = dict(data) if isinstance(data, dict) else {"data": data}
    if "data_base64" in found:
        fields["data"] = found["data_base64"]
    for name, value in found.items():
        field = ATTRIBUTE + name
        if name not in ("data", "data_base64") and form.has(field):
            fields.setdefault(field, value)
    return form.value(fields)


def _in_headers(headers: Mapping[str, str], data: Any) -> dict[str, Any]:
    """A CloudEvent in binary mode: its attributes are in headers, its data is the body."""
    attributes = {name[3:]: value for name, value in headers.items() if name.startswith("ce-")}
    return {**attributes, "data": data}


def _json(body: bytes) -> Any:
    try:
        return parsed_json(body)
    except EncodeError as error:
        raise ProblemError(400, "request", f"the body is {error.reason}") from None


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise ProblemError(400, "request", f"the body is not UTF-8: {error}") from None


def _listed(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [found]


def _bounded(found: Sequence[Any]) -> Sequence[Any]:
    if len(found) > EVENTS_MAX:
        raise _too_many(len(found))
    return found


def _too_many(count: int) -> ProblemError:
    return ProblemError(
        413, "limit", f"{count:,} events are over the limit of {EVENTS_MAX:,} a request: send them in parts"
    )
