"""The state of an archive rebuilt from its tables, whose commits say how far the archive has got.

Every commit that adds files has, in the table's log, the state before its round, the state after it, and the
tables that the round writes. So the newest round that all its tables have committed gives the state; a round
that did not end gives the state before it. Commits that remove history say up to which tick. A round without
files, which only notes what was gone from brokers, leaves no commit: the brokers still answer that it is
gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidemark.spark.archive.state import ArchiveState
from tidemark.spark.archive.table import DataFile, entries_of, log_of, roots_in
from tidemark.spark.locations import Place
from tidemark.spark.stores.folder import Folder

#: Keys of what commits say about themselves.
_BATCH, _ROOTS, _BEFORE, _AFTER, _RELEASED = (
    f"tidemark.{name}" for name in ("batch", "roots", "before", "after", "released")
)


@dataclass(frozen=True, slots=True)
class _RoundCommit:
    """What the newest commit of a table that added files says about its round."""

    batch: int
    roots: tuple[str, ...]
    before: ArchiveState
    after: ArchiveState


def about_round(before: ArchiveState, after: ArchiveState, roots: Sequence[str]) -> dict[str, str]:
    """What each commit of a round says about the round; `roots` are those of the tables that it writes."""
    return {
        _BATCH: str(after.batch),
        _ROOTS: json.dumps(sorted(roots)),
        _BEFORE: json.dumps(_lasting(before).to_json()),
        _AFTER: json.dumps(_lasting(after).to_json()),
    }


def about_release(released: int) -> dict[str, str]:
    """What a commit says that removes history: nothing at or below this tick is kept."""
    return {_RELEASED: str(released)}


def recovered(path: Place) -> ArchiveState:
    """The state at the end of the newest round that has ended; an empty state if there is none."""
    newest_of: dict[str, _RoundCommit] = {}
    released: list[int] = []
    for root in roots_in(path):
        for commit in _commits(log_of(path, root)):
            if _RELEASED in commit:
                released.append(int(commit[_RELEASED]))
            if _AFTER in commit:
                newest_of[root] = _read(commit)
                break
    if not newest_of:
        return ArchiveState()
    newest = max(newest_of.values(), key=lambda each: each.batch)
    has_ended = all(root in newest_of and newest_of[root].batch == newest.batch for root in newest.roots)
    state = newest.after if has_ended else newest.before
    horizon = max([*released, *([] if state.released is None else [state.released])], default=None)
    return replace(state, released=horizon)


def is_stale(state: ArchiveState, files: Sequence[DataFile]) -> bool:
    """Is the state older than the tables, say from a backup? The tables are ahead by one round at most."""
    return any(each.batches[1] > state.batch + 1 for each in files)


def _commits(log: Folder) -> Iterator[Mapping[str, Any]]:
    """What the commits in a table's log say about themselves, newest first; torn entries are skipped."""
    for name in reversed(entries_of(log)):
        try:
            lines = [json.loads(line) for line in (log.read(name) or b"").splitlines()]
            yield next(line["commitInfo"] for line in lines if "commitInfo" in line)
        except (ValueError, StopIteration, TypeError):
            continue


def _read(commit: Mapping[str, Any]) -> _RoundCommit:
    return _RoundCommit(
        int(commit[_BATCH]),
        tuple(json.loads(commit[_ROOTS])),
        ArchiveState.from_json(json.loads(commit[_BEFORE])),
        ArchiveState.from_json(json.loads(commit[_AFTER])),
    )


def _lasting(state: ArchiveState) -> ArchiveState:
    """The state without the fields that are kept in its own file only."""
    return replace(state, rounds=(), versions={})
