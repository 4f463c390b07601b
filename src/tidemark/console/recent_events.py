"""The newest events, read from the pubends' logs in bulk, within a budget of bytes.

A console does not subscribe to show what is new: a subscription would bring it everything that is published,
however much that is. It reads the last part of each pubend's log instead, as far back as it needs and its
budget reaches, so that a page costs a broker the same under any load.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from tidemark.client.client import Client
from tidemark.client.events import Event, EventRows
from tidemark.client.subscribing.inbox import InboxCursor, InboxEntry
from tidemark.wire.answers import PubendStatus

#: Bytes that are read from the logs for one look.
BUDGET_BYTES = 1 << 20
#: Microseconds of the first step back, and by how much each further one is longer.
FIRST_STEP_US = 10_000
LONGER = 4
PIECE_BYTES = 128 << 10


@dataclass(frozen=True, slots=True)
class HostedPubend:
    """A pubend, and the client of the broker that hosts it."""

    client: Client
    status: PubendStatus


@dataclass(frozen=True, slots=True)
class Recent:
    """The newest events, the newest first."""

    events: tuple[Event, ...]
    #: how many events of the topic were looked at; what matched is among them
    looked_at: int
    #: there may be more that match, further back than was looked
    is_cut: bool
    #: the microseconds, back from the newest, that were looked at in all pubends
    reach_us: int


async def newest_events(
    pubends: Sequence[HostedPubend], pattern: str, where: str, count: int, budget: int = BUDGET_BYTES
) -> Recent:
    """Return the `count` newest events that match, as far as a budget of bytes reaches.

    RefusedError if the selector is wrong, or the caller may not read.
    """
    found: list[Event] = []
    share = max(PIECE_BYTES, budget // max(1, len(pubends)))
    is_cut = False
    reach = 0
    for pubend in pubends:
        events, was_cut, reached = await _newest_of(pubend, pattern, where, count, share)
        found += events
        is_cut |= was_cut
        reach = max(reach, reached)
    found.sort(key=lambda event: event.tick, reverse=True)
    return Recent(tuple(found[:count]), len(found), is_cut or len(found) > count, reach)


async def _newest_of(
    pubend: HostedPubend, pattern: str, where: str, count: int, budget: int
) -> tuple[list[Event], bool, int]:
    status = pubend.status
    if status.last_event is None:
        return [], False, 0
    oldest = status.lost or 0
    upto, step = status.last_event, FIRST_STEP_US
    found: list[Event] = []
    spent = 0
    while upto > oldest and len(found) < count and spent < budget:
        base = max(oldest, upto - step)
        part: list[Event] = []
        async for events, size in _between(pubend, base, upto, pattern, where, budget - spent):
            part += events
            spent += size
        found = part + found
        upto, step = base, step * LONGER
    found = found[-count:] if len(found) > count else found
    return found, upto > oldest, status.last_event - upto


async def _between(
    pubend: HostedPubend, base: int, upto: int, pattern: str, where: str, budget: int
) -> AsyncIterator[tuple[list[Event], int]]:
    """Give the events of a range in parts, with the bytes that each part is charged for."""
    spent = 0
    while base < upto:
        size = min(PIECE_BYTES, max(4_096, budget - spent))
        fetched = await pubend.client._fetch(pubend.status.pubend, base, upto, pattern, where, bytes_max=size)
        is_whole = fetched.upto >= upto
        charged = size if not is_whole else min(size, _bytes_of(fetched.batch))
        spent += charged
        yield await events_of(pubend.client, fetched.pubend, base, fetched.upto, fetched.batch), charged
        if fetched.upto <= base or spent >= budget:
            return
        base = fetched.upto


def _bytes_of(batch: object) -> int:
    data = getattr(batch, "data", b"")
    return len(data)


async def events_of(client: Client, pubend: str, base: int, upto: int, batch: object) -> list[Event]:
    """Return the events of a batch that was fetched; those that cannot be decoded are left out."""
    from tidemark.message.batches.batch import EventBatch

    if not isinstance(batch, EventBatch) or not batch.count:
        return []
    topics = client._topics
    await topics.fetch(batch)
    readable, _ = topics.without_damaged(batch)
    if readable is None:
        return []
    cursor = InboxCursor(InboxEntry(pubend, base, upto, readable), {})
    rows = EventRows(cursor, topics)
    return [Event(rows, row) for row in range(readable.count)]
