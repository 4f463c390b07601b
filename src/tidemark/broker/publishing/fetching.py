"""Fetching: reads of the pubends' logs in bulk, or of ranges that no stream carries any more.

A reader names a range and a selector, and gets a first part of the range with the tick that the part reaches.
A reader follows no stream and holds nothing back: it is told of what was let go before it was read. A fetch
goes, broker by broker, to the one that hosts the pubend, and its answer comes back the same way.

A fetch that is under way is not asked again: an asker and its ticket are one question, however often the
question comes. A broker on the way repeats a fetch of its own accord, from soft state: when it takes the
pubend from another neighbour, and when the answer is later than answers of that neighbour have been. What is
under way from one neighbour is bounded by how fast its answers come (`ticks.pace`): a fetch is passed on for
as many bytes as fit, and waits while nothing does. Of those that wait for a neighbour the oldest goes
first, and none is looked at while the way to that neighbour is full.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from heapq import heapify, heappop, heapreplace
from typing import Protocol

import numpy as np

from tidemark.broker.effects import FetchLog, LogFetched, SendClient, SendPeer
from tidemark.broker.publishing.pubend import Pubend
from tidemark.broker.streams.stream import Stream
from tidemark.broker.turn import Turn
from tidemark.errors import TidemarkError, WireError
from tidemark.matching.audience import Audience
from tidemark.matching.selectors.parser import parse
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.batch import EventBatch, concatenate
from tidemark.message.batches.columns import Bools
from tidemark.message.registry import Registry
from tidemark.message.topic_selector import TopicSelector
from tidemark.ticks import Pace, Range
from tidemark.wire.frames import Fetch, Fetched, Refused

#: Bytes read for one answer at the most: publishers wait for the log until the read that runs has ended.
FETCH_BYTES_MAX = 2 << 20
#: Batches that are put together for one answer, and topics whose events are matched for it, each by a matcher
#: of its own; what comes after them is left for the next question.
FETCH_BATCHES_MAX = 1_024
FETCH_TOPICS_MAX = 32
#: Bytes that are under way from one neighbour in answers to fetches: at the least, at first, at the most.
UNDER_WAY_BYTES_MIN = 4 << 10
UNDER_WAY_BYTES = 8 << 10
UNDER_WAY_BYTES_MAX = 8 * FETCH_BYTES_MAX
#: Fetches of one client that are under way, of one neighbour, and of all clients and neighbours together.
FETCHES_MAX = 64
PASSED_MAX = 1_024
FETCHES_ALL_MAX = 16_384
#: Microseconds after which a fetch that is not answered is passed on again: at the least, and at the most.
AGAIN_US = 1_000_000
AGAIN_US_MAX = 30_000_000
#: Selectors of readers whose matchers are kept, and the bytes that the matchers of each may take, about.
_READERS_KEPT_MAX = 32
READER_BYTES_MAX = 8 << 20
_MEMBER = 1

Answered = Callable[[Fetched], None]
#: takes why a fetch is not answered: one of REFUSALS, and a reason
Refusing = Callable[[str, str], None]


class Rules(Protocol):
    """What clients may see: the access control of the broker."""

    @property
    def is_open(self) -> bool:
        """Whether everybody may see everything."""

    def fetched(self, client: int, asked: Fetch, answer: Fetched) -> Fetched | Refused:
        """Return what of the answer to its fetch a client may see, or why it is given none."""


@dataclass(slots=True)
class _FetchAsked:
    """A fetch under way, under a ticket of this broker."""

    #: the client or neighbour that asked; None if this broker asks for itself
    owner: int | str | None
    #: the fetch as it was asked, with the asker's ticket
    frame: Fetch
    answered: Answered
    #: whom to tell that the fetch cannot be answered; None if it waits until it can
    refused: Refusing | None = None
    #: the neighbour that was asked; None while the fetch waits, or if this broker reads the log itself
    upstream: str | None = None
    #: bytes that were asked for, how often, and the monotonic times of the first time and of the last
    size: int = 0
    tries: int = 0
    first: int = 0
    last: int = 0


class _Way:
    """What was asked of one neighbour."""

    def __init__(self) -> None:
        self.pace = Pace(
            UNDER_WAY_BYTES_MIN,
            UNDER_WAY_BYTES,
            UNDER_WAY_BYTES_MAX,
            patience_us=AGAIN_US,
            patience_us_max=AGAIN_US_MAX,
        )
        #: bytes that were asked for and whose answer may still come
        self.under_way = 0
        #: tickets of the fetches whose answers may still come
        self.tickets: dict[int, None] = {}

    @property
    def has_room(self) -> bool:
        """Whether one more fetch may be passed on."""
        return self.under_way < self.pace.limit


class Fetching:
    """All fetches that are under way at one broker."""

    def __init__(
        self,
        pubends: Mapping[str, Pubend],
        streams: Mapping[str, Stream],
        registry: Registry,
        turn: Turn,
        rules: Rules,
    ) -> None:
        #: pubend hosted here -> itself; the broker's own, which only the broker changes
        self._pubends = pubends
        #: pubend of the layout -> its stream; the broker's own, which only the broker changes
        self._streams = streams
        #: the topics that the broker knows; only `Topics` adds to them
        self._registry = registry
        self._turn = turn
        self._rules = rules
        self._out = turn.out
        self._counters = turn.counters
        self._next = 1
        self._asked: dict[int, _FetchAsked] = {}
        #: client or neighbour -> ticket of the asker -> ticket here
        self._of_owner: dict[int | str, dict[int, int]] = {}
        #: how many of these clients and neighbours have asked for
        self._of_others = 0
        #: pubend -> tickets of fetches that wait until they can be passed on, in order; never empty. Unlike
        #: that of a dict, the first one is found at once after many were taken from the front
        self._waiting: dict[str, OrderedDict[int, None]] = {}
        #: tickets of fetches whose next event is of a topic that is not known here
        self._puzzled: dict[int, None] = {}
        #: neighbour -> what was asked of it on the link that is up
        self._ways: dict[str, _Way] = {}
        self._audience = lru_cache(_READERS_KEPT_MAX)(self._make_audience)

    # Askers.

    def asked(self, client: int, frame: Fetch) -> None:
        """A client wants to read; it is answered with a Fetched, or refused."""
        known = self._of_owner.get(client, {}).get(frame.ticket)
        if known is not None and self._asked[known].frame == frame:
            self._counters["fetches_repeated"] += 1
            return
        with self._turn.looking:
            refusal = self._refusal(client, frame)
        if refusal is not None:
            self._out.add(SendClient(client, Refused("fetch", str(frame.ticket), *refusal)))
        else:
            refused = partial(self._refuse, client, frame)
            self._take(client, frame, partial(self._tell, client, frame), refused)

    def read_for(
        self, client: int, frame: Fetch, answered: Answered, refused: Refusing
    ) -> tuple[str, str] | None:
        """Read for a question of a client, which is not sent the events; return why not, or None.

        It counts as one of the client's fetches, and ends with its connection. `refused` is told if the
        reading cannot go on.
        """
        with self._turn.looking:
            own = replace(frame, ticket=-self._next)  # clients have tickets above zero
            refusal = self._refusal(client, own)
        if refusal is None:
            self._take(client, own, answered, refused)
        return refusal

    def _refuse(self, client: int, frame: Fetch, code: str, reason: str) -> None:
        self._out.add(SendClient(client, Refused("fetch", str(frame.ticket), code, reason)))

    def _tell(self, client: int, frame: Fetch, fetched: Fetched) -> None:
        self._out.add(SendClient(client, self._rules.fetched(client, frame, fetched)))

    def passed(self, peer: str, frame: Fetch) -> None:
        """A neighbour passes a fetch on; one too many, or one that cannot be read, is dropped."""
        if frame.ticket in self._of_owner.get(peer, ()):
            self._counters["fetches_repeated"] += 1
            return
        is_one_too_many = len(self._of_owner.get(peer, ())) >= PASSED_MAX or self._are_too_many
        if frame.pubend in self._streams and not is_one_too_many and self.look(frame):
            self._take(peer, frame, lambda fetched: self._out.add(SendPeer(peer, fetched)))

    def ask(
        self, pubend: str, base: int, upto: int, wanted: TopicSelector, answered: Answered
    ) -> Callable[[], None]:
        """Read for this broker itself; returns a function that gives the fetch up."""
        frame = Fetch(0, pubend, base, upto, wanted.pattern, wanted.selector, FETCH_BYTES_MAX >> 1)
        ticket = self._take(None, frame, answered)
        return lambda: self._give_up(ticket)

    def has_room(self, pubend: str) -> bool:
        """Return whether a fetch of a pubend that is not hosted here would be passed on at once."""
        return pubend not in self._pubends and self._open_way(pubend) is not None

    def _open_way(self, pubend: str) -> tuple[str, _Way] | None:
        """Return the neighbour that a pubend comes from, and the way to it; None if there is no room."""
        stream = self._streams.get(pubend)
        upstream = stream.upstream if stream is not None else None
        if upstream is None:
            return None
        way = self._ways.get(upstream)
        if way is None:
            way = self._ways[upstream] = _Way()
        return (upstream, way) if way.has_room else None

    @property
    def _are_too_many(self) -> bool:
        """Whether clients and neighbours have as many fetches under way as they may together."""
        return self._of_others >= FETCHES_ALL_MAX

    def gone(self, owner: int | str) -> None:
        """A connection or link is gone: drop what it asked for, and ask others for what it was asked for."""
        for ticket in list(self._of_owner.get(owner, {}).values()):
            self._remove(ticket)
        self._of_owner.pop(owner, None)
        if isinstance(owner, str) and (way := self._ways.get(owner)) is not None:
            self._ask_elsewhere(list(way.tickets))
            del self._ways[owner]
        self._pass_on_waiting()

    def _give_up(self, ticket: int) -> None:
        self._remove(ticket)
        self._pass_on_waiting()

    def _take(
        self, owner: int | str | None, frame: Fetch, answered: Answered, refused: Refusing | None = None
    ) -> int:
        ticket = self._next
        self._next += 1
        self._asked[ticket] = _FetchAsked(owner, frame, answered, refused)
        if owner is not None:
            self._of_owner.setdefault(owner, {})[frame.ticket] = ticket
            self._of_others += 1
        if frame.pubend in self._pubends:
            self._read_log(ticket, frame)
        else:
            self._waiting.setdefault(frame.pubend, OrderedDict())[ticket] = None
            if self._open_way(frame.pubend) is not None:
                self._pass_on_waiting()
        return ticket

    def _read_log(self, ticket: int, frame: Fetch) -> None:
        # Nothing is known yet of what lies beyond the position: answering for it would promise silence.
        upto = min(frame.upto, self._pubends[frame.pubend].position)
        size = min(max(frame.bytes_max, 1), FETCH_BYTES_MAX)
        self._out.add(FetchLog(ticket, frame.pubend, frame.base, max(frame.base, upto), size))

    def _pass_on_waiting(self) -> None:
        """Pass on what waits, the oldest first, as far as there is a way and room on it."""
        first = [
            (next(iter(queue)), pubend)
            for pubend, queue in self._waiting.items()
            if self._open_way(pubend) is not None
        ]
        heapify(first)
        while first:
            ticket, pubend = first[0]
            found = self._open_way(pubend)
            if found is None:
                heappop(first)  # those before have filled the way
                continue
            asked, (upstream, way) = self._asked[ticket], found
            self._wait_no_more(ticket, pubend)
            # Half of what may be under way: while one answer is read here, the next is on its way. It is
            # rounded up, so that two of them use all of it.
            asked.size = max(1, min(asked.frame.bytes_max, FETCH_BYTES_MAX, -(-way.pace.limit // 2)))
            asked.upstream, asked.tries, asked.first = upstream, 0, self._turn.now
            way.under_way += asked.size
            way.tickets[ticket] = None
            self._pass_on(ticket, asked, upstream)
            queue = self._waiting.get(pubend)
            if queue is None:
                heappop(first)
            else:
                heapreplace(first, (next(iter(queue)), pubend))

    def _pass_on(self, ticket: int, asked: _FetchAsked, upstream: str) -> None:
        asked.last = self._turn.now
        asked.tries += 1
        self._counters["fetches_passed"] += 1
        self._out.add(SendPeer(upstream, replace(asked.frame, ticket=ticket, bytes_max=asked.size)))

    def _ask_elsewhere(self, tickets: Iterable[int]) -> None:
        """Let these, which were passed on, wait to be passed on again."""
        for ticket in tickets:
            self._take_back(ticket, self._asked[ticket])
        self._wait_again(tickets)

    def _wait_again(self, tickets: Iterable[int]) -> None:
        """Let these wait at their places among those that came later."""
        again: dict[str, list[int]] = {}
        for ticket in tickets:
            again.setdefault(self._asked[ticket].frame.pubend, []).append(ticket)
        for pubend, of_pubend in again.items():
            merged = sorted([*of_pubend, *self._waiting.get(pubend, ())])
            self._waiting[pubend] = OrderedDict.fromkeys(merged)

    def _wait_no_more(self, ticket: int, pubend: str) -> None:
        """A fetch does not wait any more, if it did."""
        queue = self._waiting.get(pubend)
        if queue is not None:
            queue.pop(ticket, None)
            if not queue:
                del self._waiting[pubend]

    def _take_back(self, ticket: int, asked: _FetchAsked) -> None:
        """The neighbour that was asked is not expected to answer any more."""
        way = self._ways.get(asked.upstream) if asked.upstream is not None else None
        if way is not None:
            way.under_way -= asked.size
            del way.tickets[ticket]
        asked.upstream = None

    # Answers.

    def awaits(self, frame: Fetched) -> bool:
        """Return whether an answer is to a fetch that is under way."""
        asked = self._asked.get(frame.ticket)
        return asked is not None and asked.frame.pubend == frame.pubend

    def audiences(self, ticket: int) -> list[Audience]:
        """Return the matcher of a fetch, if its events have to be matched."""
        asked = self._asked.get(ticket)
        if asked is None or _wants_all(asked.frame):
            return []
        return [self._audience(asked.frame.pattern, asked.frame.selector)]

    def asker(self, ticket: int) -> int | str | None:
        """Return the client or neighbour whose fetch this is; None if it is this broker's, or is over."""
        asked = self._asked.get(ticket)
        return asked.owner if asked is not None else None

    def read(self, answer: LogFetched) -> None:
        """The log of a pubend hosted here has answered."""
        asked = self._asked.get(answer.ticket)
        if asked is None:
            return
        frame, read = asked.frame, answer.read
        few = read.batches[:FETCH_BATCHES_MAX]
        batch = _of_pattern(frame.pattern, concatenate(few)) if few else None
        upto = max(read.upto, min(read.lost, frame.upto), frame.base)
        if len(few) < len(read.batches):
            upto = int(few[-1].ticks[-1])
        if batch is not None and not _wants_all(frame):
            batch, upto = self._chosen(frame, batch, upto)
            if upto < frame.base:
                self._puzzle(answer.ticket, asked)
                return
        self._remove(answer.ticket)
        damaged = _parts_up_to(upto, read.damaged)
        asked.answered(Fetched(frame.ticket, frame.pubend, frame.base, upto, read.lost, batch, damaged))

    def _chosen(self, frame: Fetch, batch: EventBatch, upto: int) -> tuple[EventBatch | None, int]:
        """Return the events of a batch that a fetch wants, and up to which tick these are all of them.

        That is before the events of one topic too many, and before the first event whose topic or schema is
        not known here; before `frame.base` if nothing can be told because the first event is such a one.
        """
        rows = _rows_of_few_topics(batch)
        if rows < batch.count:
            batch, upto = batch.slice(0, rows), int(batch.ticks[rows]) - 1
        audience = self._audience(frame.pattern, frame.selector)
        strange = audience.unknown_from(batch)
        if strange is not None:
            upto = int(batch.ticks[strange]) - 1
            if upto <= frame.base:
                return None, frame.base - 1
            if not strange:
                return None, upto
            batch = batch.slice(0, strange)
        return (_rows(batch, audience.chosen(_MEMBER, batch)) if frame.selector else batch), upto

    def learnt(self) -> None:
        """A topic has become known: read again what was not understood without it."""
        if not self._puzzled:
            return
        puzzled, self._puzzled = self._puzzled, {}
        for ticket in puzzled:
            if self._asked[ticket].frame.pubend in self._pubends:
                self._read_log(ticket, self._asked[ticket].frame)
        self._wait_again([each for each in puzzled if self._asked[each].frame.pubend not in self._pubends])
        self._pass_on_waiting()

    def _puzzle(self, ticket: int, asked: _FetchAsked) -> None:
        """The next event is of a topic that the tables have lost: a client is told, others wait for it."""
        self._counters["topics_unknown"] += 1
        if asked.refused is not None:
            reason = "the next event is of a topic whose schema is not known here: declare the topic again"
            self._remove(ticket)
            asked.refused("schema", reason)
        else:
            self._take_back(ticket, asked)
            self._puzzled[ticket] = None

    def fetched(self, peer: str, frame: Fetched) -> None:
        """A neighbour has answered; the answer of one that is not asked, or not any more, is late."""
        asked = self._asked.get(frame.ticket)
        if asked is None or asked.upstream != peer:
            self._counters["answers_late"] += 1
            return
        with self._turn.looking:
            _check_answer(asked.frame, frame)
            shown = self._shown(asked, frame)
        way = self._ways.get(asked.upstream) if asked.upstream is not None else None
        if way is not None:
            now = self._turn.now
            way.pace.answered(asked.size, way.under_way, now - asked.first, now, tries=asked.tries)
        if shown is None:
            self._puzzle(frame.ticket, asked)
        else:
            self._remove(frame.ticket)
            asked.answered(replace(shown, ticket=asked.frame.ticket))
        self._pass_on_waiting()

    def _shown(self, asked: _FetchAsked, answer: Fetched) -> Fetched | None:
        """Return what of a neighbour's answer is given to a client or subscriber here; None if that waits.

        Rules are part of the selector that the neighbour was told, and it has matched the events. Where there
        are rules they are matched again, because they hold whatever a neighbour says. A neighbour that has
        passed the fetch on does that itself.
        """
        batch = answer.batch
        is_passed_on = isinstance(asked.owner, str)
        if batch is None or not asked.frame.selector or is_passed_on or self._rules.is_open:
            return answer
        batch, upto = self._chosen(asked.frame, batch, answer.upto)
        if upto < answer.base:
            return None
        return replace(answer, upto=upto, batch=batch, damaged=_parts_up_to(upto, answer.damaged))

    def wake(self) -> None:
        """Repeat the fetches whose answers are late; pass on those for which there is a way now."""
        now = self._turn.now
        for upstream, way in self._ways.items():
            for ticket in way.tickets:
                asked = self._asked[ticket]
                if now >= way.pace.due(asked.last, asked.tries):
                    self._pass_on(ticket, asked, upstream)
        self._pass_on_waiting()

    def attached(self, pubend: str) -> None:
        """The pubend comes from another neighbour now, which has been asked for nothing."""
        passed = [ticket for way in self._ways.values() for ticket in way.tickets]
        self._ask_elsewhere([each for each in passed if self._asked[each].frame.pubend == pubend])
        self._pass_on_waiting()

    def _remove(self, ticket: int) -> _FetchAsked | None:
        """Remove and return the fetch of a ticket; None if its asker is gone."""
        asked = self._asked.pop(ticket, None)
        if asked is None:
            return None
        self._wait_no_more(ticket, asked.frame.pubend)
        self._puzzled.pop(ticket, None)
        self._take_back(ticket, asked)
        if asked.owner is not None:
            self._of_others -= 1
            self._of_owner[asked.owner].pop(asked.frame.ticket, None)
        return asked

    def _refusal(self, client: int, frame: Fetch) -> tuple[str, str] | None:
        if frame.pubend not in self._streams:
            return "pubend", f"there is no pubend {frame.pubend!r} here or behind a neighbour"
        if frame.ticket in self._of_owner.get(client, ()):
            return "ticket", f"the ticket {frame.ticket} is that of another fetch under way: choose another"
        if len(self._of_owner.get(client, ())) >= FETCHES_MAX:
            return "limit", f"{FETCHES_MAX} fetches are under way already: wait for an answer"
        if self._are_too_many:
            return "limit", (
                f"{FETCHES_ALL_MAX} fetches of all clients are under way at this broker, which is the limit: "
                "try again later"
            )
        try:
            TopicPattern.parse(frame.pattern)
            parse(frame.selector)
        except TidemarkError as error:
            return "selector", str(error)
        return None

    def look(self, frame: Fetch) -> bool:
        """Return whether what a neighbour wants to read can be told."""
        with self._turn.looking:
            try:
                TopicPattern.parse(frame.pattern)
                parse(frame.selector)
            except TidemarkError:
                return False
        return True

    def _make_audience(self, pattern: str, selector: str) -> Audience:
        audience = Audience(self._registry, held_bytes_max=READER_BYTES_MAX)
        audience.add(_MEMBER, pattern, selector)
        return audience


def _parts_up_to(upto: int, ranges: Sequence[Range]) -> tuple[Range, ...]:
    """Return the parts of these ranges that lie up to a tick."""
    return tuple((base, min(end, upto)) for base, end in ranges if base < upto)


def _wants_all(frame: Fetch) -> bool:
    return frame.pattern == ">" and not frame.selector


def _of_pattern(pattern: str, batch: EventBatch) -> EventBatch | None:
    """Return the events of topics that the pattern matches; None if there are none."""
    parsed = TopicPattern.parse(pattern)
    is_matched = np.array([parsed.matches(shape.topic) for shape in batch.shapes], np.bool_)
    return batch if is_matched.all() else _rows(batch, is_matched[batch.prelude("shape")])


def _rows_of_few_topics(batch: EventBatch) -> int:
    """Return how many rows at the beginning of a batch have events of FETCH_TOPICS_MAX topics at the most."""
    numbers: dict[str, int] = {}
    for shape in batch.shapes:
        numbers.setdefault(shape.topic, len(numbers))
    if len(numbers) <= FETCH_TOPICS_MAX:
        return batch.count
    of_shape = np.array([numbers[shape.topic] for shape in batch.shapes])
    _, firsts = np.unique(of_shape[batch.prelude("shape")], return_index=True)
    return batch.count if len(firsts) <= FETCH_TOPICS_MAX else int(np.sort(firsts)[FETCH_TOPICS_MAX])


def _rows(batch: EventBatch, chosen: Bools) -> EventBatch | None:
    """Return these events; None if there are none."""
    rows = np.flatnonzero(chosen)
    return None if not len(rows) else batch if len(rows) == batch.count else batch.take(rows)


def _check_answer(asked: Fetch, answer: Fetched) -> None:
    """Raise WireError unless a neighbour's answer is one to what was asked.

    It has to be of that pubend, that range, and topics of that pattern: what a client may see is in there.
    """
    is_within = answer.base == asked.base and answer.upto <= asked.upto
    if answer.pubend != asked.pubend or not is_within:
        raise WireError(
            f"({asked.base}, {asked.upto}] of {asked.pubend!r} was asked for, and the answer is of "
            f"({answer.base}, {answer.upto}] of {answer.pubend!r}"
        )
    if answer.batch is None or asked.pattern == ">":
        return
    pattern, shapes = TopicPattern.parse(asked.pattern), answer.batch.shapes
    for number in np.unique(answer.batch.prelude("shape")).tolist():
        if not pattern.matches(shapes[number].topic):
            raise WireError(
                f"events of {asked.pattern!r} were asked for, and the answer has one of "
                f"{shapes[number].topic!r}"
            )
