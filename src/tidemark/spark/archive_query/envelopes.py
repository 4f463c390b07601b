"""Events on their way through Spark to the archive: a row for each, with its message as it was published.

The columns are the headers of an archive table with the message in `_raw`, and `_range`. A row with a
`_range` is no event but says what became of a range of ticks of a pubend: it was read, or it is lost. Every
range that a task reads ends with such a row, so that silence is known to be silence. Imports no pyspark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.message.batches.batch import EventBatch
from tidemark.spark.archive.layout import HEADERS, ArchiveLayout
from tidemark.spark.archive.rows import to_events, to_rows
from tidemark.spark.archive.scan import pieces

_RANGE = pa.struct([("base", pa.int64()), ("upto", pa.int64()), ("lost", pa.bool_())])
#: The columns of an envelope.
COLUMNS = pa.schema([*HEADERS, ("_range", _RANGE)])
_PLAIN = ArchiveLayout()


@dataclass(frozen=True, slots=True)
class ToldRange:
    """`(base, upto]` of a pubend was read, or is lost."""

    pubend: str
    base: int
    upto: int
    is_lost: bool = False


def from_events(pubend: str, batch: EventBatch) -> Iterator[pa.RecordBatch]:
    """The events of a pubend as envelopes."""
    rows = to_rows(pubend, batch, {}, _PLAIN)
    rows = rows.append_column("_range", pa.nulls(rows.num_rows, _RANGE))
    yield from rows.combine_chunks().to_batches()


def from_range(told: ToldRange) -> pa.RecordBatch:
    """The row that says what became of a range."""
    said = {"base": told.base, "upto": told.upto, "lost": told.is_lost}
    return pa.RecordBatch.from_pylist([{"_pubend": told.pubend, "_range": said}], COLUMNS)


def opened(records: pa.RecordBatch) -> Iterator[tuple[str, EventBatch] | ToldRange]:
    """What the envelopes have, in their order but for ranges, which come after the events: pubend and events.

    The events of a pubend are in the order of their rows.
    """
    rows = pa.table(records)
    is_range = pc.is_valid(rows.column("_range"))
    events = rows.filter(pc.invert(is_range)).drop_columns("_range")
    for pubend in pc.unique(events.column("_pubend")).to_pylist():
        for piece in pieces(events.filter(pc.equal(events.column("_pubend"), pubend))):
            yield pubend, to_events(piece, {}, _PLAIN)
    for row in rows.filter(is_range).select(["_pubend", "_range"]).to_pylist():
        said = row["_range"]
        yield ToldRange(row["_pubend"], said["base"], said["upto"], said["lost"])
