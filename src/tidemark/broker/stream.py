"""Stream: one pubend at one broker (DSN'02; DSN'03 3, 4; DESIGN 6).

Knowledge comes in from upstream - another broker, or the pubend and its log - and goes out to the neighbours
downstream and to the subscribers here. First-time knowledge is passed on at once, holes or not; answers go
only to those who asked. All of it is soft state: a broker that lost it asks again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tidemark.broker.effects import LogRead, Outbox, ReadLog, SendPeer
from tidemark.broker.interest import HERE, STARTED_ONLY, Interests
from tidemark.broker.window import Window
from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import TICK_MIN, Curiosity, RangeSet, Thresholds, Wants
from tidemark.wire.frames import AckExpected, Knowledge, Nack, Range

#: Ranges in one nack; more go in further ones.
NACK_RANGES_MAX = 64


class Listener(Protocol):
    """The subscribers of this broker, as a stream sees them."""

    def advanced(self, pubend: str, tag: int, base: int) -> None:
        """First-time knowledge arrived, beyond `base`, that accounts for interest here up to `tag`."""

    def answered(self, pubend: str, base: int, upto: int, batch: EventBatch | None) -> None:
        """Something that was asked for arrived."""

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
        window_bytes_max: int,
        thresholds: Thresholds,
    ) -> None:
        self.pubend = pubend
        self.upstream = upstream
        self._interests = interests
        self._out = out
        self.window = Window(window_bytes_max)
        #: Links that are up; first-time knowledge goes to these.
        self._up: set[str] = set()
        self._downstream = tuple(downstream)
        #: The last tick that anything is known to exist up to.
        self.position = TICK_MIN
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
        keep = self.listener is None or not self.window.is_full
        if keep:
            self.window.learn(base, upto, batch)
        self.position = max(self.position, upto)
        self._curiosity.answered(base, upto)
        self._wants.take(base, upto)
        for peer in self._downstream:
            if peer in self._up:
                self._send(peer, base, upto, True, self._interests.tag(self.upstream, version, peer), batch)
        self._shrink()
        if self.listener is not None:
            self.listener.advanced(self.pubend, self._interests.tag(self.upstream, version, HERE), base)

    def answer(self, base: int, upto: int, lost: int, batch: EventBatch | None) -> None:
        """An answer to a nack: learn it and pass it to those who asked."""
        self.lose(lost)
        base = max(base, lost)
        if upto <= base:
            return
        self.window.learn(base, upto, batch)
        self._curiosity.answered(base, upto)
        for asker, ranges in self._wants.take(base, upto).items():
            for first, last in ranges:
                self._give(asker, first, last, batch)
        self._shrink()

    def ack_expected(self, tick: int) -> None:
        """The pubend has logged up to `tick`: who has not got that far will ask."""
        self.position = max(self.position, tick)
        for peer in self._downstream:
            if peer in self._up:
                self._out.add(SendPeer(peer, AckExpected(self.pubend, tick)))
        if self.listener is not None:
            self.listener.advanced(self.pubend, STARTED_ONLY, tick)

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
        for base, upto in ranges:
            if base < lost:
                self._give(asker, lost, lost, None)
                base = lost
            if upto <= base:
                continue
            known = self.window.knowledge.known.parts(base, upto)
            for first, last in known:
                self._give(asker, first, last, self.window.events(first, last))
            missing += RangeSet(known).gaps(base, upto)
        for base, upto in self._wants.ask(asker, missing):
            self._ask(base, upto, now if patient else now - self._gct)

    def _ask(self, base: int, upto: int, now: int) -> None:
        if self.upstream is None:
            for first, last in self._reading.add(base, upto):
                self._out.add(ReadLog(self.pubend, first, last))
        else:
            self._curiosity.want(base, upto, now)

    def read(self, answer: LogRead) -> None:
        """The log of the pubend hosted here has answered, or begun to."""
        self._reading.remove(answer.base, answer.upto)
        at = answer.base
        for batch in answer.batches:
            last = int(batch.ticks[-1])
            self.answer(at, last, answer.lost, batch)
            at = last
        self.answer(at, answer.upto, answer.lost, None)
        if answer.upto < answer.asked:
            self._out.add(ReadLog(self.pubend, answer.upto, answer.asked))

    # Links and time.

    def link_up(self, peer: str, now: int) -> None:
        """A link is there (again). Downstream is told where the stream stands, upstream is asked again."""
        if peer == self.upstream:
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
            self._out.add(SendPeer(self.upstream, Nack(self.pubend, ranges)))

    def next_wake(self) -> int | None:
        """When a nack will be due."""
        return self._curiosity.next_due() if self.upstream is not None else None

    # Out.

    def _give(self, asker: str, base: int, upto: int, batch: EventBatch | None) -> None:
        if asker == HERE:
            if self.listener is not None:
                self.listener.answered(self.pubend, base, upto, batch)
        else:
            self._send(asker, base, upto, False, STARTED_ONLY, batch)

    def _send(self, peer: str, base: int, upto: int, first: bool, tag: int, batch: EventBatch | None) -> None:
        part = _rows(batch, base, upto)
        selection = self._interests.selection(peer)
        if part is not None and selection is not None:
            part = part.take(selection.rows(part))
        lost = self.window.knowledge.lost
        frame = Knowledge(
            self.pubend, base, upto, lost, first, tag, part if part is not None and part.count else None
        )
        self._out.add(SendPeer(peer, frame))

    def _shrink(self) -> None:
        self.window.shrink(self.listener.delivered(self.pubend) if self.listener is not None else None)


def _rows(batch: EventBatch | None, base: int, upto: int) -> EventBatch | None:
    if batch is None:
        return None
    inside = (batch.ticks > base) & (batch.ticks <= upto)
    return batch if inside.all() else batch.take(inside)
