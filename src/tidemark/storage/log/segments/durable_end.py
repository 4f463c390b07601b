"""DurableEnd: how far a log volume was on the platter."""

from __future__ import annotations

from typing import NamedTuple


class DurableEnd(NamedTuple):
    """A place in a log volume: everything before it was on the platter, of earlier segments too."""

    segment: int
    offset: int


NOWHERE = DurableEnd(0, 0)
