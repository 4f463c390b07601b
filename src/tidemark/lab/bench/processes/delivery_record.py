"""Ledger: what one subscriber got, kept so that every event counts and none is looked at by itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidemark.lab.bench.system.load import Expected, Kind, kinds_in, numbers_of, squares
from tidemark.message.batches.batch import EventBatch


class DeliveryRecord:
    """Numbers must grow from event to event, and ticks from piece to piece; then the sums tell the rest."""

    def __init__(self, name: str, kind: Kind) -> None:
        self.name = name
        self.kind = kind
        self.count = 0
        self.frames = 0
        self._total = 0
        self._squares = 0
        self._last = -1
        #: told up to this tick; None before the start
        self.upto: int | None = None
        #: the first thing that was wrong
        self.problem: str | None = None

    def take(self, base: int, upto: int, batch: EventBatch | None) -> None:
        """A piece `(base, upto]` of the stream has come."""
        if self.upto is not None and base != self.upto:
            self._wrong(f"told up to {self.upto}, then from {base}")
        self.upto = upto
        if batch is None:
            return
        ticks = batch.ticks
        if ticks[0] <= base or ticks[-1] > upto or (ticks[1:] <= ticks[:-1]).any():
            self._wrong(f"ticks out of order in ({base}, {upto}]")
        self.add(numbers_of(batch), kinds_in(batch))

    def add(self, numbers: NDArray[np.int64], kinds: NDArray[np.int32]) -> None:
        """n[event] and kind[event] of what came together."""
        if numbers[0] <= self._last or (numbers[1:] <= numbers[:-1]).any():
            self._wrong(
                f"event {numbers[0]} and those after it, after {self._last}: repeated or out of order"
            )
        if self.kind is not None and (kinds != self.kind).any():
            self._wrong(f"an event of another kind than {self.kind}")
        self._last = int(numbers[-1])
        self.count += len(numbers)
        self.frames += 1
        self._total += int(numbers.sum())
        self._squares = (self._squares + squares(numbers) + 2**63) % 2**64 - 2**63

    def gap(self, base: int, upto: int) -> None:
        """Something was let go: never in a bench."""
        self._wrong(f"a gap in ({base}, {upto}]")

    def check(self, expected: Expected) -> str | None:
        """What is wrong, if anything."""
        found = Expected(self.count, self._total, self._squares)
        if self.problem is None and found != expected:
            self._wrong(f"got {found}, should have got {expected}")
        return self.problem

    def _wrong(self, what: str) -> None:
        self.problem = self.problem or f"subscriber {self.name}: {what}"
