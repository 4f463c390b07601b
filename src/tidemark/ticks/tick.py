"""A tick: one microsecond of a pubend's time, at which there is at most one event (DSN'03 2).

`(TICK_MIN, TICK_MAX]` is all of time. TICK_MIN is the base of the first tick and never the tick of an event.
Both only stand for "before everything" and "without an end". Real ticks lie from TICK_FIRST to TICK_LAST, so
that one more, one less, a validity later and the difference of any two are int64 too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: a moment in microseconds since 1970, as an int64
Tick = int

#: `(base, upto]`: the ticks t with base < t <= upto; empty when base equals upto.
Range = tuple[Tick, Tick]

#: Many ticks, strictly increasing unless a function says otherwise.
Ticks = NDArray[np.int64]

#: One truth value for each element of a `Ticks`.
Mask = NDArray[np.bool_]

TICK_MIN: Tick = -(2**63)
TICK_MAX: Tick = 2**63 - 1
#: The real ticks: 146,000 years before and after 1970.
TICK_FIRST: Tick = -(2**62) + 1
TICK_LAST: Tick = 2**62 - 1

#: How far the clocks of two machines may be apart, in ticks: one day. A tick that is further in the future
#: than this was never given to an event.
CLOCKS_APART_MAX = 86_400_000_000

#: The data ticks of a range without events.
NO_TICKS: Ticks = np.empty(0, np.int64)


def is_position(tick: Tick) -> bool:
    """Can a stream or its reader have got up to `tick`: is it a real tick, or TICK_MIN?"""
    return TICK_FIRST <= tick <= TICK_LAST or tick == TICK_MIN


def nearest_position(tick: Tick) -> Tick:
    """The position that is nearest to `tick`, which may be any number."""
    return tick if is_position(tick) else min(max(tick, TICK_FIRST), TICK_LAST)
