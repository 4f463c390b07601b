"""PUT /subscriptions/N/checkpoint: a reader says how far it has got, so that brokers can release that."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tidemark.console.callers import Caller, Connections
from tidemark.console.door.requests import read_body
from tidemark.console.problems import ProblemError
from tidemark.ticks import CheckpointToken

#: A token has a tick for each pubend of the overlay.
TOKEN_BYTES_MAX = 64 << 10


async def put_checkpoint(request: Request, caller: Caller, connections: Connections) -> Response:
    """Acknowledge, for a stream that is open at this console, everything up to the token in the body."""
    name = request.path_params["name"]
    text = (await read_body(request, TOKEN_BYTES_MAX)).decode(errors="replace").strip()
    token = CheckpointToken.parse(text)
    subscription = connections.durable(caller, name)
    if subscription is None:
        raise ProblemError(
            404,
            "unknown",
            f"no stream of the durable subscription {name!r} is open here: open one with "
            "GET /topics/TOPIC/events?durable=NAME and the token as Last-Event-ID, which acknowledges too",
        )
    await subscription.ack(token, sync=True)
    return JSONResponse({"name": name, "checkpoint": token.text()})
