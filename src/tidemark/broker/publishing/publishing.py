"""Publishing: what publishers say to a broker, and what goes on to the pubends, here or elsewhere.

A publisher publishes to a pubend that its broker hosts. A named one that has come from another broker first
asks the pubend that it published to before which of its events are there (docs/overlay.md). The question,
Leave, goes to the pubend broker by broker, and its answer, Left, comes back the same way. Brokers on the way
remember who asked only for the answer. Either of the two may be lost: the publisher asks again.

Where there are accounts, a publisher's name belongs, at each pubend, to the principal that first published
under it there (docs/security.md). Others are refused, and cannot make the publisher leave. The question says
by a digest who asks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tidemark.broker.access.access_control import AccessControl
from tidemark.broker.access.owner_digest import digest_of
from tidemark.broker.effects import DrainNotice, SendClient, SendPeer
from tidemark.broker.publishing.pubend import Pubend
from tidemark.broker.streams.stream import Stream
from tidemark.broker.topics import Topics
from tidemark.broker.turn import Turn
from tidemark.message.publisher_names import is_made
from tidemark.wire.frames import Publish, Refused
from tidemark.wire.moving.frames import Come, Leave, Left

#: Questions of publishers that are passed on and remembered; the oldest is forgotten first.
ASKED_MAX = 4_096
MADE_NAME = "a publisher whose name its client made does not move: name the publisher"


@dataclass(frozen=True, slots=True)
class _LeaveAsked:
    """A question that was passed on."""

    #: the client or the neighbour that asked
    owner: int | str
    #: the neighbour that was asked: only its answer counts
    upstream: str


class Publishing:
    """The publishers of one broker, and the questions of publishers that pass through it."""

    def __init__(
        self,
        pubends: Mapping[str, Pubend],
        streams: Mapping[str, Stream],
        topics: Topics,
        access: AccessControl,
        turn: Turn,
    ) -> None:
        #: pubend hosted here -> itself; the broker's own, which only the broker changes
        self._pubends = pubends
        #: pubend of the layout -> its stream; the broker's own, which only the broker changes
        self._streams = streams
        self._topics = topics
        self._access = access
        self._turn = turn
        #: what publishers are told while this broker takes nothing new from them, None while it does; only
        #: `Broker` sets it
        self.drain_notice: DrainNotice | None = None
        #: pubend and publisher -> who asked last
        self._asked: OrderedDict[tuple[str, str], _LeaveAsked] = OrderedDict()

    def publish(self, client: int, frame: Publish) -> None:
        """A client publishes a batch; of one that was made of several frames, each counts by itself."""
        if self._access.quotas.bound_publishing:
            batch = frame.batch
            self._access.quotas.published(client, len(batch.data), batch.count, self._turn.now)
        if not frame.parts:
            self._publish(client, frame)
        elif self._takes_whole(client, frame):
            owner = self._owner(client, frame)
            self._pubends[frame.pubend].received_joined(client, frame, owner or "")
        else:
            for each in parted(frame):
                self._publish(client, each)

    def _takes_whole(self, client: int, frame: Publish) -> bool:
        """Return whether a batch of several frames is logged as it is: nothing is repeated or refused."""
        pubend = self._pubends.get(frame.pubend)
        if pubend is None or self.drain_notice is not None or self._owner(client, frame) is None:
            return False
        with self._turn.looking:
            return pubend.expects(frame) and self._topics.problem_of(frame.batch) is None

    def _owner(self, client: int, frame: Publish) -> str | None:
        """Return whose the publisher's name is at a pubend that is here, if `client` is that; else None."""
        owner = self._pubends[frame.pubend].owner(frame.publisher)
        return owner if self._access.is_open else self._access.publisher_owner(client, frame.publisher, owner)

    def _publish(self, client: int, frame: Publish) -> None:
        pubend = self._pubends.get(frame.pubend)
        if pubend is None:
            self._refuse_pubend(client, frame)
            return
        owner = self._owner(client, frame)
        if owner is None:
            self._refuse_name(client, frame)
            return
        with self._turn.looking:
            problem = self._topics.problem_of(frame.batch)
        # What was logged before a topic was removed is acknowledged all the same.
        if problem is not None and not (problem[0] == "removed" and pubend.has(frame)):
            self._refuse(client, frame.publisher, *problem)
        elif self.drain_notice is not None and not pubend.has(frame):
            pubend.turn_away(client, frame, self.drain_notice)
        else:
            pubend.received(client, frame, owner)

    # Publishers that move.

    def leave(self, client: int, frame: Leave) -> None:
        """A client's publisher wants to leave a pubend, which may be anywhere in the overlay."""
        frame = replace(frame, owner=digest_of(self._access.owner(client)))
        pubend = self._pubends.get(frame.pubend)
        if is_made(frame.publisher):
            self._refuse(client, frame.publisher, "unknown", MADE_NAME)
        elif pubend is not None:
            owner = pubend.owner(frame.publisher)
            if self._access.publisher_owner(client, frame.publisher, owner) is None:
                self._refuse_name(client, frame)
            else:
                pubend.leave(frame, lambda left: self._out(SendClient(client, left)))
        elif frame.pubend not in self._streams:
            reason = (
                f"there is no pubend {frame.pubend!r} here or behind a neighbour, so that nobody can tell "
                "which events of the publisher it has: see move_publisher"
            )
            self._refuse(client, frame.publisher, "pubend", reason)
        else:
            self._pass_on(client, frame)

    def passed(self, peer: str, frame: Leave) -> None:
        """A neighbour passes on that a publisher wants to leave a pubend."""
        pubend = self._pubends.get(frame.pubend)
        if pubend is not None:
            owner = pubend.owner(frame.publisher)
            if owner and digest_of(owner) != frame.owner and self._access.keeps_name(owner, frame.publisher):
                self._turn.counters["denied"] += 1
            elif not is_made(frame.publisher):
                pubend.leave(frame, lambda left: self._out(SendPeer(peer, left)))
        else:
            self._pass_on(peer, frame)

    def left(self, peer: str, frame: Left) -> None:
        """A neighbour has answered; the answer of one that was not asked counts for nothing."""
        asked = self._asked.get((frame.pubend, frame.publisher))
        if asked is None or asked.upstream != peer:
            self._turn.counters["answers_late"] += 1
            return
        del self._asked[frame.pubend, frame.publisher]
        owner = asked.owner
        self._out(SendClient(owner, frame) if isinstance(owner, int) else SendPeer(owner, frame))

    def come(self, client: int, frame: Come) -> None:
        """A client's publisher has left another pubend for one that is hosted here."""
        pubend = self._pubends.get(frame.pubend)
        if is_made(frame.publisher):
            self._refuse(client, frame.publisher, "unknown", MADE_NAME)
        elif pubend is None:
            self._refuse_pubend(client, frame)
        elif self.drain_notice is not None:
            notice = self.drain_notice
            self._out(
                SendClient(
                    client, Refused("publish", frame.publisher, "draining", notice.reason, notice.addresses)
                )
            )
        else:
            owner = self._access.publisher_owner(client, frame.publisher, pubend.owner(frame.publisher))
            if owner is None:
                self._refuse_name(client, frame)
            else:
                pubend.come(client, frame, owner)

    def _pass_on(self, owner: int | str, frame: Leave) -> None:
        stream = self._streams.get(frame.pubend)
        upstream = stream.upstream if stream is not None else None
        if upstream is None or upstream == owner:
            return  # there is no way just now: the publisher asks again
        self._asked[frame.pubend, frame.publisher] = _LeaveAsked(owner, upstream)
        self._asked.move_to_end((frame.pubend, frame.publisher))
        if len(self._asked) > ASKED_MAX:
            self._asked.popitem(last=False)
        self._out(SendPeer(upstream, frame))

    def _refuse_pubend(self, client: int, frame: Publish | Come) -> None:
        self._refuse(client, frame.publisher, "pubend", f"the pubend {frame.pubend!r} is not hosted here")

    def _refuse_name(self, client: int, frame: Publish | Leave | Come) -> None:
        self._turn.counters["denied"] += 1
        who, name = self._access.owner(client), frame.publisher
        reason = (
            f"{who!r} may not publish under the name {name!r}: at the pubend {frame.pubend!r} it belongs to "
            "another user"
        )
        self._refuse(client, frame.publisher, "denied", reason)

    def _refuse(self, client: int, publisher: str, code: str, reason: str) -> None:
        self._turn.counters["publishes_refused"] += 1
        self._out(SendClient(client, Refused("publish", publisher, code, reason)))

    def _out(self, effect: SendClient | SendPeer) -> None:
        self._turn.out.add(effect)


def parted(frame: Publish) -> Iterator[Publish]:
    """Yield the frames that a receiver has read as this one, or the frame itself if it came as one."""
    if not frame.parts:
        yield frame
        return
    first = 0
    for count in frame.parts:
        batch = frame.batch.slice(first, first + count)
        yield Publish(frame.pubend, frame.publisher, frame.sequence + first, batch)
        first += count
