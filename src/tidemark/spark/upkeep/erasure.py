"""Erasures: what is to be erased from an archive, how far that has got, and which of its events are meant.

An erasure is a small file under `_archive/erasures`, which stays as the record of it. It names a topic or a
pattern, a selector, and the tick of each pubend up to which it holds: events that are published later are not
meant. An erased event is silence: ticks and everybody's tokens stay valid.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal
from uuid import uuid4

import numpy as np

from tidemark.errors import DamagedError
from tidemark.message.batches.batch import EventBatch
from tidemark.message.batches.columns import Bools
from tidemark.spark.archive.state import FOLDER, ArchiveTopics
from tidemark.spark.locations import Place, folder_at
from tidemark.spark.topic_columns import TopicColumnReader, make_topic_columns
from tidemark.ticks import TICK_MIN

ERASURES = "erasures"
#: asked: events may still have to be archived, or files to be rewritten. erased: no reader of the archive
#: finds them. gone: the files that had them are removed, too.
Stage = Literal["asked", "erased", "gone"]


@dataclass(frozen=True, slots=True)
class Erasure:
    """An erasure, and how far it has got."""

    id: str
    topic: str
    where: str
    #: pubend -> the tick up to which events are meant
    upto: Mapping[str, int]
    #: Unix times
    asked_at: float
    erased_at: float | None = None
    gone_at: float | None = None
    #: how many events were erased, and how many files had to be rewritten for that
    events: int = 0
    files: int = 0
    #: root -> files that had them, which are removed when readers that have begun with them are done
    replaced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: who asked for it; None in records that were written before this was noted
    asked_by: str | None = None

    @property
    def stage(self) -> Stage:
        """How far it has got."""
        return "asked" if self.erased_at is None else "erased" if self.gone_at is None else "gone"

    def with_replaced(self, root: str, names: Mapping[str, int]) -> Erasure:
        """The erasure after these files of a table were rewritten; `names` says how many events each had.

        A file that is noted already was counted by a process that ended before its commit.
        """
        noted = self.replaced.get(root, ())
        new = {name: events for name, events in names.items() if name not in noted}
        return replace(
            self,
            replaced={**self.replaced, root: (*noted, *new)},
            events=self.events + sum(new.values()),
            files=self.files + len(new),
        )

    def summary(self) -> ErasureSummary:
        """What a status or a report says of it."""
        said = {each.name: getattr(self, each.name) for each in fields(ErasureSummary)}
        return ErasureSummary(**said)

    def to_json(self) -> dict[str, Any]:
        """The erasure as a JSON object."""
        return {**asdict(self), "stage": self.stage}


@dataclass(frozen=True, slots=True)
class ErasureSummary:
    """What a status or a report says of an erasure; the fields are those of `Erasure`."""

    id: str
    topic: str
    where: str
    asked_at: float
    asked_by: str | None
    stage: Stage
    erased_at: float | None
    events: int
    files: int


def new_erasure(topic: str, where: str, upto: Mapping[str, int], now: float, asked_by: str) -> Erasure:
    """An erasure that `asked_by` asks for now."""
    return Erasure(uuid4().hex[:12], topic, where, dict(upto), now, asked_by=asked_by)


def save_erasure(path: Place, erasure: Erasure) -> None:
    """Write or replace an erasure; it is on the platter when this returns."""
    name = f"{erasure.id}.json"
    (folder_at(path) / FOLDER / ERASURES).replace(name, json.dumps(erasure.to_json()).encode())


def load_erasures(path: Place) -> list[Erasure]:
    """All erasures of an archive, the oldest first. Raises DamagedError."""
    found = []
    folder = folder_at(path) / FOLDER / ERASURES
    for file in folder.files():
        if not file.name.endswith(".json"):
            continue
        try:
            said = json.loads(folder.read(file.name) or b"")
            said.pop("stage")
            said["replaced"] = {root: tuple(names) for root, names in said["replaced"].items()}
            found.append(Erasure(**said))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            reason = "is damaged: restore it from a copy, or remove it and erase again"
            raise DamagedError(reason, path=folder.at(file.name), offset=0) from error
    return sorted(found, key=lambda each: (each.asked_at, each.id))


class ErasedEvents:
    """Tells the events that an erasure means from others."""

    def __init__(self, erasure: Erasure, topics: ArchiveTopics) -> None:
        """Raises SelectorError or ConfigError if the selector fits no topic."""
        self._upto = erasure.upto
        columns = make_topic_columns(topics.described, erasure.topic, erasure.where, None, gaps=False)
        self._reader = TopicColumnReader(columns, lambda: topics.described)

    def rows(self, pubend: str, batch: EventBatch) -> Bools:
        """rows[row]: the event is meant."""
        chosen = self._reader.chosen(batch)
        if chosen is None:
            return np.zeros(batch.count, np.bool_)
        is_chosen = np.isin(batch.ticks, chosen.ticks)
        found: Bools = is_chosen & (batch.ticks <= self._upto.get(pubend, TICK_MIN))
        return found
