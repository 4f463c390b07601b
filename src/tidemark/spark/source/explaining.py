"""What a read would do, as text: Spark's own `explain` shows no more of a Python source than its columns.

`explain` plans a batch read just as Spark would, and reads nothing.
"""

from __future__ import annotations

from typing import Any

from tidemark.spark.options import source_options
from tidemark.spark.source.archived import DeltaArchive
from tidemark.spark.source.partitions import ArchivedRanges, TickRange
from tidemark.spark.source.scan import Partition, Planner, SourceScan, located, topic_columns_of

#: What is said of every read of an archive: see docs/spark.md, Which reader.
_HINT = "tasks of Python read it: for much of it tidemark.spark.history, which lets Spark read, is faster"


def explain(**options: Any) -> str:
    """How `spark.read.format("tidemark").options(**options)` would read: a line for each thing it does."""
    found = located(source_options({name: str(value) for name, value in options.items()}))
    scan = SourceScan(found, topic_columns_of(found))
    planner = Planner(scan)
    try:
        parts = planner.everything()
    finally:
        planner.close()
    columns = scan.topic_columns
    lines = [
        f"read of {columns.pattern}",
        f"  selector: {columns.selector or 'all events'}",
        f"  columns: {', '.join(columns.names)}",
    ]
    if isinstance(scan.archive, DeltaArchive):
        then = "" if found.as_of is None else f" as of {found.as_of}"
        lines.append(f"  archive{then}: {_archived(scan, scan.archive, parts)}")
        lines.append(f"    {_HINT}")
    live = [each for each in parts if isinstance(each, TickRange)]
    lines.append(f"  broker: {len(live)} partitions of {len({each.pubend for each in live})} pubends")
    return "\n".join(lines)


def _archived(scan: SourceScan, archive: DeltaArchive, parts: list[Partition]) -> str:
    from tidemark.errors import TranslationError
    from tidemark.spark.archive_scan.columnar import ColumnarReader
    from tidemark.spark.archive_scan.slices import slices

    archived = archive.snapshot()
    there = {archived.location(each): each.bytes for files in archived.files.values() for each in files}
    groups = [each for each in parts if isinstance(each, ArchivedRanges)]
    read = {
        file
        for group in groups
        for each in group.ranges
        for part in slices(archived, each.pubend, [(each.base, each.upto)], [scan.wanted], 1 << 62)
        for files in part.files.values()
        for file in files
    }
    try:
        ColumnarReader(scan.topic_columns, archived)
        how = "read as columns, the selector tested on them"
    except TranslationError as error:
        how = f"read as events ({error})"
    return (
        f"{len(read)} of {len(there)} files, {sum(there[file] for file in read):,} of "
        f"{sum(there.values()):,} bytes, in {len(groups)} partitions, {how}"
    )
