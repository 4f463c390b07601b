"""Timing what runs in this process, and checking that it is right.

Other programs can only make a repetition slower, never faster. So cases that are compared run in turns, in
many short repetitions spread over the whole run, and the best repetition of a case is its cost. The garbage
collector runs between repetitions, not in them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns
from typing import Any, TypeVar

#: A repetition calls its case as often as it takes to fill this time: short, to fit between disturbances.
REPETITION_NS = 1_500_000
#: A case whose repetitions would take longer than this together has fewer of them.
CASE_NS = 600_000_000
REPETITIONS_MIN = 3

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Timing:
    """Nanoseconds of one call, over the repetitions."""

    best: float
    median: float

    @classmethod
    def of(cls, nanoseconds: Sequence[float]) -> Timing:
        """From one number for each repetition."""
        return cls(min(nanoseconds), median(nanoseconds))


def race(cases: Mapping[Key, Callable[[], object]], rounds: int) -> dict[Key, Timing]:
    """Time the cases in turns, so that they meet the same good and bad moments; returns a timing for each.

    A slow case skips most rounds, evenly.
    """
    taken: dict[Key, list[float]] = {key: [] for key in cases}
    with heap_frozen():
        first = {key: _warm(case) for key, case in cases.items()}
        for round_ in range(rounds):
            for key, case in cases.items():
                if round_ % _stride(first[key], rounds) == 0:
                    taken[key].append(repeat(case, max(1, round(REPETITION_NS / first[key]))))
    return {key: Timing.of(numbers) for key, numbers in taken.items()}


def _warm(case: Callable[[], object]) -> float:
    """Nanoseconds of the second call, at least 1."""
    case()
    return max(1.0, repeat(case, 1))


def _stride(call_ns: float, rounds: int) -> int:
    """Returns every how many rounds a case takes part."""
    repetitions = max(REPETITIONS_MIN, int(CASE_NS / max(call_ns, REPETITION_NS)))
    return max(1, rounds // repetitions)


def repeat(case: Callable[[], object], calls: int) -> float:
    """Nanoseconds of one call, the average of `calls`."""
    with collector_off():
        begin = perf_counter_ns()
        for _ in range(calls):
            case()
        return (perf_counter_ns() - begin) / calls


def each(case: Callable[[Any], object], items: Sequence[Any]) -> list[int]:
    """nanoseconds[item] of the case on each item, one call an item."""
    taken: list[int] = []
    with collector_off():
        for item in items:
            begin = perf_counter_ns()
            case(item)
            taken.append(perf_counter_ns() - begin)
    return taken


@contextmanager
def collector_off() -> Iterator[None]:
    """No garbage collection inside; what has gathered is collected before."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def heap_frozen() -> Iterator[None]:
    """Collections inside do not visit objects that exist already, which would take longer than many cases."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def check_exact(found: object, expected: object, what: str) -> None:
    """Raise AssertionError unless the two are equal and of one type: wrong results are not measured."""
    if found != expected or type(found) is not type(expected):
        raise AssertionError(f"{what}: found {found!r}, expected {expected!r}")
