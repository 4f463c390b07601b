"""Which task reads what: a partition is a pubend and a range of its ticks.

A pubend with much to read is cut into several partitions, by ticks. A broker does not say how its bytes are
spread over time, so it is probed for the next events after a few ticks: stretches of silence are found in
rounds and not counted, and the rest is cut evenly. An archive says how large its files are, and is cut where
they end (`spark.archive_scan.slices`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from tidemark.spark.options import ReadPoint
from tidemark.ticks import union

#: About how much one task reads.
PARTITION_BYTES = 64 << 20
PARTITIONS_PER_PUBEND_MAX = 64
#: A stream that takes at most so many events at once is not cut: to find out where takes longer than to read.
PARTITION_EVENTS_MIN = 50_000
_PROBES = 8
_ROUNDS = 3

#: probe(at, upto) -> a tick: at most one record of events lies in `(at, tick]`, and unless the tick is
#: `upto`, others lie beyond.
Probe = Callable[[int, int], int]
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TickRange:
    """`(base, upto]` of a pubend."""

    pubend: str
    base: int
    upto: int


@dataclass(frozen=True, slots=True)
class ArchivedRanges:
    """Ranges that one task reads from the archive. Which files those are in is found when the task runs."""

    ranges: tuple[TickRange, ...]


@dataclass(frozen=True, slots=True)
class NewerEvents:
    """What has come since a batch read was planned, as it is found when a task reads it.

    Spark plans a read once, and runs it for every query on its DataFrame or view.
    """

    #: pubend -> the tick up to which other ranges go
    after: Mapping[str, int]
    #: where a pubend starts that is not among them
    first_base: int
    #: nothing beyond is read
    end: ReadPoint


def split(whole: TickRange, bytes_per_tick: Callable[[int], float], probe: Probe) -> list[TickRange]:
    """Ranges that tile the whole; `bytes_per_tick(first)` estimates the density, given the first event."""
    first = probe(whole.base, whole.upto)
    count = min(
        PARTITIONS_PER_PUBEND_MAX, round((whole.upto - first) * bytes_per_tick(first) / PARTITION_BYTES)
    )
    if count < 2:
        return [whole]
    busy = [(max(whole.base, first - 1), whole.upto)]
    for _ in range(_ROUNDS):
        busy = [part for each in busy for part in _without_silence(each, probe)]
    cuts = sorted({whole.base, *_even_cuts(busy, count), whole.upto})
    return [TickRange(whole.pubend, base, upto) for base, upto in pairwise(cuts)]


def _without_silence(whole: Range, probe: Probe) -> list[Range]:
    """The parts of a range, between a few even cuts, in which there are events."""
    base, upto = whole
    if upto - base < _PROBES:
        return [whole]
    marks = [base + (upto - base) * step // _PROBES for step in range(_PROBES + 1)]
    parts = union((start, end) for start, end in pairwise(marks) if probe(start, end) < end)
    return parts or [whole]


def _even_cuts(parts: list[Range], count: int) -> list[int]:
    """Ticks that cut the parts, laid end to end, into `count` pieces of equal length."""
    total = sum(upto - base for base, upto in parts)
    wanted = [total * step // count for step in range(1, count)]
    cuts: list[int] = []
    passed = 0
    for base, upto in parts:
        while wanted and wanted[0] <= passed + upto - base:
            cuts.append(base + wanted.pop(0) - passed)
        passed += upto - base
    return cuts
