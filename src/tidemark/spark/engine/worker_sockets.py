"""Unix domain sockets between a local Spark and its Python workers.

Spark speaks to its Python workers over TCP unless it is told otherwise. Where both run on this machine anyway
(`local[N]`), Unix domain sockets take rows faster, and a task begins sooner. Spark asks nobody for a secret
on such a socket: who may enter its directory may connect. So the directory belongs to this process, and only
its user may enter it.

Other masters keep Spark's default, since their executors are processes with directories of their own.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import socket
import tempfile
from functools import cache

#: Masters whose tasks run in the driver's own JVM.
_LOCAL = re.compile(r"local(\[[^\]]*\])?")
#: The name of a socket is `/.`, 36 characters and `.sock`; an address has at most 107 bytes.
_DIRECTORY_BYTES_MAX = 107 - 43


def worker_sockets(master: str) -> dict[str, str]:
    """The settings of Spark that let its workers use Unix domain sockets; none where they cannot be used."""
    if not hasattr(socket, "AF_UNIX") or not _LOCAL.fullmatch(master):
        return {}
    directory = _directory(os.getpid())
    if len(os.fsencode(directory)) > _DIRECTORY_BYTES_MAX:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": directory,
    }


@cache
def _directory(pid: int) -> str:
    """A directory for the sockets of all sessions of this process, removed when the process ends."""
    made = tempfile.mkdtemp(prefix="tidemark-")

    def remove() -> None:
        # A process that was forked from this one runs this too, and must leave it alone.
        if os.getpid() == pid:
            shutil.rmtree(made, ignore_errors=True)

    atexit.register(remove)
    return made
