"""What brokers answer to administrators: a dataclass for each answer and its parts.

`Ask` names a question and has its arguments as JSON, and `Answer` has JSON too; brokers build that JSON of
these dataclasses, and whoever asks reads it into the same ones. `Question` says which answer belongs to which
question: `client.ask(PUBENDS)` returns a tuple of `PubendStatus`, and `client.ask("pubends")` plain JSON.

Ticks are microseconds since 1970. A key that is added to an answer later has a default here, so that the
answers of older brokers can be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark.message.generations import is_removed
from tidemark.wire.json_objects import JsonObject
from tidemark.wire.questions import Question, Right

# Answers of a broker's roles (src/tidemark/broker/admin.py).


@dataclass(frozen=True, slots=True)
class TopicStatus(JsonObject):
    """A topic and the versions of its schema."""

    topic: str
    #: its events may have any fields
    open: bool
    #: in the schema language, the oldest first
    schemas: tuple[str, ...]
    #: of the schemas; a topic that was removed and created again is listed once for each creation
    generation: int = 0

    @property
    def is_removed(self) -> bool:
        """Whether these are schemas of events that were published before the topic was removed."""
        return is_removed(self.generation)


@dataclass(frozen=True, slots=True)
class PubendStatus(JsonObject):
    """A pubend, as the broker that hosts it sees it."""

    pubend: str
    #: the doubt horizon: what there is up to this tick is known, and on disk
    position: int
    #: None before the first event; whoever may not monitor is told `position` in its place
    last_event: int | None
    #: events up to this tick were let go; None if none was
    lost: int | None
    #: every durable subscriber has acknowledged everything up to this tick; None if that is not known yet,
    #: and for whoever may not monitor
    released: int | None
    #: the archive has everything up to this tick; None without an archive
    archived: int | None
    #: size of the events in the log
    bytes: int
    publishers: int


@dataclass(frozen=True, slots=True)
class EventsReached(JsonObject):
    """Up to `upto` a range has so many events that were asked for; beyond, the next question goes on."""

    upto: int
    events: int
    #: False if the range ends here because the log has lost what comes next, or let it go
    is_whole: bool


@dataclass(frozen=True, slots=True)
class StreamStatus(JsonObject):
    """A pubend's stream, as it is at a broker that has it for its subscribers or passes it on.

    Whoever may not monitor is told `pubend`, `position` and `delivered`.
    """

    pubend: str
    #: the doubt horizon
    position: int
    #: latest_delivered of the constream; None before the stream has begun
    delivered: int | None
    #: what was delivered up to this tick is in the PFS on disk
    synced: int | None
    #: ticks up to this one are lost
    lost: int
    #: size of the events in memory
    window_bytes: int
    #: the neighbour that the stream comes from; None where the pubend is hosted
    upstream: str | None
    #: the neighbours that have the stream from here
    followers: tuple[str, ...]
    #: how many subscribers have a catchup stream
    catching_up: int


@dataclass(frozen=True, slots=True)
class SubscriptionProgress(JsonObject):
    """How far a subscription is in one pubend."""

    #: where the subscription began; None if it has not begun
    start: int | None
    acknowledged: int | None
    #: the subscriber that is connected was told everything up to this tick; None if none is
    told: int | None
    #: the age of the oldest event that is owed, in microseconds; 0 if none is, None if it has not begun
    lag_us: int | None
    catching_up: bool
    #: history from the archive: "waiting" for a pipeline, or "under way"
    recall: str | None = None
    #: events that matched a durable subscription and were not acknowledged, and their bytes
    owed_events: int = 0
    owed_bytes: int = 0
    #: False if more may be owed than this broker knows
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class SubscriptionStatus(JsonObject):
    """A subscription that a broker hosts."""

    name: str
    durable: bool
    connected: bool
    pattern: str
    selector: str
    #: a changed selector is not yet in force everywhere
    changing: bool
    #: how many events the subscriber will still take
    credit: int
    #: the text of its checkpoint token
    checkpoint: str
    #: pubend -> progress
    pubends: Mapping[str, SubscriptionProgress]
    #: it is owed more than its owner's quota, so that pubends keep nothing for it
    over_quota: bool = False
    #: gaps that it was told, and how often it was live and could not take more, since its broker started
    gaps: int = 0
    slow: int = 0


@dataclass(frozen=True, slots=True)
class SubscriptionRemoved(JsonObject):
    """A subscription was removed: the name of it."""

    removed: str


@dataclass(frozen=True, slots=True)
class HostStatus(JsonObject):
    """A broker that may have subscribers of a pubend, so that the pubend's release waits for it."""

    pubend: str
    host: str
    #: what all durable subscribers there have acknowledged; None if the broker has not said it yet
    released: int | None
    #: the broker has said how far it is since this one started
    is_known: bool


@dataclass(frozen=True, slots=True)
class HostForgotten(JsonObject):
    """A broker was struck off: its name, and the pubends that waited for it."""

    removed: str
    pubends: tuple[str, ...]


# Answers of the process around a broker (src/tidemark/node/admin.py).


@dataclass(frozen=True, slots=True)
class Assignment(JsonObject):
    """By what publishers choose among the pubends of a broker for an event."""

    #: "publisher", "key" or "priority"; whoever does not know the word goes by the publisher
    by: str = "publisher"
    #: the pubend of each priority from 0 on; empty if there are no such rules
    priorities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus(JsonObject):
    """A broker as a whole."""

    broker: str
    #: of the program
    version: str
    #: how often the broker has started
    incarnation: int
    #: "running", or what keeps it from that
    state: str
    draining: bool = False
    #: the version of the topology that the broker goes by; None from brokers that do not say
    overlay: int | None = None
    #: seconds since 1970
    started: float
    uptime_seconds: float
    #: HOST:PORT
    listen: str
    #: HOST:PORT of /health and /metrics; None if there is none
    http: str | None
    data_dir: str
    durability: str
    #: neighbour -> whether the link is up
    links: Mapping[str, bool]
    #: the pubends that are hosted here
    pubends: tuple[str, ...]
    #: what somebody should look at
    alarms: tuple[str, ...]
    # What follows is also among the metrics, where each number is explained.
    clients: float
    parked: float
    connections: float
    links_up: float
    links_wanted: float
    queued_bytes: float
    disk_backlog_bytes: float
    disk_busy_seconds: float
    disk_free_bytes: float
    recalls_waiting: float
    pipelines: float


@dataclass(frozen=True, slots=True)
class OverlayText(JsonObject):
    """The topology that a broker goes by."""

    #: the broker that answers
    broker: str
    version: int
    digest: str
    #: as in a topology file
    text: str


@dataclass(frozen=True, slots=True)
class Route(JsonObject):
    """The way of a pubend's stream through a broker."""

    pubend: str
    #: None where the pubend is hosted
    upstream: str | None
    followers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LinkCondition(JsonObject):
    """How well a link has worked since its broker started, by which ways over it are ranked."""

    #: 0 is best; of several links of a bundle those of the lowest grade are used
    grade: int
    #: how often the link went down
    deaths: int
    #: for how long the link is still avoided because it died so often; None if it is not
    damped_seconds: float | None
    #: the shortest round trip, and bytes a second that the other side has taken; None if not measured
    delay_seconds: float | None
    rate: int | None


@dataclass(frozen=True, slots=True)
class FrameCount(JsonObject):
    """Frames of one kind that were sent over a link."""

    frames: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LinkStatus(JsonObject):
    """A link to a neighbour, and what was sent over it since it is up."""

    peer: str
    is_up: bool
    #: the neighbour runs in the same process
    is_local: bool
    #: for how long the link is up; None if it is down
    seconds: float | None
    bytes: int
    events: int
    queued_bytes: int
    #: None from a broker that is older
    condition: LinkCondition | None = None
    #: kind of frame -> what was sent since the broker started; nothing from a broker that is older
    sent: Mapping[str, FrameCount] = field(default_factory=dict)
    #: the version of the protocol that is spoken; None while it is down, and from a broker that is older
    version: int | None = None


@dataclass(frozen=True, slots=True)
class ConnectionStatus(JsonObject):
    """A connection of a client, or of a neighbour."""

    #: the broker's number of the client; None for a neighbour, or before the other side has said who it is
    client: int | None
    peer: str | None
    name: str | None
    address: str
    #: since the connection was made
    seconds: float
    #: since anything was heard from the other side
    silent_seconds: float
    queued_bytes: int
    #: nothing more is read from the other side for now
    is_paused: bool


@dataclass(frozen=True, slots=True)
class Setting(JsonObject):
    """A setting, its value as in a file, and where the value came from."""

    key: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class SnapshotFile(JsonObject):
    """A file of a snapshot."""

    #: its path in the data directory
    name: str
    bytes: int
    #: its content is the same in every snapshot that has a file of this name
    is_final: bool


@dataclass(frozen=True, slots=True)
class SnapshotStatus(JsonObject):
    """The stores of a broker at one moment, for a backup to be read from."""

    snapshot: str
    broker: str
    incarnation: int
    #: microseconds since 1970, by the broker's clock, before anything of it was taken
    taken: int
    #: the last segment of the log, and how many commits the tables have had
    segment: int
    generation: int
    files: tuple[SnapshotFile, ...]


@dataclass(frozen=True, slots=True)
class SnapshotPiece(JsonObject):
    """Bytes of a file of a snapshot; none behind its end."""

    #: in base64
    data: str
    #: CRC32C of the bytes
    check: int


@dataclass(frozen=True, slots=True)
class SnapshotEnded(JsonObject):
    """A snapshot is over: the name of it."""

    ended: str


#: Characters of a text in a report of an engine.
REPORTED_CHARACTERS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class EngineStatus(JsonObject):
    """The process that writes the archive, as it reports itself."""

    #: "spark" or "light"
    engine: str
    #: where Spark runs
    master: str
    #: process id, on the machine of the archive
    process: int
    #: the address of Spark's web interface; "" if there is none
    ui: str
    #: number of the last batch that was archived
    batch: int
    #: archived since the beginning
    events: int
    #: of the last batches, while the engine was at work
    events_per_second: float
    #: what went wrong last; "" if nothing did
    error: str
    #: Unix time of the report
    at: float
    #: files of the archive's tables, and their bytes; None from an engine that does not say it
    files: int | None = None
    file_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class AccessText(JsonObject):
    """The access document of a broker. It has verifiers of passwords in it: keep it secret."""

    broker: str
    mode: str
    version: int
    digest: str
    text: str


#: Where the n-th event of a range lies. Arguments: pubend, base, upto, pattern, selector, events.
REACH = Question("reach", EventsReached, "everyone")
#: The topics that the broker knows.
TOPICS = Question("topics", tuple[TopicStatus, ...], "everyone", is_paged=True)
#: The pubends that the broker hosts.
PUBENDS = Question("pubends", tuple[PubendStatus, ...], "everyone")
#: The streams of all pubends, as they are at the broker.
STREAMS = Question("streams", tuple[StreamStatus, ...], "everyone")
#: The subscriptions that the broker hosts.
SUBSCRIPTIONS = Question("subscriptions", tuple[SubscriptionStatus, ...], "monitor", is_paged=True)
#: One subscription. Argument: name.
SUBSCRIPTION = Question("subscription", SubscriptionStatus, "everyone")
#: Remove a subscription for good. Arguments: name; force, for one that is connected.
REMOVE = Question("remove", SubscriptionRemoved, "administer")
#: Move a subscription forward. Arguments: name; to, which is "now", a tick or the text of a token.
SEEK = Question("seek", SubscriptionStatus, "administer")
#: Change the selector of a subscription that is not connected, from some tick on. Arguments: name; where.
SELECT = Question("select", SubscriptionStatus, "administer")
#: Tell pubends how far the archive has got. Argument: token, up to which it has everything.
ARCHIVED = Question("archived", tuple[PubendStatus, ...], "pipeline")
#: Let go, early, what the archive has, so that it is read from there. Arguments: token, up to which; erasure,
#: the id of its record, which is only for the audit log.
LET_GO = Question("let_go", tuple[PubendStatus, ...], "pipeline")
#: The brokers that the release of the broker's pubends waits for.
HOSTS = Question("hosts", tuple[HostStatus, ...], "monitor")
#: Strike off a broker that is gone for good. Argument: host.
FORGET_HOST = Question("forget_host", HostForgotten, "administer")

#: The broker as a whole.
STATUS = Question("status", BrokerStatus, "monitor")
#: All counters and gauges by name.
METRICS = Question("metrics", dict[str, float], "monitor")
#: The topology that the broker goes by.
OVERLAY = Question("overlay", OverlayText, "monitor")
#: Change the topology. Arguments: text; base, the version that the new one takes the place of; force.
PROPOSE = Question("propose", OverlayText, "administer")
#: The way of each pubend's stream through the broker.
ROUTES = Question("routes", tuple[Route, ...], "monitor")
#: The links to all neighbours.
LINKS = Question("links", tuple[LinkStatus, ...], "monitor")
#: The connections of clients and neighbours.
CONNECTIONS = Question("connections", tuple[ConnectionStatus, ...], "monitor", is_paged=True)
#: All settings, and where each came from.
CONFIG = Question("config", tuple[Setting, ...], "administer")
#: By what publishers choose among the broker's pubends.
ASSIGNMENT = Question("assignment", Assignment, "everyone")
#: The directories of archives, as the broker's machine names them; none for who may not see all events.
ARCHIVE = Question("archive", tuple[str, ...], "everyone")
#: Keep the stores as they are now, for a backup.
SNAPSHOT = Question("snapshot", SnapshotStatus, "administer")
#: Read of a snapshot. Arguments: snapshot, file, offset, bytes; a piece may be shorter than was asked for.
SNAPSHOT_READ = Question("snapshot_read", SnapshotPiece, "administer")
#: The backup is made, or given up. Argument: snapshot.
SNAPSHOT_END = Question("snapshot_end", SnapshotEnded, "administer")
#: Tell the broker how the engine of the archive is doing. Arguments: those of EngineStatus.
REPORT_ENGINE = Question("report_engine", EngineStatus, "pipeline")
#: The process that writes the archive, if it has reported itself lately; none or one.
ENGINE = Question("engine", tuple[EngineStatus, ...], "monitor")
#: The access document that the broker goes by.
ACCESS = Question("access", AccessText, "administer")
#: Change the access document. Arguments: text; base, the version that the new one takes the place of; force,
#: which takes it although rules in it fit no event of topics that exist.
PROPOSE_ACCESS = Question("propose_access", AccessText, "administer")

#: question -> who may ask it
RIGHTS: Mapping[str, Right] = {
    each.what: each.right for each in tuple(globals().values()) if isinstance(each, Question)
}
