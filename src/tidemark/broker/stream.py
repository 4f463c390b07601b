"""Stream: one pubend at one broker (DSN'02; DSN'03 3, 4; DESIGN 6).

Knowledge comes in from upstream - another broker, or the pubend and its log - and goes out to the neighbours
downstream and to the subscribers here. First-time knowledge is passed on at once, holes or not; answers go
only to those who asked. All of it is soft state: a broker that lost it asks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from tidemark.broker.counters import Counters
from tidemark.broker.effects import LogRead, Outbox, ReadLog, SendPeer
from tidemark.broker.interest import HERE, STARTED_ONLY, Interests
from tidemark.broker.window import PIECE_BYTES, Window, rows_within
from tidemark.message.batches.batch import EventBatch, concatenate
from tidemark.ticks import TICK_MIN, Curiosity, RangeSet, Thresholds, Wants
from tidemark.wire.frames import AckExpected, Knowledge, Nack, Range

Ranges = Sequence[Range]

#: Ranges in one nack; more go in further ones.
NACK_RANGES_MAX = 64


class Listener(Protocol):
    """The subscribers of this broker, as a stream sees them."""

    def advanced(self, pubend: str, tag: int, base: int, upto: int) -> None:
        """First-time knowledge of `(base, upto]` arrived, that accounts for interest here up to `tag`."""

    def answered(self, pubend: str, base: int, upto: int, batch: EventBatch | None, damaged: Ranges) -> None:
        """Something that was asked for arrived; the `damaged` parts of it are L."""

    def lost(self, pubend: str) -> None:
        """More of the window's knowledge is L."""

    def delivered(self, pubend: str) -> int | None:
        """How far the subscribers here have consumed the window; None when there are none."""


class Stream:
    """One pubend's stream through one broker."""

    def __init__(
        self,
        pubend: str,
        upstream: str | None,
        downstream: Iterable[str],
        interests: Interests,
        out: Outbox,
        counters: Counters,
        window_bytes_max: int,
        thresholds: Thresholds,
    ) -> None:
        self.pubend = pubend
        self.upstream = upstream
        self._interests = interests
        self._out = out
        self._counters = counters
        self.window = Window(window_bytes_max)
        #: Links that are up; first-time knowledge goes to these.
        self._up: set[str] = set()
        self._downstream = tuple(downstream)
        #: The last tick that anything is known to exist up to.
        self.position = TICK_MIN
        #: The newest interest that first-time knowledge on this link has accounted for.
        self._version = 0
        #: Asked for by neighbours (or here) and not yet answered.
        self._wants: Wants[str] = Wants()
        self._curiosity = Curiosity(thresholds)
        self._gct = thresholds.gct_us
        #: Being read from the log of a pubend that is hosted here.
        self._reading = RangeSet()
        self.listener: Listener | None = None

    # From upstream.

    def first(self, base: int, upto: int, lost: int, version: int, batch: EventBatch | None) -> None:
        """First-time knowledge: learn it and pass it on at once."""
        self.lose(lost)
        if version < self._version and upto > base:
            self._overtaken(upto)
            return
        self._version = version
        keep = self.listener is None or not self.window.is_full
        if keep:
            self.window.learn(base, upto, batch)
        else:
            self._counters["windows_full"] += 1
        self.position = max(self.position, upto)
        self._curiosity.answered(base, upto)
        self._wants.take(base, upto)
        for peer in self._downstream:
            if peer in self._up:
                self._send(peer, base, upto, True, self._interests.tag(self.upstream, version, peer), batch)
        if self.listener is not None:
            tag = self._interests.tag(self.upstream, version, HERE)
            self.listener.advanced(self.pubend, tag, base, upto)

    def _overtaken(self, upto: int) -> None:
        """Knowledge of a newer interest came first: what was left out of this may be wanted by now.

        It counts as lost, and is asked for again.
        """
        self._counters["knowledge_overtaken"] += 1
        self.position = max(self.position, upto)
        if self.listener is not None:
            self.listener.advanced(self.pubend, STARTED_ONLY, self.position, self.position)

    def answer(self, base: int, upto: int, lost: int, batch: EventBatch | None, damaged: Ranges = ()) -> None:
        """An answer to a nack: learn it and pass it to those who asked."""
        self.lose(lost)
        base = max(base, lost)
        if upto <= base:
            return
        self.window.learn(base, upto, batch, damaged)
        self._curiosity.answered(base, upto)
        for asker, ranges in self._wants.take(base, upto).items():
            for first, last in ranges:
                self._give(asker, first, last, batch, damaged)

    def ack_expected(self, tick: int) -> None:
        """The pubend has logged up to `tick`: who has not got that far will ask."""
        self.position = max(self.position, tick)
        for peer in self._downstream:
            if peer in self._up:
                self._out.add(SendPeer(peer, AckExpected(self.pubend, tick)))
        if self.listener is not None:
            self.listener.advanced(self.pubend, STARTED_ONLY, self.position, self.position)

    def lose(self, lost: int) -> None:
        """Everything at or below `lost` is L; those who asked for some of it are told."""
        if lost <= self.window.knowledge.lost:
            return
        self.window.lose(lost)
        self.position = max(self.position, lost)
        self._curiosity.answered(TICK_MIN, lost)
        for asker in self._wants.take(TICK_MIN, lost):
            if asker != HERE:
                self._send(asker, lost, lost, False, STARTED_ONLY, None)
        if self.listener is not None:
            self.listener.lost(self.pubend)

    # From downstream.

    def nacked(self, asker: str, ranges: Iterable[Range], now: int, *, patient: bool = False) -> None:
        """A neighbour (or HERE) wants to know: answer what is known, ask upstream for the rest, once.

        `patient`: what is missing may only be late, so wait for GCT before asking.
        """
        lost = self.window.knowledge.lost
        missing: list[Range] = []
        self._counters["nacks_received"] += asker != HERE
        for base, upto in ranges:
            if base < lost:
                self._give(asker, lost, lost, None)
                base = lost
            if upto <= base:
                continue
            known = self.window.knowledge.known.parts(base, upto)
            self._counters["answers_cached"] += bool(known)
            for first, last in known:
                self._give_known(asker, first, last)
            missing += RangeSet(known).gaps(base, upto)
        asked = self._wants.ask(asker, missing)
        self._counters["ranges_consolidated"] += len(missing) > len(asked)
        for base, upto in asked:
            self._ask(base, upto, now if patient else now - self._gct)

    def _give_known(self, asker: str, base: int, upto: int) -> None:
        while base < upto:
            stop = self.window.reach(base, upto)
            self._give(
                asker, base, stop, self.window.events(base, stop), self.window.damaged.parts(base, stop)
            )
            base = stop

    def _ask(self, base: int, upto: int, now: int) -> None:
        if self.upstream is None:
            for first, last in self._reading.add(base, upto):
                self._out.add(ReadLog(self.pubend, first, last))
        else:
            self._curiosity.want(base, upto, now)

    def read(self, answer: LogRead) -> None:
        """The log of the pubend hosted here has answered, or begun to."""
        self._reading.remove(answer.base, answer.upto)
        self._counters["ranges_damaged"] += len(answer.damaged)
        damaged = RangeSet(answer.damaged)
        at = answer.base
        for batch in _merged(answer.batches):
            last = int(batch.ticks[-1])
            self.answer(at, last, answer.lost, batch, damaged.parts(at, last))
            at = last
        self.answer(at, answer.upto, answer.lost, None, damaged.parts(at, max(at, answer.upto)))
        if answer.upto < answer.asked:
            self._out.add(ReadLog(self.pubend, answer.upto, answer.asked))

    # Links and time.

    def link_up(self, peer: str, now: int) -> None:
        """A link is there (again). Downstream is told where the stream stands, upstream is asked again."""
        if peer == self.upstream:
            self._version = 0
            self._curiosity.reset(now)
            return
        self._up.add(peer)
        self._send(peer, self.position, self.position, True, STARTED_ONLY, None)

    def link_down(self, peer: str) -> None:
        """A link is gone: nobody waits for answers over it."""
        self._up.discard(peer)
        for base, upto in self._wants.drop(peer):
            self._curiosity.answered(base, upto)

    def wake(self, now: int) -> None:
        """Send the nacks that are due."""
        if self.upstream is None:
            return
        due = self._curiosity.due(now)
        for at in range(0, len(due), NACK_RANGES_MAX):
            ranges = tuple(due[at : at + NACK_RANGES_MAX])
            self._counters["nacks_sent"] += 1
            self._out.add(SendPeer(self.upstream, Nack(self.pubend, ranges)))

    def shrink(self) -> None:
        """Let the window go back to its bound, as far as what is here has been consumed."""
        keep = self.listener.delivered(self.pubend) if self.listener is not None else None
        self._counters["windows_shrunk"] += self.window.shrink(keep)

    def next_wake(self) -> int | None:
        """When a nack will be due."""
        return self._curiosity.next_due() if self.upstream is not None else None

    # Out.

    def _give(self, asker: str, base: int, upto: int, batch: EventBatch | None, damaged: Ranges = ()) -> None:
        if asker == HERE:
            if self.listener is not None:
                self.listener.answered(self.pubend, base, upto, batch, damaged)
        else:
            self._send(asker, base, upto, False, STARTED_ONLY, batch, damaged)

    def _send(
        self,
        peer: str,
        base: int,
        upto: int,
        first: bool,
        tag: int,
        batch: EventBatch | None,
        damaged: Ranges = (),
    ) -> None:
        part = rows_within(batch, base, upto)
        selection = self._interests.selection(peer)
        if part is not None and selection is not None:
            wanted = selection.wanted(part)
            self._counters["events_left_out"] += part.count - int(wanted.sum())
            part = None if not wanted.any() else part if wanted.all() else part.take(wanted)
        lost = self.window.knowledge.lost
        inside = tuple((max(a, base), min(b, upto)) for a, b in damaged if max(a, base) < min(b, upto))
        self._out.add(SendPeer(peer, Knowledge(self.pubend, base, upto, lost, first, tag, part, inside)))


def _merged(batches: Sequence[EventBatch]) -> Iterator[EventBatch]:
    """The same events in fewer batches: what is done with each costs the same for few events as for many."""
    gathered: list[EventBatch] = []
    size = 0
    for batch in batches:
        if size and size + len(batch.data) > PIECE_BYTES:
            yield concatenate(gathered)
            gathered, size = [], 0
        gathered.append(batch)
        size += len(batch.data)
    if gathered:
        yield concatenate(gathered)
