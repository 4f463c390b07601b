"""Where the n-th event of a range lies: counting for bulk readers, who need not fetch events for that.

A Spark query that takes so many events at a time has to know where they end before its tasks fetch them. The
broker reads its log as for fetches, a part at a time, with the same topics, selector and rights, and tells
only a tick and a number. It ends early before history that the log does not have any more or has damaged:
whoever asks may have it elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tidemark.broker.publishing.fetching import FETCH_BYTES_MAX, Fetching, Refusing
from tidemark.errors import WireError
from tidemark.wire.answers import EventsReached
from tidemark.wire.fields import check_position
from tidemark.wire.frames import Fetch, Fetched

#: The events that may be asked for, and parts of the log that are read for one answer at the most; whoever
#: asks goes on from there with another question.
EVENTS_MAX = 1 << 40
READS_MAX = 64
#: The size of an ordinary event; it only decides how much is read at once.
EVENT_BYTES = 512

Told = Callable[[EventsReached], None]


def range_of(given: Mapping[str, object]) -> tuple[Fetch, int]:
    """Return what the arguments of the question `reach` ask for, and how many events; WireError."""
    pubend, pattern, selector = (given.get(name) for name in ("pubend", "pattern", "selector"))
    base, upto, events = (given.get(name) for name in ("base", "upto", "events"))
    if not (isinstance(pubend, str) and isinstance(pattern, str) and isinstance(selector, str)):
        raise WireError("pubend, pattern and selector are text")
    if not (type(base) is int and type(upto) is int and type(events) is int):
        raise WireError("base, upto and events are integers")
    check_position("base", base)
    check_position("upto", upto)
    if base > upto:
        raise WireError(f"({base}, {upto}] is not a range")
    if not 1 <= events <= EVENTS_MAX:
        raise WireError(f"{events} events cannot be asked for: 1 to {EVENTS_MAX} can")
    return Fetch(0, pubend, base, upto, pattern, selector, FETCH_BYTES_MAX), events


class EventSearch:
    """The search for the tick up to which a range has so many events, for one client."""

    def __init__(
        self,
        fetching: Fetching,
        client: int,
        asked: Fetch,
        events: int,
        told: Told,
        refused: Refusing,
        *,
        sees_all: bool = True,
    ) -> None:
        """Begin. `told` gets the answer, or `refused` why not, unless the client is gone by then.

        For a client that does not see everything (`sees_all`) whole pieces are read, since the answer may say
        where the last one ended.
        """
        self._sees_all = sees_all
        self._fetching = fetching
        self._client = client
        self._asked = asked
        self._left = events
        self._found = self._reads = 0
        self._told = told
        self._refused = refused
        self._read(asked.base)

    def _read(self, base: int) -> None:
        self._reads += 1
        size = min(FETCH_BYTES_MAX, self._left * EVENT_BYTES) if self._sees_all else FETCH_BYTES_MAX
        asked = replace(self._asked, base=base, bytes_max=size)
        refusal = self._fetching.read_for(self._client, asked, self._answered, self._refused)
        if refusal is not None:
            self._refused(*refusal)

    def _answered(self, answer: Fetched) -> None:
        if answer.lost > answer.base or answer.damaged:
            self._tell(answer.base, is_whole=False)
            return
        count = 0 if answer.batch is None else answer.batch.count
        if answer.batch is not None and count >= self._left:
            self._found += self._left
            self._tell(int(answer.batch.ticks[self._left - 1]))
            return
        self._found += count
        self._left -= count
        is_at_end = answer.upto >= self._asked.upto or answer.upto <= answer.base
        if is_at_end or self._reads >= READS_MAX:
            self._tell(answer.upto)
        else:
            self._read(answer.upto)

    def _tell(self, upto: int, *, is_whole: bool = True) -> None:
        self._told(EventsReached(upto, self._found, is_whole))
