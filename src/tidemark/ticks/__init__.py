"""Ticks: sets of them, what a stream knows of each, what it must ask for, how far a subscriber got.

`tick` has the types that everything else is written in. `ranges` (RangeSet) and `tickset` (TickSet) are the
two kinds of set. `knowledge` is built on both and says what one stream knows of each tick; `curiosity` says
which ticks the stream has to ask for and when; `wants` says who asked this broker for which ticks. `token` is
the checkpoint token that a subscriber holds, and `token_text` its text. Other packages import the names below
from this package.

These are pure data structures without a clock: where time matters it is an argument in microseconds. Ranges
are half-open on the left, `(base, upto]`, everywhere.
"""

from tidemark.ticks.curiosity import Curiosity, Thresholds
from tidemark.ticks.knowledge import Learnt, TickKnowledge
from tidemark.ticks.pace import Pace
from tidemark.ticks.ranges import RangeSet, union, within
from tidemark.ticks.tick import (
    NO_TICKS,
    TICK_FIRST,
    TICK_LAST,
    TICK_MAX,
    TICK_MIN,
    Mask,
    Range,
    Tick,
    Ticks,
    is_position,
    nearest_position,
)
from tidemark.ticks.tickset import TickSet
from tidemark.ticks.token import CheckpointToken
from tidemark.ticks.wants import Wants

__all__ = [
    "NO_TICKS",
    "TICK_FIRST",
    "TICK_LAST",
    "TICK_MAX",
    "TICK_MIN",
    "CheckpointToken",
    "Curiosity",
    "TickKnowledge",
    "Learnt",
    "Mask",
    "Pace",
    "Range",
    "RangeSet",
    "Thresholds",
    "Tick",
    "TickSet",
    "Ticks",
    "Wants",
    "is_position",
    "nearest_position",
    "union",
    "within",
]
