"""The frames of the protocol: immutable values, one class each.

Between brokers: Hello, Knowledge, Nack, AckExpected, Release, Interest. Between a client and its broker:
Publish, Published, Subscribe, Subscribed, Deliver, Gap, Ack, Credit, Unsubscribe, Refused.
Ranges are `(base, upto]`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import CheckpointToken

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame of a link: who speaks, and in which of its lives. Older lives are not listened to."""

    broker: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Knowledge:
    """In `(base, upto]` of the pubend the rows of `batch` are the events (D) and all else is silence (S).

    Silence holds for every subscriber that has started anywhere behind the receiver, and for those of the
    receiver's interest up to `version`. `first`: sent for the first time, in order on its link; otherwise an
    answer to a nack. Every tick at or below `lost` is L.
    """

    pubend: str
    base: int
    upto: int
    lost: int
    first: bool
    version: int
    batch: EventBatch | None = None


@dataclass(frozen=True, slots=True)
class Nack:
    """The sender does not know these ticks and wants to."""

    pubend: str
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class AckExpected:
    """The pubend has logged events up to `tick` and has not heard that they were consumed."""

    pubend: str
    tick: int


@dataclass(frozen=True, slots=True)
class Release:
    """Minima over all behind the sender: acknowledged by every durable subscriber, delivered to all live.

    TICK_MAX says that nobody is there, as of the sender's interest of `version`: it may come late.
    """

    pubend: str
    released: int
    delivered: int
    version: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """One line of an interest: events of topics that match `pattern` and satisfy `selector`."""

    pattern: str
    selector: str


@dataclass(frozen=True, slots=True)
class Interest:
    """What the sender, and everyone behind it, wants; None is everything. It may want less than it gets."""

    version: int
    wanted: tuple[Wanted, ...] | None


PeerFrame = Hello | Knowledge | Nack | AckExpected | Release | Interest


@dataclass(frozen=True, slots=True)
class Publish:
    """Events of one publisher, numbered from `sequence` on without gaps."""

    pubend: str
    publisher: str
    sequence: int
    batch: EventBatch


@dataclass(frozen=True, slots=True)
class Published:
    """The publisher's events up to `sequence` are on disk, the last of them at `tick`."""

    pubend: str
    publisher: str
    sequence: int
    tick: int


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A subscriber introduces itself. `token` is where it left off; None makes a new subscription."""

    name: str
    pattern: str
    selector: str
    durable: bool
    credit: int
    token: CheckpointToken | None = None


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The subscriber is registered; it has consumed what `token` says."""

    name: str
    token: CheckpointToken


@dataclass(frozen=True, slots=True)
class Deliver:
    """All there is for the subscriber in `(base, upto]`: the rows of `batch`, or silence without one."""

    name: str
    pubend: str
    base: int
    upto: int
    batch: EventBatch | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """What there was for the subscriber in `(base, upto]` has been let go."""

    name: str
    pubend: str
    base: int
    upto: int


@dataclass(frozen=True, slots=True)
class Ack:
    """The subscriber has consumed everything up to `token`."""

    name: str
    token: CheckpointToken


@dataclass(frozen=True, slots=True)
class Credit:
    """The subscriber can take this many more events."""

    name: str
    events: int


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """The subscription ends and holds nothing any more."""

    name: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A frame of the client was not carried out; `reason` says why and what to do."""

    what: str
    reason: str


ClientFrame = (
    Publish | Published | Subscribe | Subscribed | Deliver | Gap | Ack | Credit | Unsubscribe | Refused
)
Frame = PeerFrame | ClientFrame
