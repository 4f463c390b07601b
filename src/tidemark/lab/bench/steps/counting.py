"""Counting what a piece of code does: calls in Python and in C, and how much memory it has at most."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from time import process_time_ns
from types import FrameType
from typing import Any


@dataclass(frozen=True, slots=True)
class Counts:
    """What was done."""

    units: int
    python_calls: int
    c_calls: int
    #: `file:function` -> its calls, the most frequent first
    most_called: dict[str, int]


class CallCounter:
    """Counts calls while it is on; the garbage collector is off meanwhile."""

    def __init__(self) -> None:
        self._python: Counter[str] = Counter()
        self._c = 0

    def run(self, case: Callable[[], int]) -> int:
        """Run the case with counting; returns what it returns."""
        gc.disable()
        sys.setprofile(self._seen)
        try:
            return case()
        finally:
            sys.setprofile(None)
            gc.enable()

    def _seen(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            self._python[f"{code.co_filename.rpartition('/tidemark/')[2]}:{code.co_qualname}"] += 1
        elif event == "c_call":
            self._c += 1

    def counts(self, units: int, named: int) -> Counts:
        """Returns what was counted, with the `named` most frequent functions."""
        # Switching the counter off is a call too.
        calls = self._python.total()
        return Counts(units, calls, max(0, self._c - 1), dict(self._python.most_common(named)))


def cpu_ns(case: Callable[[], int]) -> tuple[int, int]:
    """Returns what the case returns, and the CPU time that it took in this process."""
    gc.disable()
    try:
        began = process_time_ns()
        units = case()
        return units, process_time_ns() - began
    finally:
        gc.enable()


def memory_peak(case: Callable[[], int]) -> int:
    """Returns the bytes that the case had allocated at most, beyond what was there before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        case()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
