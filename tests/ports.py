"""Ports for what is started in a process of its own, or again, and has to be known before.

Whoever binds to no port in particular, and every connection, gets a port of the kernel's own range: one that
a broker has had may be somebody else's when the broker is started again. The ports here lie below that range,
and a lock on a file keeps each of them for this process as long as it runs.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from socket import SO_REUSEADDR, SOL_SOCKET, socket

_KERNELS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_PORTS = 16_384


def free_ports(count: int) -> list[int]:
    """Different ports that nobody listens at just now, and that no other test will get."""
    found: list[int] = []
    for port in islice(_candidates, _PORTS):
        if _is_kept(port):
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("there are no free ports")


def _all_ports() -> Iterator[int]:
    """Yields all ports below the kernel's range, again and again, from another one on in each process."""
    last = int(_KERNELS.read_text().split()[0]) if _KERNELS.exists() else 32_768
    at = os.getpid() * 61
    while True:
        at = (at + 1) % _PORTS
        yield last - _PORTS + at


def _is_kept(port: int) -> bool:
    """Keep a port for this process. Returns False if another process keeps it, or somebody listens there."""
    locks = Path(tempfile.gettempdir()) / "tidemark-test-ports"
    locks.mkdir(exist_ok=True)
    lock = os.open(locks / str(port), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket() as tried:
            tried.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
            tried.bind(("127.0.0.1", port))
    except OSError:
        os.close(lock)
        return False
    return True  # the lock stays until this process ends


_candidates = _all_ports()
