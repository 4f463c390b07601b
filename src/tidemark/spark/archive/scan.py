"""Scanning archive files for the events of one pubend, in the order of their ticks.

The files of a table follow each other in ticks; row groups whose bounds exclude the wanted range are skipped.
The streams of several tables are merged by tick, in pieces that fit into a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.batch import EventBatch, concatenate
from tidemark.message.batches.spans import stretches
from tidemark.spark.archive.layout import ArchiveLayout, laid_out
from tidemark.spark.archive.rows import Schemas, to_events
from tidemark.spark.archive.table import is_own_name
from tidemark.spark.stores.folder import StoredFile

#: Of one batch that is handed out: a batch has to fit into a frame.
EVENTS_BYTES_MAX = 4 << 20
ROWS_MAX = 16 << 10


@dataclass(frozen=True, slots=True)
class WantedRange:
    """`(base, upto]` of a pubend, and of that the topics of a pattern; None stands for all topics."""

    pubend: str
    base: int
    upto: int
    pattern: TopicPattern | None = None


def scan(
    files: Sequence[StoredFile], wanted: WantedRange, schemas: Schemas, layout: ArchiveLayout
) -> Iterator[EventBatch]:
    """The wanted events of these files, in the order of their ticks.

    The files that were written here follow each other in ticks; those of other tools have no order.
    """
    own = [each for each in files if is_own_name(each.name)]
    others = [each for each in files if not is_own_name(each.name)]
    if not others:
        yield from _in_turn(own, wanted, schemas, layout)
        return
    streams = [_sorted(each, wanted, schemas, layout) for each in others]
    yield from merged([_in_turn(own, wanted, schemas, layout), *streams])


def _in_turn(
    files: Sequence[StoredFile], wanted: WantedRange, schemas: Schemas, layout: ArchiveLayout
) -> Iterator[EventBatch]:
    for file in files:
        with file.errors(), file.parquet() as parquet:
            groups = [at for at in range(parquet.num_row_groups) if _may_have(parquet, at, wanted)]
            for group in groups:
                for table in pieces(_chosen(parquet.read_row_group(group), wanted)):
                    yield from to_events(table, schemas, layout).split(EVENTS_BYTES_MAX)


def _sorted(
    file: StoredFile, wanted: WantedRange, schemas: Schemas, layout: ArchiveLayout
) -> Iterator[EventBatch]:
    """The wanted events of a file that another tool has written; they are sorted in memory."""
    with file.errors(), file.parquet() as parquet:
        groups = [at for at in range(parquet.num_row_groups) if _may_have(parquet, at, wanted)]
        found = [_chosen(_as_written_here(parquet.read_row_group(at), layout), wanted) for at in groups]
    if found:
        for table in pieces(pa.concat_tables(found).sort_by("_tick")):
            yield from to_events(table, schemas, layout).split(EVENTS_BYTES_MAX)


def _as_written_here(table: pa.Table, layout: ArchiveLayout) -> pa.Table:
    """The rows in the types of the layout: other tools write strings and times in types of their own."""
    return laid_out({name: table.column(name) for name in table.column_names}, table.num_rows, layout)


def merged(streams: Sequence[Iterator[EventBatch]]) -> Iterator[EventBatch]:
    """The events of several streams by tick; each stream is in order, and no tick is in two of them."""
    heads = {at: batch for at, stream in enumerate(streams) if (batch := next(stream, None)) is not None}
    while heads:
        # Up to this tick, no stream has events beyond its head.
        upto = min(int(batch.ticks[-1]) for batch in heads.values())
        ready: list[EventBatch] = []
        for at, batch in list(heads.items()):
            cut = int(np.searchsorted(batch.ticks, upto, side="right"))
            if cut:
                ready.append(batch.slice(0, cut))
            rest = batch.slice(cut, batch.count) if cut < batch.count else next(streams[at], None)
            if rest is None:
                del heads[at]
            else:
                heads[at] = rest
        yield from _in_order(ready)


def _in_order(batches: Sequence[EventBatch]) -> Iterator[EventBatch]:
    """The events of the batches, sorted by tick, in batches of bounded size."""
    if len(batches) == 1:
        yield batches[0]
        return
    of_batch = np.repeat(np.arange(len(batches)), [batch.count for batch in batches])
    row = np.concatenate([np.arange(batch.count) for batch in batches])
    sizes = np.concatenate([batch.ends - batch.starts for batch in batches])
    order = np.argsort(np.concatenate([batch.ticks for batch in batches]), kind="stable")
    for some in stretches(np.cumsum(sizes[order]), EVENTS_BYTES_MAX):
        chosen = order[some]
        parts = [
            batch.take(row[chosen][of_batch[chosen] == at])
            for at, batch in enumerate(batches)
            if (of_batch[chosen] == at).any()
        ]
        whole = concatenate(parts)
        yield whole.take(np.argsort(whole.ticks, kind="stable"))


def _may_have(parquet: pq.ParquetFile, group: int, wanted: WantedRange) -> bool:
    if not may_have_pubend(parquet, group, wanted.pubend):
        return False
    ticks = _bounds(parquet, group, "_tick")
    return ticks is None or (ticks[1] > wanted.base and ticks[0] <= wanted.upto)


def may_have_pubend(parquet: pq.ParquetFile, group: int, pubend: str) -> bool:
    """May the row group have events of the pubend? False only if its bounds exclude it."""
    pubends = _bounds(parquet, group, "_pubend")
    return pubends is None or bool(pubends[0] <= pubend <= pubends[1])


def _bounds(parquet: pq.ParquetFile, group: int, column: str) -> tuple[Any, Any] | None:
    found = parquet.metadata.row_group(group).column(parquet.schema_arrow.get_field_index(column))
    assert found.path_in_schema == column, "headers come first and are not nested"
    stats = found.statistics
    return None if stats is None or not stats.has_min_max else (stats.min, stats.max)


def _chosen(table: pa.Table, wanted: WantedRange) -> pa.Table:
    ticks = table.column("_tick")
    mask = pc.and_(pc.greater(ticks, wanted.base), pc.less_equal(ticks, wanted.upto))
    mask = pc.and_(mask, pc.equal(table.column("_pubend"), wanted.pubend))
    if wanted.pattern is not None:
        topics = [
            name for name in pc.unique(table.column("_topic")).to_pylist() if wanted.pattern.matches(name)
        ]
        mask = pc.and_(mask, pc.is_in(table.column("_topic"), pa.array(topics, pa.string())))
    return table if pc.all(mask).as_py() else table.filter(mask)


def pieces(table: pa.Table) -> Iterator[pa.Table]:
    """The table cut into stretches that make batches of bounded size."""
    if not table.num_rows:
        return
    width = max(1, table.nbytes // table.num_rows)
    rows = int(min(ROWS_MAX, max(1, EVENTS_BYTES_MAX // width)))
    for first in range(0, table.num_rows, rows):
        yield table.slice(first, rows).combine_chunks()
