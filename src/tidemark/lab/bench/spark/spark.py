"""The data pipeline on Spark: reading from a broker, the archive and history over it, publishing.

A case is a function of the ground to its sections; they run in this order, on one broker and one session, and
the archive that one has written is there for those that come after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidemark.lab.bench.report import Section
from tidemark.lab.bench.spark.archiving import archiving
from tidemark.lab.bench.spark.deep import deep
from tidemark.lab.bench.spark.ground import FULL, QUICK, Effort, Ground, ground
from tidemark.lab.bench.spark.reading import reading
from tidemark.lab.bench.spark.sink import sinking

__all__ = ["FULL", "QUICK", "CASES", "bench_spark"]

CASES: tuple[Callable[[Ground], Iterator[Section]], ...] = (reading, archiving, deep, sinking)


def bench_spark(effort: Effort) -> Iterator[Section]:
    """The sections of the bench; AssertionError when a row is missing, there twice, or not as published."""
    with ground(effort) as here:
        for case in CASES:
            yield from case(here)
