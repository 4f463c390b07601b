"""Streams written as text: `knowledge("LDQS", first=104)` knows 104 as lost, 105 as data, ..."""

from __future__ import annotations

import numpy as np

from tidemark.ticks import NO_TICKS, TICK_MIN, TickKnowledge, Ticks


def ticks(*values: int) -> Ticks:
    return np.array(values, np.int64)


def knowledge(text: str, first: int) -> TickKnowledge:
    """What `text` says of the ticks from `first` on. L may only come first; without it nothing is lost."""
    lost = len(text) - len(text.lstrip("L"))
    known = TickKnowledge(first + lost - 1 if lost else TICK_MIN)
    for tick, state in enumerate(text[lost:], first + lost):
        assert state in "QSD"
        if state != "Q":
            known.learn(tick - 1, tick, ticks(tick) if state == "D" else NO_TICKS)
    return known
