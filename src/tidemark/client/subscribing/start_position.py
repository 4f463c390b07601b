"""Where a new subscription starts: now, or in the past.

A start becomes a checkpoint token with a tick for every pubend of the overlay. The start of a durable
subscription counts only once: one that the broker already has goes on where it was, so that the same program
may be started again and again. A subscription that is not durable starts there every time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Literal

from tidemark.errors import ClientError, RefusedError
from tidemark.ticks import CheckpointToken

#: Where a new subscription starts: at the oldest event there is, at a time, or behind a token.
Start = Literal["earliest"] | datetime | CheckpointToken
Ask = Callable[..., Awaitable[Any]]

#: Before the tick of any event: ticks are microseconds since 1970.
EARLIEST = 0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def starting_token(ask: Ask, name: str | None, start: Start) -> CheckpointToken | None:
    """The token at which the durable subscription `name` starts; None if the broker has that subscription.

    A subscription without a name is not durable, and no broker has it. `ask` sends a question to the broker,
    as Client.ask does. RefusedError if the broker refuses to answer.
    """
    from tidemark.wire.answers import STREAMS

    if name is not None and await _is_there(ask, name):
        return None
    if isinstance(start, CheckpointToken):
        return start
    tick = EARLIEST if start == "earliest" else tick_before(start)
    return CheckpointToken({each.pubend: tick for each in STREAMS.read(await ask("streams"))})


async def _is_there(ask: Ask, name: str) -> bool:
    try:
        await ask("subscription", name=name)
    except RefusedError as error:
        if error.code == "moved":
            return True  # another worker has it, and this client is sent there when it subscribes
        if error.code != "unknown":
            raise
        return False
    return True


def tick_before(moment: datetime) -> int:
    """The tick right before `moment`: a subscription that starts there gets the events of `moment`."""
    past = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return (past.days * 86_400 + past.seconds) * 1_000_000 + past.microseconds - 1


def check_start(start: Start | None, now: datetime) -> None:
    """Raise ClientError if `start` is no start, or not in the past."""
    if start is None:
        return
    if isinstance(start, datetime):
        if tick_before(start) > tick_before(now):
            raise ClientError(
                f"the start {start.isoformat()} is not in the past: it is {now.isoformat()} now"
            )
    elif start != "earliest" and not isinstance(start, CheckpointToken):
        raise ClientError(f'start is "earliest", a datetime or a CheckpointToken, not {start!r}')
