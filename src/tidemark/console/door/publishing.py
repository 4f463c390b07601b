"""POST /topics/T/events: events into a topic, on disk when the answer comes.

A request with an `Idempotency-Key` is published under a publisher's name that is made of the key, with the
numbers 1, 2, 3 ... for its events. So the broker itself knows a repetition, however the console, the broker
or the connection failed in between, and logs nothing twice while it remembers the name (docs/http.md).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tidemark.client.client import Client
from tidemark.client.connecting.pending_requests import within
from tidemark.console.callers import Caller, Connections
from tidemark.console.door.bodies import TopicForm, values_of
from tidemark.console.door.requests import BodyMemory, number_of, plain_headers
from tidemark.console.options import BODY_SMALL_BYTES
from tidemark.console.problems import ProblemError
from tidemark.message.batches.batch import PRIORITY_DEFAULT
from tidemark.message.batches.trace_context import sampled_traceparent
from tidemark.message.publisher_names import made_name
from tidemark.message.schema import Schema

KEY_CHARACTERS_MAX = 255
#: Seconds after which an event may at the most still be delivered, if it says so at all.
VALIDITY_SECONDS_MAX = 366 * 86_400.0
#: Keys whose bodies are remembered, to tell a repetition from another request under the same key.
KEYS_MAX = 16_384
#: A broker has so long to say what a topic is.
DESCRIBE_SECONDS = 10.0
#: The fingerprint of no shape: whoever asks for it wants to know of an open topic only that it is open.
NO_SHAPE = 0
_PARAMETERS = {"key", "priority", "validity"}


class Publishing:
    """Publishes what requests bring."""

    def __init__(self, connections: Connections, memory: BodyMemory) -> None:
        """`memory` is shared with the pages: what all bodies of requests have together."""
        self._connections = connections
        self._memory = memory
        #: publisher's name that was made of a key -> digest of the body
        self._bodies: OrderedDict[str, bytes] = OrderedDict()

    async def publish(self, request: Request, caller: Caller) -> Response:
        """Answer 201 with the ticks of the events once all are on disk; errors as `problems` has them."""
        topic = request.path_params["topic"]
        options = _options(dict(request.query_params))
        headers = plain_headers(request)
        options["traceparent"] = sampled_traceparent(headers.get("traceparent", ""))
        key = headers.get("idempotency-key")
        # Nobody fills the memory of bodies whom the broker does not let in.
        async with self._connections.use(caller) as client, self._memory.read(request) as body:
            form = await topic_form(client, topic)
            values = await _values(form, headers, body)
            if key is None:
                ticks = list(await client.publish_many(topic, values, **options))
            else:
                ticks = await self._publish_once(caller, key, body, topic, values, options)
        return JSONResponse({"topic": topic, "events": len(ticks), "ticks": ticks}, status_code=201)

    async def _publish_once(
        self, caller: Caller, key: str, body: bytes, topic: str, values: Any, options: dict[str, Any]
    ) -> list[int | None]:
        name = publisher_of_key(caller, topic, key)
        digest = hashlib.sha256(body).digest()
        if self._bodies.setdefault(name, digest) != digest:
            raise ProblemError(
                422,
                "sequence",
                "this Idempotency-Key was used for another body: it stands for one request",
            )
        self._bodies.move_to_end(name)
        if len(self._bodies) > KEYS_MAX:
            self._bodies.popitem(last=False)
        async with self._connections.made(caller, publisher=name) as publisher:
            return list(await publisher.publish_many(topic, values, sequence=1, **options))


async def _values(form: TopicForm, headers: dict[str, str], body: bytes) -> Sequence[Any]:
    """Return the events of a body; of a large one they are read on a thread, so that other requests go on."""
    kind = headers.get("content-type", "")
    if len(body) <= BODY_SMALL_BYTES:
        return values_of(form, kind, headers, body)
    return await asyncio.to_thread(values_of, form, kind, headers, body)


async def topic_form(client: Client, topic: str) -> TopicForm:
    """Return how values of a topic are written; a topic that does not exist yet takes any fields.

    NotConnectedError if there is no broker now, TimedOutError if it does not answer.
    """
    asked = f"the question for {topic!r} to {client.broker}"
    answer = await within(client._topics.describe(topic, (NO_SHAPE,)), asked, DESCRIBE_SECONDS)
    is_declared = bool(answer.schemas) and not answer.is_open
    return TopicForm(topic, Schema.parse(answer.schemas[-1]) if is_declared else None)


def publisher_of_key(caller: Caller, topic: str, key: str) -> str:
    """Return the publisher's name that a key of a caller stands for; ProblemError 400 for no sensible key."""
    if not 1 <= len(key) <= KEY_CHARACTERS_MAX:
        raise ProblemError(400, "request", f"an Idempotency-Key has 1 to {KEY_CHARACTERS_MAX} characters")
    text = "\0".join((caller.identity, topic, key))
    return made_name(hashlib.sha256(text.encode()).hexdigest()[:16])


def _options(query: dict[str, str]) -> dict[str, Any]:
    unknown = sorted(set(query) - _PARAMETERS)
    if unknown:
        raise ProblemError(400, "request", f"there is no parameter {unknown[0]!r}: key, priority, validity")
    priority = number_of(query, "priority", 0, 9)
    return {
        "key": query.get("key", ""),
        "priority": PRIORITY_DEFAULT if priority is None else int(priority),
        "validity": number_of(query, "validity", 0.001, VALIDITY_SECONDS_MAX),
    }
