"""Reading the slices of a wave: here if there is little to read, otherwise as tasks of a Spark job.

The work of the scan, with everything the matcher is compiled from, goes to the tasks with the job. Only the
results of slices come back, as names of files in the spool: the events themselves do not pass through Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tidemark.spark.archive_scan.slices import Slice
from tidemark.spark.deep.slice_reader import read_slice
from tidemark.spark.deep.tasks import ScanWork, SliceResult
from tidemark.spark.engine.tasks import SessionLender, run_tasks

#: With less to read a job takes longer than the reading.
SPARK_BYTES_MIN = 16 << 20


def read_wave(
    work: ScanWork, slices: Sequence[Slice], prefix: str, sessions: SessionLender | None
) -> list[SliceResult]:
    """The result of each slice; a slice without files has an empty one.

    The names of the files that are written begin with `prefix`. Without `sessions` all is read here.
    """
    full = [each for each in slices if each.files]
    is_large = len(full) > 1 and sum(each.bytes for each in full) >= SPARK_BYTES_MIN
    read = partial(read_slice, work, prefix=prefix)
    what = f"tidemark: read {len(full)} slices of the archive for subscribers"
    found = iter(run_tasks(full, read, SliceResult.from_json, sessions if is_large else None, what))
    return [next(found) if each.files else SliceResult() for each in slices]
