"""The data pipeline on Spark: reading from a broker, the archive and history over it, publishing.

A case is a function that takes the testbed and yields sections. Cases run in the order of CASES on one broker
and one session, and later cases use the archive that `archiving` has written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidemark.lab.bench.report import Section
from tidemark.lab.bench.spark.archiving import archiving
from tidemark.lab.bench.spark.deep import deep
from tidemark.lab.bench.spark.reading import reading
from tidemark.lab.bench.spark.sink import sinking
from tidemark.lab.bench.spark.testbed import FULL, QUICK, SparkEffort, SparkTestbed, spark_testbed

__all__ = ["FULL", "QUICK", "CASES", "sections"]

CASES: tuple[Callable[[SparkTestbed], Iterator[Section]], ...] = (reading, archiving, deep, sinking)


def sections(effort: SparkEffort) -> Iterator[Section]:
    """Yields the sections; AssertionError when a row is missing, there twice, or not as published."""
    with spark_testbed(effort) as here:
        for case in CASES:
            yield from case(here)
