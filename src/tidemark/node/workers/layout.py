"""Layout: the topology of several workers on one machine in place of one broker, to use more of its cores.

Each worker is a broker with its own pubend, data directory and address; all others are linked to the first.
Clients come to one address, at which the acceptor listens, or to that of a worker, and reach everyone.
Workers do not share what they have on disk. The topology is written into the data directory, so that the next
start may have more workers, and never fewer by mistake.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tidemark.errors import ConfigError
from tidemark.node.config.loading import brokers_of
from tidemark.node.config.units import HostPort, parse_address
from tidemark.storage.disk.atomic_file import replace_path

WORKERS_MAX = 64
FILE_NAME = "workers.toml"
#: Distance from the port of a worker to that of the next; health and metrics are one port above the worker's.
PORT_STEP = 10
#: Distance from the port of the one address to that of the first worker's own. The others have the ports that
#: they would have if the first worker had the one address, which it had before there was an acceptor.
FIRST_PORT = 5


def own_address(listen: HostPort, number: int) -> HostPort:
    """Return the address of the worker of this number, from 1, itself; `listen` is the one of all."""
    return HostPort(listen.host, listen.port + (FIRST_PORT if number == 1 else PORT_STEP * (number - 1)))


def lay_out(data_dir: str, listen: str, count: int, settings: Mapping[str, str]) -> Path:
    """Write the topology of `count` workers, with `settings` for all of them. Returns the file's path.

    Raises ConfigError if `count` is out of bounds, or less than at an earlier start.
    """
    if not 1 <= count <= WORKERS_MAX:
        raise ConfigError(f"{count} workers are not between 1 and {WORKERS_MAX}", key="workers")
    path = Path(data_dir) / FILE_NAME
    if path.exists() and (before := len(brokers_of(path))) > count:
        raise ConfigError(
            f"{before} workers have data in {data_dir}: start as many, or what the others hold is not served",
            key="workers",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_path(path, _toml(parse_address(listen), count, settings).encode())
    return path


def _toml(listen: HostPort, count: int, settings: Mapping[str, str]) -> str:
    lines = ["# Written by `tidemark up --workers`."]
    sections: dict[str, list[str]] = {}
    for key, value in settings.items():
        section, _, name = key.rpartition(".")
        sections.setdefault(section, []).append(f"{name} = {_literal(value)}")
    for section, entries in sections.items():
        lines += ["", f"[{section}]", *entries]
    for number in range(1, count + 1):
        port = listen.port + PORT_STEP * (number - 1)
        lines += [
            "",
            f"[brokers.worker-{number}]",
            f"listen = {json.dumps(str(own_address(listen, number)))}",
            f"http = {json.dumps(f'127.0.0.1:{port + 1}')}",
            f'pubends = ["worker-{number}"]',
            f'data_dir = "worker-{number}"',
        ]
    for number in range(2, count + 1):
        lines += ["", f"[bundles.link-{number}]", f'cells = ["worker-{number}", "worker-1"]']
    return "\n".join(lines) + "\n"


def _literal(value: str) -> str:
    """Returns a value of the command line as TOML: booleans and numbers as such, anything else in quotes."""
    return value if value in ("true", "false") or value.isdigit() else json.dumps(value)
