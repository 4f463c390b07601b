"""TickKnowledge: what a stream knows of each tick of one pubend (DSN'03 3).

    L  lost     at or below `lost`: the information about the tick has been discarded
    D  data     there is an event
    S  silence  there is no event, or none that matches the selectors the sender filtered by
    Q  unknown  every other tick

Knowledge may be learnt in any order and repeatedly; a duplicate changes nothing. Because silence is relative
to selectors, D replaces S and S never replaces D. L is final.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidemark.ticks.ranges import RangeSet
from tidemark.ticks.tick import NO_TICKS, TICK_MIN, Mask, Range, Tick, Ticks
from tidemark.ticks.tickset import TickSet

State = Literal["Q", "S", "D", "L"]


@dataclass(frozen=True, slots=True)
class Learnt:
    """What a piece of knowledge changed."""

    #: the ranges that were Q and are not any more, in order
    resolved: list[Range]
    #: new[i]: the event at data_ticks[i] was not known before. An event that is not new is a duplicate, or L.
    new: Mask


class TickKnowledge:
    """The state of every tick of one pubend, as one stream sees it."""

    __slots__ = ("data", "known", "lost")

    def __init__(self, lost: Tick = TICK_MIN) -> None:
        #: Every tick at or below this one is L.
        self.lost = lost
        #: the ticks that are S or D; all are beyond `lost`
        self.known = RangeSet()
        #: the ticks that are D; all are in `known`
        self.data = TickSet()

    def learn(self, base: Tick, upto: Tick, data_ticks: Ticks = NO_TICKS) -> Learnt:
        """Learn that `(base, upto]` has events at `data_ticks` and silence elsewhere; what that changed.

        `data_ticks` strictly increase and lie in the range.
        """
        assert base <= upto
        if len(data_ticks):
            assert base < data_ticks[0]
            assert data_ticks[-1] <= upto
            assert len(data_ticks) == 1 or (data_ticks[1:] > data_ticks[:-1]).all()
        if base < self.lost:
            return self._learn_beyond_lost(upto, data_ticks)
        return Learnt(self.known.add(base, upto), self.data.add(data_ticks))

    def _learn_beyond_lost(self, upto: Tick, data_ticks: Ticks) -> Learnt:
        new = data_ticks > self.lost
        new[new] = self.data.add(data_ticks[new])
        return Learnt(self.known.add(self.lost, max(upto, self.lost)), new)

    def lose(self, upto: Tick) -> list[Range]:
        """Make every tick at or below `upto` L. Returns the ranges that were Q, in order."""
        if upto <= self.lost:
            return []
        resolved = self.known.gaps(self.lost, upto)
        self.known.remove_upto(upto)
        self.data.remove(self.lost, upto)
        self.lost = upto
        return resolved

    def forget(self, base: Tick, upto: Tick) -> int:
        """Make S and D in `(base, upto]` Q again, as when a cache evicts. Returns how many ticks were D."""
        self.known.remove(base, upto)
        return self.data.remove(base, upto)

    def horizon(self, base: Tick) -> Tick:
        """The doubt horizon: the last tick t such that no tick in `(base, t]` is Q; at least `base`."""
        return self.known.end_of_run(max(base, self.lost))

    def unknown(self, base: Tick, upto: Tick) -> list[Range]:
        """The parts of `(base, upto]` that are Q, in order."""
        return self.known.gaps(max(base, self.lost), max(upto, self.lost))

    def state(self, tick: Tick) -> State:
        """The letter of what is known of one tick."""
        if tick <= self.lost:
            return "L"
        if not self.known.contains(tick):
            return "Q"
        return "D" if self.data.contains(tick) else "S"

    def text(self, first: Tick, last: Tick) -> str:
        """The states of the ticks from `first` to `last` inclusive, a letter each: "DQS"."""
        return "".join(self.state(tick) for tick in range(first, last + 1))

    def __repr__(self) -> str:
        return f"TickKnowledge(lost={self.lost}, known={self.known!r}, data={len(self.data)} ticks)"
