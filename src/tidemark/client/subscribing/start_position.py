"""Where a new durable subscription starts: now, or in the past.

A start is a token for every pubend of the overlay. It counts once: a subscription that is there already goes
on where it was, so that the same program may be started again and again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Literal

from tidemark.errors import ClientError, RefusedError
from tidemark.ticks import CheckpointToken

Start = Literal["earliest"] | datetime | CheckpointToken
Ask = Callable[..., Awaitable[Any]]

#: Before the tick of any event: ticks are microseconds since 1970.
EARLIEST = 0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def starting_token(ask: Ask, name: str, start: Start) -> CheckpointToken | None:
    """Return the token of a start; None if the broker has the subscription, which goes on where it was."""
    from tidemark.wire.answers import STREAMS

    try:
        await ask("subscription", name=name)
    except RefusedError as error:
        if error.code != "unknown":
            raise
    else:
        return None
    if isinstance(start, CheckpointToken):
        return start
    tick = EARLIEST if start == "earliest" else tick_before(start)
    return CheckpointToken({each.pubend: tick for each in STREAMS.read(await ask("streams"))})


def tick_before(moment: datetime) -> int:
    """The tick right before a moment: what starts there gets the events of that microsecond, too."""
    past = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return (past.days * 86_400 + past.seconds) * 1_000_000 + past.microseconds - 1


def check_start(start: Start | None, durable: str | None, now: datetime) -> None:
    """ClientError for what cannot be meant."""
    if start is None:
        return
    if durable is None:
        raise ClientError("only a durable subscription starts in the past: give it a name with durable=...")
    if isinstance(start, datetime):
        if tick_before(start) > tick_before(now):
            raise ClientError(f"the start {start.isoformat()} is not in the past")
    elif start != "earliest" and not isinstance(start, CheckpointToken):
        raise ClientError(f'start is "earliest", a datetime or a CheckpointToken, not {start!r}')
