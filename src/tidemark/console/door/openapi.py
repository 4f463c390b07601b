"""The OpenAPI document of the HTTP door, made of the same words and limits that the code has."""

from __future__ import annotations

from typing import Any

from tidemark import __version__
from tidemark.console.door.bodies import ARROW, CLOUD_EVENT, CLOUD_EVENTS, EVENTS_MAX, JSON, LINES
from tidemark.console.door.publishing import KEY_CHARACTERS_MAX, VALIDITY_SECONDS_MAX
from tidemark.console.door.requests import ACK_SECONDS, ACK_SECONDS_MAX, ACK_SECONDS_MIN
from tidemark.console.options import BODY_BYTES_MAX

_OBJECT = {"type": "object", "additionalProperties": True}
_TOKEN = {"type": "string", "pattern": r"^tm1\."}
_ERRORS = {
    400: "The request cannot be understood.",
    401: "Log in, with Basic or Bearer.",
    403: "The user may not do this.",
    404: "There is no such topic.",
    409: "Another request with this Idempotency-Key is under way.",
    413: "The body is too long, or has too many events.",
    415: "The type of content is not known.",
    422: "The events, the selector or the token do not fit.",
    429: "A limit or a quota was reached.",
    503: "No broker can be reached just now.",
    504: "The broker did not answer in time.",
    507: "The broker's disk is full.",
}


def openapi_document() -> dict[str, Any]:
    """Return the document (OpenAPI 3.1)."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidemark over HTTP",
            "version": __version__,
            "description": "Publish events, and read them as they come, exactly once and in order.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/topics/{topic}/events": {"post": _publish(), "get": _stream()},
            "/subscriptions/{name}/checkpoint": {"put": _checkpoint()},
        },
        "components": {
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
            "schemas": {"Published": _published(), "Error": _error()},
        },
        "security": [{}, {"basic": []}, {"bearer": []}],
    }


def _publish() -> dict[str, Any]:
    return {
        "operationId": "publish",
        "summary": "Publish events; the answer comes when all are on disk.",
        "parameters": [
            _path("topic", "The topic."),
            _query("key", "The key of the events.", {"type": "string"}),
            _query("priority", "From 0 to 9.", {"type": "integer", "minimum": 0, "maximum": 9}),
            _query(
                "validity",
                "Seconds after which the events are not delivered any more.",
                {"type": "number", "minimum": 0.001, "maximum": VALIDITY_SECONDS_MAX},
            ),
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "A request that is repeated with its key is logged once.",
                "schema": {"type": "string", "minLength": 1, "maxLength": KEY_CHARACTERS_MAX},
            },
            {
                "name": "traceparent",
                "in": "header",
                "description": "W3C Trace Context; the events carry a sampled one to their readers.",
                "schema": {"type": "string"},
            },
        ],
        "requestBody": {
            "required": True,
            "description": f"At most {BODY_BYTES_MAX:,} bytes and {EVENTS_MAX:,} events.",
            "content": {
                JSON: {"schema": {"oneOf": [_OBJECT, {"type": "array", "items": _OBJECT}]}},
                LINES: {"schema": {"type": "string"}},
                CLOUD_EVENT: {"schema": _OBJECT},
                CLOUD_EVENTS: {"schema": {"type": "array", "items": _OBJECT}},
                ARROW: {"schema": {"type": "string", "format": "binary"}},
            },
        },
        "responses": {
            "201": _json("The events are on disk.", {"$ref": "#/components/schemas/Published"}),
            **_errors(400, 401, 403, 404, 409, 413, 415, 422, 429, 503, 504, 507),
        },
    }


def _stream() -> dict[str, Any]:
    seconds = {
        "type": "number",
        "minimum": ACK_SECONDS_MIN,
        "maximum": ACK_SECONDS_MAX,
        "default": ACK_SECONDS,
    }
    return {
        "operationId": "subscribe",
        "summary": "Read events as they come, as Server-Sent Events, or over a WebSocket.",
        "parameters": [
            _path("topic", "A topic, or a pattern such as trades.>"),
            _query("where", "A selector, such as price > 10.", {"type": "string"}),
            _query("durable", "The name of a durable subscription.", {"type": "string"}),
            _query("start", "earliest, now, an ISO 8601 time or a token.", {"type": "string"}),
            _query("ack_seconds", "When a durable stream ends, to be acknowledged.", seconds),
            {
                "name": "Last-Event-ID",
                "in": "header",
                "description": "The checkpoint token behind which to go on.",
                "schema": _TOKEN,
            },
            _query("last_event_id", "The same as the header, for pages that keep the token.", _TOKEN),
        ],
        "responses": {
            "200": {
                "description": "The events; the id of each is the checkpoint token behind it.",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            },
            **_errors(400, 401, 403, 422, 429, 503, 504),
        },
    }


def _checkpoint() -> dict[str, Any]:
    return {
        "operationId": "acknowledge",
        "summary": "Say how far the reader of a durable stream has got.",
        "parameters": [_path("name", "The durable subscription.")],
        "requestBody": {"required": True, "content": {"text/plain": {"schema": _TOKEN}}},
        "responses": {
            "200": _json("The acknowledgement is on disk.", _OBJECT),
            "404": _json("No stream of it is open here.", {"$ref": "#/components/schemas/Error"}),
            **_errors(400, 401, 403, 422, 503, 504),
        },
    }


def _published() -> dict[str, Any]:
    tick = {"type": ["integer", "null"], "description": "Null for what was on disk before."}
    return {
        "type": "object",
        "required": ["topic", "events", "ticks"],
        "properties": {
            "topic": {"type": "string"},
            "events": {"type": "integer"},
            "ticks": {"type": "array", "items": tick},
        },
    }


def _error() -> dict[str, Any]:
    text = {"type": "string"}
    inside = {"type": "object", "required": ["code", "reason"], "properties": {"code": text, "reason": text}}
    return {"type": "object", "required": ["error"], "properties": {"error": inside}}


def _path(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": {"type": "string"},
    }


def _query(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _errors(*statuses: int) -> dict[str, Any]:
    return {
        str(status): _json(_ERRORS[status], {"$ref": "#/components/schemas/Error"}) for status in statuses
    }
