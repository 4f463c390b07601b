"""Files of the archive as a DataFrame: by Spark's own reader where it can reach them, and else by tasks here.

Spark's own reader is the fastest, and reads mounted directories. It reads an object store only if the cluster
has the Java classes for it: `s3a`, the `gs` connector or `abfss`. Otherwise tasks read the files through
obstore, which needs nothing but the Python packages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemark.spark.archive.layout import ArchiveLayout, laid_out
from tidemark.spark.engine.tasks import frame_of_tasks
from tidemark.spark.stores.folder import StoredFile
from tidemark.spark.types import spark_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The scheme of a URL -> the one that Hadoop has for it, and the class that must be there.
_HADOOP = {
    "s3": ("s3a", "org.apache.hadoop.fs.s3a.S3AFileSystem"),
    "gs": ("gs", "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem"),
    "abfss": ("abfss", "org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem"),
}
#: Rows of a record batch that a task makes.
_BATCH_ROWS = 64 << 10


def parquet_frame(spark: SparkSession, files: Sequence[StoredFile], columns: pa.Schema) -> DataFrame:
    """The rows of the files, with these columns; a column that a file lacks is null in it."""
    from pyspark.sql.types import StructType

    schema = StructType(spark_fields(columns))
    own = sparks_own_paths(files, lambda name: _has_class(spark, name))
    if own is not None:
        return spark.read.schema(schema).parquet(*own)

    def batches(number: int) -> Iterator[pa.RecordBatch]:
        return read_columns(files[number], ArchiveLayout(columns))

    return frame_of_tasks(spark, len(files), batches, schema)


def sparks_own_paths(files: Sequence[StoredFile], has_class: Callable[[str], bool]) -> list[str] | None:
    """The files as Spark's own reader takes them; None if it cannot reach them.

    `has_class` says whether Spark has a Java class. Credentials that were given as storage options are not
    Spark's own, so files of a folder with options are read by tasks.
    """
    if all(each.folder.mounted is not None for each in files):
        return [each.text for each in files]
    if any(each.folder.options for each in files):
        return None
    scheme = files[0].text.partition("://")[0]
    theirs, name = _HADOOP[scheme]
    return [theirs + each.text.removeprefix(scheme) for each in files] if has_class(name) else None


def read_columns(file: StoredFile, wanted: ArchiveLayout) -> Iterator[pa.RecordBatch]:
    """The rows of a file, with the wanted columns in their types."""
    with file.errors(), file.parquet() as parquet:
        there = set(parquet.schema_arrow.names)
        names = [name for name in wanted.schema.names if name in there]
        for batch in parquet.iter_batches(batch_size=_BATCH_ROWS, columns=names):
            rows = pa.Table.from_batches([batch])
            laid = laid_out({name: rows.column(name) for name in names}, rows.num_rows, wanted)
            yield from laid.combine_chunks().to_batches()


def _has_class(spark: SparkSession, name: str) -> bool:
    """Has Spark this Java class? A session of Spark Connect does not say."""
    try:
        spark._jvm.java.lang.Class.forName(name)
    except Exception:
        # No JVM here, or no such class: both mean that tasks read.
        return False
    return True
