"""What the progress of a query says of its source."""

from __future__ import annotations

from typing import Any

from tidemark.spark.source.progress import source_progress


def progress(**source: Any) -> dict[str, Any]:
    return {"batchId": 3, "sources": [{"numInputRows": 100, "processedRowsPerSecond": 50.0, **source}]}


def test_a_query_is_behind_by_the_time_between_its_offset_and_the_newest() -> None:
    (found,) = source_progress(
        progress(
            startOffset='{"a": 1000000, "b": 0}',
            endOffset='{"a": 3000000, "b": 0}',
            latestOffset='{"a": 4000000, "b": 500000, "new": 7}',
        )
    )
    assert (found.batch, found.rows, found.rows_per_second) == (3, 100, 50.0)
    assert found.behind_seconds == {"a": 1.0, "b": 0.5, "new": 0.0}
    assert found.seconds == 1.0
    assert found.behind_events == 75


def test_sources_of_others_and_batches_without_events_are_no_mistake() -> None:
    assert source_progress(progress(startOffset=None, endOffset="0", latestOffset="7")) == []
    assert source_progress(progress(startOffset=None, endOffset="of another", latestOffset=None)) == []
    (first,) = source_progress(progress(startOffset=None, endOffset={"a": 5}, latestOffset={"a": 5}))
    assert (first.behind_events, first.seconds) == (0, 0.0)
