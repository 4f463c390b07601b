"""A tick: one microsecond of a pubend's time, unique to at most one event (DSN'03 2).

`(TICK_MIN, TICK_MAX]` is all of time. TICK_MIN is the base before the first tick and no event's tick.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: int64 microseconds
Tick = int

#: `(base, upto]`: the ticks t with base < t <= upto; empty when they are equal.
Range = tuple[Tick, Tick]

#: Many ticks at once, strictly increasing unless said otherwise.
Ticks = NDArray[np.int64]

#: One truth per element of a `Ticks`.
Mask = NDArray[np.bool_]

TICK_MIN: Tick = -(2**63)
TICK_MAX: Tick = 2**63 - 1

#: The data ticks of silence.
NO_TICKS: Ticks = np.empty(0, np.int64)
