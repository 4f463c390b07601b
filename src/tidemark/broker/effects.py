"""Effects and stimuli: what a broker asks of the world, and what the world tells the broker.

Effects are in the imperative and are carried out in order; stimuli are in the past tense. A ticket in an
effect comes back in the stimulus that reports its completion. A broker that has crashed starts from what its
disk has; answers to effects of a former life are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidemark.access.document import AccessDocument
from tidemark.access.principal import Principal
from tidemark.broker.overlay.layout import Layout
from tidemark.message.batches.batch import EventBatch
from tidemark.message.publisher_names import PublisherMove
from tidemark.message.topic_selector import TopicSelector
from tidemark.ticks import TICK_MIN, CheckpointToken, Range
from tidemark.wire.frames import ClientFrame, PeerFrame

Ticks = NDArray[np.int64]
Sets = NDArray[np.uint32]

# Effects.


@dataclass(frozen=True, slots=True)
class SendPeer:
    """Put a frame on the link to a neighbour; lost if the link is down."""

    peer: str
    frame: PeerFrame
    #: microseconds for which the frame may wait for others to the same neighbour; `Departures` sees to that
    patience: int = 0


@dataclass(frozen=True, slots=True)
class DropAnswers:
    """Do not send the answers that tell of a pubend and wait for a neighbour: it takes that from another."""

    peer: str
    pubend: str


@dataclass(frozen=True, slots=True)
class SendClient:
    """Put a frame on a client's connection; lost if the connection has gone."""

    client: int
    frame: ClientFrame


@dataclass(frozen=True, slots=True)
class RefuseClient:
    """A client's frame cannot be handled, and has changed nothing: tell the client, close its connection."""

    client: int
    reason: str
    #: what was raised, for the log
    cause: BaseException = field(compare=False)
    #: one of wire.frames.REFUSALS
    code: str = "frame"


@dataclass(frozen=True, slots=True)
class RefusePeer:
    """A neighbour's frame cannot be handled, and has changed nothing: tell the neighbour, close the link."""

    peer: str
    reason: str
    #: what was raised, for the log
    cause: BaseException = field(compare=False)


@dataclass(frozen=True, slots=True)
class AppendEvents:
    """Append a batch, ticks filled in, to a pubend's log; durable after the next SyncLog is reported."""

    pubend: str
    publisher: str
    sequence: int
    batch: EventBatch


@dataclass(frozen=True, slots=True)
class AppendLease:
    """Promise on disk that no event will ever get a tick at or below `upto` that is not logged already."""

    pubend: str
    upto: int


@dataclass(frozen=True, slots=True)
class AppendMove:
    """Note in a pubend's log that a publisher has left, come or got an owner; durable with the next SyncLog.

    Its last event so far has this number, and this tick if it was logged at this pubend.
    """

    pubend: str
    publisher: str
    sequence: int
    tick: int
    move: PublisherMove


@dataclass(frozen=True, slots=True)
class SyncLog:
    """Make everything appended so far durable, then report LogSynced, or LogFull if there is no room."""

    ticket: int


@dataclass(frozen=True, slots=True)
class ResumeLog:
    """After LogFull: everything appended before this effect is discarded; later appends are kept again."""


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Read `(base, upto]` of a pubend's log, or a first part of it, and report LogRead."""

    pubend: str
    base: int
    upto: int


@dataclass(frozen=True, slots=True)
class FetchLog:
    """Read `(base, upto]` of a pubend's log, about `bytes_max` of it at the most, and report LogFetched."""

    ticket: int
    pubend: str
    base: int
    upto: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class LoseLog:
    """The pubend's log may discard everything at or below `upto`."""

    pubend: str
    upto: int


@dataclass(frozen=True, slots=True)
class ExpireLog:
    """The pubend's log may discard its oldest batches, as silence, whose events have all expired at `wall`.

    None beyond `upto` is discarded. Reports LogExpired.
    """

    pubend: str
    wall: int
    upto: int


@dataclass(frozen=True, slots=True)
class WriteCache:
    """Write what is known of `(base, upto]` to the cache on disk, if there is room; report CacheWritten."""

    number: int
    pubend: str
    base: int
    upto: int
    batch: EventBatch | None


@dataclass(frozen=True, slots=True)
class ReadCache:
    """Read the entry of this number, for `(base, upto]` of it; report CacheRead."""

    number: int
    pubend: str
    base: int
    upto: int
    #: the interest version that the entry is complete for; it comes back in the report
    version: int


@dataclass(frozen=True, slots=True)
class ChopCache:
    """The cache may discard the entries up to this number."""

    upto: int


@dataclass(frozen=True, slots=True)
class AppendPfs:
    """In `(base, upto]` the events at `ticks`, of these `lengths`, matched those of `sets`, and no others."""

    pubend: str
    base: int
    upto: int
    ticks: Ticks
    sets: Sets
    lengths: Sets
    members: Mapping[int, Sets]


@dataclass(frozen=True, slots=True)
class SyncPfs:
    """Make the PFS durable, then report PfsSynced."""

    ticket: int


@dataclass(frozen=True, slots=True)
class ReadPfs:
    """Read from the PFS the first `limit` ticks beyond `base` that matched the subscriber; report PfsRead."""

    pubend: str
    subscriber: int
    base: int
    limit: int


@dataclass(frozen=True, slots=True)
class CountPfs:
    """Count in the PFS what matched each subscriber beyond its tick of `bases`, and report PfsCounted."""

    ticket: int
    pubend: str
    bases: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class ChopPfs:
    """The PFS may discard everything at or below `upto`: no subscriber will ask for it."""

    pubend: str
    upto: int


@dataclass(frozen=True, slots=True)
class SelectorSince:
    """A selector of a durable subscriber: it holds beyond `since`, and not yet in pubends not in there."""

    wanted: TopicSelector
    since: CheckpointToken = field(default_factory=CheckpointToken)


@dataclass(frozen=True, slots=True)
class SaveSubscription:
    """Create or replace a durable subscription in the tables.

    The PFS knows what matched the subscriber beyond `known`; its selectors may hold from before that.
    """

    subscriber: int
    name: str
    #: every selector that it may still need, oldest first; never empty
    history: tuple[SelectorSince, ...]
    known: CheckpointToken = field(default_factory=CheckpointToken)
    #: grows each time the subscription comes from another broker; 0 while it never did
    epoch: int = 0
    #: when the subscription was made, by the subscriber's clock; 0 if the subscriber did not say
    made_at: int = field(default=0, compare=False)
    #: the principal that the subscription belongs to; "" if it was made while the broker was open
    owner: str = ""


@dataclass(frozen=True, slots=True)
class SaveTopic:
    """Create a topic, or add versions of its schema to those that are saved."""

    topic: str
    is_open: bool
    #: the new ones, oldest first
    schemas: tuple[str, ...]
    #: of which the schemas are; if it is odd, the topic is removed
    generation: int = 0


@dataclass(frozen=True, slots=True)
class DropSubscription:
    """Remove a durable subscription from the tables."""

    subscriber: int


@dataclass(frozen=True, slots=True)
class SaveReleased:
    """Save in the tables what a durable subscriber has acknowledged."""

    subscriber: int
    token: CheckpointToken


@dataclass(frozen=True, slots=True)
class SaveHosts:
    """Save which brokers may have subscribers of a pubend hosted here, each with the oldest row that counts.

    Replaces what was saved of the pubend.
    """

    pubend: str
    hosts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CommitTables:
    """Make everything saved so far durable, then report TablesCommitted."""

    ticket: int


Effect = (
    SendPeer | DropAnswers | SendClient | RefuseClient | RefusePeer | AppendEvents | AppendLease
    | AppendMove | SyncLog | ResumeLog | ReadLog | FetchLog | LoseLog | ExpireLog | WriteCache | ReadCache
    | ChopCache | AppendPfs | SyncPfs | ReadPfs | CountPfs | ChopPfs | SaveSubscription | DropSubscription
    | SaveReleased | SaveTopic | SaveHosts | CommitTables
)  # fmt: skip

# Stimuli.


@dataclass(frozen=True, slots=True)
class RecoveredPubend:
    """What the event log knows of a pubend after recovery."""

    last: int = TICK_MIN
    lease: int = TICK_MIN
    lost: int = TICK_MIN
    #: publisher -> its last sequence number and the tick of that event
    publishers: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: (last tick, bytes) of every batch that is still there, oldest first
    sizes: tuple[tuple[int, int], ...] = ()
    #: The disk has lost events: a publisher may have been acknowledged more than `publishers` says.
    is_damaged: bool = False
    #: publisher -> its last move away from the pubend or to it, and its owner, of those that have either
    moves: Mapping[str, PublisherMove] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LinkUp:
    """The link to a neighbour is up; the first frame to come over it will be the neighbour's Hello."""

    peer: str


@dataclass(frozen=True, slots=True)
class LinkMeasured:
    """The link to a neighbour was measured: its round trip in microseconds, and bytes a second towards it.

    Either is None if nothing is known of it. If `is_lower_bound`, there was not more to send than that.
    """

    peer: str
    delay: int | None
    bytes_per_second: int | None
    is_lower_bound: bool = False


@dataclass(frozen=True, slots=True)
class LinkDown:
    """The link to a neighbour is down; frames that were on it may have arrived or not."""

    peer: str


@dataclass(frozen=True, slots=True)
class PeerFrameReceived:
    """A frame came over the link to a neighbour."""

    peer: str
    frame: PeerFrame


@dataclass(frozen=True, slots=True)
class ClientFrameReceived:
    """A frame came over a client's connection."""

    client: int
    frame: ClientFrame


@dataclass(frozen=True, slots=True)
class ClientCame:
    """A client has come, from the address `origin` ("" for this machine), and proved who it is, if asked."""

    client: int
    principal: Principal | None
    origin: str = ""


@dataclass(frozen=True, slots=True)
class AccessChanged:
    """An administrator has changed who may do what; None opens the broker to everybody."""

    document: AccessDocument | None


@dataclass(frozen=True, slots=True)
class ClientGone:
    """A client's connection is gone."""

    client: int


@dataclass(frozen=True, slots=True)
class LogSynced:
    """Everything appended before the SyncLog of this ticket is on disk."""

    ticket: int


@dataclass(frozen=True, slots=True)
class LogFull:
    """There was no room for what the SyncLog of this ticket should have made durable: it was discarded.

    Everything appended since, until ResumeLog, is discarded too.
    """

    ticket: int


@dataclass(frozen=True, slots=True)
class LogRead:
    """What the log has in `(base, upto]`; the ReadLog asked up to `asked`, which may be further.

    Everything at or below `lost` is L, and so are the `damaged` ranges, which the disk lost.
    """

    pubend: str
    base: int
    upto: int
    asked: int
    lost: int
    batches: tuple[EventBatch, ...]
    damaged: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True)
class LogFetched:
    """The answer to the FetchLog of this ticket."""

    ticket: int
    read: LogRead


@dataclass(frozen=True, slots=True)
class LogExpired:
    """Every batch up to `upto` has expired or is lost, and has been let go by the pubend's log.

    `due` is the time of day when the next batch will have expired; None if it never will. A time that has
    passed means that there is more to look at.
    """

    pubend: str
    upto: int
    due: int | None


@dataclass(frozen=True, slots=True)
class CacheWritten:
    """The WriteCache of this number is done, or was given up."""

    number: int


@dataclass(frozen=True, slots=True)
class CacheRead:
    """The answer to a ReadCache: the entry with all its events, or that it is not there."""

    asked: ReadCache
    is_found: bool
    batch: EventBatch | None = None


@dataclass(frozen=True, slots=True)
class PfsSynced:
    """Everything appended to the PFS before the SyncPfs of this ticket is on disk."""

    ticket: int


@dataclass(frozen=True, slots=True)
class PfsRead:
    """The subscriber matched `ticks` and nothing else in `(base, upto]`.

    What matched in `unknown`, which begins at `upto`, the PFS does not know: it has to be matched again.
    Unless `is_exact`, some of `ticks` may have matched others only.
    """

    pubend: str
    subscriber: int
    base: int
    upto: int
    ticks: Ticks
    unknown: Range | None = None
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class Owed:
    """What a subscriber is owed of a pubend: the events that matched it and that it has not acknowledged."""

    events: int = 0
    bytes: int = 0
    #: the tick of the first of these events; None if there is none
    oldest: int | None = None
    #: False if there may be more, because nothing here knows what matched, or how many bytes it has
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class PfsCounted:
    """Subscriber -> what it is owed; None if that took too much reading for once: ask again."""

    ticket: int
    pubend: str
    owed: Mapping[int, Owed] | None


@dataclass(frozen=True, slots=True)
class TablesCommitted:
    """Everything saved before the CommitTables of this ticket is on disk."""

    ticket: int


@dataclass(frozen=True, slots=True)
class DrainNotice:
    """What a broker tells the clients that it takes nothing new from, because it is being drained."""

    reason: str
    #: HOST:PORT of the brokers that clients should go to instead, the best first
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoutesChanged:
    """An administrator has changed the overlay; `pubends`: what the log knows of those newly here."""

    layout: Layout
    pubends: Mapping[str, RecoveredPubend] = field(default_factory=dict)
    #: what publishers are told while this broker takes nothing new from them; None while it does
    drain_notice: DrainNotice | None = None


@dataclass(frozen=True, slots=True)
class HostRemoved:
    """An administrator has struck a broker off: release no longer waits for its subscribers."""

    host: str


@dataclass(frozen=True, slots=True)
class Woken:
    """The time that `Broker.next_wake` returned has come, or passed."""


Stimulus = (
    LinkUp
    | LinkDown
    | LinkMeasured
    | PeerFrameReceived
    | ClientFrameReceived
    | ClientCame
    | ClientGone
    | AccessChanged
    | LogSynced
    | LogFull
    | LogRead
    | LogFetched
    | LogExpired
    | CacheWritten
    | CacheRead
    | PfsSynced
    | PfsRead
    | PfsCounted
    | TablesCommitted
    | RoutesChanged
    | HostRemoved
    | Woken
)


@dataclass(slots=True)
class Outbox:
    """The effects of one stimulus, in order. Every part of a broker adds to the same outbox."""

    effects: list[Effect] = field(default_factory=list)

    def add(self, effect: Effect) -> None:
        """Add one effect."""
        self.effects.append(effect)

    def take(self) -> list[Effect]:
        """Return all effects added so far, and forget them."""
        effects, self.effects = self.effects, []
        return effects
