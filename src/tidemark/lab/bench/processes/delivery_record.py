"""DeliveryRecord: checks what one subscriber got with sums over whole batches, without Python per event."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidemark.lab.bench.system.load import Expected, Kind, kinds_in, numbers_of, squares
from tidemark.message.batches.batch import EventBatch


class DeliveryRecord:
    """Checks that numbers and ticks grow; count, sum and sum of squares then identify the events."""

    def __init__(self, name: str, kind: Kind, pubends: int = 1) -> None:
        """`pubends`: at how many the subscription has to start before events may be published."""
        self.name = name
        self.pubends = pubends
        self.kind = kind
        self.count = 0
        self.frames = 0
        self._total = 0
        self._squares = 0
        self._last = -1
        #: pubend -> the subscriber was told everything up to this tick
        self.told: dict[str, int] = {}
        #: the first fault that was found
        self.problem: str | None = None

    def take(self, base: int, upto: int, batch: EventBatch | None, pubend: str = "") -> None:
        """Record a delivery of the range `(base, upto]` of a pubend."""
        told = self.told.get(pubend, base)
        if base != told:
            self._wrong(f"told up to {told}, then from {base}")
        self.told[pubend] = upto
        if batch is None:
            return
        ticks = batch.ticks
        if ticks[0] <= base or ticks[-1] > upto or (ticks[1:] <= ticks[:-1]).any():
            self._wrong(f"ticks out of order in ({base}, {upto}]")
        self.add(numbers_of(batch), kinds_in(batch))

    def add(self, numbers: NDArray[np.int64], kinds: NDArray[np.int32]) -> None:
        """Record the events of one batch: numbers[event], kinds[event]."""
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
        """Record a gap, which is always a fault in a benchmark."""
        self._wrong(f"a gap in ({base}, {upto}]")

    def check(self, expected: Expected) -> str | None:
        """Returns the first fault, or None if exactly the expected events came."""
        found = Expected(self.count, self._total, self._squares)
        if self.problem is None and found != expected:
            self._wrong(f"got {found}, should have got {expected}")
        return self.problem

    def _wrong(self, what: str) -> None:
        self.problem = self.problem or f"subscriber {self.name}: {what}"
