"""The data pipeline on Spark: reading from a broker, the archive and history over it, publishing.

A case is a function that takes the testbed and yields sections. Cases run in the order of CASES on one broker
and one session; `only` runs one of them. Those that need an archive use the one that `archive` has written,
or write one without measuring that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tidemark.lab.bench.report import Section
from tidemark.lab.bench.spark.archiving import archiving
from tidemark.lab.bench.spark.deep import deep
from tidemark.lab.bench.spark.reading import micro_batches, reading
from tidemark.lab.bench.spark.sink import sinking
from tidemark.lab.bench.spark.testbed import FULL, QUICK, SparkEffort, SparkTestbed, spark_testbed

__all__ = ["FULL", "QUICK", "CASES", "sections"]

CASES: Mapping[str, Callable[[SparkTestbed], Iterator[Section]]] = {
    "reading": reading,
    "micro": micro_batches,
    "archive": archiving,
    "deep": deep,
    "sink": sinking,
}


def sections(effort: SparkEffort, only: str | None = None) -> Iterator[Section]:
    """Yields the sections; AssertionError when a row is missing, there twice, or not as published."""
    with spark_testbed(effort) as here:
        for name, case in CASES.items():
            if only in (None, name):
                yield from case(here)
