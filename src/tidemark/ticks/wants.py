"""Wants: which asker waits for which ticks.

The consolidated curiosity of a relay or an istream (DSN'03 3): what many askers want is asked upstream once,
and the answer is sent to all of them. An asker is whatever the owner sends answers to: a downstream link, a
catchup stream. This is soft state: an asker whose answer was lost asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from tidemark.ticks.ranges import RangeSet
from tidemark.ticks.tick import Range, Tick

Asker = TypeVar("Asker", bound=Hashable)


class Wants(Generic[Asker]):
    """The ranges each asker waits for, and their union."""

    __slots__ = ("_anyone", "_of")

    def __init__(self) -> None:
        #: asker -> the ranges it waits for, never empty
        self._of: dict[Asker, RangeSet] = {}
        #: the union of the ranges of all askers
        self._anyone = RangeSet()

    def ask(self, asker: Asker, ranges: Iterable[Range]) -> list[Range]:
        """Note that `asker` wants these ranges. Returns the parts that no asker wanted before."""
        mine = self._of.get(asker, RangeSet())
        first: list[Range] = []
        for base, upto in ranges:
            mine.add(base, upto)
            first += self._anyone.add(base, upto)
        if mine:
            self._of[asker] = mine
        return first

    def take(
        self, base: Tick, upto: Tick, *, unless: Callable[[Asker], bool] | None = None
    ) -> dict[Asker, list[Range]]:
        """Take the wants within `(base, upto]` out: asker -> the parts it wanted.

        Askers are in the order in which they first asked. An asker for which `unless` returns True is left
        out of the answer and keeps its wants.
        """
        if not self._of or not self._anyone.remove(base, upto):
            return {}
        staying = [asker for asker in self._of if unless is not None and unless(asker)]
        removed = {asker: mine.remove(base, upto) for asker, mine in self._of.items() if asker not in staying}
        for asker in staying:
            for first, last in self._of[asker].parts(base, upto):
                self._anyone.add(first, last)
        self._of = {asker: mine for asker, mine in self._of.items() if mine}
        return {asker: parts for asker, parts in removed.items() if parts}

    def drop(self, asker: Asker) -> list[Range]:
        """Forget an asker that is gone. Returns the parts that no other asker wants."""
        alone = self._of.pop(asker, RangeSet())
        for other in self._of.values():
            if not alone:
                break
            alone = alone.difference(other)
        for base, upto in alone:
            self._anyone.remove(base, upto)
        return list(alone)

    def wanted(self) -> list[Range]:
        """The ranges that some asker wants, in tick order."""
        return list(self._anyone)

    def wants(self, asker: Asker, tick: Tick) -> bool:
        """Whether `asker` waits for this tick."""
        mine = self._of.get(asker)
        return mine is not None and mine.contains(tick)

    def ranges(self, asker: Asker) -> int:
        """How many ranges `asker` waits for."""
        return len(self._of.get(asker, ()))

    def missing(self, base: Tick, upto: Tick) -> list[Range]:
        """The parts of `(base, upto]` that no asker wants, in order."""
        return self._anyone.gaps(base, upto) if self._of else [(base, upto)] if base < upto else []

    def askers(self) -> list[Asker]:
        """The askers that wait for something, in the order in which they first asked."""
        return list(self._of)

    def __len__(self) -> int:
        """The number of askers that wait for something."""
        return len(self._of)
