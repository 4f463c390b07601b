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
#: By how much a step is shorter if the budget did not reach over it and nothing was found, and how often.
SHORTER = 16
SHORTER_MAX = 3
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
    #: there may be more that match, further back than was looked: before this tick; None if there are none
    further: int | None


@dataclass(frozen=True, slots=True)
class _Part:
    """The newest events of one pubend, the oldest first."""

    events: list[Event]
    #: everything after this tick was looked at; None if all that the pubend has was
    beyond: int | None


async def newest_events(
    pubends: Sequence[HostedPubend],
    pattern: str,
    where: str,
    count: int,
    budget: int = BUDGET_BYTES,
    *,
    before: int | None = None,
) -> Recent:
    """Return the `count` newest events that match, before a tick, as far as a budget of bytes reaches.

    Looking again before `Recent.further` goes on without leaving out or repeating an event; so that this
    holds, a few more come if several have the last tick. RefusedError if the selector is wrong, or the caller
    may not read.
    """
    share = max(PIECE_BYTES, budget // max(1, len(pubends)))
    parts = [await _newest_of(each, pattern, where, count, share, before) for each in pubends]
    beyond = max((part.beyond for part in parts if part.beyond is not None), default=None)
    found = [event for part in parts for event in part.events if beyond is None or event.tick > beyond]
    found.sort(key=lambda event: (event.tick, event.pubend), reverse=True)
    if len(found) > count:
        last = found[count - 1].tick
        shown = tuple(event for event in found if event.tick >= last)
        return Recent(shown, last if beyond is not None or len(shown) < len(found) else None)
    return Recent(tuple(found), None if beyond is None else beyond + 1)


async def _newest_of(
    pubend: HostedPubend, pattern: str, where: str, count: int, budget: int, before: int | None
) -> _Part:
    """Step back from the newest event by longer and longer ranges; each is read whole, or not used."""
    status = pubend.status
    oldest = status.lost or 0
    upto = status.last_event or 0
    upto = upto if before is None else min(upto, before - 1)
    step = FIRST_STEP_US
    found: list[Event] = []
    spent, shorter_left = 0, SHORTER_MAX
    while upto > oldest and len(found) < count and spent < budget:
        base = max(oldest, upto - step)
        part: list[Event] = []
        reached = base
        async for events, size, end in _between(pubend, base, upto, pattern, where, budget - spent):
            part += events
            spent += size
            reached = end
        if reached < upto and spent >= budget:
            # The end of the range, where the newest events are, was not reached. (Without a budget that is
            # spent, what is there ends at `reached`: the newest events are not on disk yet.)
            if found or not shorter_left:
                break
            step, spent, shorter_left = step // SHORTER, 0, shorter_left - 1
            continue
        found = part + found
        upto, step = base, step * LONGER
    if len(found) > count:
        return _Part(found[-count:], found[-count].tick - 1)
    return _Part(found, upto if upto > oldest else None)


async def _between(
    pubend: HostedPubend, base: int, upto: int, pattern: str, where: str, budget: int
) -> AsyncIterator[tuple[list[Event], int, int]]:
    """Give the events of a range in parts, with the bytes that each is charged for and where it ends."""
    spent = 0
    while base < upto:
        size = min(PIECE_BYTES, max(4_096, budget - spent))
        fetched = await pubend.client._fetch(pubend.status.pubend, base, upto, pattern, where, bytes_max=size)
        is_whole = fetched.upto >= upto
        charged = size if not is_whole else min(size, _bytes_of(fetched.batch))
        spent += charged
        events = await events_of(pubend.client, fetched.pubend, base, fetched.upto, fetched.batch)
        yield events, charged, fetched.upto
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
