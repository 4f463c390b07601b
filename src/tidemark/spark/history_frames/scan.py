"""What history reads of one table of the archive: which files, which of their rows, which columns.

A condition costs the columns that it reads, and in a narrow query the header columns cost most. So rows are
told apart by topic and by tick only in files whose bounds leave that open. Imports no pyspark.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidemark.matching.topics import TopicPattern
from tidemark.message.schema import Schema
from tidemark.spark.archive.layout import TIME
from tidemark.spark.archive.reader import Snapshot
from tidemark.spark.archive.state import ArchiveTopics
from tidemark.spark.archive.table import DataFile, root_of
from tidemark.spark.archive_scan.plain_columns import member_types
from tidemark.spark.archive_scan.pruning import Pruning
from tidemark.spark.history_frames.sql import field_text, matching_texts, of_topics_text, time_text
from tidemark.spark.sql.text import column_text, string_text
from tidemark.spark.topic_columns import HEADERS, TopicColumns
from tidemark.ticks import TICK_MAX, TICK_MIN


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Which events are asked for, those of `(base, upto]` that the columns' selector matches, and as what."""

    columns: TopicColumns
    base: int
    upto: int

    def of_topic(self, topic: str) -> HistoryQuery:
        """The same query, of one topic."""
        return replace(self, columns=replace(self.columns, pattern=topic))


class FileRead(NamedTuple):
    """Files that are read together, with one condition."""

    files: list[DataFile]
    #: Spark SQL that is true for the wanted rows of these files
    condition: str
    #: the columns of the query as Spark SQL, each with its name
    columns: list[str]


class TableScan:
    """The files, conditions and columns with which one query reads the table of one root."""

    def __init__(self, archived: Snapshot, root: str, topics: ArchiveTopics, query: HistoryQuery) -> None:
        self._layout = archived.layouts[root]
        self._query = query
        pattern = TopicPattern.parse(query.columns.pattern)
        #: every topic that the table may have events of: the archive learns of a topic before its first event
        self._known = [name for name in topics.names if root_of(name) == root]
        found = [topics.creations(name) for name in self._known if pattern.matches(name)]
        self._topics = [each for creations in found for each in creations]
        once = [creations[0] for creations in found if len(creations) == 1]
        selector = query.columns.selector
        texts, untranslated = matching_texts(self._layout, once, selector)
        timed = (
            matching_texts(self._layout, once, selector, is_timed=True)[0] if "_time" in selector else texts
        )
        #: whether every row has its time in a column -> condition -> the topics whose rows it tests
        self._texts = {False: texts, True: timed}
        self._asks_time = "_time" in query.columns.names or timed != texts
        #: the topics for which the selector has no Spark SQL, and those that were created more than once
        self.untranslated = [*untranslated, *(creations[-1] for creations in found if len(creations) > 1)]
        self._pruning = Pruning(self._layout, self._topics, selector)
        self._there = archived.files[root]
        self.files = [each for each in self._there if self._could_have(each)]

    def reads(self) -> list[FileRead]:
        """What to read for the rows of all topics but `untranslated`; each row is in one of the reads."""
        if not self._texts[False]:
            return []
        found: dict[tuple[str, bool], list[DataFile]] = {}
        for file in self.files:
            is_timed = self._asks_time and file.nulls.get(TIME.name) == 0
            found.setdefault((self._condition(file, is_timed=is_timed), is_timed), []).append(file)
        return [
            FileRead(files, condition, self._columns(is_timed=is_timed))
            for (condition, is_timed), files in found.items()
        ]

    def description(self, files: Sequence[DataFile]) -> str:
        """What is read here, for people who look at a plan."""
        wanted, there = self._query.columns, self._there
        size = sum(each.bytes for each in files)
        return (
            f"tidemark history of {wanted.pattern}, selector [{wanted.selector or 'all events'}]: "
            f"{len(files)} of {len(there)} files, {size:,} of {sum(each.bytes for each in there):,} bytes"
        )

    def _columns(self, *, is_timed: bool) -> list[str]:
        """The columns of the query as Spark SQL, each with its name; `is_timed` is that of `time_text`."""
        types = member_types(Schema.parse(self._query.columns.schema))
        versions = {each.fingerprint: each for topic in self._topics for each in topic.versions}.values()
        texts = {
            name: column_text((name,))
            if name in HEADERS
            else field_text(self._layout, versions, name, types[name])
            for name in self._query.columns.names
        }
        if "_time" in texts:
            texts["_time"] = time_text(is_timed=is_timed)
        if "_topic" in texts and len(self._topics) == 1:
            texts["_topic"] = string_text(self._topics[0].topic)
        return [f"{text} AS {column_text((name,))}" for name, text in texts.items()]

    def _condition(self, file: DataFile, *, is_timed: bool) -> str:
        return " AND ".join([self._of_topics(file, self._texts[is_timed]), *self._of_ticks(file)])

    def _of_topics(self, file: DataFile, texts: Mapping[str, list[str]]) -> str:
        """The condition on topics: one of few texts, so that few reads suffice for many topics."""
        if len(texts) == 1:
            ((text, names),) = texts.items()
            if self._has_only(file, names):
                return text
        return of_topics_text(texts)

    def _has_only(self, file: DataFile, names: list[str]) -> bool:
        """Is every row of one of these topics? False unless the file's bounds prove it."""
        bounds = file.bounds.get("_topic")
        if bounds is None or file.nulls.get("_topic") != 0 or not set(bounds) <= set(names):
            return False
        between = self._known[bisect_left(self._known, bounds[0]) : bisect_right(self._known, bounds[1])]
        return set(between) <= set(names)

    def _of_ticks(self, file: DataFile) -> list[str]:
        low, high = file.ticks
        above = (
            [f"`_tick` > {self._query.base}L"]
            if self._query.base > TICK_MIN and low <= self._query.base
            else []
        )
        return above + (
            [f"`_tick` <= {self._query.upto}L"]
            if self._query.upto < TICK_MAX and high > self._query.upto
            else []
        )

    def _could_have(self, file: DataFile) -> bool:
        low, high = file.ticks
        if high <= self._query.base or low > self._query.upto:
            return False
        return self._pruning.could_have(file)
