"""Curiosity: the ranges that a stream still has to ask for, and when (DSN'02; docs/protocol.md).

Owns the wanted ranges of one stream. A range is asked for once it has been wanted for GCT, so that frames
that merely arrive in another order cause no nack. A nack without an answer is repeated after NRT, then after
ever longer waits. A range whose nack may still be answered is not asked for again. A large range is cut into
several nacks, so that a lost nack costs little. The number of outstanding nacks is bounded, so that losses do
not become a storm of nacks.

With a `Pace`, NRT is only the least wait and the first: how long to wait, and how many ticks are asked for at
once, then comes from how long answers take.

There is no clock: `now` is an argument, in microseconds of the caller's monotonic time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from operator import attrgetter

from tidemark.ticks.pace import Pace
from tidemark.ticks.tick import TICK_MAX, Range, Tick

#: Bytes of an answer for which ranges are neither shortened nor lengthened: more than half of it, up to it.
ANSWER_BYTES = 256 << 10
#: Answers of fewer bytes do not fill a way.
SMALL_ANSWER_BYTES = 4 << 10
#: With a pace, what is under way is asked for in about so many ranges.
_RANGES = 4


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When a stream asks for a range, and for how much at once. Many streams share one value."""

    #: GCT, gap curiosity threshold: a range is first asked for when it has been wanted this long
    gct_us: int = 50_000
    #: NRT, nack repetition threshold: the wait for an answer to the first nack of a range
    nrt_us: int = 200_000
    #: Each further wait is this many times as long as the one before, up to nrt_us_max.
    backoff: int = 2
    nrt_us_max: int = 10_000_000
    #: ticks in the range of one nack, at most
    chop_ticks_max: int = 1_000_000
    #: No further range is asked for while this many are outstanding.
    outstanding_ranges_max: int = 64

    def __post_init__(self) -> None:
        assert self.gct_us >= 0
        assert 1 <= self.nrt_us <= self.nrt_us_max
        assert self.backoff >= 1
        assert self.chop_ticks_max >= 1
        assert self.outstanding_ranges_max >= 1

    def patience_us(self, tries: int) -> int:
        """How long to wait for an answer to nack number `tries` of a range; the first nack is number 1."""
        # Past 2**62 microseconds no back-off matters; a larger power would only be a larger integer.
        return min(self.nrt_us * int(self.backoff ** min(tries - 1, 62)), self.nrt_us_max)


@dataclass(slots=True)
class _Piece:
    """A wanted range whose ticks have the same history."""

    base: Tick
    upto: Tick
    #: the time at which to ask for the piece, or to ask for it again
    due: int
    #: nacks sent so far
    tries: int = 0
    #: the times of the first nack and of the last, and how many ticks that one asked for
    first: int = 0
    last: int = 0
    ticks: int = 0
    #: The last nack may still be answered: the piece counts as outstanding.
    asked: bool = False

    def without(self, base: Tick, upto: Tick) -> list[_Piece]:
        """The parts of the piece outside `(base, upto]`: none, one end, or both."""
        ends = ((self.base, min(self.upto, base)), (max(self.base, upto), self.upto))
        return [replace(self, base=start, upto=stop) for start, stop in ends if start < stop]


_BASE = attrgetter("base")
_UPTO = attrgetter("upto")
_URGENCY = attrgetter("due", "base")


class Curiosity:
    """The ranges one stream wants, each waiting to be asked for or outstanding."""

    __slots__ = ("_pace", "_pieces", "_size", "_span", "_thresholds")

    def __init__(self, thresholds: Thresholds | None = None, pace: Pace | None = None) -> None:
        """`pace` counts ticks; without one, only the thresholds hold."""
        self._thresholds = thresholds or Thresholds()
        self._pace = pace
        #: ticks in the range of one nack, at most, judged by the bytes of the answers
        self._span = self._thresholds.chop_ticks_max
        #: bytes of the longest answer of late
        self._size = 0
        #: disjoint and in tick order
        self._pieces: list[_Piece] = []

    def want(self, base: Tick, upto: Tick, now: int) -> None:
        """Want `(base, upto]` from now on. Parts that are wanted already stay due when they were."""
        assert base <= upto
        if base == upto:
            return
        low, high = self._overlapping(base, upto)
        due = now + self._thresholds.gct_us
        pieces: list[_Piece] = []
        for piece in self._pieces[low:high]:
            if base < piece.base:
                pieces.append(_Piece(base, piece.base, due))
            pieces.append(piece)
            base = piece.upto
        if base < upto:
            pieces.append(_Piece(base, upto, due))
        self._pieces[low:high] = pieces

    def answered(self, base: Tick, upto: Tick) -> None:
        """Want `(base, upto]` no more: it is known now, or nobody needs it."""
        assert base <= upto
        if not self._pieces:
            return
        low, high = self._overlapping(base, upto)
        self._pieces[low:high] = [
            rest for piece in self._pieces[low:high] for rest in piece.without(base, upto)
        ]

    def heard(self, base: Tick, upto: Tick, size: int, now: int) -> None:
        """An answer of `size` bytes to what was asked for came, before `answered` is told of it."""
        if self._pace is None:
            return
        self._pace.progressed(now)
        self._size = max(size, self._size * 7 // 8)
        is_small = self._size < SMALL_ANSWER_BYTES
        low, high = self._overlapping(base, upto)
        for piece in self._pieces[low:high]:
            if piece.tries and piece.upto <= upto:
                took = now - piece.first
                self._pace.answered(
                    piece.ticks, self._under_way, took, now, tries=piece.tries, is_small=is_small
                )
        if size > ANSWER_BYTES:
            self._span = max(1, min(self._span, (upto - base) * ANSWER_BYTES // size))
        elif size <= ANSWER_BYTES // 2 and 2 * (upto - base) >= self._span:
            self._span = min(2 * self._span, self._thresholds.chop_ticks_max)

    def _overlapping(self, base: Tick, upto: Tick) -> tuple[int, int]:
        """Indices low:high of the pieces that share a tick with `(base, upto]`."""
        low = bisect_right(self._pieces, base, key=_UPTO)
        return low, max(low, bisect_left(self._pieces, upto, key=_BASE))

    def due(self, now: int) -> list[Range]:
        """The ranges to nack now, in tick order. They count as outstanding from this call on."""
        wake = self.next_due()
        if wake is None or wake > now:
            return []
        self._expire(now)
        slots = self._thresholds.outstanding_ranges_max - self.outstanding
        ticks = self._room()
        ready = [piece for piece in self._pieces if piece.due <= now]
        asked: list[_Piece] = []
        # The piece that has been due longest goes first, not the one with the lowest tick: ranges that nobody
        # can answer must not keep all the slots.
        for piece in sorted(ready, key=_URGENCY):
            while piece.base < piece.upto and len(asked) < slots and ticks > 0:
                asked.append(self._ask(piece, now))
                ticks -= asked[-1].ticks
        left = [piece for piece in self._pieces if piece.base < piece.upto]
        self._pieces = sorted(left + asked, key=_BASE)
        return sorted((piece.base, piece.upto) for piece in asked)

    def _expire(self, now: int) -> None:
        """End the wait for pieces that are due at `now`, and join neighbours among them with equal tries."""
        pieces: list[_Piece] = []
        for piece in self._pieces:
            last = pieces[-1] if pieces else None
            if piece.asked and piece.due <= now and self._pace is not None:
                piece.due = self._pace.due(piece.last, piece.tries)
            if piece.due > now:
                pieces.append(piece)
            elif last and last.due <= now and last.upto == piece.base and last.tries == piece.tries:
                last.upto = piece.upto
                last.due = min(last.due, piece.due)
                last.first = min(last.first, piece.first)
            else:
                piece.asked = False
                pieces.append(piece)
        self._pieces = pieces

    def _ask(self, piece: _Piece, now: int) -> _Piece:
        """Cut the range of one nack off the start of `piece`; return it as a piece that is outstanding."""
        base, tries = piece.base, piece.tries + 1
        upto = piece.base = min(piece.upto, base + self._chop())
        wait = self._thresholds.patience_us(tries)
        if self._pace is not None:
            wait = self._pace.patience_us(tries)
        first = piece.first if piece.tries else now
        return _Piece(base, upto, now + wait, tries, first, now, upto - base, asked=True)

    def _chop(self) -> int:
        """The ticks in the range of one nack, at most."""
        if self._pace is None:
            return self._thresholds.chop_ticks_max
        # Rounded up, so that as many ranges as may be outstanding use all that may be under way.
        part = -(-self._pace.limit // min(_RANGES, self._thresholds.outstanding_ranges_max))
        return max(1, min(self._thresholds.chop_ticks_max, self._span, part))

    @property
    def _under_way(self) -> int:
        """The ticks that were asked for and whose answer may still come."""
        return sum(piece.upto - piece.base for piece in self._pieces if piece.asked)

    def _room(self) -> int:
        """How many ticks more may be asked for."""
        return TICK_MAX if self._pace is None else self._pace.limit - self._under_way

    def next_due(self) -> int | None:
        """The time at which to call `due` next unless something changes; None if nothing is wanted."""
        full = self.outstanding >= self._thresholds.outstanding_ranges_max or self._room() <= 0
        return min((piece.due for piece in self._pieces if piece.asked or not full), default=None)

    def ask_on(self, tick: Tick, now: int) -> None:
        """The broker that was asked has answered up to `tick` and stops there: later ticks are due now.

        The nack for these ticks counts as a new question and not as a repetition.
        """
        for piece in self._pieces:
            if piece.asked and piece.base == tick:
                piece.due, piece.tries, piece.asked = now, 0, False

    def reset(self, now: int) -> None:
        """Forget all nacks, because the link changed: every wanted range is due at once."""
        if self._pace is not None:
            self._pace.restart()
        for piece in self._pieces:
            piece.due, piece.tries, piece.asked = now, 0, False

    def ask_again(self) -> None:
        """Make every range that has been asked for due at once, since its nack may have been dropped.

        Where answers have come since `reset` it was not, and is not asked for again.
        """
        if self._pace is not None and self._pace.has_answers:
            return
        for piece in self._pieces:
            if piece.tries:
                piece.due, piece.tries, piece.asked = 0, 0, False

    @property
    def outstanding(self) -> int:
        """The number of ranges that were asked for and whose answer may still come."""
        return sum(piece.asked for piece in self._pieces)

    def wanted(self) -> list[Range]:
        """Every wanted range, in tick order; touching ranges with a different history are not joined."""
        return [(piece.base, piece.upto) for piece in self._pieces]
