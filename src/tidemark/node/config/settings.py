"""Config: every setting of a broker, with its default and what it is for.

Each section of the file is a dataclass, and a key is `section.name`. `loading` gathers the values from the
file, the environment and the command line; `Config` keeps where each value came from. The sentence of each
setting is the one in docs/configuration.md: a test compares the two.
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
    HostPort,
    RetainLimits,
    Size,
    parse_address,
    parse_duration,
    parse_size,
)
from tidemark.node.topology.topology import BrokerPlacement, Topology
from tidemark.wire.limits import LINK_NEWEST, LINK_OLDEST

DEFAULT = "default"
DEFAULT_PUBEND = "main"
#: The directory of the archive in a data directory.
ARCHIVE = "archive"


def setting(default: Any, about: str, *, choices: tuple[str, ...] = (), least: int | None = None) -> Any:
    """Returns a dataclass field with its sentence for docs/configuration.md; `least` bounds a number."""
    return field(default=default, metadata={"about": about, "choices": choices, "least": least})


def _time(text: str, about: str, *, least: str = "1ms") -> Any:
    return setting(parse_duration(text), about, least=parse_duration(least))


def _size(text: str, about: str, *, least: str = "4KiB") -> Any:
    return setting(parse_size(text), about, least=parse_size(least))


@dataclass(frozen=True, slots=True)
class BrokerSection:
    """The broker's name, address and pubends."""

    name: str = setting("tidemark", "The broker's name, unique in its overlay.")
    listen: HostPort = setting(
        HostPort("127.0.0.1", 7676), "The address where clients and other brokers connect."
    )
    pubends: tuple[str, ...] = setting((DEFAULT_PUBEND,), "The pubends that this broker hosts.")
    assign: str = setting(
        "publisher",
        "By what clients without a publisher of their own choose among this broker's pubends for an event: "
        "by publisher, by the event's key, or by its priority.",
        choices=("publisher", "key", "priority"),
    )
    latency: str = setting(
        "normal",
        "low: the broker does not sleep between events that come at least every 20 ms, so that single events "
        "take less time and the broker up to a whole core. For brokers that have a core to themselves.",
        choices=("normal", "low"),
    )
    topology: str = setting(
        "", "A file with the brokers of an overlay; this broker is found there by its name."
    )


@dataclass(frozen=True, slots=True)
class StorageSection:
    """Where the broker keeps its data, and what an acknowledged event survives."""

    data_dir: str = setting("tidemark-data", "The data directory; it is created on the first start.")
    durability: str = setting(
        "sync",
        "sync: acknowledged events survive a power failure. os: they survive only a crash of the process.",
        choices=("sync", "os"),
    )
    segment: Size = _size("64MiB", "The size of one log file.", least="64KiB")
    pfs_group_bits: int = setting(
        0,
        "With more than 0 the PFS is imprecise: it notes which groups of 2, 4, 8 ... durable subscribers an "
        "event is for, writes less, and who returns gets more events matched again. At most 16.",
        least=0,
    )
    witness: str = setting(
        "",
        "A directory on another disk, in which the broker also notes how far its data is, so that it notices "
        "if the whole data directory is gone or older than it was. Without one it cannot.",
    )
    accept_damage: str = setting(
        "nothing",
        "tables: start although the tables have lost rows, and tell subscribers. overlay: start although the "
        "saved topology is older than it was. For one start, on its command line.",
        choices=("nothing", "tables", "overlay"),
    )


@dataclass(frozen=True, slots=True)
class LimitsSection:
    """Bounds on the memory and time that clients and other brokers can make this broker spend."""

    connections: int = setting(20_000, "How many connections there may be at a time.", least=1)
    address_connections: int = setting(
        2_000, "How many connections one address other than this machine's own may have.", least=1
    )
    address_times: int = setting(
        10,
        "How many times the subscriptions, scans, topics and questions of one connection such an address may "
        "have.",
        least=1,
    )
    subscriptions: int = setting(10_000, "How many subscriptions one connection may have at a time.", least=1)
    scans: int = setting(
        200,
        "How many of them may have a selector that no index can find, such as a LIKE that begins with a "
        "wildcard.",
        least=0,
    )
    durable_subscriptions: int = setting(
        100_000,
        "How many durable subscriptions the broker keeps, those that nobody is connected to included.",
        least=1,
    )
    durable_selectors: Size = _size(
        "64MiB", "How much text the patterns and selectors of all durable subscriptions may have together."
    )
    topics: int = setting(10_000, "How many new topics one connection may declare.", least=1)
    questions: int = setting(
        1_000, "How many questions of administrators one connection may ask in a second.", least=1
    )
    strangers: int = setting(
        10, "How many connections of one address may not have introduced themselves yet.", least=1
    )
    handshake: Duration = _time("10s", "A new connection must introduce itself within this time.")
    frame: Duration = _time("30s", "A frame must arrive completely within this time after its first byte.")
    ping: Duration = _time("30s", "A connection that was silent for this long is sent a Ping.")
    silence: Duration = _time(
        "90s", "A connection whose other side was asked, and says and takes nothing for this long, is closed."
    )
    unreachable: Duration = _time(
        "4s", "A client whose machine does not answer for this long to what is sent to it is disconnected."
    )
    client_queue: Size = _size("64MiB", "A client that leaves more than this unread is disconnected.")
    peer_queue: Size = _size(
        "64MiB",
        "While a broker leaves more than this unread, it gets no more knowledge; it asks again later.",
    )
    all_queues: Size = _size(
        "512MiB", "While all output queues together exceed this, the longest ones are disconnected."
    )
    input: Size = _size(
        "128MiB",
        "While all frames that have not arrived completely take more than this, the slowest are closed.",
        least="1MiB",
    )
    disk_queue: Size = _size(
        "64MiB", "While more than this waits to be written to disk, nothing is read from publishers."
    )
    in_flight: Size = _size(
        "4MiB",
        "One publisher may have this much on the way to the disk; several have a quarter together.",
    )
    window: Size = _size("64MiB", "How much recent knowledge of each pubend is kept in memory.")
    topic_schemas: Size = _size(
        "4MiB", "How much text all versions of one topic's schema, or all its shapes, may have together."
    )
    all_schemas: Size = _size("64MiB", "How much text the schemas of all topics may have together.")


@dataclass(frozen=True, slots=True)
class LinksSection:
    """Links to other brokers: how soon a link counts as dead, and when it is made again."""

    ping: Duration = _time(
        "150ms",
        "A Ping is sent when a question was not answered for this long, or bytes were not taken, or a link "
        "that was busy a moment ago has become silent.",
    )
    idle: Duration = _time(
        "1500ms",
        "A broker that has said nothing over a link for this long says a word; one that has heard nothing "
        "for twice as long sends a Ping.",
    )
    silence: Duration = _time(
        "600ms",
        "A busy link whose other side says nothing and takes nothing for this long is dead and is closed; an "
        "idle one as long after the Ping as a busy one.",
    )
    version: int = setting(
        LINK_NEWEST,
        "The newest version of the protocol that is spoken with other brokers; an older one is for trying an "
        "upgrade.",
        least=LINK_OLDEST,
    )
    wait: Duration = _time(
        "50ms", "A lost link is called again after this time; the wait doubles with each failure."
    )
    wait_max: Duration = _time(
        "2s", "The longest wait between two calls; half a second while nobody listens there."
    )


@dataclass(frozen=True, slots=True)
class SubscribersSection:
    """Clients that hold a lease in place of an open connection, and are called when there is an event."""

    lease: Duration = _time("1h", "How long a client with a lease may be away at the most.", least="1s")
    leases: int = setting(100_000, "How many leases there may be at a time; 0 allows none.", least=0)
    rest: Duration = _time("3s", "A client with a lease is parked when nothing was sent for this long.")
    callbacks: tuple[str, ...] = setting(
        (),
        "Hosts that the broker may call besides a client's own address in a private network: networks, "
        'like "10.0.0.0/8", or names, like "*.example.com".',
    )


@dataclass(frozen=True, slots=True)
class HttpSection:
    """Health and metrics over HTTP."""

    listen: str = setting(
        "127.0.0.1:7677", 'The address where /health and /metrics are served; "" serves neither.'
    )


@dataclass(frozen=True, slots=True)
class ThresholdsSection:
    """After what times the protocol acts by itself."""

    gap: Duration = _time(
        "50ms", "GCT: ticks that are unknown for this long are asked for with a nack.", least="0us"
    )
    nack: Duration = _time(
        "200ms",
        "NRT: a nack without an answer is repeated after this time, or after the longer time that answers "
        "have been measured to take; the wait doubles each time.",
    )
    nack_max: Duration = _time("10s", "The longest wait between two repetitions of a nack.")
    ack_expected: Duration = _time(
        "2s", "AET: a pubend whose events were not released for this long announces its last tick again."
    )
    heartbeat: Duration = _time(
        "100ms", "After its last event a pubend announces silence this often at first."
    )
    heartbeat_idle: Duration = _time(
        "2s", "While nothing happens, a pubend announces silence less and less often: at least this often."
    )
    company: Duration = _time(
        "1s",
        "Silence that a neighbour is told waits for other frames to it, but no longer than this.",
        least="0us",
    )
    lease: Duration = _time(
        "10s", "How far ahead a pubend reserves ticks on disk, so that heartbeats need no sync."
    )
    silence: Duration = _time(
        "1s", "How often a subscriber that gets no events is told how far its stream has got."
    )
    save: Duration = _time("250ms", "How often acknowledgements are saved.")
    pfs_sync: Duration = _time("100ms", "How often the PFS is synced.")


@dataclass(frozen=True, slots=True)
class RetentionSection:
    """How long a pubend keeps events that all have acknowledged, and which it may let go before that."""

    max_retain: Duration | None = setting(
        None, "A pubend may let go of events that are older than this.", least=parse_duration("1s")
    )
    max_bytes: Size | None = setting(
        None,
        "A pubend may let go of its oldest events while it holds more than this.",
        least=parse_size("64KiB"),
    )
    min_retain: Duration | None = setting(
        None,
        "For how long a pubend keeps events that everybody has acknowledged, so that a later subscriber can "
        "ask for them with start. none: 1h where there is no archive, else not at all.",
        least=0,
    )
    min_retain_bytes: Size = _size(
        "128MiB",
        "min_retain keeps at most this much of a pubend, the newest; none on a full disk.",
        least="0B",
    )
    archive: bool = setting(
        False, "Whether there is an archive: a pubend lets go of no event before the archive has it."
    )
    release_unarchived: bool = setting(
        False, "Whether max_retain and max_bytes also apply to events that the archive does not have yet."
    )
    recall: str = setting(
        "auto",
        "Whether subscribers get from the archive what pubends have let go; if not, they get a gap. "
        "auto: as retention.archive.",
        choices=("auto", "yes", "no"),
    )


@dataclass(frozen=True, slots=True)
class CacheSection:
    """The cache on disk, for the history of pubends that other brokers host."""

    bytes: Size = _size(
        "0B",
        "How much history is kept on disk beyond limits.window, so that a pubend is asked for it once; 0B "
        "for none.",
        least="0B",
    )


@dataclass(frozen=True, slots=True)
class ArchiveSection:
    """The archive that `tidemark up` writes beside the broker."""

    path: str = setting(
        "",
        'Its directory, or a folder like s3://bucket/archive; "" is the directory `archive` in the data '
        "directory.",
    )
    storage_options: str = setting(
        "", "A TOML file, which only its owner may read, with credentials and the endpoint of its store."
    )
    engine: str = setting(
        "auto",
        "What writes it. spark: a Structured Streaming query. light: a plain process, which needs no Java "
        "while there is little to do. auto: spark, where it is installed and 2 GiB of memory are free, else "
        "light.",
        choices=("auto", "spark", "light"),
    )
    retain: RetainLimits | None = setting(
        None,
        'How much history the archive keeps, like "90d" or "500GB"; it removes older history.',
    )
    versions: Duration = _time(
        "1h",
        "For how long its tables can be read as they were. Erased events are gone from all versions after an "
        "hour.",
        least="1h",
    )
    interval: Duration = _time(
        "5s", "How often the archive looks for events when few have come.", least="10ms"
    )
    master: str = setting("local[2]", "Where Spark runs.")


@dataclass(frozen=True, slots=True)
class SecuritySection:
    """Who may connect, and how that is proved."""

    mode: str = setting(
        "open",
        "open: everybody may do everything, on this machine only. accounts: users log in and may do what the "
        "access document says.",
        choices=("open", "accounts"),
    )
    allow_open_network: bool = setting(
        False, "Whether a broker in mode open may listen at addresses that other machines can reach."
    )
    access: str = setting(
        "", "The access document that a broker starts with; a newer one that was applied takes its place."
    )
    certificate: str = setting("", 'The broker\'s certificate with its chain, in PEM; "" means no TLS.')
    key: str = setting("", "The private key of the certificate, in PEM and not encrypted.")
    authority: str = setting("", "The certificates that sign those of clients and of other brokers, in PEM.")
    client_certificates: str = setting(
        "optional",
        "Whether a client must have a certificate. optional: one that has none logs in.",
        choices=("optional", "required"),
    )
    certificate_name: str = setting(
        "uri",
        "What in a client's certificate names the user: a URI tidemark:user:NAME, an e-mail address, a DNS "
        "name or the common name.",
        choices=("uri", "email", "dns", "cn"),
    )
    overlay_key: str = setting(
        "", "A file with a secret by which brokers prove to each other that they belong to the overlay."
    )
    bearer_keys: str = setting(
        "", "A file with the key of bearer tokens: a public key in PEM, a JWKS, or a shared secret."
    )
    bearer_issuer: str = setting("", "The issuer that bearer tokens must name.")
    bearer_audience: str = setting("", "The audience that bearer tokens must name.")
    bearer_roles: str = setting(
        "", "The claim of a bearer token that lists roles; without it only the access document gives roles."
    )
    http_token: str = setting("", "A file with the bearer token that /metrics asks for.")
    audit: str = setting(
        "", 'The audit log; "" is the file `audit.log` in the data directory, where there are accounts.'
    )


@dataclass(frozen=True, slots=True)
class TracingSection:
    """Traces of single events, for those that a publisher has sampled."""

    endpoint: str = setting(
        "",
        'Where spans go: the address of an OTLP/HTTP receiver such as "http://127.0.0.1:4318"; "" means '
        "nowhere. Needs the extra otel.",
    )
    spans_per_second: int = setting(
        1_000, "Spans that the broker makes a second, at most; what is over is counted and not made.", least=1
    )


@dataclass(frozen=True, slots=True)
class LogSection:
    """The log that the broker writes to standard error."""

    level: str = setting(
        "info", "The lowest level that is written.", choices=("debug", "info", "warning", "error")
    )
    format: str = setting(
        "auto",
        "text: a line for people. json: an object a line. auto: text on a terminal, else json.",
        choices=("auto", "text", "json"),
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
    cache: CacheSection = field(default_factory=CacheSection)
    archive: ArchiveSection = field(default_factory=ArchiveSection)
    security: SecuritySection = field(default_factory=SecuritySection)
    tracing: TracingSection = field(default_factory=TracingSection)
    log: LogSection = field(default_factory=LogSection)
    #: the overlay that this broker is part of; without a topology file, this broker alone
    topology: Topology = field(default_factory=lambda: alone(BrokerSection()))
    #: key -> where its value came from; a key that is not in it has its default
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    #: pubend -> key -> value, for the settings that a pubend has of its own; `config.pubends` reads them
    pubends: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))

    def provenance(self, key: str) -> str:
        """Returns where the value of a key came from: "default", a file, a variable, or an option."""
        assert key in KEYS
        return self.sources.get(key, DEFAULT)

    def value(self, key: str) -> Any:
        """Returns the value of a key."""
        section, name = key.split(".")
        return getattr(getattr(self, section), name)

    def archive_path(self) -> str:
        """Returns the directory, or the URL of the folder, in which `tidemark up` keeps the archive."""
        return self.archive.path or str(Path(self.storage.data_dir) / ARCHIVE)

    def http_address(self) -> HostPort | None:
        """Returns where to serve health and metrics; None if they are not served. Raises ConfigError."""
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
        "cache": CacheSection,
        "archive": ArchiveSection,
        "security": SecuritySection,
        "tracing": TracingSection,
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
    """Returns the topology of a broker without neighbours."""
    return Topology.build([BrokerPlacement(broker.name, broker.name, broker.listen, broker.pubends)])
