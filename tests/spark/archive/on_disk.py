"""The directories of an archive on a disk, for tests that look at its files."""

from __future__ import annotations

from pathlib import Path

from tidemark.spark.archive.table import folder_of, log_of


def table_directory(path: Path, root: str) -> Path:
    """The directory of the table of a root."""
    return Path(folder_of(path, root).text)


def log_directory(path: Path, root: str) -> Path:
    """The directory of the log of that table."""
    return Path(log_of(path, root).text)
