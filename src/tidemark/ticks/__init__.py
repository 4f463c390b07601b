"""Ticks: ranges of them, what is known of each, what must be asked for, how far a subscriber got.

Pure data structures with no clock: where time matters it is an argument in microseconds. Ranges are half-open
on the left, `(base, upto]`, everywhere.
"""

from tidemark.ticks.curiosity import Curiosity, Thresholds
from tidemark.ticks.knowledge import Knowledge, Learnt
from tidemark.ticks.ranges import RangeSet, union, within
from tidemark.ticks.tick import NO_TICKS, TICK_MAX, TICK_MIN, Mask, Range, Tick, Ticks
from tidemark.ticks.tickset import TickSet
from tidemark.ticks.token import CheckpointToken
from tidemark.ticks.wants import Wants

__all__ = [
    "NO_TICKS",
    "TICK_MAX",
    "TICK_MIN",
    "CheckpointToken",
    "Curiosity",
    "Knowledge",
    "Learnt",
    "Mask",
    "Range",
    "RangeSet",
    "Thresholds",
    "Tick",
    "TickSet",
    "Ticks",
    "Wants",
    "union",
    "within",
]
