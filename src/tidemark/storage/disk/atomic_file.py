"""Replacing a file as a whole: a crash leaves the old content or the new one, never a mixture.

The new content is written to a draft beside the file and synced; the draft then takes the file's name in one
step, and the directory is synced. Without the first sync a crash may leave the name with an empty file behind
it, without the second it may bring the old content back after the caller was told that it is gone.

`replace_file` works on a `Disk`, so the simulator can crash in the middle of it. `replace_path` is for files
outside data directories, which belong to the user.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidemark.message.batches.batch import Buffer
    from tidemark.storage.disk.disk import Disk

#: What `errno` is when a disk is full, or the user's share of it.
FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})


def replace_file(disk: Disk, name: str, pieces: Sequence[Buffer], *, draft: str | None = None) -> None:
    """Make the pieces, end to end, the content of the file `name`; on the platter when this returns.

    `draft` is the name of the file that is written first, `name` with `.new` behind it by default; one that a
    crash has left is removed. Raises StorageError, and the file is as it was, or is new but may not last.
    """
    draft = f"{name}.new" if draft is None else draft
    if draft in disk.list():
        disk.remove(draft)
    file = disk.create(draft)
    try:
        file.append(pieces)
        file.sync()
    finally:
        file.close()
    disk.rename(draft, name)
    disk.sync_directory()


def replace_path(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Make `data` the content of the file at `path`; on the platter when this returns.

    `mode` has the permissions of the file, less what the user's umask takes. A draft that a crash has left
    is removed. Raises OSError, and the file is as it was, or is new but may not last.
    """
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_path(path.parent)


def sync_path(path: Path) -> None:
    """Return when the bytes of a file, or the names in a directory, are on the platter. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
