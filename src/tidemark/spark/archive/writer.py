"""Writing a part of a round: events in, synced Parquet files out, which a commit may then add.

Runs in the driver or in a Spark task alike. Rows are sorted by pubend and tick, as they come. Nothing here is
final: files that no commit adds are strays, and `table.remove_strays` removes them later.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.errors import NotConnectedError, StorageError
from tidemark.message.batches.batch import EventBatch
from tidemark.spark.archive.bounds import Bounds
from tidemark.spark.archive.layout import TIME, ArchiveLayout
from tidemark.spark.archive.plan import RoundPart
from tidemark.spark.archive.rows import Schemas, to_rows
from tidemark.spark.archive.table import DataFile, file_name, folder_of, root_of
from tidemark.spark.stores.folder import Folder
from tidemark.ticks import TICK_MIN

#: A file is closed when it has about this size; a row group is written when rows of this size are gathered.
FILE_BYTES = 128 << 20
ROW_GROUP_BYTES = 16 << 20
ROW_GROUP_ROWS_MAX = 128 << 10


class PartWriter:
    """Gathers the events of one part of a round into files of each root's table."""

    def __init__(self, part: RoundPart, schemas: Schemas) -> None:
        self._part = part
        self._schemas = schemas
        self._path = part.path
        self._layouts = {root: ArchiveLayout.from_bytes(data) for root, data in part.layouts.items()}
        self._open: dict[str, FileWriter] = {}
        self._files: list[DataFile] = []
        self.events = 0
        self.bytes = 0

    def add(self, pubend: str, batch: EventBatch) -> None:
        """Add events of a pubend; their ticks lie beyond those that were added of it before."""
        roots = np.array([root_of(shape.topic) for shape in batch.shapes])
        of_row = roots[batch.prelude("shape")]
        for root in dict.fromkeys(roots.tolist()):
            if root not in self._layouts:
                raise NotConnectedError(
                    f"a broker has events of {root!r} and did not say so when it was asked for its topics: "
                    "the batch is begun again"
                )
            wanted = (of_row == root) & (batch.ticks > self._part.reached.get(root, {}).get(pubend, TICK_MIN))
            if wanted.any():
                some = batch if wanted.all() else batch.take(wanted)
                self._writer(root).add(to_rows(pubend, some, self._schemas, self._layouts[root]))
                self.events += some.count
                self.bytes += len(some.body)

    def close(self) -> list[DataFile]:
        """Finish and return all files; they and their names are on the platter."""
        for root in list(self._open):
            self._finish(root)
        for folder in {folder_of(self._path, each.root) for each in self._files}:
            folder.sync()
        return self._files

    def discard(self) -> None:
        """Remove all that was written, after a failure."""
        for writer in self._open.values():
            writer.discard()
        for each in self._files:
            # A store that is away keeps a stray, which is removed later.
            with suppress(StorageError):
                folder_of(self._path, each.root).remove(each.name)

    def _writer(self, root: str) -> FileWriter:
        found = self._open.get(root)
        if found is not None and found.bytes >= FILE_BYTES:
            self._finish(root)
            found = None
        if found is None:
            name = file_name(
                self._part.batch, self._part.batch, self._part.number, len(self._files) + len(self._open)
            )
            found = self._open[root] = FileWriter(self._path, root, name, self._layouts[root].schema)
        return found

    def _finish(self, root: str) -> None:
        # A writer leaves `_open` only once it is closed: one that fails to close is still discarded.
        self._files.append(self._open[root].close())
        del self._open[root]


class FileWriter:
    """Writes one Parquet file."""

    def __init__(self, path: Folder, root: str, name: str, schema: pa.Schema) -> None:
        self.root = root
        self.name = name
        self._folder = folder_of(path, root)
        self._bounds = Bounds(schema)
        self._gathered: list[pa.Table] = []
        self._gathered_bytes = 0
        self._rows = 0
        with self._folder.errors(name):
            self._file = self._folder.create(name)
            self._parquet = pq.ParquetWriter(self._file.stream, schema, **_options(schema))

    @property
    def bytes(self) -> int:
        """Bytes that are in the file so far."""
        return self._file.stream.tell()

    def add(self, table: pa.Table) -> None:
        """Add rows; they are written when a row group is full."""
        self._gathered.append(table)
        self._gathered_bytes += table.nbytes
        self._rows += table.num_rows
        if self._gathered_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> DataFile:
        """Finish and return the file. Its bytes are synced, its name in the directory is not."""
        self._flush()
        with self._folder.errors(self.name):
            self._parquet.close()
            size = self._file.close()
        return DataFile(self.root, self.name, size, self._rows, self._bounds.bounds(), self._bounds.nulls)

    def discard(self) -> None:
        """Remove the file, finished or not."""
        # Closing writes the end of the file, which may fail for the reason that made the caller discard it.
        with suppress(OSError, ValueError):
            self._parquet.close()
        self._file.discard()

    def _flush(self) -> None:
        if self._gathered:
            table = pa.concat_tables(self._gathered)
            self._gathered, self._gathered_bytes = [], 0
            self._bounds.add(table)
            with self._folder.errors(self.name):
                self._parquet.write_table(table, row_group_size=ROW_GROUP_ROWS_MAX)


def _options(schema: pa.Schema) -> dict[str, object]:
    """Options that make files small and quick to write: dictionaries, differences for ticks, light zstd."""
    growing = [name for name in ("_tick", TIME.name) if name in schema.names]
    unlike = [field.name for field in schema if pa.types.is_binary(field.type) or field.name in growing]
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [field.name for field in schema if field.name not in unlike],
        "column_encoding": dict.fromkeys(growing, "DELTA_BINARY_PACKED"),
        "write_page_index": True,
    }
