"""Writing a file of the archive again without some of its rows. Runs in a task; imports no pyspark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.spark.archive.layout import ArchiveLayout, laid_out
from tidemark.spark.archive.table import DataFile, file_name, folder_of
from tidemark.spark.archive.writer import FileWriter
from tidemark.spark.stores.folder import Folder


def count_of(kept: Sequence[pa.Array]) -> int:
    """How many rows are kept, of all row groups."""
    return sum(int(pc.sum(each).as_py() or 0) for each in kept)


def write_kept(
    parquet: pq.ParquetFile,
    kept: Sequence[pa.Array],
    path: Folder,
    root: str,
    name: str,
    layout: ArchiveLayout,
) -> DataFile:
    """Write the rows that are kept, `kept[group][row]`, into a new file of the table; it is on the platter.

    If anything fails, no file is left.
    """
    folder = folder_of(path, root)
    writer = FileWriter(path, root, name, layout.schema)
    try:
        for group, mask in enumerate(kept):
            if pc.any(mask).as_py():
                writer.add(with_layout(parquet.read_row_group(group), layout).filter(mask))
        made = writer.close()
        folder.sync()
    except BaseException:
        writer.discard()
        raise
    return made


def with_layout(rows: pa.Table, layout: ArchiveLayout) -> pa.Table:
    """The rows, with all columns that the table has by now."""
    return laid_out({name: rows.column(name) for name in rows.column_names}, rows.num_rows, layout)


def successor_name(file: DataFile) -> str:
    """A name with the place of the file; a file of another tool has none, and keeps having none."""
    if not file.is_own:
        return f"rewritten-{file_name(0, 0, 0, 0)}"
    first, last, part, number = (int(text) for text in file.name.split("-")[:4])
    return file_name(first, last, part, number)
