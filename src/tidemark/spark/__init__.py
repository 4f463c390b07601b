"""The pipeline on Spark, the second reader of the log: source, sink, archive, history, deep catch-up, audit.

`history` is the entry for analysts. It is loaded when it is first used, so that a task of the source, say,
does not load what only the archive needs. The packages:

| package | what it does | entry |
|---|---|---|
| `source` | `spark.read` and `spark.readStream` of the format "tidemark" | `source.TidemarkSource` |
| `sink` | `df.write` and `df.writeStream` of the same format | `sink.Sink` |
| `archive` | writes and reads the Delta tables that hold history | `archive.Archive`, `reader.read` |
| `archive_scan` | plans and reads the archive for all readers | `slices.slices`, `columnar.ColumnarReader` |
| `archive_query` | writes the archive as a streaming query, and chooses the engine | `query.ArchiveQuery` |
| `upkeep` | erases events of the archive, and compares it with brokers | `asking.erase`, `verifying.verify` |
| `report` | draws the archive over time | `figures.figures`, `html.page` |
| `time_travel` | the archive as it was at a version or a time | `versions.snapshot_as_of` |
| `history_frames` | history as a DataFrame, from archive and brokers | `frame.history` |
| `deep` | deep catch-up: answers brokers from the archive | `service.DeepService` |
| `audit` | checks exactly-once delivery by ledgers | `audit.run` |
| `pushdown` | conditions of Spark and Arrow as selectors | `filters.from_spark_filters` |
| `sql` | selectors as Spark SQL | `expression.to_spark_sql` |
| `engine` | sessions, their Java, tasks, errors in one line | `session.session` |

`pipeline` has the jobs of the command line, `reports` what they report, `engine_report` what the archive
tells of its engine, `round_log` its diary, `page_parts` what pages of HTML share, `locations` where archives
are, `connections` the connections to brokers, `options` the options of the format, and
`topic_columns`, `columns` and `types` say how events look as columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark.spark.history_frames.frame import history

__all__ = ["history"]

# A module with a __getattr__ has every attribute in the eyes of a type checker: a typo would pass unnoticed.
if not TYPE_CHECKING:

    def __getattr__(name):
        """Import and return `history`; AttributeError for any other name."""
        if name != "history":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            from tidemark.spark.history_frames.frame import history
        except ModuleNotFoundError as error:
            if str(error.name).startswith("tidemark"):
                raise
            raise ModuleNotFoundError(
                f"tidemark.spark needs {error.name}, which is not installed: pip install 'tidemark[spark]'",
                name=error.name,
            ) from None

        return history
