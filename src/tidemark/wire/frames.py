"""The frames of the protocol: immutable values, one class each.

Between brokers: Hello, Knowledge, Nack, AckExpected, Release, Interest, Claim. Between a client and its
broker: Connect, Welcome, Describe, Publish, Published, Subscribe, Subscribed, Deliver, Gap, Ack, Acked,
Credit, Unsubscribe, Unsubscribed, Ask, Answer, Refused. Both: Topic, Fetch, Fetched, Ping, Pong. Between a
broker and the pipeline, which is a client too: Offer, Recall, Recalled, RecallMore, RecallOver.
Ranges are `(base, upto]`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import CheckpointToken

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame of a link: who speaks, and in which of its lives. Older lives are not listened to."""

    broker: str
    incarnation: int
    #: the versions of this protocol that the sender can speak
    oldest: int = 1
    newest: int = 1


@dataclass(frozen=True, slots=True)
class Knowledge:
    """In `(base, upto]` of the pubend the rows of `batch` are the events (D) and all else is silence (S).

    Silence holds for every subscriber that has started anywhere behind the receiver, and for those of the
    receiver's interest up to `version`. `first`: sent for the first time, in order on its link; otherwise an
    answer to a nack. Every tick at or below `lost` is L, and so are the `damaged` ranges, which a disk lost.
    """

    pubend: str
    base: int
    upto: int
    lost: int
    first: bool
    version: int
    batch: EventBatch | None = None
    damaged: tuple[Range, ...] = ()


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


@dataclass(frozen=True, slots=True)
class Claim:
    """The durable subscription of this name is hosted by `broker`; of two claims the higher epoch counts.

    `settled`: every pubend holds for it there what it has not consumed, so that nobody else has to. Without a
    broker the subscription has ended.
    """

    name: str
    epoch: int
    broker: str
    settled: bool


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with all versions of its schema, oldest first; of an open topic, all shapes met so far.

    A client that sends it declares the topic, or adds to it; a broker answers with what holds then.
    """

    topic: str
    is_open: bool
    schemas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you there? Answered with a Pong of the same stamp."""

    stamp: int


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a Ping."""

    stamp: int


@dataclass(frozen=True, slots=True)
class Connect:
    """First frame of a client."""

    client: str
    oldest: int = 1
    newest: int = 1


@dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to Connect: who answers, in which life, in which version, and the pubends hosted there."""

    broker: str
    incarnation: int
    version: int
    pubends: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Describe:
    """What is the schema of this topic? Answered with a Topic, without schemas if there is no such topic."""

    topic: str


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
    """A subscriber introduces itself, for the first time or again.

    `token` is where it left off; without one a durable subscription goes on from what it acknowledged last.
    A durable subscriber that wants something else than before gets that from a tick on, pubend by pubend,
    which Subscribed tells.
    """

    name: str
    pattern: str
    selector: str
    durable: bool
    #: bytes of events that it can take before it grants more
    credit: int
    token: CheckpointToken | None = None


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The subscriber is registered; it has consumed what `token` says.

    What it wants now holds for the ticks beyond `since`. Said again when a pubend joins that.
    """

    name: str
    token: CheckpointToken
    since: CheckpointToken = field(default_factory=CheckpointToken)


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
    """Subscribers have consumed everything up to their tokens; all of it is kept, or nothing.

    A `ticket` other than 0 comes back in Acked once it is on disk.
    """

    tokens: tuple[tuple[str, CheckpointToken], ...]
    ticket: int = 0


@dataclass(frozen=True, slots=True)
class Acked:
    """The Ack of this ticket is on disk."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Credit:
    """The subscriber can take this many more bytes of events."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """The subscription ends and holds nothing any more."""

    name: str


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The subscription is gone, also from the disk."""

    name: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read `(base, upto]` of a pubend, or a first part of it, from the log of the broker that hosts it.

    For those who read in bulk, or want what was left out when it passed: nothing is remembered of the asker,
    and it holds nothing. A broker that does not host the pubend passes it on towards the one that does.
    """

    ticket: int
    pubend: str
    base: int
    upto: int
    pattern: str
    selector: str
    #: about so much of the log is read for one answer
    bytes_max: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a Fetch asked for, as far as `upto`: go on from there. All at or below `lost` is L."""

    ticket: int
    pubend: str
    base: int
    upto: int
    lost: int
    batch: EventBatch | None = None
    damaged: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True)
class Offer:
    """A pipeline says that it answers recalls, so many at a time, from the archive that it keeps."""

    recalls_max: int


@dataclass(frozen=True, slots=True)
class Line:
    """What is wanted of the ticks in `(base, upto]`."""

    pattern: str
    selector: str
    base: int
    upto: int


@dataclass(frozen=True, slots=True)
class Recall:
    """A broker asks the archive for what one subscriber wants of `(base, upto]` of a pubend.

    The lines are in order and do not overlap; of what lies between them nothing is wanted. Recalls that come
    together are answered together.
    """

    ticket: int
    pubend: str
    base: int
    upto: int
    lines: tuple[Line, ...]
    #: bytes of events that may be sent before more are granted
    credit: int


@dataclass(frozen=True, slots=True)
class Recalled:
    """All there is for a recall in `(base, upto]`, which begins where the part before it ended.

    What is `gone`, the archive does not have, or not any more.
    """

    ticket: int
    base: int
    upto: int
    batch: EventBatch | None = None
    gone: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True)
class RecallMore:
    """So many more bytes of events may be sent for a recall."""

    ticket: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RecallOver:
    """Nobody waits for the rest of a recall."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Ask:
    """An administrator's request: what is asked for, and its arguments as a JSON object."""

    ticket: int
    what: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an Ask, as JSON."""

    ticket: int
    payload: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A frame was not carried out. `what` names its kind and `name` which one; `reason` says what to do.

    `code` is for programs: one of REFUSALS.
    """

    what: str
    name: str
    code: str
    reason: str


#: taken: by another connection or subscription; sequence: publish again from an earlier one.
REFUSALS = frozenset(
    (
        "selector",
        "topic",
        "schema",
        "taken",
        "pubend",
        "sequence",
        "full",
        "limit",
        "version",
        "frame",
        "unknown",
    )
)

PeerFrame = (
    Hello
    | Knowledge
    | Nack
    | AckExpected
    | Release
    | Interest
    | Claim
    | Topic
    | Fetch
    | Fetched
    | Ping
    | Pong
)
ClientFrame = (
    Connect
    | Welcome
    | Describe
    | Topic
    | Publish
    | Published
    | Subscribe
    | Subscribed
    | Deliver
    | Gap
    | Ack
    | Acked
    | Credit
    | Unsubscribe
    | Unsubscribed
    | Fetch
    | Fetched
    | Offer
    | Recall
    | Recalled
    | RecallMore
    | RecallOver
    | Ask
    | Answer
    | Refused
    | Ping
    | Pong
)
Frame = PeerFrame | ClientFrame
