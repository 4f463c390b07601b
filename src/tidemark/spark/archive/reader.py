"""Reading an archive: how far it goes, which files have what, and the events themselves, byte for byte.

An archive is a directory of tables, one for each first level of topic names, with `_archive` beside them. A
round commits to several tables, one after the other, and has ended when the state says so. A reader therefore
takes the state first, and then only the files of rounds that had ended: everything it sees is at or below
`covered`, and everything at or below `covered` is there. Files that a commit has replaced stay for a while
(`compaction.GRACE_SECONDS`), so a reader can finish with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidemark.errors import StorageError
from tidemark.matching.topics import ONE, REST, TopicPattern
from tidemark.message.batches.batch import EventBatch
from tidemark.spark.archive.layout import ArchiveLayout
from tidemark.spark.archive.scan import WantedRange, merged, scan
from tidemark.spark.archive.state import ArchiveState, ArchiveTopics, load_state, load_topics
from tidemark.spark.archive.table import ArchiveTable, DataFile, folder_of, roots_in
from tidemark.spark.locations import Place, folder_at
from tidemark.spark.stores.folder import Folder, StoredFile
from tidemark.ticks import TICK_MIN, CheckpointToken, union, within
from tidemark.ticks.tick import Range

#: A reader that finds the archive compacted meanwhile tries again, so many times.
_TRIES_MAX = 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An archive at the end of one round."""

    path: Folder
    state: ArchiveState
    topics: ArchiveTopics
    layouts: Mapping[str, ArchiveLayout]
    #: root -> the files of its table, in the order of their names
    files: Mapping[str, tuple[DataFile, ...]]

    def roots(self, pattern: TopicPattern) -> list[str]:
        """The roots of tables that may have topics of the pattern."""
        first = pattern.levels[0] if pattern.levels else ONE
        return [root for root in self.files if first in (ONE, root)]

    def location(self, file: DataFile) -> StoredFile:
        """Where a file is."""
        return folder_of(self.path, file.root).file(file.name)


def snapshot(path: Place) -> Snapshot:
    """The archive as it is now; an empty snapshot if there is none yet. Raises StorageError."""
    folder = folder_at(path)
    for _ in range(_TRIES_MAX):
        state = load_state(folder)
        found = {root: ArchiveTable(folder, root) for root in roots_in(folder)}
        files = {root: table.files() for root, table in found.items()}
        every = [each.batches for some in files.values() for each in some]
        # Rounds that ended after the state was read may have been merged with earlier ones into one file.
        if any(first <= state.batch < last for first, last in every):
            continue
        ended = {
            root: tuple(each for each in some if each.batches[1] <= state.batch)
            for root, some in files.items()
        }
        layouts = {root: table.layout for root, table in found.items()}
        return Snapshot(folder, state, load_topics(folder), layouts, ended)
    raise StorageError("changes faster than it can be read: try again", path=folder.text)


def covered(path: Place) -> CheckpointToken:
    """pubend -> the tick up to which the archive at `path` covers it."""
    return load_state(path).covered


def gaps(path: Place, pubend: str, base: int, upto: int) -> list[Range]:
    """The ranges of `(base, upto]` that the archive lacks: lost before, removed since, or still to come."""
    return gaps_in(load_state(path), pubend, base, upto)


def gaps_in(state: ArchiveState, pubend: str, base: int, upto: int) -> list[Range]:
    """The ranges of `(base, upto]` that an archive in this state lacks."""
    absent = [*state.absent(pubend), (state.covered.get(pubend, TICK_MIN), upto)]
    return union(within(absent, base, upto))


def read(path: Place, pubend: str, base: int, upto: int, topic_pattern: str = ">") -> Iterator[EventBatch]:
    """The events of `(base, upto]` that the archive has, in the order of their ticks, as they were published.

    `gaps` returns what of the range the archive lacks.
    """
    return read_from(snapshot(path), pubend, base, upto, topic_pattern)


def read_from(
    archived: Snapshot, pubend: str, base: int, upto: int, topic_pattern: str = ">"
) -> Iterator[EventBatch]:
    """The same, from the archive as it was when this snapshot was taken."""
    pattern = TopicPattern.parse(topic_pattern)
    base = max(base, TICK_MIN if archived.state.released is None else archived.state.released)
    upto = min(upto, archived.state.covered.get(pubend, TICK_MIN))
    if base >= upto:
        return
    wanted = WantedRange(pubend, base, upto, None if topic_pattern == REST else pattern)
    streams = [
        scan(
            [
                archived.location(each)
                for each in archived.files[root]
                if could_have(each, pubend, base, upto)
            ],
            wanted,
            archived.topics.schemas,
            archived.layouts[root],
        )
        for root in archived.roots(pattern)
    ]
    yield from streams[0] if len(streams) == 1 else merged(streams)


def could_have(file: DataFile, pubend: str, base: int, upto: int) -> bool:
    """May the file have events of `(base, upto]` of the pubend? False only if its bounds exclude it."""
    pubends, ticks = file.bounds.get("_pubend"), file.bounds.get("_tick")
    return (pubends is None or pubends[0] <= pubend <= pubends[1]) and (
        ticks is None or (ticks[1] > base and ticks[0] <= upto)
    )
