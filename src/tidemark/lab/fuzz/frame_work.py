"""FrameWork: what a frame makes a broker do, counted in calls, which are the same on every machine.

A frame may cause a number of calls in proportion to its bytes, and a number besides that does not depend on
it. What it causes later, when the disk has done its work, is not counted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tidemark.lab.fuzz.connections import Said

#: A Topic of schemas that are parsed takes eleven calls for each byte. A Subscribe to everything takes the
#: most calls besides: all hostile topics and subscriptions of a run are joined.
CALLS_A_BYTE = 16
CALLS_MAX = 400_000


class FrameWork:
    """Counts the calls that each frame causes, and remembers the most."""

    def __init__(self) -> None:
        self._calls = 0
        #: the most calls, of all frames, beyond what their bytes allow
        self.most = 0
        self.what = ""

    @contextmanager
    def of(self, raw: bytes, said: Said) -> Iterator[None]:
        """Count what is done for a frame of these bytes. AssertionError if that is too much."""
        self._calls = 0
        before = sys.getprofile()
        sys.setprofile(self._count)
        try:
            yield
        finally:
            sys.setprofile(before)
        extra = self._calls - CALLS_A_BYTE * len(raw)
        if extra > self.most:
            self.most, self.what = extra, f"{self._calls} calls for {len(raw)} bytes: {said.last[-1]:.200}"
        assert extra <= CALLS_MAX, f"{self._calls} calls for a frame of {len(raw)} bytes"

    def _count(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            self._calls += 1
