"""Reading an archive: how far it goes, which files have what, and the events themselves, byte for byte.

A directory of tables, one for each first level of a topic's name, and `_archive` beside them. A round of the
archive commits to several tables, one after the other, and ends when the state says so: readers take the
state first and then only files of rounds that had ended, so all they see is at or below `covered`, and
everything at or below it is there. Files stay for a while after a commit has replaced them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemark.errors import StorageError
from tidemark.matching.topics import ONE, REST, TopicPattern
from tidemark.message.batches.batch import EventBatch
from tidemark.spark.archive.layout import ArchiveLayout
from tidemark.spark.archive.scan import WantedRange, merged, scan
from tidemark.spark.archive.state import ArchiveState, ArchiveTopics, joined_ranges, load_state, load_topics
from tidemark.spark.archive.table import ArchiveTable, DataFile, folder_of, roots_in
from tidemark.ticks import TICK_MIN, CheckpointToken
from tidemark.ticks.tick import Range

#: A reader that meets this many compactions in a row gives up.
_TRIES_MAX = 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An archive at the end of one round."""

    path: Path
    state: ArchiveState
    topics: ArchiveTopics
    layouts: Mapping[str, ArchiveLayout]
    #: in the order of their names
    files: Mapping[str, tuple[DataFile, ...]]

    def roots(self, pattern: TopicPattern) -> list[str]:
        """The roots that have topics which may match."""
        first = pattern.levels[0] if pattern.levels else ONE
        return [root for root in self.files if first in (ONE, root)]

    def location(self, file: DataFile) -> Path:
        """Where a file lies."""
        return folder_of(self.path, file.root) / file.name


def snapshot(path: str | Path) -> Snapshot:
    """The archive as it is now; an empty one where there is none yet."""
    place = Path(path)
    for _ in range(_TRIES_MAX):
        state = load_state(place)
        found = {root: ArchiveTable(place, root) for root in roots_in(place)}
        files = {root: table.files() for root, table in found.items()}
        every = [each.batches for some in files.values() for each in some]
        # Rounds that ended since the state was read may have been merged into files of rounds before them.
        if any(first <= state.batch < last for first, last in every):
            continue
        ended = {
            root: tuple(each for each in some if each.batches[1] <= state.batch)
            for root, some in files.items()
        }
        layouts = {root: table.layout for root, table in found.items()}
        return Snapshot(place, state, load_topics(place), layouts, ended)
    raise StorageError("changes faster than it can be read: try again", path=str(place))


def covered(path: str | Path) -> CheckpointToken:
    """How far the archive goes in each pubend."""
    return load_state(Path(path)).covered


def gaps(path: str | Path, pubend: str, base: int, upto: int) -> list[Range]:
    """What of `(base, upto]` the archive does not have: gone before, let go since, not yet there."""
    return gaps_in(load_state(Path(path)), pubend, base, upto)


def gaps_in(state: ArchiveState, pubend: str, base: int, upto: int) -> list[Range]:
    """The same, of an archive in this state."""
    absent = [*state.absent(pubend), (state.covered.get(pubend, TICK_MIN), upto)]
    return joined_ranges((max(low, base), min(high, upto)) for low, high in absent)


def read(
    path: str | Path, pubend: str, base: int, upto: int, topic_pattern: str = ">"
) -> Iterator[EventBatch]:
    """The events of `(base, upto]` that the archive has, in the order of their ticks, as they were published.

    `gaps` says what it does not have.
    """
    pattern = TopicPattern.parse(topic_pattern)
    taken = snapshot(path)
    base = max(base, TICK_MIN if taken.state.released is None else taken.state.released)
    upto = min(upto, taken.state.covered.get(pubend, TICK_MIN))
    if base >= upto:
        return
    wanted = WantedRange(pubend, base, upto, None if topic_pattern == REST else pattern)
    streams = [
        scan(
            [taken.location(each) for each in taken.files[root] if could_have(each, pubend, base, upto)],
            wanted,
            taken.topics.schemas,
            taken.layouts[root],
        )
        for root in taken.roots(pattern)
    ]
    yield from streams[0] if len(streams) == 1 else merged(streams)


def could_have(file: DataFile, pubend: str, base: int, upto: int) -> bool:
    """May the file have events of this range?"""
    pubends, ticks = file.bounds.get("_pubend"), file.bounds.get("_tick")
    return (pubends is None or pubends[0] <= pubend <= pubends[1]) and (
        ticks is None or (ticks[1] > base and ticks[0] <= upto)
    )
