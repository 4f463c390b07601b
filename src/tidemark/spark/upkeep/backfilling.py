"""Backfill: files, or a table of Spark's catalog, put into the history of a topic, exactly once.

The rows are published by the sink as one batch of a named job (`spark.sink`), so a backfill that was killed
is completed by running it again, and one that has ended publishes nothing when it is run again. The record of
it stays under `_archive/backfill`. The name of the job comes from the topic and from what is put into it, if
it is not given.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tidemark.errors import ConfigError
from tidemark.spark.archive.state import FOLDER
from tidemark.spark.connections import CONNECT_SECONDS_MAX, retrying_client
from tidemark.spark.sink.staging import Staging
from tidemark.spark.stores.folder import Folder
from tidemark.spark.topic_columns import HEADERS, arrow_columns, make_topic_columns
from tidemark.spark.types import spark_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BACKFILL = "backfill"
#: What files may be; a table is of Spark's catalog.
KINDS = ("parquet", "json", "csv", "table")
_NAME_CHARACTERS = 24


@dataclass(frozen=True, slots=True)
class BackfillReport:
    """What became of a backfill."""

    job: str
    topic: str
    #: events that were published, by this run or by an earlier one
    events: int
    #: had an earlier run published everything?
    was_done: bool

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return asdict(self)


def backfill(
    spark: SparkSession,
    archive: Folder,
    broker: str,
    topic: str,
    sources: Sequence[str],
    *,
    kind: str = "parquet",
    job: str | None = None,
    key: str | None = None,
) -> BackfillReport:
    """Publish the rows of files or tables as events of a topic, once; returns when all are published.

    Raises ConfigError or SchemaError before anything is published if the rows do not fit the topic.
    """
    if kind not in KINDS:
        raise ConfigError(f"{kind!r} is none of {', '.join(KINDS)}", key="format")
    if not sources:
        raise ConfigError("name files, directories or a table", key="sources")
    name = job or job_name(topic, sources, kind)
    folder = archive / FOLDER / BACKFILL
    staging = Staging(folder / quote(name, safe=""))
    last = staging.last()
    if last is not None and staging.is_published(last):
        return BackfillReport(name, topic, last.count, was_done=True)
    rows = rows_of(spark, broker, topic, sources, kind)
    options = {"broker": broker, "topic": topic, "job": name, "staging": folder.text}
    if key is not None:
        options["key"] = key
    with _options_file(folder) as file:
        if file is not None:
            options["storageOptions"] = file
        rows.write.format("tidemark").mode("append").options(**options).save()
    done = staging.last()
    return BackfillReport(name, topic, 0 if done is None else done.count, was_done=False)


def job_name(topic: str, sources: Sequence[str], kind: str) -> str:
    """A name for a backfill of these sources: another one if a file has another name, size or time."""
    digest = hashlib.sha256()
    for source in (topic, kind, *sources):
        digest.update(f"{source}\0".encode())
        for path in sorted(_files(source)) if kind != "table" else []:
            found = os.stat(path)
            digest.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    return f"backfill-{digest.hexdigest()[:_NAME_CHARACTERS]}"


def rows_of(spark: SparkSession, broker: str, topic: str, sources: Sequence[str], kind: str) -> DataFrame:
    """The rows of files or tables. Text files have the columns of the topic, which must exist."""
    if kind == "table":
        (name, *more) = sources
        if more:
            raise ConfigError("one table at a time", key="sources")
        return spark.table(name)
    paths = list(sources)
    if kind == "parquet":
        return spark.read.parquet(*paths)
    from pyspark.sql.types import StructType

    with retrying_client(broker, CONNECT_SECONDS_MAX) as client:
        columns = make_topic_columns(client.topics(), topic, "", None, gaps=False)
    fields = [each for each in spark_fields(arrow_columns(columns)) if each.name not in HEADERS]
    reader = spark.read.schema(StructType(fields)).option("mode", "FAILFAST")
    return reader.json(paths) if kind == "json" else reader.option("header", "true").csv(paths)


def _files(source: str) -> Iterator[str]:
    if not os.path.isdir(source):
        # A pattern, or a URL that only Spark can read: its name is all that is known here.
        return iter([source] if os.path.exists(source) else [])
    return (os.path.join(above, name) for above, _, names in os.walk(source) for name in names)


@contextmanager
def _options_file(folder: Folder) -> Iterator[str | None]:
    """The storage options of a folder as a file that only this user may read, while it is needed."""
    if not folder.options:
        yield None
        return
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.writelines(f"{name} = {json.dumps(value)}\n" for name, value in folder.options.items())
        file.flush()
        yield file.name
