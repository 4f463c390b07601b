"""What a broker asks of the world, and what the world tells it.

Effects are imperative and carried out in order; stimuli are in the past tense. A ticket in an effect comes
back in the stimulus that reports its completion. After a crash the roles recover from what the disk has
and ask afresh.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidemark.broker.overlay.layout import Layout
from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import TICK_MIN, CheckpointToken
from tidemark.wire.frames import ClientFrame, PeerFrame, Range

Ticks = NDArray[np.int64]
Sets = NDArray[np.uint32]

# Effects.


@dataclass(frozen=True, slots=True)
class SendPeer:
    """Put a frame on the link to a neighbour; lost if the link is down."""

    peer: str
    frame: PeerFrame


@dataclass(frozen=True, slots=True)
class SendClient:
    """Put a frame on a client's connection; lost if it has gone."""

    client: int
    frame: ClientFrame


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
class SyncLog:
    """Make everything appended so far durable, then report LogSynced, or LogFull if there is no room."""

    ticket: int


@dataclass(frozen=True, slots=True)
class ResumeLog:
    """After LogFull: what was appended up to here is forgotten as well; what comes from here on counts."""


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
    """Everything at or below `upto` may go from the pubend's log."""

    pubend: str
    upto: int


@dataclass(frozen=True, slots=True)
class AppendPfs:
    """In `(base, upto]` the events at `ticks` matched the subscribers of `sets`, and nothing else matched."""

    pubend: str
    base: int
    upto: int
    ticks: Ticks
    sets: Sets
    members: Mapping[int, Sets]


@dataclass(frozen=True, slots=True)
class SyncPfs:
    """Make the PFS durable, then report PfsSynced."""

    ticket: int


@dataclass(frozen=True, slots=True)
class ReadPfs:
    """Which ticks beyond `base` matched the subscriber, the first `limit` of them; report PfsRead."""

    pubend: str
    subscriber: int
    base: int
    limit: int


@dataclass(frozen=True, slots=True)
class ChopPfs:
    """Nobody will ask for ticks at or below `upto` any more."""

    pubend: str
    upto: int


@dataclass(frozen=True, slots=True)
class Wish:
    """What a subscriber wants, in each pubend for the ticks beyond `since`; not yet in force elsewhere."""

    pattern: str
    selector: str
    since: CheckpointToken = field(default_factory=CheckpointToken)


@dataclass(frozen=True, slots=True)
class SaveSubscription:
    """Create or replace a durable subscription in the tables; its wishes oldest first, never none.

    The PFS knows what matched it beyond `known`; it may want things of before.
    """

    subscriber: int
    name: str
    wishes: tuple[Wish, ...]
    known: CheckpointToken = field(default_factory=CheckpointToken)
    #: grows when it comes from another broker; 0 while it never did
    epoch: int = 0
    #: when it was made, by its own clock; 0 if it did not say
    made_at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class SaveTopic:
    """Create or replace a topic with all versions of its schema."""

    topic: str
    is_open: bool
    schemas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DropSubscription:
    """Remove a durable subscription from the tables."""

    subscriber: int


@dataclass(frozen=True, slots=True)
class SaveReleased:
    """What a durable subscriber has acknowledged."""

    subscriber: int
    token: CheckpointToken


@dataclass(frozen=True, slots=True)
class SaveHosts:
    """The brokers that may have subscribers of a pubend hosted here -> the oldest row that counts.

    Replaces what was saved of the pubend.
    """

    pubend: str
    hosts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CommitTables:
    """Make everything saved so far durable, then report TablesCommitted."""

    ticket: int


Effect = (
    SendPeer
    | SendClient
    | AppendEvents
    | AppendLease
    | SyncLog
    | ResumeLog
    | ReadLog
    | FetchLog
    | LoseLog
    | AppendPfs
    | SyncPfs
    | ReadPfs
    | ChopPfs
    | SaveSubscription
    | DropSubscription
    | SaveReleased
    | SaveTopic
    | SaveHosts
    | CommitTables
)

# Stimuli.


@dataclass(frozen=True, slots=True)
class PubendState:
    """What the event log knows after recovery."""

    last: int = TICK_MIN
    lease: int = TICK_MIN
    lost: int = TICK_MIN
    #: publisher -> its last sequence number and the tick of that event
    publishers: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: (last tick, bytes) of every batch that is still there, oldest first
    sizes: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LinkUp:
    """The link to a neighbour is there; its first frame will be the neighbour's Hello."""

    peer: str


@dataclass(frozen=True, slots=True)
class LinkDown:
    """The link to a neighbour is gone; what was on it may have arrived or not."""

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
class ClientGone:
    """A client's connection is gone."""

    client: int


@dataclass(frozen=True, slots=True)
class LogSynced:
    """Everything appended before the SyncLog of this ticket is on disk."""

    ticket: int


@dataclass(frozen=True, slots=True)
class LogFull:
    """There was no room for what the SyncLog of this ticket should have made durable: it is forgotten.

    Everything appended since is forgotten too, until ResumeLog.
    """

    ticket: int


@dataclass(frozen=True, slots=True)
class LogRead:
    """What the log has in `(base, upto]`; `asked` is how far was asked for. All at or below `lost` is L.

    So are the `damaged` ranges, which the disk lost.
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
class PfsSynced:
    """Everything appended to the PFS before the SyncPfs of this ticket is on disk."""

    ticket: int


@dataclass(frozen=True, slots=True)
class PfsRead:
    """The subscriber matched `ticks` and nothing else in `(base, upto]`.

    `unknown` is not known any more, or never was: it has to be matched again. It begins at `upto`.
    """

    pubend: str
    subscriber: int
    base: int
    upto: int
    ticks: Ticks
    unknown: Range | None = None


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
    """An administrator has changed the overlay; `pubends` is what the log knows of those newly here."""

    layout: Layout
    pubends: Mapping[str, PubendState] = field(default_factory=dict)
    #: what publishers are told while this broker takes nothing new from them; None while it does
    drain_notice: DrainNotice | None = None


@dataclass(frozen=True, slots=True)
class HostRemoved:
    """An administrator has struck a broker off: its subscribers, if it has any, hold nothing any more."""

    host: str


@dataclass(frozen=True, slots=True)
class Woken:
    """The time that the broker asked to be woken at has come, or passed."""


Stimulus = (
    LinkUp
    | LinkDown
    | PeerFrameReceived
    | ClientFrameReceived
    | ClientGone
    | LogSynced
    | LogFull
    | LogRead
    | LogFetched
    | PfsSynced
    | PfsRead
    | TablesCommitted
    | RoutesChanged
    | HostRemoved
    | Woken
)


@dataclass(slots=True)
class Outbox:
    """The effects of one stimulus, in order; every role of a broker writes into the same one."""

    effects: list[Effect] = field(default_factory=list)

    def add(self, effect: Effect) -> None:
        """One more."""
        self.effects.append(effect)

    def take(self) -> list[Effect]:
        """All of them, and start afresh."""
        effects, self.effects = self.effects, []
        return effects
