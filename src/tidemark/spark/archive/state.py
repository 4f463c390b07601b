"""What an archive stores of itself beside its tables: how far it has got, and the schemas of its events.

Both are small files under `_archive`, each replaced as a whole and synced before anyone is told. `state.json`
says what is covered and what will never be. `topics.json` has every schema that an archived event was written
in; it is written before the first of those events, and twice. A damaged or missing state is rebuilt from the
tables, whose commits repeat it: see `spark.archive.recovery`. Both have the number of the writer that wrote
them, and no writer replaces what a later one wrote (`spark.stores.hold`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tidemark.errors import DamagedError, FencedError, UnknownFormatError, WireError
from tidemark.message.registry import Registry, TopicSchemas
from tidemark.message.schema import Schema
from tidemark.spark.broker_answers import merged_topics
from tidemark.spark.locations import Place, folder_at
from tidemark.ticks import TICK_MIN, CheckpointToken, union
from tidemark.ticks.tick import Range
from tidemark.wire.answers import TopicStatus

FORMAT = 1
FOLDER = "_archive"
#: Rounds that the state remembers, from which `status` computes how fast the archive is.
ROUNDS_KEPT_MAX = 20

_STATE, _TOPICS, _TOPICS_COPY = "state.json", "topics.json", "topics.copy.json"
#: Of these files, the number of the process that wrote them.
_WRITER = "writer"
#: A file is replaced on the condition that nobody else has replaced it meanwhile; so often it is tried.
_TRIES_MAX = 10


@dataclass(frozen=True, slots=True)
class Round:
    """A round that has ended: when (Unix seconds), how long it took, and what it added."""

    at: float
    seconds: float
    events: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """How far an archive has got, and what it lacks."""

    #: of the last round that has ended; files of later batches belong to a round that has not
    batch: int = 0
    covered: CheckpointToken = field(default_factory=CheckpointToken)
    #: pubend -> ranges at or below `covered` that were gone before they could be archived
    missing: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)
    #: nothing at or below this tick is kept any more; None if everything is
    released: int | None = None
    #: root -> version of its table at the end of the last round; all commits up to it are on the platter
    versions: Mapping[str, int] = field(default_factory=dict)
    #: archived since the beginning; bytes are those that the events had
    events: int = 0
    bytes: int = 0
    rounds: tuple[Round, ...] = ()

    def after(
        self, batch: int, covered: CheckpointToken, versions: Mapping[str, int], ended: Round
    ) -> ArchiveState:
        """The state after a round that has ended."""
        return replace(
            self,
            batch=batch,
            covered=self.covered.merge(covered),
            versions={**self.versions, **versions},
            events=self.events + ended.events,
            bytes=self.bytes + ended.bytes,
            rounds=(*self.rounds, ended)[-ROUNDS_KEPT_MAX:],
        )

    def without(self, pubend: str, base: int, upto: int) -> ArchiveState:
        """The state with the knowledge that `(base, upto]` of the pubend is gone for good."""
        ranges = union([*self.missing.get(pubend, ()), (base, upto)])
        return replace(self, missing={**self.missing, pubend: tuple(ranges)})

    def absent(self, pubend: str) -> list[Range]:
        """The ranges at or below `covered` that the archive lacks, in order.

        They were gone before they could be archived, or were removed from the archive since.
        """
        ranges = list(self.missing.get(pubend, ()))
        if self.released is not None:
            ranges.append((TICK_MIN, min(self.released, self.covered.get(pubend, TICK_MIN))))
        return union(ranges)

    def to_json(self) -> dict[str, Any]:
        """The state as a JSON object."""
        return {
            "batch": self.batch,
            "covered": dict(self.covered),
            "missing": dict(self.missing),
            "released": self.released,
            "versions": dict(self.versions),
            "events": self.events,
            "bytes": self.bytes,
            "rounds": [asdict(each) for each in self.rounds],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ArchiveState:
        """The state that `to_json` made. Raises KeyError, TypeError or ValueError if `found` is no state."""
        return cls(
            batch=found["batch"],
            covered=CheckpointToken(found["covered"]),
            missing={name: tuple((a, b) for a, b in ranges) for name, ranges in found["missing"].items()},
            released=found["released"],
            versions=found["versions"],
            events=found["events"],
            bytes=found["bytes"],
            rounds=tuple(Round(**each) for each in found["rounds"]),
        )


def has_state(path: Place) -> bool:
    """Does the archive at `path` have a file with its state?"""
    return (folder_at(path) / FOLDER).read(_STATE) is not None


def load_state(path: Place) -> ArchiveState:
    """The state of the archive at `path`; an empty one if there is none yet. Raises DamagedError."""
    found = _load(path, _STATE)
    if found is None:
        return ArchiveState()
    try:
        return ArchiveState.from_json(found)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged(path, _STATE) from error


def save_state(path: Place, state: ArchiveState, writer: int = 0) -> None:
    """Replace the state; the new one is on the platter when this returns.

    Raises FencedError if a writer with a greater number than `writer` has written it.
    """
    _save(path, _STATE, state.to_json(), writer)


def set_aside(path: Place) -> None:
    """Copy a damaged state, so that a person can look at it, and remove it."""
    folder = folder_at(path) / FOLDER
    found = folder.read(_STATE)
    if found is not None:
        folder.replace(f"{_STATE}.damaged", found)
        folder.remove(_STATE)
        folder.sync()


def fence_files(path: Place, writer: int) -> None:
    """Keep writers with lesser numbers from replacing the state and the topics from now on.

    Raises FencedError if this is such a writer itself.
    """
    for name in (_STATE, _TOPICS, _TOPICS_COPY):
        try:
            found = _load(path, name)
        except DamagedError:
            continue
        empty = ArchiveState().to_json() if name == _STATE else {"topics": []}
        _save(path, name, empty if found is None else found, writer)


class ArchiveTopics:
    """The topics of archived events, with every version of their schemas."""

    def __init__(self, described: Sequence[TopicStatus]) -> None:
        """`described` is what a broker answers to the question `topics`."""
        self.described = tuple(described)
        self._registry = Registry()
        for each in described:
            self._registry.take(
                each.topic, map(Schema.parse, each.schemas), each.generation, is_open=each.open
            )

    @property
    def registry(self) -> Registry:
        """The topics with their schemas, for a matcher."""
        return self._registry

    @property
    def schemas(self) -> Mapping[int, Schema]:
        """Every schema by its fingerprint."""
        return self._registry.schemas

    def creations(self, name: str) -> list[TopicSchemas]:
        """The versions of a topic for each of its creations, the newest last; most topics have one."""
        found = self._registry.creations_of(name)
        return [each for each in found if each.texts] or found[-1:]

    @property
    def names(self) -> list[str]:
        """The names of all topics, sorted, also of those that were removed."""
        return sorted(self._registry.topics.keys() | self._registry.removed.keys())

    def merged(self, described: Sequence[TopicStatus]) -> ArchiveTopics:
        """These topics and those described; a topic that the broker has dropped stays in the archive."""
        if tuple(described) == self.described:
            return self
        return ArchiveTopics(merged_topics([self.described, described]))


def load_topics(path: Place) -> ArchiveTopics:
    """The topics of the archive at `path`; from the copy, if the file itself is damaged."""
    try:
        found = _load(path, _TOPICS)
    except DamagedError:
        found = _load(path, _TOPICS_COPY)
        if found is None:
            raise
    try:
        return ArchiveTopics([TopicStatus.from_json(each) for each in found["topics"]] if found else [])
    except (KeyError, TypeError, WireError) as error:
        raise _damaged(path, _TOPICS) from error


def save_topics(path: Place, topics: ArchiveTopics, writer: int = 0) -> None:
    """Replace the topics and their copy; both are on the platter when this returns.

    Raises FencedError if a writer with a greater number than `writer` has written them.
    """
    for name in (_TOPICS, _TOPICS_COPY):
        _save(path, name, {"topics": [each.to_json() for each in topics.described]}, writer)


def _load(path: Place, name: str) -> dict[str, Any] | None:
    data = (folder_at(path) / FOLDER).read(name)
    if data is None:
        return None
    try:
        found = json.loads(data)
    except ValueError as error:
        raise _damaged(path, name) from error
    if not isinstance(found, dict) or not isinstance(found.get("format"), int):
        raise _damaged(path, name)
    if found["format"] != FORMAT:
        raise UnknownFormatError(
            f"is of format {found['format']}, this version writes {FORMAT}: use the version that wrote it",
            path=(folder_at(path) / FOLDER).at(name),
        )
    return found


def _save(path: Place, name: str, value: dict[str, Any], writer: int) -> None:
    folder = folder_at(path) / FOLDER
    data = json.dumps({**value, "format": FORMAT, _WRITER: writer}).encode()
    if folder.mounted is not None:
        folder.replace(name, data)
        return
    for _ in range(_TRIES_MAX):
        found = folder.read_tagged(name)
        if found is not None and _writer_of(found.data) > writer:
            reason = "another process writes the archive now: this one stops"
            raise FencedError(reason, path=folder.at(name))
        if folder.replace_tagged(name, data, None if found is None else found.tag):
            return
    raise FencedError("is replaced by another process again and again", path=folder.at(name))


def _writer_of(data: bytes) -> int:
    try:
        found = json.loads(data)
        return int(found.get(_WRITER, 0)) if isinstance(found, dict) else 0
    except ValueError:
        return 0


def _damaged(path: Place, name: str) -> DamagedError:
    advice = (
        f"run `tidemark pipeline archive --path {folder_at(path)}`, which makes it again from the tables"
        if name == _STATE
        else "restore it from a copy"
    )
    return DamagedError(f"is damaged: {advice}", path=(folder_at(path) / FOLDER).at(name), offset=0)
