"""The console beside brokers: whether it can run here, and how its process is started.

The console is a client of the brokers; a broker knows its command line and no more.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from tidemark.node.config.units import HostPort
from tidemark.node.process.supervised_process import SupervisedProcess

PACKAGES = ("jinja2", "starlette", "uvicorn")
LISTEN_DEFAULT = "127.0.0.1:7678"


def missing_for_console() -> str | None:
    """Returns what the console needs and is not installed here; None if the console can run."""
    packages = [name for name in PACKAGES if find_spec(name) is None]
    return ", ".join(packages) or None


def is_free(address: HostPort) -> bool:
    """Returns whether nobody listens at an address of this machine."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((address.host, address.port))
        except OSError:
            return False
    return True


def console_of(urls: Sequence[str], listen: HostPort) -> SupervisedProcess:
    """Returns the process of a console for these brokers."""
    url = ",".join([urls[0], *(each.partition("://")[2] for each in urls[1:])])
    command = [
        *(sys.executable, "-m", "tidemark", "console", "--attached"),
        *("--listen", str(listen), "--broker", url),
    ]
    return SupervisedProcess("console", command)
