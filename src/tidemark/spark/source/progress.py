"""How far a streaming query that reads from brokers has got, and where its rows came from.

Spark gives a source of Python no metrics of its own, but offsets are checkpoint tokens and ticks are
microseconds: the offsets say how far behind a query is in time, for each pubend. How many events that are is
an estimate, by how many there were in the last batch; `backlog` has them counted. `counted` lets Spark count
the rows from brokers and from the archive, and shows them in the progress of the query.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.errors import ConfigError
from tidemark.spark.options import source_options
from tidemark.spark.source.scan import (
    ARCHIVE,
    BROKER,
    ORIGIN,
    Planner,
    SourceScan,
    located,
    topic_columns_of,
)
from tidemark.ticks import CheckpointToken

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The name under which a query's progress has what `counted` counts.
METRICS = "tidemark"
_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """One source in one micro-batch."""

    batch: int
    rows: int
    rows_per_second: float
    #: pubend -> seconds between the last event that was read and the last that there is
    behind_seconds: Mapping[str, float]
    #: about how many events there are still to read, as dense as in this batch
    behind_events: int

    @property
    def seconds(self) -> float:
        """How far the pubend that is furthest behind is behind."""
        return max(self.behind_seconds.values(), default=0.0)


def source_progress(progress: Mapping[str, Any]) -> list[SourceProgress]:
    """The progress of each source of this format, out of a query's `lastProgress` or `recentProgress[n]`."""
    found = []
    for source in progress["sources"]:
        start, end, latest = (
            _token(source.get(name)) for name in ("startOffset", "endOffset", "latestOffset")
        )
        if end is None or latest is None:
            continue
        start = end if start is None else start
        rows = int(source["numInputRows"])
        behind = {name: max(0, tick - end.get(name, tick)) for name, tick in latest.items()}
        passed = sum(max(0, tick - start.get(name, tick)) for name, tick in end.items())
        found.append(
            SourceProgress(
                batch=int(progress["batchId"]),
                rows=rows,
                rows_per_second=float(source.get("processedRowsPerSecond") or 0.0),
                behind_seconds={name: ticks / _MICROSECONDS for name, ticks in behind.items()},
                behind_events=round(rows * sum(behind.values()) / passed) if passed else 0,
            )
        )
    return found


def backlog(progress: Mapping[str, Any], **options: Any) -> dict[str, int]:
    """How many events a query has not read yet, by pubend, as brokers and the archive count them now.

    `progress` is a query's `lastProgress`, and `options` are those of its source. Raises ConfigError if the
    query has no source of this format, or several.
    """
    ends = [_token(source.get("endOffset")) for source in progress["sources"]]
    tokens = [each for each in ends if each is not None]
    if len(tokens) != 1:
        raise ConfigError(f"the query has {len(tokens)} sources with offsets of brokers, and one is needed")
    found = located(source_options({name: str(value) for name, value in options.items()}))
    planner = Planner(SourceScan(found, topic_columns_of(found)))
    try:
        return planner.backlog(CheckpointToken(tokens[0]))
    finally:
        planner.close()


def counted(frame: DataFrame, name: str = METRICS) -> DataFrame:
    """A DataFrame of this format, read with the option origin, whose rows Spark counts by their origin.

    The column goes. A query's progress has `rows_from_broker` and `rows_from_archive` in
    `observedMetrics[name]`; for a batch read, `Observation` has them. Raises ConfigError without the column.
    """
    from pyspark.sql import functions as sql

    if ORIGIN not in frame.columns:
        raise ConfigError('is needed: .option("origin", "true")', key="origin")
    return frame.observe(
        name,
        *(
            sql.count(sql.when(sql.col(ORIGIN) == origin, 1)).alias(f"rows_from_{origin}")
            for origin in (BROKER, ARCHIVE)
        ),
    ).drop(ORIGIN)


def _token(offset: Any) -> dict[str, int] | None:
    """A checkpoint token; None if this is the offset of another source."""
    try:
        found = json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return None
    is_token = isinstance(found, dict) and all(isinstance(tick, int) for tick in found.values())
    return found if is_token else None
