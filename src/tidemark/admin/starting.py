"""How brokers are started here, alone or as a whole topology, with an archive beside them or without.

The functions `run_...` return when the brokers have been stopped, and return the exit code for the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.errors import ConfigError
from tidemark.wire.json_objects import JsonObject

if TYPE_CHECKING:
    from tidemark.node.config.settings import Config
    from tidemark.node.node import Node
    from tidemark.node.process.supervised_process import SupervisedProcess

LISTEN_DEFAULT = "127.0.0.1:7676"
DATA_DIRECTORY_DEFAULT = "tidemark-data"


@dataclass(frozen=True, slots=True)
class BrokerReady(JsonObject):
    """A broker that has started, and how to reach it."""

    broker: str
    url: str
    #: where /health and /metrics are
    http: str | None
    data_dir: str
    #: the directory of the archive that is written beside the broker
    archive: str | None
    #: where the console beside the broker is
    console: str | None = None


#: Is called once for each broker when clients can connect to it.
Ready = Callable[[BrokerReady], None]


def run_alone(
    settings: Mapping[str, str], ready: Ready, *, has_archive: bool, console: str | None = None
) -> int:
    """Run a broker with these settings until it is stopped; `console` is where one beside it listens."""
    from tidemark.node.config.loading import load
    from tidemark.node.process import archiving
    from tidemark.node.process.process import run
    from tidemark.node.process.supervised_process import SupervisedGroup

    defaults = archiving.DEFAULTS if has_archive else None
    config = load(environment=os.environ, options=settings, defaults=defaults)
    archive = config.archive_path() if has_archive else None

    def beside(node: Node) -> SupervisedGroup:
        processes = [archiving.archive_of(config, node.address)] if has_archive else []
        if console is not None:
            processes.append(_console([describe_ready(node, archive).url], console))
        return SupervisedGroup(*processes)

    return run(config, ready=lambda node: ready(describe_ready(node, archive, console)), beside=beside)


def run_brokers(configs: list[Config], ready: Ready | None) -> int:
    """Run brokers of these configurations in one process until they are stopped."""
    from tidemark.node.process.process import run

    if ready is None:
        return run(*configs)
    return run(*configs, ready=lambda node: ready(describe_ready(node, None)))


def run_topology_file(
    file: Path, archive: Path | None, console: str | None = None, front: str | None = None
) -> int:
    """Run every process of a topology file until all are stopped.

    With a directory as `archive`, an archive in it too; with an address as `console`, a console there. The
    brokers are workers if there is an address as `front`: clients come there, and are spread over them.
    Brokers with accounts that have no way to prove who they are to each other get a key for that.
    """
    from tidemark.admin.overlay_queries import urls_of
    from tidemark.admin.securing import overlay_key_of
    from tidemark.node.config.loading import brokers_of, topology_of
    from tidemark.node.config.units import parse_address
    from tidemark.node.process import archiving
    from tidemark.node.process.supervised_process import SupervisedGroup
    from tidemark.node.process.topology_runner import run_topology
    from tidemark.node.workers.layout import own_address

    beside = []
    if console is not None:
        beside.append(_console(list(urls_of(topology_of(file), scheme_of(file)).values()), console))
    names = brokers_of(file)
    archiver = None if archive is None else archiving.archive_of_all(file, names, archive)
    if archiver is not None:
        beside.insert(0, archiver)
    settings = {} if archive is None else archiving.settings_for_all(file, names)
    key = overlay_key_of(file, names)
    if key is not None:
        more = {"security.overlay_key": str(key)}
        settings = {name: {**settings.get(name, {}), **more} for name in names}
    if front is None:
        return run_topology(file, settings, SupervisedGroup(*beside))
    one, first = parse_address(front), names[0]
    # A topology that was changed while the first worker had this address itself still says so.
    listen = {"broker.listen": str(own_address(one, 1))}
    settings = {**settings, first: {**settings.get(first, {}), **listen}}
    return run_topology(file, settings, SupervisedGroup(*beside), one)


def scheme_of(file: Path) -> str:
    """Return how the URLs of the brokers of a topology file begin."""
    from tidemark.client.connecting.addresses import SCHEME, TLS_SCHEME
    from tidemark.node.config.loading import brokers_of, load

    configs = (load(file, broker=name, environment=os.environ) for name in brokers_of(file))
    return TLS_SCHEME if any(each.security.certificate for each in configs) else SCHEME


def _console(urls: list[str], listen: str) -> SupervisedProcess:
    from tidemark.node.config.units import parse_address
    from tidemark.node.process.console_process import console_of

    return console_of(urls, parse_address(listen))


def why_no_console(listen: str) -> str | None:
    """Return why no console can run at an address; None if one can."""
    from tidemark.node.config.units import parse_address
    from tidemark.node.process.console_process import is_free, missing_for_console

    lacking = missing_for_console()
    if lacking is not None:
        return f"not installed: {lacking}; pip install 'tidemark[console]'"
    return None if is_free(parse_address(listen)) else f"{listen} is in use; choose another with --console"


def lay_out_workers(count: int, settings: Mapping[str, str]) -> tuple[Path, Path]:
    """Write a topology of `count` linked brokers that take the place of one broker with these settings.

    Returns the topology file, and the directory where an archive of all of them belongs.
    """
    from tidemark.node.config.settings import ARCHIVE
    from tidemark.node.workers.layout import lay_out

    others = dict(settings)
    listen = others.pop("broker.listen", LISTEN_DEFAULT)
    data_dir = others.pop("storage.data_dir", DATA_DIRECTORY_DEFAULT)
    others.pop("http.listen", None)
    return lay_out(data_dir, listen, count, others), Path(data_dir) / ARCHIVE


def brokers_of_process(file: Path, process: str) -> tuple[str, ...]:
    """Return the brokers that a process of a topology file runs; ConfigError if there is no such process."""
    from tidemark.node.config.loading import processes_of
    from tidemark.node.topology.file import unknown

    found = processes_of(file)
    if process not in found:
        raise ConfigError(unknown(process, list(found)), key="--process", source=str(file))
    return found[process]


def what_an_archive_lacks() -> str | None:
    """Return what is not installed here that an archive needs; None if an archive can run."""
    from tidemark.node.process.archiving import missing

    return missing()


def describe_ready(node: Node, archive: str | None, console: str | None = None) -> BrokerReady:
    """Return how to reach a node that has started."""
    plus, web = ("+tls", "https") if node.config.security.certificate else ("", "http")
    return BrokerReady(
        broker=node.config.broker.name,
        url=f"tidemark{plus}://{node.address}",
        http=None if node.http_address is None else f"{web}://{node.http_address}",
        data_dir=node.config.storage.data_dir,
        archive=archive,
        console=None if console is None else f"http://{console}",
    )
