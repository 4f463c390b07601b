"""The frames of the protocol: immutable values, one class each (docs/protocol.md, docs/wire.md).

| between                                | frames                                                          |
|----------------------------------------|-----------------------------------------------------------------|
| brokers                                | Hello, Links, Ways, Interest, Unfollow, Knowledge, Nack,        |
|                                        | AckExpected, Release, Heard, Claim, Yielded, Together, Overlay  |
| a client and its broker                | Connect, Welcome, Describe, Publish, Published, Subscribe,      |
|                                        | Subscribed, Deliver, Gap, Ack, Acked, Credit, Unsubscribe,      |
|                                        | Unsubscribed, Come, Ask, Answer, Refused                        |
| any two of these                       | Topic, Fetch, Fetched, Leave, Left, Ping, Pong (`wire.moving`)  |
| a broker and the pipeline, a client    | Offer, Recall, Recalled, RecallMore, RecallOver                 |
| a broker and a client that it calls    | Lease, Leased, Rest, Pushing, Resume                            |
| the ends of a connection, as proofs    | Login, Proof, Challenge, LinkProof, Access (`wire.security`)    |

Ranges are `(base, upto]`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark.message.batches.batch import EventBatch
from tidemark.message.topic_selector import TopicSelector
from tidemark.ticks import CheckpointToken, Range
from tidemark.wire.moving.frames import Come, Leave, Left
from tidemark.wire.security.frames import Login, Proof, SecurityFrame


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame of a link: the broker that sends it, and its incarnation, higher after each start."""

    broker: str
    incarnation: int
    #: the versions of the protocol between brokers that the sender can speak
    oldest: int = 2
    newest: int = 8


@dataclass(frozen=True, slots=True)
class Links:
    """To the other brokers of the cell: the neighbours to which the sender has a link that is up.

    Of several frames on one connection the one with the highest `sequence` holds.
    """

    broker: str
    sequence: int
    up: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LinkGrade:
    """How well the sender's link to `peer` works: 0 is best, and of two links the lower one is preferred."""

    peer: str
    grade: int


@dataclass(frozen=True, slots=True)
class Ways:
    """What the receiver should not take from the sender if there is another way, and what works less well.

    To a broker of the sender's cell, `unreachable` are the pubends to which no link of the sender's own
    leads, and `grades` are those of all its links; to another neighbour, the pubends to which the sender has
    no way at all, and the grade of the link between the two. Grades of 0 are left out. Each frame replaces
    the one before it on the same connection; before the first one everything is reachable and well. Only
    brokers that speak version 3 of the protocol between brokers are sent it.
    """

    unreachable: tuple[str, ...] = ()
    grades: tuple[LinkGrade, ...] = ()


@dataclass(frozen=True, slots=True)
class Knowledge:
    """In `(base, upto]` of the pubend the rows of `batch` are the events (D), all other ticks silence (S).

    Silence means: no event that the receiver's interest of `version` asks for. A receiver ignores the silence
    of knowledge whose version is lower than the interest that it attached with; such a frame only tells how
    far the stream has got. `first` is true when the knowledge is sent for the first time, false when it
    answers a nack. Every tick at or below `lost` is L, and so are the `damaged` ranges, which a disk lost.
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
    """The sender asks for knowledge of these ticks, filtered by its interest of `version` or a newer one."""

    pubend: str
    ranges: tuple[Range, ...]
    version: int


@dataclass(frozen=True, slots=True)
class AckExpected:
    """The pubend has logged events up to `tick` and no release has told it that they were consumed."""

    pubend: str
    tick: int


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """How far one host has got in a pubend.

    `released` is the last tick that every durable subscriber there has acknowledged, `delivered` the last one
    that was delivered to every subscriber that is not catching up. TICK_MAX means that the host has no such
    subscriber, TICK_MIN that no tick may be released. Of two rows of a host the one with the higher sequence
    holds, in whichever order they arrive; its ticks may be lower.
    """

    host: str
    #: grows with each row that the host sends, also across its restarts
    sequence: int
    released: int
    delivered: int
    #: The host asks the pubend's broker to answer this row with Heard.
    asks: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Rows of the sender, or of hosts behind it, on their way to the pubend's broker."""

    pubend: str
    rows: tuple[ReleaseRow, ...]


@dataclass(frozen=True, slots=True)
class Heard:
    """The pubend's broker has the host on disk, and goes by its row of this sequence or a newer one."""

    pubend: str
    host: str
    sequence: int
    #: every tick up to here was L when the row was heard; 0 from a broker of version 3, which does not say it
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Interest:
    """The sender follows the receiver's stream of the pubend.

    `wanted` is what the sender and all brokers behind it want; None is everything. The receiver may send more
    than is wanted, never less.
    """

    pubend: str
    version: int
    wanted: tuple[TopicSelector, ...] | None


@dataclass(frozen=True, slots=True)
class Unfollow:
    """The sender follows another broker for the pubend now: its interests up to `version` have ended."""

    pubend: str
    version: int


@dataclass(frozen=True, slots=True)
class Claim:
    """The durable subscription of this name is hosted by `broker`; of two claims the higher epoch holds."""

    name: str
    epoch: int
    #: empty if the subscription has ended
    broker: str
    #: every pubend keeps for that host what the subscriber has not consumed: an earlier host may let go of it
    settled: bool
    #: The broker that had the subscription, as its subscriber says: only that one is told, and answers a
    #: settled claim with Yielded. Empty for a claim that all are to hear; brokers of version 3 tell all.
    to: str = ""
    #: a digest of the principal that the subscription belongs to; empty if it belongs to nobody
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Yielded:
    """To the broker `to`: its claim of this epoch has reached who had the subscription before."""

    name: str
    epoch: int
    to: str


@dataclass(frozen=True, slots=True)
class Together:
    """What the sender has to say to a neighbour in one turn. It is handled as a whole, in order, or refused.

    Brokers of version 3 get the frames singly. Answers to questions are in none: they travel behind others.
    """

    frames: tuple[PeerFrame, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with all versions of its schema, oldest first; for an open topic, with all shapes met so far.

    A client declares a topic with it, adds versions, or removes it; the broker answers with the whole Topic.
    """

    topic: str
    is_open: bool
    schemas: tuple[str, ...]
    #: of the schemas (`message.generations`); from a client that declares, 0 stands for the one that exists
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks whether the other side is there; the answer is a Pong with the same stamp."""

    stamp: int


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a Ping."""

    stamp: int


@dataclass(frozen=True, slots=True)
class Overlay:
    """The topology that the sender uses. On each new link `text` is empty: only the version is compared.

    The processes of two brokers exchange this frame; the broker core learns of changes by RoutesChanged.
    """

    version: int
    #: differs for two topologies of one version
    digest: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Connect:
    """The first frame of a client, with the versions of the protocol that it can speak."""

    client: str
    oldest: int = 1
    newest: int = 1


@dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to Connect or Resume: the broker, its incarnation, the version to speak, and its pubends."""

    broker: str
    incarnation: int
    version: int
    pubends: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Describe:
    """Asks for the schemas of a topic; the answer is a Topic, without schemas if there is no such topic.

    With `shapes`, the answer is of the newest creation that has one of them, or of the newest one. Of an open
    topic it has only those shapes that the broker knows; of a declared one it has all versions in any case.
    """

    topic: str
    #: fingerprints of schemas; none stands for all
    shapes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Publish:
    """Events of one publisher, numbered without gaps; the first one has the number `sequence`."""

    pubend: str
    publisher: str
    sequence: int
    batch: EventBatch
    #: If the receiver has read several frames as this one: how many events each had. Each is answered.
    parts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Published:
    """The publisher's events up to `sequence` are on disk, the last of them at `tick`."""

    pubend: str
    publisher: str
    sequence: int
    tick: int
    #: If the sender answers several Publish at once, whose events have consecutive numbers and ticks: how
    #: many events each had. One frame leaves for each of them, and a receiver never sees this.
    parts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A subscriber subscribes, for the first time or again.

    `token` is what the subscriber has consumed; without it a durable subscription goes on from its last Ack.
    A durable subscriber that comes with another pattern or selector gets it from the ticks in Subscribed on.
    """

    name: str
    pattern: str
    selector: str
    durable: bool
    #: bytes of events that the subscriber can take before it sends Credit
    credit: int
    token: CheckpointToken | None = None
    #: its time of day, in microseconds, or 0: of several connections the one with the latest stamp holds
    stamp: int = 0
    #: the broker that the subscriber asked before this one, or empty; only for brokers of version 5 and newer
    last: str = ""


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The subscriber is registered and goes on from `token`.

    Its pattern and selector hold for the ticks beyond `since`. The broker sends the frame again when they
    come into force in a further pubend.
    """

    name: str
    token: CheckpointToken
    since: CheckpointToken = field(default_factory=CheckpointToken)


@dataclass(frozen=True, slots=True)
class Deliver:
    """All events for the subscriber in `(base, upto]`: the rows of `batch`, or none without a batch."""

    name: str
    pubend: str
    base: int
    upto: int
    batch: EventBatch | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Events for the subscriber in `(base, upto]`, if there were any, have been released and are lost."""

    name: str
    pubend: str
    base: int
    upto: int


@dataclass(frozen=True, slots=True)
class Ack:
    """Subscribers have consumed everything up to their tokens; without a ticket each of them for itself.

    If `ticket` is not 0 the broker keeps all tokens, or none, and answers with Acked once they are on disk.
    """

    tokens: tuple[tuple[str, CheckpointToken], ...]
    ticket: int = 0
    #: what Credit would grant besides; brokers older than version 5 are sent Credit
    credits: tuple[Credit, ...] = ()


@dataclass(frozen=True, slots=True)
class Acked:
    """The Ack of this ticket is on disk."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Credit:
    """The subscriber can take this many more bytes of events than it granted before."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """The subscription ends; events need not be kept for it any more."""

    name: str


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The subscription is gone, also from the disk."""

    name: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """Asks for the events in `(base, upto]` of a pubend, or in a first part of it, from the pubend's log.

    It is for bulk readers, and for brokers that need events which were filtered out when they passed. No
    event is kept for the asker. A broker that does not host the pubend passes it on to the one that does.
    """

    ticket: int
    pubend: str
    base: int
    upto: int
    pattern: str
    selector: str
    #: bytes of the log that are read for one answer, about
    bytes_max: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer to a Fetch, as far as `upto`; the asker goes on from there with another Fetch.

    Every tick at or below `lost` is L, and so are the `damaged` ranges.
    """

    ticket: int
    pubend: str
    base: int
    upto: int
    lost: int
    batch: EventBatch | None = None
    damaged: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True)
class Offer:
    """A pipeline offers to answer up to `recalls_max` recalls at a time from the archive that it keeps."""

    recalls_max: int


@dataclass(frozen=True, slots=True)
class Line:
    """What is wanted of the ticks in `(base, upto]`."""

    wanted: TopicSelector
    base: int
    upto: int


@dataclass(frozen=True, slots=True)
class Recall:
    """A broker asks the pipeline for archived events that one subscriber wants of `(base, upto]` of a pubend.

    The lines are in order and do not overlap; no events are wanted of the ticks between them. The pipeline
    answers recalls that arrive together with one scan.
    """

    ticket: int
    pubend: str
    base: int
    upto: int
    lines: tuple[Line, ...]
    #: bytes of events that the pipeline may send before RecallMore grants more
    credit: int


@dataclass(frozen=True, slots=True)
class Recalled:
    """A part of the answer to a Recall: all its events in `(base, upto]`.

    Parts follow each other without a gap. The archive does not have the ranges in `gone`.
    """

    ticket: int
    base: int
    upto: int
    batch: EventBatch | None = None
    gone: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True)
class RecallMore:
    """The pipeline may send this many more bytes of events for a recall."""

    ticket: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RecallOver:
    """The broker does not need the rest of a recall."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Lease:
    """A client asks to be without a connection at times, and to be called at `address` when events come.

    A broker that calls has to present `key`. A newer lease with the same key ends the earlier one.
    """

    #: the longest time without a connection
    seconds: int
    #: host:port
    address: str
    #: letters and digits, chosen so that nobody else can guess them
    key: str


@dataclass(frozen=True, slots=True)
class Leased:
    """The answer to a Lease: the seconds that are granted, and the ticket that the client resumes with."""

    seconds: int
    ticket: str


@dataclass(frozen=True, slots=True)
class Rest:
    """The last frame that its sender sends on this connection.

    Once both sides have sent it the broker closes the connection, and the client is parked: its subscriptions
    stay. A connection that ends in any other way ends the lease, since frames on their way may be lost.
    `seconds` from the broker is how long it waits for the client from now on; a client's means nothing.
    """

    seconds: int


@dataclass(frozen=True, slots=True)
class Pushing:
    """The first frame of a broker that calls a parked client; the client answers with Resume."""

    broker: str
    key: str


@dataclass(frozen=True, slots=True)
class Resume:
    """The first frame of a parked client that returns, whoever has called. Its subscriptions go on."""

    ticket: str
    oldest: int = 1
    newest: int = 1


@dataclass(frozen=True, slots=True)
class Ask:
    """An administrator's request: `what` names it, `arguments` is a JSON object."""

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
    """A request was not carried out. `what` names its kind and `name` which one it was.

    `code` is for programs, and one of REFUSALS; `reason` tells people why and what to do.
    """

    what: str
    name: str
    code: str
    reason: str
    #: HOST:PORT of brokers that may do it instead, the best first; only for clients of version 2 and newer
    addresses: tuple[str, ...] = ()


#: sequence: publish again from an earlier one; draining: the broker is to be taken away; token: it says that
#: more was consumed than can be; login: who is there was not proved; access: connect again, rules changed;
#: removed: the topic was removed; moved: the publisher has left for another pubend.
REFUSALS = frozenset((
    "selector", "topic", "schema", "taken", "pubend", "sequence", "full", "limit", "version",
    "frame", "unknown", "draining", "address", "token", "login", "denied", "access", "removed", "moved",
))  # fmt: skip

PeerFrame = (
    Hello | Links | Ways | Interest | Unfollow | Knowledge | Nack | AckExpected | Release | Heard | Claim
    | Yielded | Together | Topic | Fetch | Fetched | Leave | Left | Ping | Pong
)  # fmt: skip
ClientFrame = (
    Connect | Welcome | Describe | Topic | Publish | Published | Subscribe | Subscribed | Deliver | Gap | Ack
    | Acked | Credit | Unsubscribe | Unsubscribed | Fetch | Fetched | Offer | Recall | Recalled | RecallMore
    | RecallOver | Lease | Leased | Rest | Pushing | Resume | Ask | Answer | Refused | Ping | Pong | Login
    | Proof | Leave | Left | Come
)  # fmt: skip
Frame = PeerFrame | ClientFrame | Overlay | SecurityFrame
