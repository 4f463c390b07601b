"""How far a streaming query that reads from brokers has got, from the progress that Spark reports.

Spark gives a source of Python no metrics of its own, but offsets are checkpoint tokens and ticks are
microseconds: the offsets say how far behind a query is in time, for each pubend. How many events that are is
an estimate, by how many there were in the last batch. Imports no pyspark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


def _token(offset: Any) -> dict[str, int] | None:
    """A checkpoint token; None if this is the offset of another source."""
    try:
        found = json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return None
    is_token = isinstance(found, dict) and all(isinstance(tick, int) for tick in found.values())
    return found if is_token else None
