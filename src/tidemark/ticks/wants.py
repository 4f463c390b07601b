"""Wants: who asked for which ticks, so that nacks of many leave as one and an answer finds them all.

The consolidated curiosity of a relay or an istream (DSN'03 3). An asker is whatever the owner sends
answers to: a downstream link, a catchup stream. Soft state: an asker whose answer was lost asks again.
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
        #: no asker without ranges
        self._of: dict[Asker, RangeSet] = {}
        #: the union of all of them
        self._anyone = RangeSet()

    def ask(self, asker: Asker, ranges: Iterable[Range]) -> list[Range]:
        """`asker` wants these; the parts that nobody was asking for yet."""
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
        """Who wanted which parts of `(base, upto]`, in the order they first asked; they do not any more.

        Those for whom `unless` is true go on wanting.
        """
        if not self._anyone.remove(base, upto):
            return {}
        staying = [asker for asker in self._of if unless is not None and unless(asker)]
        removed = {asker: mine.remove(base, upto) for asker, mine in self._of.items() if asker not in staying}
        for asker in staying:
            for first, last in self._of[asker].parts(base, upto):
                self._anyone.add(first, last)
        self._of = {asker: mine for asker, mine in self._of.items() if mine}
        return {asker: parts for asker, parts in removed.items() if parts}

    def drop(self, asker: Asker) -> list[Range]:
        """`asker` is gone; the parts that only it wanted."""
        alone = self._of.pop(asker, RangeSet())
        for other in self._of.values():
            if not alone:
                break
            alone = alone.difference(other)
        for base, upto in alone:
            self._anyone.remove(base, upto)
        return list(alone)

    def wanted(self) -> list[Range]:
        """What anyone wants, in tick order."""
        return list(self._anyone)

    def missing(self, base: Tick, upto: Tick) -> list[Range]:
        """The parts of `(base, upto]` that nobody wants, in order."""
        return self._anyone.gaps(base, upto)

    def askers(self) -> list[Asker]:
        """Those who wait for something, in the order they first asked."""
        return list(self._of)

    def __len__(self) -> int:
        """How many askers wait for something."""
        return len(self._of)
