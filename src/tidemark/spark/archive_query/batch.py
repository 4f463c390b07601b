"""A micro-batch of the archive's query: its tasks write envelopes into Parquet files of the tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemark.errors import NotConnectedError
from tidemark.spark.archive.part import PartResult, merged_results
from tidemark.spark.archive.plan import RoundPart
from tidemark.spark.archive.state import ArchiveTopics
from tidemark.spark.archive.writer import PartWriter
from tidemark.spark.archive_query.envelopes import ToldRange, opened
from tidemark.ticks import TICK_MIN

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def written(frame: DataFrame, part: RoundPart, covered: Mapping[str, int]) -> PartResult:
    """Write the envelopes of a micro-batch as `part` says; the files are synced and in no commit yet.

    Raises NotConnectedError if a broker went away so that there is a hole in what was read.
    """

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        number = int(TaskContext.get().partitionId())
        done, told = write_part(replace(part, number=number), batches)
        ranges = [[each.pubend, each.base, each.upto] for each in told]
        text = json.dumps({"done": done.to_json(), "ranges": ranges})
        yield pa.record_batch([pa.array([number]), pa.array([text])], ["number", "result"])

    rows = frame.mapInArrow(write, "number long, result string").collect()
    results = [json.loads(row["result"]) for row in sorted(rows, key=lambda row: row["number"])]
    whole = merged_results([PartResult.from_json(each["done"]) for each in results])
    whole.reached = reached([ToldRange(*told) for each in results for told in each["ranges"]], covered)
    return whole


def write_part(part: RoundPart, batches: Iterable[pa.RecordBatch]) -> tuple[PartResult, list[ToldRange]]:
    """Write the envelopes of one task. Returns what was written, and the ranges that the envelopes tell of.

    If anything fails, no file is left.
    """
    writer = PartWriter(part, ArchiveTopics(part.topics).schemas)
    done = PartResult()
    told: list[ToldRange] = []
    try:
        for records in batches:
            for item in opened(records):
                if not isinstance(item, ToldRange):
                    writer.add(*item)
                    continue
                told.append(item)
                if item.is_lost:
                    done.missing.append((item.pubend, (item.base, item.upto)))
        done.files = writer.close()
    except BaseException:
        writer.discard()
        raise
    done.events, done.bytes = writer.events, writer.bytes
    return done, told


def reached(told: Iterable[ToldRange], covered: Mapping[str, int]) -> dict[str, int]:
    """pubend -> the tick up to which it was read, from what is covered on.

    Raises NotConnectedError if there is a hole: the tasks after one that was cut short went on.
    """
    found: dict[str, int] = {}
    for each in sorted(told, key=lambda each: (each.pubend, each.base, each.upto)):
        at = found.get(each.pubend, covered.get(each.pubend, TICK_MIN))
        if each.base > at:
            raise NotConnectedError("a broker has gone in the middle of a batch: it is begun again")
        found[each.pubend] = max(at, each.upto)
    return found
