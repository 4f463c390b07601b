"""Place: how far a log volume was on the platter."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """A place in a log volume: everything before it was on the platter, of earlier segments too."""

    segment: int
    offset: int


NOWHERE = Place(0, 0)
