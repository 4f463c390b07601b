"""The frames of the protocol: immutable values, one class each.

Between brokers: Hello, Links, Interest, Unfollow, Knowledge, Nack, AckExpected, Release, Heard, Claim.
Between a client and its broker: Connect, Welcome, Describe, Publish, Published, Subscribe, Subscribed,
Deliver, Gap, Ack, Acked, Credit, Unsubscribe, Unsubscribed, Ask, Answer, Refused. Both: Topic, Fetch,
Fetched, Ping, Pong. Between a broker and the pipeline, which is a client too: Offer, Recall, Recalled,
RecallMore, RecallOver. Between a broker and a client that does without an open connection: Lease, Leased,
Rest, Pushing, Resume.
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
    oldest: int = 2
    newest: int = 2


@dataclass(frozen=True, slots=True)
class Links:
    """To the others of a cell: these are the neighbours that the sender has a link to that is up.

    The highest `sequence` of a connection counts.
    """

    broker: str
    sequence: int
    up: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Knowledge:
    """In `(base, upto]` of the pubend the rows of `batch` are the events (D) and all else is silence (S).

    Silence holds for all that the receiver wanted with its interest of `version`: what is tagged lower than
    the interest that a receiver attached with tells it nothing but where the stream stands. `first`: sent for
    the first time; otherwise an answer to a nack. Every tick at or below `lost` is L, and so are the
    `damaged` ranges, which a disk lost.
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
    """The sender wants to know these ticks, by an answer that accounts for its interest of `version`."""

    pubend: str
    ranges: tuple[Range, ...]
    version: int


@dataclass(frozen=True, slots=True)
class AckExpected:
    """The pubend has logged events up to `tick` and has not heard that they were consumed."""

    pubend: str
    tick: int


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """What a host has of a pubend: acknowledged by every durable subscriber there, delivered to all live.

    TICK_MAX says that nobody is there, TICK_MIN that nothing may go. Of two rows of a host the one with the
    higher sequence holds, whichever came first, and it may say less. `asks`: the host wants to hear of it.
    """

    host: str
    #: grows across the host's lives
    sequence: int
    released: int
    delivered: int
    asks: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Rows of hosts behind the sender, or of the sender itself, on their way to the pubend."""

    pubend: str
    rows: tuple[ReleaseRow, ...]


@dataclass(frozen=True, slots=True)
class Heard:
    """The pubend's broker knows the host, on disk, and holds what its row of this sequence said."""

    pubend: str
    host: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """One line of an interest: events of topics that match `pattern` and satisfy `selector`."""

    pattern: str
    selector: str


@dataclass(frozen=True, slots=True)
class Interest:
    """The sender follows the receiver's stream of the pubend; this is what it and all behind it want.

    None is everything. It may want less than it gets.
    """

    pubend: str
    version: int
    wanted: tuple[Wanted, ...] | None


@dataclass(frozen=True, slots=True)
class Unfollow:
    """The sender has the pubend from elsewhere now: its interest up to `version` is no more."""

    pubend: str
    version: int


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
class Overlay:
    """The topology that the sender goes by. `text` is empty where only the version is said, on each new link.

    It goes between the processes of two brokers, whose cores hear of changes otherwise.
    """

    version: int
    #: tells two topologies of one version apart
    digest: str
    text: str = ""


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
    #: its own time of day when it came, in microseconds: of its connections the latest counts; 0 if not known
    stamp: int = 0


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
class Lease:
    """A client wants to be without a connection, at most so long at a time; it can be called at `address`.

    Whoever calls there has to show the `key`. A newer lease with the same key ends the one before it.
    """

    seconds: int
    #: host:port
    address: str
    #: letters and digits that nobody can guess
    key: str


@dataclass(frozen=True, slots=True)
class Leased:
    """The answer to a Lease: for how long, and the ticket with which the client comes back."""

    seconds: int
    ticket: str


@dataclass(frozen=True, slots=True)
class Rest:
    """The last frame that the sender says on this connection.

    Once both have said it the broker closes the connection, and the client is parked: its subscriptions stay.
    A connection that ends in any other way ends the lease, since what was under way may be lost. `seconds`:
    from the broker, for how long it waits for the client from now on; from the client, nothing.
    """

    seconds: int


@dataclass(frozen=True, slots=True)
class Pushing:
    """First frame of a broker that calls a parked client: there is something for you. Answered by Resume."""

    broker: str
    key: str


@dataclass(frozen=True, slots=True)
class Resume:
    """First frame of a parked client, on a connection that either side has opened; all goes on as it was."""

    ticket: str
    oldest: int = 1
    newest: int = 1


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
    """A request was not carried out. `what` names its kind and `name` which one it was.

    `code` is for programs, and one of REFUSALS; `reason` tells people why and what to do.
    """

    what: str
    name: str
    code: str
    reason: str
    #: HOST:PORT of brokers that may do it instead, the best first; only for clients of version 2 and newer
    addresses: tuple[str, ...] = ()


#: taken: by another connection or subscription; sequence: publish again from an earlier one; draining: the
#: broker is to be taken away, and `addresses` are those of others; address: this broker does not call there.
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
        "draining",
        "address",
    )
)

PeerFrame = (
    Hello
    | Links
    | Interest
    | Unfollow
    | Knowledge
    | Nack
    | AckExpected
    | Release
    | Heard
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
    | Lease
    | Leased
    | Rest
    | Pushing
    | Resume
    | Ask
    | Answer
    | Refused
    | Ping
    | Pong
)
Frame = PeerFrame | ClientFrame | Overlay
