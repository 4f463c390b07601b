"""Cutting history into slices: which files have what is wanted, in pieces of bounded size.

The slices of a pubend follow each other in ticks. They are cut where files end, and where row groups of large
files end, so that nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidemark.matching.topics import TopicPattern
from tidemark.message.topic_selector import TopicSelector
from tidemark.spark.archive.reader import Snapshot, could_have, gaps_in, snapshot
from tidemark.spark.archive.state import load_state
from tidemark.spark.archive.table import DataFile, root_of
from tidemark.spark.archive_scan.pruning import Pruning
from tidemark.spark.locations import Place
from tidemark.spark.stores.folder import StoredFile
from tidemark.ticks import TICK_MIN
from tidemark.ticks.tick import Range

#: With more topics and selectors than this, as of a thousand subscribers, files are not tested by selectors.
SELECTORS_MAX = 64


@dataclass(frozen=True, slots=True)
class Slice:
    """`(base, upto]` of a pubend, and the files that may have events of it, by root, in their order."""

    pubend: str
    base: int
    upto: int
    files: Mapping[str, tuple[StoredFile, ...]] = field(default_factory=dict)
    #: about how much of the files is read
    bytes: int = 0
    #: what of the range the archive lacks
    gone: tuple[Range, ...] = ()
    #: nothing at or below this tick is read: the archive has removed it, even if files still have it
    released: int | None = None
    #: are the rows of every file in the order of ticks, and wholly in their columns, without raw messages?
    is_columnar: bool = True


def current_snapshot(path: Place) -> Snapshot:
    """The archive as it is now, with a `released` that is at least as new as the list of its files."""
    archived = snapshot(path)
    # The state names removed history before its files go, so it explains what the list of files lacks.
    return replace(archived, state=replace(archived.state, released=load_state(path).released))


def slices(
    archived: Snapshot,
    pubend: str,
    ranges: Iterable[Range],
    wanted: Sequence[TopicSelector],
    slice_bytes: int,
) -> Iterator[Slice]:
    """Slices that tile the ranges of a pubend, in order; a slice without files where no file has events."""
    files = _wanted_files(archived, wanted)
    released = TICK_MIN if archived.state.released is None else archived.state.released
    for base, upto in ranges:
        # No cut is made in removed history: it is one gap, not one for every file that still has some of it.
        some = [each for each in files if could_have(each, pubend, max(base, released), upto)]
        marks = [mark for mark in _cuts(archived, some, slice_bytes) if max(base, released) < mark < upto]
        for low, high in zip([base, *marks], [*marks, upto], strict=True):
            here = [each for each in some if could_have(each, pubend, low, high)]
            yield _slice(archived, pubend, low, high, here, slice_bytes)


def _wanted_files(archived: Snapshot, wanted: Sequence[TopicSelector]) -> list[DataFile]:
    """The files that may have events which one of these topics and selectors chooses."""
    different = list(dict.fromkeys(wanted))
    patterns = {TopicPattern.parse(each.pattern) for each in different}
    roots = [root for root in archived.files if any(root in archived.roots(each) for each in patterns)]
    files = [each for root in roots for each in archived.files[root]]
    if len(different) > SELECTORS_MAX:
        return files
    tests = {root: [_Test(archived, root, each) for each in different] for root in roots}
    return [file for file in files if any(test.could_have(file) for test in tests[file.root])]


class _Test:
    """Tests the files of one table for one pattern and selector."""

    def __init__(self, archived: Snapshot, root: str, wanted: TopicSelector) -> None:
        pattern = TopicPattern.parse(wanted.pattern)
        names = [name for name in archived.topics.names if root_of(name) == root and pattern.matches(name)]
        self._names = set(names)
        self._is_known = pattern.is_exact and bool(names)
        topics = [each for name in names for each in archived.topics.creations(name)]
        self._pruning = Pruning(archived.layouts[root], topics, wanted.selector)

    def could_have(self, file: DataFile) -> bool:
        """May the file have events that are wanted?

        A file that may have a topic whose schema is missing here is read, so that its damage is noticed.
        """
        low, high = file.bounds.get("_topic", ("", ""))
        if not self._is_known and not (low == high and low in self._names):
            return True
        return self._pruning.could_have(file)


def _slice(
    archived: Snapshot, pubend: str, base: int, upto: int, files: Sequence[DataFile], slice_bytes: int
) -> Slice:
    of_root: dict[str, tuple[StoredFile, ...]] = {}
    for each in files:
        of_root[each.root] = (*of_root.get(each.root, ()), archived.location(each))
    size = sum(min(each.bytes, slice_bytes) for each in files)
    gone = tuple(gaps_in(archived.state, pubend, base, upto))
    plain = all(each.is_own and each.nulls.get("_raw") == each.rows for each in files)
    return Slice(pubend, base, upto, of_root, size, gone, archived.state.released, plain)


def _cuts(archived: Snapshot, files: Sequence[DataFile], slice_bytes: int) -> list[int]:
    """Ticks at which files or row groups end, about `slice_bytes` apart."""
    ends = sorted(end for each in files for end in _ends(archived, each, slice_bytes))
    marks: list[int] = []
    size = 0
    for tick, part in ends:
        size += part
        if size >= slice_bytes and (not marks or tick > marks[-1]):
            marks.append(tick)
            size = 0
    return marks


def _ends(archived: Snapshot, file: DataFile, slice_bytes: int) -> list[Range]:
    """Last ticks with the bytes up to there: of the file, or of each of its row groups if it is large."""
    bounds = file.bounds.get("_tick")
    if bounds is None:
        return []
    if file.bytes < 2 * slice_bytes:
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
