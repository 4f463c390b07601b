"""OpenSubscriptions: the open subscriptions of one client by name, and durable ones that are being ended."""

from __future__ import annotations

import asyncio

from tidemark.client.connecting.link import Link, closed
from tidemark.client.connecting.pending_requests import within
from tidemark.client.subscribing.acks import Acks
from tidemark.client.subscribing.session import SubscriptionSession
from tidemark.client.subscribing.start_position import Ask, Start, starting_token
from tidemark.client.topics import ClientTopics
from tidemark.errors import ClientError, TidemarkError, WireError
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Deliver, Gap, Refused, Subscribed, Unsubscribe, Unsubscribed


class OpenSubscriptions:
    """Gives frames to the session whose name they carry; what sessions need of their client."""

    def __init__(
        self, client: str, link: Link, topics: ClientTopics, acks: Acks, ask: Ask, timeout: float
    ) -> None:
        """`ask` sends a question to the broker; `timeout` is how many seconds the broker has to answer."""
        self._client = client
        self.link = link
        self.topics = topics
        self.acks = acks
        self.timeout = timeout
        self._ask = ask
        self._sessions: dict[str, SubscriptionSession] = {}
        self._names_made = 0
        #: durable name -> who waits for its end
        self._ending: dict[str, asyncio.Future[None]] = {}
        #: names in `_ending` for which Unsubscribe was sent more than once: the broker may have ended them
        self._sent_again: set[str] = set()
        self._is_closed = False

    # For sessions.

    def enter(self, session: SubscriptionSession) -> None:
        """Hand frames for the name of `session` to it from now on; ClientError if another has the name."""
        if self._sessions.setdefault(session.name, session) is not session:
            raise ClientError(
                f"the durable subscription {session.name!r} is open in this client: close it first"
            )

    def leave(self, session: SubscriptionSession) -> None:
        """Hand no more frames to `session`."""
        if self._sessions.get(session.name) is session:
            del self._sessions[session.name]

    def fresh_name(self) -> str:
        """A name that no other subscription has."""
        self._names_made += 1
        return f"~{self._client}.{self._names_made}"

    async def starting_token(self, name: str | None, start: Start) -> CheckpointToken | None:
        """The token at which the durable subscription `name` starts; None if the broker has it already."""
        return await starting_token(self._ask, name, start)

    async def unsubscribe(self, name: str) -> None:
        """End the durable subscription `name` for good; RefusedError or TimedOutError if that fails."""
        if self._is_closed:
            raise closed()
        future = self._ending.get(name)
        if future is None:
            future = self._ending[name] = asyncio.get_running_loop().create_future()
            self.link.send(Unsubscribe(name))
        try:
            await within(asyncio.shield(future), f"the end of {name!r}", self.timeout)
        finally:
            self._ending.pop(name, None)
            self._sent_again.discard(name)

    # For the client.

    def up(self) -> None:
        """A new connection: every session subscribes again, and what was to be ended is ended again."""
        for session in list(self._sessions.values()):
            try:
                session.up()
            except WireError as error:  # its token may have outgrown a frame: the others go on
                session.fail(error)
        for name in self._ending:
            self._sent_again.add(name)
            self.link.send(Unsubscribe(name))

    def down(self) -> None:
        """The connection is lost."""
        for session in self._sessions.values():
            session.down()

    async def close(self, deadline: float) -> None:
        """Close every session; the broker has until `deadline`, in the loop's time, to store their acks."""
        loop = asyncio.get_running_loop()
        for session in list(self._sessions.values()):
            await session.close(max(0.0, deadline - loop.time()))

    def end_waiting(self) -> None:
        """The client is closed: calls of `unsubscribe`, also those that wait already, raise ClosedError."""
        self._is_closed = True
        for future in self._ending.values():
            if not future.done():
                future.set_exception(closed())

    # From the broker.

    def delivered(self, frame: Deliver) -> None:
        """Events, or silence, for a session."""
        session = self._sessions.get(frame.name)
        if session is not None:
            session.delivered(frame)

    def gap(self, frame: Gap) -> None:
        """A gap for a session."""
        session = self._sessions.get(frame.name)
        if session is not None:
            session.gap(frame)

    def subscribed(self, frame: Subscribed) -> None:
        """The broker's answer to a session's Subscribe."""
        session = self._sessions.get(frame.name)
        if session is not None:
            session.subscribed(frame)

    def subscribe_refused(self, frame: Refused) -> None:
        """The broker refused a session's Subscribe, or ended its delivery."""
        session = self._sessions.get(frame.name)
        if session is not None:
            session.refused(frame)

    def unsubscribed(self, frame: Unsubscribed) -> None:
        """The broker has ended a durable subscription."""
        future = self._ending.get(frame.name)
        if future is not None and not future.done():
            future.set_result(None)

    def unsubscribe_refused(self, frame: Refused, error: TidemarkError) -> None:
        """The broker refused to end a durable subscription. Unknown after a repetition: it has ended it."""
        if frame.code == "unknown" and frame.name in self._sent_again:
            self.unsubscribed(Unsubscribed(frame.name))
            return
        future = self._ending.get(frame.name)
        if future is not None and not future.done():
            future.set_exception(error)
