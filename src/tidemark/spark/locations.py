"""Where archives and staged files are: the one place that knows what a location is.

A location is a directory that is mounted under the same name wherever the pipeline runs. What a user writes
becomes a location here, and nowhere else.
"""

from __future__ import annotations

import os
from pathlib import Path

from tidemark.errors import ConfigError

#: Of a checkpoint's directory, where the rows of its query are staged.
_STAGING = "tidemark"


def local_path(text: str) -> str:
    """The absolute path of a directory, or of a `file:` URI. Raises ConfigError for other file systems."""
    scheme, colon, rest = text.partition(":")
    if colon and len(scheme) > 1 and "/" not in scheme:
        if scheme.lower() != "file":
            raise ConfigError(
                f"{text!r} is not in a file system that is mounted here: give a directory that is"
            )
        text = "/" + rest.lstrip("/")
    if not text:
        raise ConfigError("a path is not empty")
    # Absolute, because a task in another process or on another machine has another working directory.
    return os.path.abspath(text)


def staging_beside(checkpoint: str) -> str:
    """Where the rows of the queries with a checkpoint in this directory are staged."""
    return f"{local_path(checkpoint)}/{_STAGING}"


def check_archive(path: str | Path) -> None:
    """Raise ConfigError if there is no directory for an archive at `path`.

    Otherwise history would be what the broker still has, and nobody would notice that the rest is missing.
    """
    if not Path(path).is_dir():
        raise ConfigError(f"there is no directory {path}: correct it, or start the archive", key="archive")
