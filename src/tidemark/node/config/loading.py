"""Loading a configuration: defaults, then the file, the environment and the command line; the last one wins.

An unknown key, a value of the wrong kind and a topology that does not fit together are ConfigErrors that name
the place and say what to write instead. Nothing is ignored.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tidemark.errors import ConfigError
from tidemark.message.visible import control_problem
from tidemark.node.config.pubends import (
    KEYS_OF_PUBEND,
    PUBENDS,
    check_pubends,
    checked_of_pubend,
    pubend_key,
    show_pubends,
)
from tidemark.node.config.settings import DEFAULT, KEYS, SECTIONS, Config, alone
from tidemark.node.config.values import checked, shown
from tidemark.node.leases.callback_policy import check_patterns
from tidemark.node.topology.file import TABLES, take_topology, unknown
from tidemark.node.topology.topology import Topology
from tidemark.wire.limits import LINK_NEWEST

PREFIX = "TIDEMARK_"
#: settings that are paths: a relative one in a file starts at the directory of that file
PATHS = (
    "archive.path",
    "archive.storage_options",
    "broker.topology",
    "security.access",
    "security.audit",
    "security.authority",
    "security.bearer_keys",
    "security.certificate",
    "security.http_token",
    "security.key",
    "security.overlay_key",
    "storage.data_dir",
)
NAME_BYTES_MAX = 255
PFS_GROUP_BITS_MAX = 16


#: Settings that have an option of their own.
FLAGS = {"broker.listen": "--listen", "storage.data_dir": "--data-dir", "http.listen": "--http"}


class SetOption(str):
    """The value of an option `--set KEY=VALUE`, also for a setting that has an option of its own."""

    __slots__ = ()


@dataclass(slots=True)
class _Gathered:
    """The values that were gathered so far, and where each came from."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def set(self, key: str, value: Any, source: str) -> None:
        """Check and keep a value, in place of an earlier one. Raises ConfigError, which names `source`."""
        of_pubend = pubend_key(key)
        if of_pubend is not None and of_pubend[1] not in KEYS_OF_PUBEND:
            raise ConfigError(unknown(of_pubend[1], KEYS_OF_PUBEND), key=key, source=source)
        if of_pubend is None and key not in KEYS:
            raise ConfigError(unknown(key, list(KEYS)), key=key, source=source)
        try:
            of_key = checked(key, value) if of_pubend is None else checked_of_pubend(of_pubend[1], value)
            self.values[key] = of_key
        except ConfigError as error:
            raise ConfigError(error.reason, key=key, source=source) from None
        self.sources[key] = source


def load(
    path: str | Path | None = None,
    *,
    broker: str | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Config:
    """Returns the configuration of one broker. Raises ConfigError.

    `path` is the file and `broker` chooses one of the brokers in its topology. `options` are those of the
    command line, by key; `defaults` are values that a command uses in place of the usual defaults.
    """
    gathered = _Gathered()
    for key, value in (defaults or {}).items():
        gathered.set(key, value, "tidemark up")
    document = {} if path is None else read(path)
    topology = take_topology(document, str(path))
    for key, value in _flattened(document, str(path)):
        is_path = key in PATHS and isinstance(value, str) and value != "" and "://" not in value
        gathered.set(key, str(_beside(value, str(path))) if is_path else value, str(path))
    for key, variable, text in _variables(environment or {}):
        gathered.set(key, text, variable)
    for key, value in (options or {}).items():
        gathered.set(key, value, "--set" if isinstance(value, SetOption) else FLAGS.get(key, "--set"))
    if broker is not None:
        gathered.set("broker.name", broker, "--broker")
    return _assembled(gathered, topology, path)


def brokers_of(path: str | Path) -> tuple[str, ...]:
    """Returns the names of the brokers in a file; none if it configures a single broker."""
    topology = take_topology(read(path), str(path))
    return () if topology is None else tuple(topology.brokers)


def topology_of(path: str | Path) -> Topology:
    """Returns the topology in a file. Raises ConfigError if it has none."""
    topology = take_topology(read(path), str(path))
    if topology is None:
        raise ConfigError("has no [brokers.NAME] tables", source=str(path))
    return topology


def processes_of(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Returns process -> its brokers, for a topology file: a broker in no process has one of its own."""
    topology = topology_of(path)
    together = {broker for brokers in topology.processes.values() for broker in brokers}
    alone = {name: (name,) for name in topology.brokers if name not in together}
    return {**topology.processes, **alone}


def read(path: str | Path) -> dict[str, Any]:
    """Returns the TOML of a file. Raises ConfigError if it cannot be read or is no TOML."""
    try:
        return tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"is not TOML: {error}", source=str(path)) from None


def show(config: Config) -> list[tuple[str, str, str]]:
    """Returns (key, value as a file would have it, where it came from) for every setting."""
    general = [(key, shown(key, config.value(key)), config.provenance(key)) for key in KEYS]
    return general + list(show_pubends(config))


# One broker of a topology.


def _assembled(gathered: _Gathered, topology: Topology | None, path: str | Path | None) -> Config:
    source = str(path)
    chosen = gathered.values.get("broker.topology")
    if chosen and topology is not None:
        raise ConfigError(
            "this file has brokers of its own; leave one out", key="broker.topology", source=source
        )
    if chosen:
        source = chosen
        topology = topology_of(source)
    if topology is not None:
        _place(gathered, topology, source)
    sections = {name: _section(name, kind, gathered.values) for name, kind in SECTIONS.items()}
    pubends: dict[str, dict[str, Any]] = {}
    for key, value in gathered.values.items():
        if (of_pubend := pubend_key(key)) is not None:
            pubends.setdefault(of_pubend[0], {})[of_pubend[1]] = value
    config = Config(**sections, sources=dict(gathered.sources), pubends=pubends)
    return _fitting(replace(config, topology=topology or alone(config.broker)))


def moved(config: Config, topology: Topology) -> Config:
    """Returns the configuration of the same broker in another topology, which must have that broker."""
    placement = topology.brokers[config.broker.name]
    listen = config.broker.listen if is_outside(config.provenance("broker.listen")) else placement.listen
    return replace(
        config, broker=replace(config.broker, listen=listen, pubends=placement.pubends), topology=topology
    )


def _place(gathered: _Gathered, topology: Topology, source: str) -> None:
    """Take over what the topology says of this broker, unless a variable or an option says otherwise."""
    name = gathered.values.get("broker.name")
    known = list(topology.brokers)
    if name is None:
        reason = f"has several brokers; choose one of {', '.join(known)} with --broker"
        raise ConfigError(reason, source=source)
    if name not in topology.brokers:
        raise ConfigError(unknown(name, known), key="broker.name", source=gathered.sources["broker.name"])
    placement = topology.brokers[name]
    values = {
        "broker.listen": str(placement.listen),
        "broker.pubends": list(placement.pubends),
        "http.listen": placement.http,
        "storage.data_dir": placement.data_dir,
    }
    for key, value in values.items():
        if value is not None and not is_outside(gathered.sources.get(key, DEFAULT)):
            gathered.set(key, value, source)


def is_outside(source: str) -> bool:
    """Returns whether a value came from a variable or an option, and so is meant for this one process."""
    return source.startswith((PREFIX, "--"))


# Sources.


def _flattened(document: dict[str, Any], source: str) -> Iterator[tuple[str, Any]]:
    for section, table in document.items():
        if section not in (*SECTIONS, PUBENDS):
            raise ConfigError(unknown(section, [*SECTIONS, PUBENDS, *TABLES]), key=section, source=source)
        if not isinstance(table, dict):
            raise ConfigError(f"write it as a table: [{section}]", key=section, source=source)
        for name, value in table.items():
            if section != PUBENDS:
                yield f"{section}.{name}", value
            elif isinstance(value, dict):
                yield from ((f"{section}.{name}.{what}", each) for what, each in value.items())
            else:
                raise ConfigError(f"write a table: [{PUBENDS}.NAME]", key=f"{section}.{name}", source=source)


def _variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yields (key, variable, text) for each TIDEMARK_SECTION_NAME.

    Other variables that begin with TIDEMARK_ are not settings of a broker.
    """
    for variable, text in sorted(environment.items()):
        section, _, name = variable.removeprefix(PREFIX).lower().partition("_")
        if variable.startswith(PREFIX) and section in SECTIONS and name:
            yield f"{section}.{name}", variable, text


# Checks.


def _fitting(config: Config) -> Config:
    """Returns `config`. Raises ConfigError if settings contradict each other, or one is out of bounds."""
    limits = config.limits
    name = config.broker.name
    if not name or len(name.encode()) > NAME_BYTES_MAX:
        raise _of(config, "broker.name", f"use 1 to {NAME_BYTES_MAX} bytes")
    if (problem := control_problem(name)) is not None:
        raise _of(config, "broker.name", problem)
    if limits.silence <= limits.ping:
        raise _of(config, "limits.silence", "must be longer than limits.ping, or nobody has time to answer")
    if config.links.silence < 2 * config.links.ping:
        raise _of(config, "links.silence", "must be twice links.ping at least, or nobody has time to answer")
    if config.links.version > LINK_NEWEST:
        raise _of(config, "links.version", f"this broker speaks no newer version than {LINK_NEWEST}")
    if config.links.wait_max < config.links.wait:
        raise _of(config, "links.wait_max", "must not be shorter than links.wait")
    if config.thresholds.nack_max < config.thresholds.nack:
        raise _of(config, "thresholds.nack_max", "must not be shorter than thresholds.nack")
    if config.storage.pfs_group_bits > PFS_GROUP_BITS_MAX:
        raise _of(config, "storage.pfs_group_bits", f"is more than {PFS_GROUP_BITS_MAX}, the most that works")
    check_pubends(config)
    try:
        check_patterns(config.subscribers.callbacks)
    except ConfigError as error:
        raise _of(config, "subscribers.callbacks", error.reason) from None
    try:
        config.http_address()
    except ConfigError as error:
        raise _of(config, "http.listen", error.reason) from None
    return config


def _of(config: Config, key: str, reason: str) -> ConfigError:
    return ConfigError(reason, key=key, source=config.provenance(key))


def _section(name: str, kind: type[Any], values: Mapping[str, Any]) -> Any:
    mine = {key.partition(".")[2]: value for key, value in values.items() if key.startswith(f"{name}.")}
    return kind(**mine)


def _beside(path: str, source: str) -> Path:
    """Returns a path from the file `source`; a relative one starts at the directory of that file."""
    return Path(source).parent / path
