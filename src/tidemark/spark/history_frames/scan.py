"""What history asks of one table of the archive: which files, which of their rows, which columns.

A condition costs the columns that it reads, and in a narrow query those of a header cost most: so rows are
told apart by topic and by tick only in files whose bounds leave it open. No pyspark.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from tidemark.matching.topics import TopicPattern
from tidemark.message.schema import Schema
from tidemark.spark.archive.reader import Snapshot
from tidemark.spark.archive.state import ArchiveTopics
from tidemark.spark.archive.table import DataFile, root_of
from tidemark.spark.history_frames.sql import (
    could_match,
    field_text,
    matching_texts,
    member_types,
    of_topics_text,
)
from tidemark.spark.sql.text import column_text, string_text
from tidemark.spark.topic_columns import HEADERS, TopicColumns
from tidemark.ticks import TICK_MAX, TICK_MIN


class FileRead(NamedTuple):
    """Files that are read together."""

    files: list[DataFile]
    #: true for the rows that are wanted
    condition: str


class TableScan:
    """What is wanted of one table, and how to ask for it."""

    def __init__(
        self,
        taken: Snapshot,
        root: str,
        topics: ArchiveTopics,
        topic_columns: TopicColumns,
        base: int,
        upto: int,
    ) -> None:
        self._layout = taken.layouts[root]
        self._topic_columns = topic_columns
        self._base = base
        self._upto = upto
        pattern = TopicPattern.parse(topic_columns.pattern)
        #: every topic that the table may have events of: the archive knows a topic before its first event
        self._known = [name for name in topics.names if root_of(name) == root]
        self._topics = [topics[name] for name in self._known if pattern.matches(name)]
        #: `untold` are topics that SQL cannot ask
        self._texts, self.untold = matching_texts(self._layout, self._topics, topic_columns.selector)
        self.files = [each for each in taken.files[root] if self._could_have(each)]

    def reads(self) -> list[FileRead]:
        """What has the rows of all topics but those in `untold`, each row once."""
        if not self._texts:
            return []
        found: dict[str, list[DataFile]] = {}
        for file in self.files:
            found.setdefault(self._condition(file), []).append(file)
        return [FileRead(files, condition) for condition, files in found.items()]

    def columns(self) -> list[str]:
        """What to select."""
        types = member_types(Schema.parse(self._topic_columns.schema))
        versions = {each.fingerprint: each for topic in self._topics for each in topic.versions}.values()
        texts = {
            name: column_text((name,))
            if name in HEADERS
            else field_text(self._layout, versions, name, types[name])
            for name in self._topic_columns.names
        }
        if "_time" in texts:
            texts["_time"] = "timestamp_micros(`_tick`)"
        if "_topic" in texts and len(self._topics) == 1:
            texts["_topic"] = string_text(self._topics[0].topic)
        return [f"{text} AS {column_text((name,))}" for name, text in texts.items()]

    def _condition(self, file: DataFile) -> str:
        return " AND ".join([self._of_topics(file), *self._of_ticks(file)])

    def _of_topics(self, file: DataFile) -> str:
        """One of two texts at most, so that a table is read in few goes however many topics it has."""
        if len(self._texts) == 1:
            ((text, names),) = self._texts.items()
            if self._has_only(file, names):
                return text
        return of_topics_text(self._texts)

    def _has_only(self, file: DataFile, names: list[str]) -> bool:
        """Is every row of one of these topics? False unless the file's bounds say so."""
        bounds = file.bounds.get("_topic")
        if bounds is None or file.nulls.get("_topic") != 0 or not set(bounds) <= set(names):
            return False
        between = self._known[bisect_left(self._known, bounds[0]) : bisect_right(self._known, bounds[1])]
        return set(between) <= set(names)

    def _of_ticks(self, file: DataFile) -> list[str]:
        low, high = file.bounds["_tick"]
        above = [f"`_tick` > {self._base}L"] if self._base > TICK_MIN and low <= self._base else []
        return above + ([f"`_tick` <= {self._upto}L"] if self._upto < TICK_MAX and high > self._upto else [])

    def _could_have(self, file: DataFile) -> bool:
        low, high = file.bounds["_tick"]
        if high <= self._base or low > self._upto:
            return False
        return any(
            could_match(file, self._layout, topic, self._topic_columns.selector) for topic in self._topics
        )
