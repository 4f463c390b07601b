"""Config: every setting of a broker, with its default and what it is for.

One dataclass a section of the file; a key is `section.name`. How values are gathered from the file, the
environment and the command line is `configload`'s; where each came from is kept here.
"""

# ruff: noqa: RUF009  (`setting` makes a field of a dataclass, once)

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tidemark.node.config.units import (
    Duration,
    RetainLimits,
    Size,
    SocketAddress,
    parse_address,
    parse_duration,
    parse_size,
)
from tidemark.node.topology.topology import BrokerPlacement, Topology

DEFAULT = "default"
DEFAULT_PUBEND = "main"
#: The archive's place in a data directory.
ARCHIVE = "archive"


def setting(default: Any, about: str, *, choices: tuple[str, ...] = (), least: int | None = None) -> Any:
    """A field with what `docs/configuration.md` and `config show` say of it; `least` bounds a number."""
    return field(default=default, metadata={"about": about, "choices": choices, "least": least})


def _time(text: str, about: str, *, least: str = "1ms") -> Any:
    return setting(parse_duration(text), about, least=parse_duration(least))


def _size(text: str, about: str, *, least: str = "4KiB") -> Any:
    return setting(parse_size(text), about, least=parse_size(least))


@dataclass(frozen=True, slots=True)
class BrokerSection:
    """Who this broker is."""

    name: str = setting("tidemark", "The broker's name, unique in its overlay.")
    listen: SocketAddress = setting(SocketAddress("127.0.0.1", 7676), "Where clients and brokers connect.")
    pubends: tuple[str, ...] = setting((DEFAULT_PUBEND,), "The pubends that are hosted here.")
    topology: str = setting("", "A file with the brokers of an overlay; this one is found there by its name.")


@dataclass(frozen=True, slots=True)
class StorageSection:
    """Where its data is, and what durable means."""

    data_dir: str = setting("tidemark-data", "The data directory; made on the first start.")
    durability: str = setting(
        "sync",
        "sync: acknowledged events survive a power failure. os: only a crash of the process.",
        choices=("sync", "os"),
    )
    segment: Size = _size("64MiB", "Size of a log file.", least="64KiB")


@dataclass(frozen=True, slots=True)
class LimitsSection:
    """Bounds on what others can make this broker hold, or wait for."""

    connections: int = setting(20_000, "Connections at a time.", least=1)
    strangers: int = setting(10, "Connections of one address that have not said who they are.", least=1)
    handshake: Duration = _time("10s", "A new connection must say who it is within this time.")
    frame: Duration = _time("30s", "A frame that has begun must be complete within this time.")
    ping: Duration = _time("30s", "A connection that was silent this long is asked whether it is there.")
    silence: Duration = _time("90s", "One that was silent this long is closed.")
    client_queue: Size = _size("64MiB", "A client that leaves more than this unread is disconnected.")
    peer_queue: Size = _size("64MiB", "Beyond this, knowledge for a broker is dropped; it will ask again.")
    all_queues: Size = _size("1GiB", "All output queues; beyond it those with the longest are disconnected.")
    disk_queue: Size = _size("64MiB", "Nothing more is read from those who publish until the disk caught up.")
    window: Size = _size("64MiB", "Recent knowledge of a pubend that is kept in memory.")


@dataclass(frozen=True, slots=True)
class LinksSection:
    """Links to other brokers: how soon one is known to be dead, and called again."""

    ping: Duration = _time("150ms", "A link that was silent this long is asked whether it is there.")
    silence: Duration = _time("600ms", "One that was silent this long is dead.")
    wait: Duration = _time("50ms", "A link that is lost is called again after this; each time later.")
    wait_max: Duration = _time("2s", "The longest wait between calls.")


@dataclass(frozen=True, slots=True)
class SubscribersSection:
    """Clients that are called when there is something for them, in place of an open connection."""

    lease: Duration = _time("1h", "The longest time that one may be away.", least="1s")
    leases: int = setting(100_000, "Leases at a time; 0 gives none.", least=0)
    rest: Duration = _time("3s", "A leased client is parked when nothing was said for this long.")
    callbacks: tuple[str, ...] = setting(
        (),
        "Hosts that may be called besides a client's own address in a private network: networks, "
        'like "10.0.0.0/8", or names, like "*.example.com".',
    )


@dataclass(frozen=True, slots=True)
class HttpSection:
    """Health and metrics."""

    listen: str = setting("127.0.0.1:7677", 'Where /health and /metrics are served; "" serves nothing.')


@dataclass(frozen=True, slots=True)
class ThresholdsSection:
    """When the protocol acts by itself."""

    gap: Duration = _time("50ms", "GCT: a hole this old is asked for.", least="0us")
    nack: Duration = _time("200ms", "NRT: an unanswered question is repeated; each time later.")
    nack_max: Duration = _time("10s", "The longest wait between repetitions.")
    ack_expected: Duration = _time(
        "2s", "AET: events that nobody released for this long are announced again."
    )
    heartbeat: Duration = _time("100ms", "Silence of a pubend is said this often while things happen.")
    heartbeat_idle: Duration = _time("2s", "And at least this often while nothing does.")
    lease: Duration = _time("10s", "Ticks that a pubend promises ahead on disk.")
    silence: Duration = _time("1s", "A subscriber without events learns this often how far it got.")
    save: Duration = _time("250ms", "Acknowledgements are saved this often.")
    pfs_sync: Duration = _time("100ms", "The PFS is synced this often.")


@dataclass(frozen=True, slots=True)
class RetentionSection:
    """Early release: history that may go although somebody has not acknowledged it."""

    max_retain: Duration | None = setting(None, "What is older may go.", least=parse_duration("1s"))
    max_bytes: Size | None = setting(None, "What a pubend holds beyond may go.", least=parse_size("64KiB"))
    archive: bool = setting(False, "An archive keeps everything: nothing goes before it has it.")
    release_unarchived: bool = setting(False, "Also what the archive does not have yet.")
    recall: str = setting(
        "auto",
        "Subscribers get from the archive what pubends have let go. auto: as retention.archive.",
        choices=("auto", "yes", "no"),
    )


@dataclass(frozen=True, slots=True)
class ArchiveSection:
    """The archive that `tidemark up` writes beside the broker."""

    path: str = setting("", 'Where it is; "": the directory `archive` in the data directory.')
    retain: RetainLimits | None = setting(
        None, 'History that it keeps, like "90d" or "500GB"; what is older goes in whole files.'
    )
    interval: Duration = _time("5s", "How often it looks for events, if not many have come.", least="10ms")
    master: str = setting("local[2]", "Where Spark runs, which is started when there is much to archive.")


@dataclass(frozen=True, slots=True)
class LogSection:
    """What the broker says about itself."""

    level: str = setting("info", "The least that is said.", choices=("debug", "info", "warning", "error"))
    format: str = setting(
        "auto", "json: an object a line. auto: text on a terminal.", choices=("auto", "text", "json")
    )


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of one broker."""

    broker: BrokerSection = field(default_factory=BrokerSection)
    storage: StorageSection = field(default_factory=StorageSection)
    limits: LimitsSection = field(default_factory=LimitsSection)
    links: LinksSection = field(default_factory=LinksSection)
    subscribers: SubscribersSection = field(default_factory=SubscribersSection)
    http: HttpSection = field(default_factory=HttpSection)
    thresholds: ThresholdsSection = field(default_factory=ThresholdsSection)
    retention: RetentionSection = field(default_factory=RetentionSection)
    archive: ArchiveSection = field(default_factory=ArchiveSection)
    log: LogSection = field(default_factory=LogSection)
    #: the overlay it is part of; of itself alone if no file says otherwise
    topology: Topology = field(default_factory=lambda: alone(BrokerSection()))
    #: key -> where its value came from; keys that are not in it have their default
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def provenance(self, key: str) -> str:
        """Where the value of a key came from: "default", a file, a variable, or an option."""
        assert key in KEYS
        return self.sources.get(key, DEFAULT)

    def value(self, key: str) -> Any:
        """The value of a key."""
        section, name = key.split(".")
        return getattr(getattr(self, section), name)

    def archive_path(self) -> Path:
        """Where `tidemark up` keeps the archive."""
        return Path(self.archive.path) if self.archive.path else Path(self.storage.data_dir) / ARCHIVE

    def http_address(self) -> SocketAddress | None:
        """Where to serve health and metrics, if at all."""
        return parse_address(self.http.listen) if self.http.listen else None


SECTIONS: Mapping[str, type[Any]] = MappingProxyType(
    {
        "broker": BrokerSection,
        "storage": StorageSection,
        "limits": LimitsSection,
        "links": LinksSection,
        "subscribers": SubscribersSection,
        "http": HttpSection,
        "thresholds": ThresholdsSection,
        "retention": RetentionSection,
        "archive": ArchiveSection,
        "log": LogSection,
    }
)


def _keys() -> Iterator[tuple[str, Any]]:
    for section, kind in SECTIONS.items():
        for each in fields(kind):
            yield f"{section}.{each.name}", each


#: key -> its dataclass field
KEYS: Mapping[str, Any] = MappingProxyType(dict(_keys()))


def alone(broker: BrokerSection) -> Topology:
    """The topology of a broker without neighbours."""
    return Topology.build([BrokerPlacement(broker.name, broker.name, broker.listen, broker.pubends)])
