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


@dataclass(frozen=True, slots=True)
class RoundCommits:
    """What the log of one table says of rounds: its newest round, and up to where history was removed since.

    `newest` is None if the log has no round.
    """

    newest: _RoundCommit | None
    released: tuple[int, ...]

    @staticmethod
    def state(found: Mapping[str, RoundCommits], *, alone: bool = False) -> ArchiveState:
        """The state at the end of the newest round that has ended, from what the logs of tables say, by root.

        A round has ended when all its tables have committed it; with `alone`, when these have.
        """
        newest_of = {root: each.newest for root, each in found.items() if each.newest is not None}
        if not newest_of:
            return ArchiveState()
        newest = max(newest_of.values(), key=lambda each: each.batch)
        has_ended = all(
            root in newest_of and newest_of[root].batch == newest.batch
            for root in newest.roots
            if root in found or not alone
        )
        state = newest.after if has_ended else newest.before
        released = [tick for each in found.values() for tick in each.released]
        horizon = max([*released, *([] if state.released is None else [state.released])], default=None)
        return replace(state, released=horizon)


def round_commits(log: Folder, upto: int | None = None) -> RoundCommits:
    """What a table's log says of rounds, up to a version of the table."""
    released: list[int] = []
    for commit in _commits(log, upto):
        if _RELEASED in commit:
            released.append(int(commit[_RELEASED]))
        if _AFTER in commit:
            return RoundCommits(_read(commit), tuple(released))
    return RoundCommits(None, tuple(released))


def recovered(path: Place) -> ArchiveState:
    """The state at the end of the newest round that has ended; an empty state if there is none."""
    return RoundCommits.state({root: round_commits(log_of(path, root)) for root in roots_in(path)})


def is_stale(state: ArchiveState, files: Sequence[DataFile]) -> bool:
    """Is the state older than the tables, say from a backup? The tables are ahead by one round at most."""
    return any(each.batches[1] > state.batch + 1 for each in files)


def _commits(log: Folder, upto: int | None) -> Iterator[Mapping[str, Any]]:
    """What the commits up to a version say about themselves, newest first; torn entries are skipped."""
    names = entries_of(log)
    for name in reversed(names if upto is None else [each for each in names if _version(each) <= upto]):
        try:
            lines = [json.loads(line) for line in (log.read(name) or b"").splitlines()]
            yield next(line["commitInfo"] for line in lines if "commitInfo" in line)
        except (ValueError, StopIteration, TypeError):
            continue


def _version(name: str) -> int:
    return int(name.removesuffix(".json"))


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
