"""Window: what a broker remembers of a stream, bounded in bytes.

A window has the knowledge of the ticks beyond `floor`, with the events themselves. When it grows over its
bound, the oldest part is forgotten and the floor rises: a window is soft state, which can be asked for again.
`unexpired` returns the events of a batch that are within their validity (MOPS); at every broker, an event
past its validity is silence.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidemark.message.batches.batch import PRELUDE, EventBatch, concatenate
from tidemark.message.batches.building import are_even, take_across
from tidemark.ticks import TICK_MIN, Range, RangeSet, TickKnowledge

Rows = NDArray[np.int64]

MILLISECOND = 1_000

#: Bytes of events that are handled at once, and those of a piece for subscribers that return, who seldom want
#: all of it.
PIECE_BYTES = 1 << 20
SHARED_PIECE_BYTES = 2 << 20
#: Different selections of rows of one piece that are remembered, and the memory that they may take.
CUTS_MAX = 64
CUTS_BYTES_MAX = 2 * SHARED_PIECE_BYTES
#: The share of a window that is forgotten at once where it is written to a cache.
SAVED_SHARE = 8
#: Memory of the pieces that are remembered, with what was cut out of them. Subscribers that return together
#: come one after the other, and each of them goes as far as its credit allows before the next one begins.
PIECES_BYTES_MAX = 32 << 20
#: So many batches in a row, of at most so many bytes each, are made one: a single event that is a batch of
#: its own takes far more memory than its bytes.
MERGED_BATCHES = 64
MERGED_BYTES_MAX = 1 << 10


class Cuts:
    """Selections of rows of some events: subscribers that want the same rows share one copy."""

    def __init__(self, *batches: EventBatch) -> None:
        """`batches`, of which there is at least one, are in order; several of them must be `are_even`."""
        self._batches = batches
        self.ticks: Rows = (
            batches[0].ticks if len(batches) == 1 else np.concatenate([each.ticks for each in batches])
        )
        #: what the events are
        self.shapes = batches[0].shapes
        self._parts: dict[bytes, EventBatch] = {}
        #: (id of an array of ticks, lo, hi) -> the array, and the rows with its ticks from lo to hi
        self._of_ticks: dict[tuple[int, int, int], tuple[Rows, EventBatch | None]] = {}
        #: memory of the parts and of their keys
        self._bytes = 0

    @classmethod
    def of(cls, batches: Sequence[EventBatch]) -> Cuts | None:
        """Return the events of batches that are in order, of which nothing is copied yet if that is possible.

        None if there are no events.
        """
        filled = [batch for batch in batches if batch.count]
        if not filled:
            return None
        return cls(*filled) if len(filled) == 1 or are_even(filled) else cls(concatenate(filled))

    @property
    def held_bytes(self) -> int:
        """The memory of the events and of the parts that are remembered."""
        return sum(each.held_bytes for each in self._batches) + self._bytes

    @property
    def batch(self) -> EventBatch:
        """All events as one batch."""
        if len(self._batches) > 1:
            self._batches = (concatenate(self._batches),)
        return self._batches[0]

    def take(self, rows: Rows) -> EventBatch:
        """Return these rows, which are in order."""
        if len(rows) == len(self.ticks):
            return self.batch
        key = rows.tobytes()
        found = self._parts.get(key)
        if found is None:
            found = take_across(self._batches, rows) if len(self._batches) > 1 else self.batch.take(rows)
            if len(self._parts) >= CUTS_MAX or self._bytes > CUTS_BYTES_MAX:
                self._parts.clear()
                self._of_ticks.clear()
                self._bytes = 0
            self._parts[key] = found
            self._bytes += found.held_bytes + len(key)
        return found

    def at(self, ticks: Rows, lo: int, hi: int) -> EventBatch | None:
        """Return the events at ticks[lo:hi], which increase; None if one of them is not in the batch.

        The array must not change: who asks again with the same one is answered at once.
        """
        key = id(ticks), lo, hi
        known = self._of_ticks.get(key)
        if known is not None:
            return known[1]
        wanted, found = ticks[lo:hi], self.ticks
        rows = np.minimum(np.searchsorted(found, wanted), len(found) - 1)
        part = self.take(rows) if (found[rows] == wanted).all() else None
        if len(self._of_ticks) >= CUTS_MAX:
            self._of_ticks.clear()
        self._of_ticks[key] = ticks, part
        return part


class WindowPiece(NamedTuple):
    """Everything a window has in `(base, upto]`: its events, if any, and the parts that are L."""

    base: int
    upto: int
    cuts: Cuts | None
    damaged: list[Range]

    @property
    def held_bytes(self) -> int:
        """The memory of its events and of what was cut out of them."""
        return 0 if self.cuts is None else self.cuts.held_bytes


class Window:
    """Knowledge and events of one stream beyond `floor`."""

    def __init__(self, bytes_max: int, floor: int = TICK_MIN) -> None:
        self.knowledge = TickKnowledge()
        self.floor = floor
        #: ranges in the middle that a disk lost and that are therefore L: part of what is known, told as gaps
        self.damaged = RangeSet()
        self._bytes_max = bytes_max
        #: memory of the batches
        self.bytes = 0
        #: (last tick, number, batch), sorted by last tick; no event is in two batches
        self._batches: list[tuple[int, int, EventBatch]] = []
        self._number = 0
        #: how many of the last batches are small and were appended one after the other
        self._small = 0
        #: beyond this tick, each batch ends before the next one begins
        self._tangled_upto = TICK_MIN
        #: the pieces that were read last, for subscribers that read the same
        self._pieces: deque[WindowPiece] = deque()

    def learn(self, base: int, upto: int, batch: EventBatch | None, damaged: Iterable[Range] = ()) -> None:
        """Add knowledge of `(base, upto]`; what is at or below the floor, or known already, is dropped."""
        base = max(base, self.floor, self.knowledge.lost)
        if upto <= base:
            return
        kept = rows_within(batch, base, upto)
        ticks = kept.ticks if kept is not None else np.zeros(0, np.int64)
        learnt = self.knowledge.learn(base, upto, ticks)
        for first, last in damaged:
            if last > base:
                self.damaged.add(max(first, base), last)
        if kept is None:
            return
        new = int(learnt.new[0]) if kept.count == 1 else int(np.count_nonzero(learnt.new))
        if not new:
            return
        if new < kept.count:
            kept = kept.take(learnt.new)
        if not learnt.resolved or kept.ticks[0] <= learnt.resolved[0][0]:
            # Events where the window had silence for narrower interests: remembered pieces lack them.
            self._pieces.clear()
        self._number += 1
        self.bytes += kept.held_bytes
        self._insert((int(kept.ticks[-1]), self._number, kept))

    def _insert(self, entry: tuple[int, int, EventBatch]) -> None:
        last, _, batch = entry
        if not self._batches or self._batches[-1][0] < batch.ticks[0]:
            self._batches.append(entry)
            self._small = self._small + 1 if len(batch.data) <= MERGED_BYTES_MAX else 0
            if self._small == MERGED_BATCHES:
                self._merge()
            return
        self._small = 0
        insort(self._batches, entry, key=lambda each: each[:2])
        at = bisect_right(self._batches, last, key=lambda each: each[0]) - 1
        after = self._batches[at + 1 :]
        if after and after[0][2].ticks[0] < last:
            last = after[0][0]
        if last > entry[0] or (at and self._batches[at - 1][0] > batch.ticks[0]):
            self._tangled_upto = max(self._tangled_upto, last)

    def _merge(self) -> None:
        """Make one batch of the last MERGED_BATCHES, which are in order."""
        self._small = 0
        entries = self._batches[-MERGED_BATCHES:]
        if len(entries) < MERGED_BATCHES or entries[0][2].ticks[0] <= self._tangled_upto:
            return
        last, number, _ = entries[-1]
        merged = concatenate([batch for _, _, batch in entries])
        self._batches[-MERGED_BATCHES:] = [(last, number, merged)]
        self.bytes += merged.held_bytes - sum(batch.held_bytes for _, _, batch in entries)

    def lose(self, upto: int) -> None:
        """Everything at or below `upto` is L, and its events are gone."""
        self.knowledge.lose(upto)
        self._drop(upto)

    def shrink(self, keep_beyond: int | None, save: Callable[[int, int], None] | None = None) -> bool:
        """Forget the oldest events until the bound holds, but nothing beyond `keep_beyond` (None: no limit).

        What is forgotten is given to `save` before, as a range; then a part of the window is forgotten at
        once, so that ranges are large. Returns whether anything was forgotten.
        """
        over = self.bytes - self._bytes_max
        if over <= 0:
            return False
        if save is not None:
            over += self._bytes_max // SAVED_SHARE
        floor = self.floor
        for last, _, batch in self._batches:
            if over <= 0 or (keep_beyond is not None and last > keep_beyond):
                break
            floor, over = last, over - batch.held_bytes
        if floor <= self.floor:
            return False
        if save is not None:
            save(max(self.floor, self.knowledge.lost), floor)
        self.raise_floor(floor)
        return True

    def raise_floor(self, floor: int) -> None:
        """Forget everything at or below `floor`."""
        if floor <= self.floor:
            return
        self.knowledge.forget(self.floor, floor)
        self.floor = floor
        self._drop(floor)

    @property
    def end(self) -> int:
        """The last tick of which anything is known, or was known before it was forgotten."""
        span = self.knowledge.known.span
        return max(self.knowledge.lost, self.floor, span[1] if span is not None else TICK_MIN)

    @property
    def is_full(self) -> bool:
        """Whether the window is over its bound: it should learn nothing before it has forgotten something."""
        return self.bytes > self._bytes_max

    def events(self, base: int, upto: int) -> EventBatch | None:
        """Return the events in `(base, upto]`, in order; None if there are none."""
        parts = self._parts(base, upto)
        if not parts:
            return None
        whole = concatenate(parts)
        if len(parts) > 1 and (np.diff(whole.ticks) < 0).any():
            whole = whole.take(np.argsort(whole.ticks, kind="stable"))
        return whole

    def _parts(self, base: int, upto: int) -> list[EventBatch]:
        """The events in `(base, upto]` as they lie here: in order, unless batches are tangled."""
        parts: list[EventBatch] = []
        for at in range(self._beyond(base), len(self._batches)):
            last, _, batch = self._batches[at]
            if batch.ticks[0] > upto and last > self._tangled_upto:
                break
            part = rows_within(batch, base, upto)
            if part is not None:
                parts.append(part)
        return parts

    def _beyond(self, base: int) -> int:
        """Return the place of the first batch that ends beyond `base`, which is mostly the last one."""
        batches = self._batches
        if len(batches) > 1 and batches[-2][0] <= base:
            return len(batches) - (batches[-1][0] > base)
        return bisect_right(batches, base, key=lambda entry: entry[0])

    def reach(self, base: int, upto: int, bytes_max: int | None = None) -> int:
        """Return the tick, at most `upto`, up to which the events beyond `base` have about `bytes_max`.

        Unless it is said, that is PIECE_BYTES.
        """
        bytes_max = PIECE_BYTES if bytes_max is None else bytes_max
        size = 0
        for at in range(self._beyond(base), len(self._batches)):
            last, _, batch = self._batches[at]
            size += len(batch.data)
            if last >= upto:
                break
            if size >= bytes_max:
                return last
        return upto

    def piece(self, base: int, upto: int) -> WindowPiece | None:
        """Return a piece that begins at or before `base`; None unless all of `(base, upto]` is known."""
        for found in self._pieces:
            if found.base <= base < found.upto:
                return found
        if not self.knowledge.known.covers(base, upto):
            return None
        base = self._aligned(base)
        stop = self.reach(base, self.knowledge.horizon(base), SHARED_PIECE_BYTES)
        found = WindowPiece(base, stop, self._cuts(base, stop), self.damaged.parts(base, stop))
        self.remember(found)
        return found

    def _cuts(self, base: int, upto: int) -> Cuts | None:
        """The events in `(base, upto]`, of which nothing is copied before somebody takes some of them."""
        parts = self._parts(base, upto)
        if base >= self._tangled_upto:
            return Cuts.of(parts)
        whole = self.events(base, upto)
        return None if whole is None else Cuts(whole)

    def _aligned(self, base: int) -> int:
        """Return where the batch begins that `base` lies in, if all is known from there on; else `base`.

        Pieces that begin with a batch are those of everybody, wherever the first event lies that each wants.
        """
        at = self._beyond(base)
        if at == len(self._batches) or base < self._tangled_upto:
            return base
        before = int(self._batches[at][2].ticks[0]) - 1
        return before if before < base and self.knowledge.known.covers(before, base) else base

    def remember(self, piece: WindowPiece) -> None:
        """Keep a piece for others that want it. It must have all that any subscriber here wants of it."""
        self._pieces.append(piece)
        held = sum(each.held_bytes for each in self._pieces)
        while held > PIECES_BYTES_MAX and len(self._pieces) > 1:
            held -= self._pieces.popleft().held_bytes

    def forget_pieces(self) -> None:
        """Nobody wants pieces any more."""
        self._pieces.clear()

    def _drop(self, upto: int) -> None:
        self.damaged.remove_upto(upto)
        while self._batches and self._batches[0][0] <= upto:
            self.bytes -= self._batches.pop(0)[2].held_bytes


def rows_within(batch: EventBatch | None, base: int, upto: int) -> EventBatch | None:
    """Return the rows in `(base, upto]` of a batch whose ticks increase; None if there are none."""
    if batch is None or batch.count == 0:
        return None
    if base < batch.ticks[0] and batch.ticks[-1] <= upto:
        return batch
    first, last = np.searchsorted(batch.ticks, (base, upto), side="right").tolist()
    return batch.slice(first, last) if first < last else None


def unexpired(batch: EventBatch, wall: int) -> EventBatch | None:
    """Return the events that are within their validity at `wall`; None if there are none."""
    if batch.count == 1:
        validity_ms: int = PRELUDE.unpack_from(batch.body.data)[-1]
        is_alive = not validity_ms or int(batch.ticks[0]) + validity_ms * MILLISECOND > wall
        return batch if is_alive else None
    if batch.common is not None and not batch.common.validity_ms:
        return batch
    validity = batch.prelude("validity_ms")
    if not validity.any():
        return batch
    alive = (validity == 0) | (batch.ticks + validity.astype(np.int64) * MILLISECOND > wall)
    if alive.all():
        return batch
    return batch.take(alive) if alive.any() else None
