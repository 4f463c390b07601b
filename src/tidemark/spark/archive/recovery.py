"""The state of an archive made again from its tables, which are the truth of how far it has got.

Every commit that adds files says in the log the state before its round and after it, and which tables the
round writes. So the newest round that all its tables have is the state; of one that did not end, the state
before it. What was let go is said by the commits that did it. A round without files, which only notes what
was gone, is not there: the brokers still say that it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidemark.spark.archive.state import ArchiveState
from tidemark.spark.archive.table import DataFile, log_of, roots_in

#: Keys of what a commit says about itself.
_BATCH, _ROOTS, _BEFORE, _AFTER, _RELEASED = (
    f"tidemark.{name}" for name in ("batch", "roots", "before", "after", "released")
)


@dataclass(frozen=True, slots=True)
class _RoundCommit:
    """By the newest commit of a table that added files."""

    batch: int
    roots: tuple[str, ...]
    before: ArchiveState
    after: ArchiveState


def about_round(before: ArchiveState, after: ArchiveState, roots: Sequence[str]) -> dict[str, str]:
    """What a commit of a round says about it."""
    return {
        _BATCH: str(after.batch),
        _ROOTS: json.dumps(sorted(roots)),
        _BEFORE: json.dumps(_lasting(before).to_json()),
        _AFTER: json.dumps(_lasting(after).to_json()),
    }


def about_release(released: int) -> dict[str, str]:
    """What a commit says that lets history go."""
    return {_RELEASED: str(released)}


def recovered(path: Path) -> ArchiveState:
    """The state at the end of the newest round that has ended; an empty one without any."""
    said: dict[str, _RoundCommit] = {}
    released: list[int] = []
    for root in roots_in(path):
        for commit in _commits(log_of(path, root)):
            if _RELEASED in commit:
                released.append(int(commit[_RELEASED]))
            if _AFTER in commit:
                said[root] = _read(commit)
                break
    if not said:
        return ArchiveState()
    newest = max(said.values(), key=lambda each: each.batch)
    has_ended = all(root in said and said[root].batch == newest.batch for root in newest.roots)
    state = newest.after if has_ended else newest.before
    horizon = max([*released, *([] if state.released is None else [state.released])], default=None)
    return replace(state, released=horizon)


def is_stale(state: ArchiveState, files: Sequence[DataFile]) -> bool:
    """Is the state of an older archive, say from a backup? Only one round can be under way."""
    return any(each.batches[1] > state.batch + 1 for each in files)


def _commits(log: Path) -> Iterator[Mapping[str, Any]]:
    """What the entries of a table's log say about themselves, newest first; none of a torn one."""
    for entry in sorted(log.glob("*.json"), reverse=True):
        try:
            lines = [json.loads(line) for line in entry.read_text().splitlines()]
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
    """Without what only its own file knows."""
    return replace(state, rounds=(), versions={})
