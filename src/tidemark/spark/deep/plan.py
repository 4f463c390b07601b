"""Cutting history into slices: which files have what is wanted, in pieces of bounded size.

The slices of a pubend follow each other in ticks. They are cut where files end, and where row groups of large
files end, so that nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tidemark.matching.topics import TopicPattern
from tidemark.spark.archive.reader import Snapshot, could_have, gaps_in, snapshot
from tidemark.spark.archive.state import load_state
from tidemark.spark.archive.table import DataFile
from tidemark.spark.deep.tasks import Slice
from tidemark.spark.locations import Place
from tidemark.spark.stores.folder import StoredFile
from tidemark.ticks import TICK_MIN
from tidemark.ticks.tick import Range

#: About how much of files a slice reads.
SLICE_BYTES = 8 << 20


def current_snapshot(path: Place) -> Snapshot:
    """The archive as it is now, with a `released` that is at least as new as the list of its files."""
    archived = snapshot(path)
    # The state names removed history before its files go, so it explains what the list of files lacks.
    return replace(archived, state=replace(archived.state, released=load_state(path).released))


def slices(
    archived: Snapshot, pubend: str, ranges: Iterable[Range], patterns: Sequence[TopicPattern]
) -> Iterator[Slice]:
    """Slices that tile the ranges of a pubend, in order; a slice without files where no file has events."""
    roots = [root for root in archived.files if any(root in archived.roots(each) for each in patterns)]
    files = [each for root in roots for each in archived.files[root]]
    released = TICK_MIN if archived.state.released is None else archived.state.released
    for base, upto in ranges:
        # No cut is made in removed history: it is one gap, not one for every file that still has some of it.
        some = [each for each in files if could_have(each, pubend, max(base, released), upto)]
        marks = [mark for mark in _cuts(archived, some) if max(base, released) < mark < upto]
        for low, high in zip([base, *marks], [*marks, upto], strict=True):
            yield _slice(archived, pubend, low, high, [e for e in some if could_have(e, pubend, low, high)])


def _slice(archived: Snapshot, pubend: str, base: int, upto: int, files: Sequence[DataFile]) -> Slice:
    of_root: dict[str, tuple[StoredFile, ...]] = {}
    for each in files:
        of_root[each.root] = (*of_root.get(each.root, ()), archived.location(each))
    size = sum(min(each.bytes, SLICE_BYTES) for each in files)
    gone = tuple(gaps_in(archived.state, pubend, base, upto))
    return Slice(pubend, base, upto, of_root, size, gone, archived.state.released)


def _cuts(archived: Snapshot, files: Sequence[DataFile]) -> list[int]:
    """Ticks at which files or row groups end, about SLICE_BYTES apart."""
    ends = sorted(end for each in files for end in _ends(archived, each))
    marks: list[int] = []
    size = 0
    for tick, part in ends:
        size += part
        if size >= SLICE_BYTES and (not marks or tick > marks[-1]):
            marks.append(tick)
            size = 0
    return marks


def _ends(archived: Snapshot, file: DataFile) -> list[Range]:
    """Last ticks with the bytes up to there: of the file, or of each of its row groups if it is large."""
    bounds = file.bounds.get("_tick")
    if bounds is None:
        return []
    if file.bytes < 2 * SLICE_BYTES:
        return [(int(bounds[1]), file.bytes)]
    at = archived.location(file)
    with at.errors(), at.parquet() as parquet:
        share = file.bytes // max(1, parquet.num_row_groups)
        column = parquet.schema_arrow.get_field_index("_tick")
        stats = [
            parquet.metadata.row_group(group).column(column).statistics
            for group in range(parquet.num_row_groups)
        ]
    return [(int(each.max), share) for each in stats if each is not None and each.has_min_max]
