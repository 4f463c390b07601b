"""QueueReader: the messages of one topic, one at a time. A message stays in hand until it is consumed.

A message goes from the subscription into the hand, and from there to the application; if a block of take()
fails, it goes there again. The broker gets the acknowledgement once the message is consumed: when its token
is in the state file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock

from tidemark.client.client import Client
from tidemark.client.events import Event, Gap
from tidemark.client.subscribing.subscription import Subscription
from tidemark.errors import RefusedError, TidemarkError, TimedOutError
from tidemark.queue.messages import Message, from_fields
from tidemark.ticks import CheckpointToken
from tidemark.wire.answers import STREAMS, SUBSCRIPTION, StreamStatus, SubscriptionProgress

#: How often the broker is asked whether it has delivered everything, while it has not.
LOOK_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class InHand:
    """A message, or the error to raise in its place, and the token of having consumed it."""

    message: Message | TidemarkError
    token: CheckpointToken


class QueueReader:
    """One topic of a queue. Only the thread that holds `lock` uses the reader."""

    def __init__(self, topic: str, client: Client, subscription: Subscription[Event | Gap]) -> None:
        self.topic = topic
        self._client = client
        self.subscription = subscription
        self.lock = Lock()
        self.hand: InHand | None = None
        #: the message in hand was given back unconsumed, and is the next to be handed out
        self.is_returned = False
        #: the last token that is in the state file
        self.kept = subscription.checkpoint

    @property
    def quiet(self) -> CheckpointToken | None:
        """The token of the silence that has passed since the last message; None if there was none.

        None also while a message is in hand.
        """
        token = self.subscription.checkpoint
        return token if self.hand is None and token != self.kept else None

    def consumed(self, token: CheckpointToken) -> None:
        """`token` is in the state file: the message in hand is consumed."""
        self.kept = token
        self.hand = None
        self.is_returned = False

    # On the loop.

    async def next(self, timeout: float | None) -> bool:
        """Take the next message into the hand; False if none came within `timeout` seconds."""
        assert self.hand is None
        item = await self.subscription.next(timeout)
        if item is not None:
            self.hand = InHand(self._message(item), item.checkpoint)
        return item is not None

    def _message(self, item: Event | Gap) -> Message | TidemarkError:
        if isinstance(item, Event):
            return from_fields(item.value)
        reason = (
            f"what was put in ({item.base}, {item.upto}] of the pubend {item.pubend!r} is gone "
            f"({item.reason}): get again to go on behind it"
        )
        return RefusedError(reason, what="get", name=self.topic, code="unknown")

    async def look(self) -> bool:
        """Take a message that was put before this call into the hand; False if the broker has none.

        Deliveries and answers arrive in the order in which the broker sent them: if the broker had delivered
        everything when it answered, and nothing has arrived, there is nothing. It takes two such answers,
        because a message that has arrived may need a schema first, which comes between them.
        NotConnectedError if the broker is away; TimedOutError if it does not answer in time.
        """
        goal: dict[str, int] = {}
        empty = 0
        try:
            async with asyncio.timeout(self._client._timeout):
                while empty < 2:
                    streams, mine = await asyncio.gather(
                        self._client.ask(STREAMS),
                        self._client.ask(SUBSCRIPTION, name=self.subscription.name),
                    )
                    goal = goal or {each.pubend: each.position for each in streams}
                    if await self.next(0):
                        return True
                    if _is_delivered(goal, streams, mine.pubends):
                        empty += 1
                    else:
                        await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise TimedOutError(
                f"the broker did not say in time whether {self.topic!r} is empty: get again"
            ) from None
        return False


def _is_delivered(
    goal: dict[str, int], streams: Iterable[StreamStatus], mine: Mapping[str, SubscriptionProgress]
) -> bool:
    """Whether the broker had delivered everything up to `goal`, pubend -> tick, when it answered."""
    delivered = {each.pubend: each.delivered for each in streams if each.delivered is not None}
    return all(
        pubend in delivered
        and delivered[pubend] >= position
        and pubend in mine
        and mine[pubend].told is not None
        and not mine[pubend].catching_up
        for pubend, position in goal.items()
    )
