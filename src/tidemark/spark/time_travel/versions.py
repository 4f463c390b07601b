"""Which versions of its tables an archive still has, and the archive as it was at one of them.

Every commit to a table makes a version of it; a version is there as long as its entry in the table's log and
its files are. The entries also say the state of the archive after a round (`spark.archive.recovery`), so the
state of then comes from the log and not from the file of the state. A time is that of the newest commit that
is not later, in each table. Rounds that had not ended then are left out, as for every reader.

Files that were replaced are kept for the time that the archive is set to (`ArchiveRetention.versions`). Files
that an erasure has replaced are removed an hour later, whatever that time is: versions that need them cannot
be read any more.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tidemark.errors import ConfigError, StorageError
from tidemark.matching.topics import ONE, REST, TopicPattern
from tidemark.spark.archive.reader import Snapshot
from tidemark.spark.archive.recovery import RoundCommits, round_commits
from tidemark.spark.archive.state import ArchiveState, load_topics
from tidemark.spark.archive.table import ArchiveTable, entries_of, folder_of, log_of, roots_in
from tidemark.spark.locations import Place, folder_at
from tidemark.spark.stores.folder import Folder
from tidemark.spark.time_travel.as_of import AsOf

#: What a commit says about itself -> what it did, in one word.
_KINDS = {"tidemark.after": "events", "tidemark.erased": "erasure", "tidemark.released": "retention"}


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version of a table, and what its commit did."""

    table: str
    version: int
    #: Unix time in microseconds
    time: int
    #: events, erasure, retention, files (merged), columns, or other for what another tool did
    kind: str
    files_added: int
    files_removed: int
    #: rows of the files that were added
    rows_added: int

    def to_json(self) -> dict[str, Any]:
        """The version as a JSON object."""
        return asdict(self)


def versions(path: Place, root: str | None = None, *, limit: int | None = None) -> list[TableVersion]:
    """The versions of all tables, or of one, that the logs still have: the newest first, of each table.

    `limit` is how many of each table are listed. Raises ConfigError if there is no table of that name.
    """
    folder = folder_at(path)
    found: list[TableVersion] = []
    for each in _tables(folder, root):
        log = log_of(folder, each)
        names = entries_of(log)
        for name in reversed(names if limit is None else names[-limit:] if limit else []):
            entry = _entry(log, name)
            if entry is not None:
                found.append(_described(each, name, entry))
    return found


def snapshot_as_of(path: Place, as_of: AsOf, pattern: TopicPattern) -> Snapshot:
    """The archive as it was, with the tables that may have topics of the pattern.

    Raises ConfigError if there never was such a version, or the pattern is of several tables, each of which
    has versions of its own; StorageError if what was there then is not kept any more.
    """
    folder = folder_at(path)
    first = pattern.levels[0] if pattern.levels else ONE
    chosen = _chosen(folder, as_of, first)
    state = _state(folder, chosen, as_of)
    tables = {
        root: ArchiveTable(folder, root, version=version)
        for root, version in chosen.items()
        if first in (ONE, REST, root)
    }
    files = {
        root: tuple(each for each in table.files() if each.batches[1] <= state.batch)
        for root, table in tables.items()
    }
    for root, some in files.items():
        there = {each.name for each in folder_of(folder, root).files()}
        gone = [each.name for each in some if each.is_own and each.name not in there]
        if gone:
            raise _not_kept(folder, root, as_of, f"{len(gone)} of its {len(some)} files are removed")
    layouts = {root: table.layout for root, table in tables.items()}
    return Snapshot(folder, state, load_topics(folder), layouts, files)


def _tables(folder: Folder, root: str | None) -> list[str]:
    there = roots_in(folder)
    if root is None:
        return there
    if root not in there:
        raise ConfigError(f"there is no table {root!r}: there are {', '.join(there) or 'none'}", key="topic")
    return [root]


def _chosen(folder: Folder, as_of: AsOf, first: str) -> dict[str, int]:
    """root -> the version of its table, where `first` is the first level of the topics that are read.

    A time says how far all tables were: whether a round had ended shows in all of them. A table that was not
    there yet is left out.
    """
    if as_of.version is None:
        found = {root: _at_time(folder, root, as_of) for root in roots_in(folder)}
        return {root: version for root, version in found.items() if version is not None}
    if first in (ONE, REST):
        raise ConfigError(
            "a version is that of one table, and every first level of topic names has a table: name a topic, "
            "or read as of a time",
            key="versionAsOf",
        )
    (root,) = _tables(folder, first)
    kept = [_number(name) for name in entries_of(log_of(folder, root))]
    if as_of.version not in kept:
        if not kept or as_of.version > kept[-1]:
            newest = f"its newest version is {kept[-1]}" if kept else "it has none"
            raise ConfigError(f"the table {root!r} has no {as_of}: {newest}", key="versionAsOf")
        raise _not_kept(folder, root, as_of, f"its versions {kept[0]} to {kept[-1]} are")
    return {root: as_of.version}


def _at_time(folder: Folder, root: str, as_of: AsOf) -> int | None:
    """The newest version that is not later than a time; None if the table was created later."""
    assert as_of.time is not None
    log = log_of(folder, root)
    names = entries_of(log)
    at = bisect_right(names, as_of.time, key=lambda name: _time(_entry(log, name)))
    if at:
        return _number(names[at - 1])
    if not names or _number(names[0]) == 0:
        return None
    raise _not_kept(folder, root, as_of, f"its versions {_number(names[0])} to {_number(names[-1])} are")


def _state(folder: Folder, chosen: Mapping[str, int], as_of: AsOf) -> ArchiveState:
    found: dict[str, RoundCommits] = {}
    for root, version in chosen.items():
        log = log_of(folder, root)
        found[root] = round_commits(log, version)
        is_whole = found[root].newest is not None or _number(entries_of(log)[0]) == 0
        if not is_whole:
            raise _not_kept(folder, root, as_of, "the entry of its last round is removed")
    return RoundCommits.state(found, alone=as_of.version is not None)


def _entry(log: Folder, name: str) -> list[Mapping[str, Any]] | None:
    """The actions of an entry of a table's log; None if it is torn, or was removed meanwhile."""
    try:
        return [json.loads(line) for line in (log.read(name) or b"").splitlines()] or None
    except ValueError:
        return None


def _time(entry: Sequence[Mapping[str, Any]] | None) -> int:
    """When an entry was committed, in microseconds; 0 if it does not say."""
    for action in entry or ():
        if "commitInfo" in action:
            return int(action["commitInfo"].get("timestamp", 0)) * 1_000
    return 0


def _described(root: str, name: str, entry: Sequence[Mapping[str, Any]]) -> TableVersion:
    about: Mapping[str, Any] = next((each["commitInfo"] for each in entry if "commitInfo" in each), {})
    added = [each["add"] for each in entry if "add" in each]
    removed = sum("remove" in each for each in entry)
    rows = sum(json.loads(each.get("stats") or "{}").get("numRecords", 0) for each in added)
    kind = next((kind for key, kind in _KINDS.items() if key in about), "")
    if not kind:
        is_ours = "tidemark.commit" in about
        is_columns = any("metaData" in each for each in entry) and not added
        kind = "columns" if is_columns else "files" if is_ours and added else "other"
    return TableVersion(root, _number(name), _time(entry), kind, len(added), removed, rows)


def _number(name: str) -> int:
    return int(name.removesuffix(".json"))


def _not_kept(folder: Folder, root: str, as_of: AsOf, why: str) -> StorageError:
    return StorageError(
        f"the table {root!r} as of {as_of} is not kept any more: {why}. How long versions are kept is the "
        "setting archive.versions",
        path=folder_of(folder, root).text,
    )
