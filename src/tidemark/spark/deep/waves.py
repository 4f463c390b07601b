"""Reading the slices of a wave: here if there is little to read, otherwise as tasks of a Spark job.

The work of the scan, with everything the matcher is compiled from, goes to the tasks with the job (Spark
broadcasts it when it is large); only what slices found comes back, as names in the spool. The events
themselves do not pass through Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from tidemark.spark.deep.slice_reader import read_slice
from tidemark.spark.deep.tasks import ScanWork, Slice, SliceResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: With less to read a job takes longer than the reading.
SPARK_BYTES_MIN = 16 << 20

#: Lends a session for as long as it is used.
Sessions = Callable[[], "AbstractContextManager[SparkSession]"]


def read_wave(
    work: ScanWork, parts: Sequence[Slice], prefix: str, sessions: Sessions | None
) -> list[SliceResult]:
    """What was found in each of the slices."""
    full = [each for each in parts if each.files]
    size = sum(each.bytes for each in full)
    if sessions is not None and len(full) > 1 and size >= SPARK_BYTES_MIN:
        with sessions() as spark:
            found = _on_spark(spark, work, full, prefix)
    else:
        found = [read_slice(work, each, prefix) for each in full]
    of_part = dict(zip(map(id, full), found, strict=True))
    return [of_part.get(id(each), SliceResult()) for each in parts]


def _on_spark(spark: SparkSession, work: ScanWork, parts: Sequence[Slice], prefix: str) -> list[SliceResult]:
    """Each slice a task of its own."""
    import pyarrow as pa

    def run(numbers: Any) -> Any:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                found = read_slice(work, parts[number], prefix)
                yield pa.record_batch([pa.array([number]), pa.array([found.to_json()])], ["slice", "found"])

    count = len(parts)
    rows = spark.range(0, count, 1, count).mapInArrow(run, "slice long, found string").collect()
    found = {row["slice"]: SliceResult.from_json(row["found"]) for row in rows}
    return [found[number] for number in range(count)]
