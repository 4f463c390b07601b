"""Cutting history into slices: which files have what is wanted, in pieces of bounded size.

Slices of a pubend follow each other in ticks. They are cut where files end, and large files where their row
groups end, so that nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from tidemark.matching.topics import TopicPattern
from tidemark.spark.archive.reader import Snapshot, could_have, gaps_in, snapshot
from tidemark.spark.archive.state import load_state
from tidemark.spark.archive.table import DataFile, disk_errors
from tidemark.spark.deep.tasks import Slice
from tidemark.ticks import TICK_MIN, RangeSet
from tidemark.ticks.tick import Range

#: A slice reads about so much of files.
SLICE_BYTES = 8 << 20


def current_snapshot(path: Path) -> Snapshot:
    """The archive as it is; of what it lets go, what holds after its files were looked at."""
    found = snapshot(path)
    # History that went while the files were listed is not in them: that it went is said before it does.
    return replace(found, state=replace(found.state, released=load_state(path).released))


def slices(
    found: Snapshot, pubend: str, ranges: Iterable[Range], patterns: Sequence[TopicPattern]
) -> Iterator[Slice]:
    """All of the ranges of a pubend, in order; slices without files where there is nothing."""
    roots = [root for root in found.files if any(root in found.roots(each) for each in patterns)]
    files = [each for root in roots for each in found.files[root]]
    released = TICK_MIN if found.state.released is None else found.state.released
    for base, upto in ranges:
        # What was let go is one gap, not one for every file that still has some of it.
        some = [each for each in files if could_have(each, pubend, max(base, released), upto)]
        marks = [mark for mark in _cuts(found, some) if max(base, released) < mark < upto]
        for low, high in zip([base, *marks], [*marks, upto], strict=True):
            yield _slice(found, pubend, low, high, [e for e in some if could_have(e, pubend, low, high)])


def _slice(found: Snapshot, pubend: str, base: int, upto: int, files: Sequence[DataFile]) -> Slice:
    of_root: dict[str, tuple[str, ...]] = {}
    for each in files:
        of_root[each.root] = (*of_root.get(each.root, ()), str(found.location(each).absolute()))
    size = sum(min(each.bytes, SLICE_BYTES) for each in files)
    gone = tuple(gaps_in(found.state, pubend, base, upto))
    return Slice(pubend, base, upto, of_root, size, gone, found.state.released)


def _cuts(found: Snapshot, files: Sequence[DataFile]) -> list[int]:
    """Ticks at which files end, about SLICE_BYTES apart."""
    ends = sorted(end for each in files for end in _ends(found, each))
    marks: list[int] = []
    size = 0
    for tick, part in ends:
        size += part
        if size >= SLICE_BYTES and (not marks or tick > marks[-1]):
            marks.append(tick)
            size = 0
    return marks


def _ends(found: Snapshot, file: DataFile) -> list[Range]:
    """Last ticks, and the bytes up to there: of the file, or of its row groups if it is large."""
    bounds = file.bounds.get("_tick")
    if bounds is None:
        return []
    if file.bytes < 2 * SLICE_BYTES:
        return [(int(bounds[1]), file.bytes)]
    at = found.location(file)
    with disk_errors(at), pq.ParquetFile(at) as parquet:
        share = file.bytes // max(1, parquet.num_row_groups)
        column = parquet.schema_arrow.get_field_index("_tick")
        stats = [
            parquet.metadata.row_group(group).column(column).statistics
            for group in range(parquet.num_row_groups)
        ]
    return [(int(each.max), share) for each in stats if each is not None and each.has_min_max]


def union(ranges: Iterable[Range]) -> list[Range]:
    """The ticks of all ranges, each once."""
    return list(RangeSet(sorted(ranges)))
