"""Where settings come from: defaults, then the file, the environment, the command line; the last one wins.

An unknown key, a value of the wrong kind and a topology that does not fit together are ConfigErrors that say
where, and what to write instead. Nothing is ignored.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tidemark.errors import ConfigError
from tidemark.node.config import DEFAULT, KEYS, SECTIONS, Config, alone
from tidemark.node.configvalues import checked, names_of, shown, text_of
from tidemark.node.topology import Placed, Topology
from tidemark.node.units import parse_address

PREFIX = "TIDEMARK_"
#: What a broker's table in a topology may say.
PLACED_KEYS = ("cell", "data_dir", "http", "listen", "parent", "pubends")
PATHS = ("archive.path", "broker.topology", "storage.data_dir")
NAME_BYTES_MAX = 255


@dataclass(slots=True)
class _Gathered:
    """Values so far, and where each came from."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def set(self, key: str, value: Any, source: str) -> None:
        """A later source wins."""
        if key not in KEYS:
            raise ConfigError(_unknown(key, list(KEYS)), key=key, source=source)
        try:
            self.values[key] = checked(key, value)
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
    """The configuration of one broker.

    `broker` chooses one of a topology. `options` are those of the command line, by key, and `defaults` what a
    command takes in place of ours; a relative path in a file starts at that file.
    """
    gathered = _Gathered()
    for key, value in (defaults or {}).items():
        gathered.set(key, value, "tidemark up")
    document = {} if path is None else read(path)
    brokers = document.pop("brokers", {})
    for key, value in _flattened(document, str(path)):
        is_path = key in PATHS and isinstance(value, str) and value != ""
        gathered.set(key, str(_beside(value, str(path))) if is_path else value, str(path))
    for key, variable, text in _variables(environment or {}):
        gathered.set(key, text, variable)
    for key, value in (options or {}).items():
        gathered.set(key, value, f"--{key.partition('.')[2].replace('_', '-')}")
    if broker is not None:
        gathered.set("broker.name", broker, "--broker")
    return _assembled(gathered, brokers, path)


def brokers_of(path: str | Path) -> tuple[str, ...]:
    """The names in a topology file; none if it configures a single broker."""
    return tuple(_topology(read(path).get("brokers", {}), str(path)).brokers)


def read(path: str | Path) -> dict[str, Any]:
    """The TOML of a file."""
    try:
        return tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"is not TOML: {error}", source=str(path)) from None


def show(config: Config) -> list[tuple[str, str, str]]:
    """Every key with its value, as it would be written, and where that came from."""
    return [(key, shown(key, config.value(key)), config.provenance(key)) for key in KEYS]


# One broker of a topology.


def _assembled(gathered: _Gathered, brokers: Any, path: str | Path | None) -> Config:
    source = str(path)
    chosen = gathered.values.get("broker.topology")
    if chosen and brokers:
        raise ConfigError(
            "this file has brokers of its own; leave one out", key="broker.topology", source=source
        )
    if chosen:
        source = chosen
        brokers = read(source).get("brokers", {})
        if not brokers:
            raise ConfigError("has no [brokers.NAME] tables", source=source)
    topology = _topology(brokers, source) if brokers else None
    if topology is not None:
        _place(gathered, topology, source)
    sections = {name: _section(name, kind, gathered.values) for name, kind in SECTIONS.items()}
    config = Config(**sections, sources=dict(gathered.sources))
    return _fitting(replace(config, topology=topology or alone(config.broker)))


def _place(gathered: _Gathered, topology: Topology, source: str) -> None:
    """What the topology says of this broker: more than the rest of the file, less than a variable."""
    name = gathered.values.get("broker.name")
    known = list(topology.brokers)
    if name is None:
        reason = f"has several brokers; choose one of {', '.join(known)} with --broker"
        raise ConfigError(reason, source=source)
    if name not in topology.brokers:
        raise ConfigError(_unknown(name, known), key="broker.name", source=gathered.sources["broker.name"])
    placed = topology.brokers[name]
    values = {
        "broker.listen": str(placed.listen),
        "broker.pubends": list(placed.pubends),
        "http.listen": placed.http,
        "storage.data_dir": placed.data_dir,
    }
    for key, value in values.items():
        if value is not None and not _is_outside(gathered.sources.get(key, DEFAULT)):
            gathered.set(key, value, source)


def _is_outside(source: str) -> bool:
    return source.startswith((PREFIX, "--"))


def _topology(brokers: Any, source: str) -> Topology:
    try:
        if not isinstance(brokers, dict):
            raise ConfigError("write a table for each broker: [brokers.NAME]", key="brokers")
        return Topology.build([_placed(name, table, source) for name, table in brokers.items()])
    except ConfigError as error:
        raise ConfigError(error.reason, key=error.key, source=source) from None


def _placed(name: str, table: Any, source: str) -> Placed:
    key = f"brokers.{name}"
    if not isinstance(table, dict):
        raise ConfigError("write a table for each broker: [brokers.NAME]", key=key)
    for each in table:
        if each not in PLACED_KEYS:
            raise ConfigError(_unknown(each, list(PLACED_KEYS)), key=f"{key}.{each}")
    if "listen" not in table:
        raise ConfigError('say where it listens: listen = "127.0.0.1:7676"', key=key)
    texts = {each: text_of(table.get(each), f"{key}.{each}") for each in PLACED_KEYS if each != "pubends"}
    directory = texts["data_dir"] or f"tidemark-data-{name}"
    if "/" in name or name.startswith("."):
        raise ConfigError("a broker's name has no slash and does not start with a dot", key=key)
    return Placed(
        name,
        texts["cell"] or name,
        _at(f"{key}.listen", parse_address, texts["listen"] or ""),
        texts["parent"],
        _at(f"{key}.pubends", names_of, table.get("pubends", [])),
        str(_beside(directory, source)),
        texts["http"] if "http" in table else "",
    )


# Sources.


def _flattened(document: dict[str, Any], source: str) -> Iterator[tuple[str, Any]]:
    for section, table in document.items():
        if section not in SECTIONS:
            raise ConfigError(_unknown(section, [*SECTIONS, "brokers"]), key=section, source=source)
        if not isinstance(table, dict):
            raise ConfigError(f"write it as a table: [{section}]", key=section, source=source)
        for name, value in table.items():
            yield f"{section}.{name}", value


def _variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """TIDEMARK_SECTION_NAME; other variables that begin so are not settings of a broker."""
    for variable, text in sorted(environment.items()):
        section, _, name = variable.removeprefix(PREFIX).lower().partition("_")
        if variable.startswith(PREFIX) and section in SECTIONS and name:
            yield f"{section}.{name}", variable, text


# Checks.


def _fitting(config: Config) -> Config:
    """What no single key can get wrong."""
    limits = config.limits
    name = config.broker.name
    if not name or len(name.encode()) > NAME_BYTES_MAX:
        raise _of(config, "broker.name", f"use 1 to {NAME_BYTES_MAX} bytes")
    if limits.silence <= limits.ping:
        raise _of(config, "limits.silence", "must be longer than limits.ping, or nobody has time to answer")
    if config.thresholds.nack_max < config.thresholds.nack:
        raise _of(config, "thresholds.nack_max", "must not be shorter than thresholds.nack")
    try:
        config.http_address()
    except ConfigError as error:
        raise _of(config, "http.listen", error.reason) from None
    return config


def _of(config: Config, key: str, reason: str) -> ConfigError:
    return ConfigError(reason, key=key, source=config.provenance(key))


def _at(key: str, parse: Any, value: Any) -> Any:
    try:
        return parse(value)
    except ConfigError as error:
        raise ConfigError(error.reason, key=key) from None


def _section(name: str, kind: type[Any], values: Mapping[str, Any]) -> Any:
    mine = {key.partition(".")[2]: value for key, value in values.items() if key.startswith(f"{name}.")}
    return kind(**mine)


def _beside(path: str, source: str) -> Path:
    """A relative path in a file starts at that file."""
    return Path(source).parent / path


def _unknown(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    return (
        f"is not known; did you mean {close[0]!r}?"
        if close
        else f"is not known; choose one of {', '.join(known)}"
    )
