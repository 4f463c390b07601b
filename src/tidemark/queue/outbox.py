"""MessageOutbox: messages that were put, on their way to their pubend, each until it is on the broker's disk.

Every message is in the state file, with its number, before it comes here. It is sent under that number until
a broker has it, in this life or the next: the pubend knows by the number what it has got already. No message
is given up, and none overtakes another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from tidemark.client.client import Client
from tidemark.errors import EncodeError, NotConnectedError, TidemarkError
from tidemark.message.batches.batch import EVENT_BYTES_MAX, PRELUDE, BatchBuilder, Shape
from tidemark.queue.state import Put

#: Messages that may wait for a broker; beyond it putting is refused.
OUTBOX_MESSAGES_MAX = 10_000
#: What leaves together.
BATCH_BYTES = 1 << 20
#: How long to wait after a refusal.
RETRY_SECONDS = 0.5
#: A message is tried as long as the process lives; who waits for it has a limit of their own.
_YEAR_SECONDS = 365 * 86_400.0


class MessageOutbox:
    """What one queue has put. Threads add to it, the loop sends."""

    def __init__(
        self, client: Client, publisher: str, puts: Sequence[Put], last: int, wake: Callable[[], None]
    ) -> None:
        """`puts` are of a former life, whose last had the number `last`; `wake` calls `added` on the loop."""
        self._client = client
        self._publisher = publisher
        self._wake = wake
        self._added = asyncio.Event()
        #: by number, and in its order; each step on it is a single one, since threads and the loop share it
        self._waiting: dict[int, tuple[Put, Future[None]]] = {put.number: (put, Future()) for put in puts}
        #: all up to this number is at a broker
        self.arrived = puts[0].number - 1 if puts else last
        #: why the last attempt failed
        self.refusal: TidemarkError | None = None

    # For threads.

    def add(self, put: Put) -> None:
        """Send it, after all that was added before."""
        self._waiting[put.number] = put, Future()
        self._wake()

    def outcome(self, number: int) -> Future[None] | None:
        """Done when the message of this number is at a broker; None when it has been for a while."""
        found = self._waiting.get(number)
        return None if found is None else found[1]

    # On the loop.

    async def encode(self, topic: str, fields: dict[str, Any], timeout: float) -> tuple[Shape, bytes]:
        """The message in its topic's schema, which the broker knows then: it can be sent whenever."""
        topics = self._client._topics
        found = topics.encode(topic, fields)
        try:
            async with asyncio.timeout(timeout):
                while found is None:
                    await topics.prepare(topic, fields)
                    found = topics.encode(topic, fields)
        except TimeoutError:
            raise NotConnectedError(
                f"no broker said in time what {topic!r} is: nothing was put, put it again"
            ) from None
        size = PRELUDE.size + len(found[1])
        if size > EVENT_BYTES_MAX:
            raise EncodeError(f"a message of {size} bytes is over the limit of {EVENT_BYTES_MAX}: put less")
        return found

    def added(self) -> None:
        """There is more to send."""
        self._added.set()

    async def send(self) -> None:
        """Send all, for ever."""
        while True:
            self._added.clear()
            puts = [put for put, _ in list(self._waiting.values())]
            if not puts:
                await self._added.wait()
                continue
            try:
                await self._send_some(puts)
            except TidemarkError as error:
                self.refusal = error
                await asyncio.sleep(RETRY_SECONDS)

    async def _send_some(self, puts: list[Put]) -> None:
        """As many as fit into a batch. The numbers are what counts: next time it may be cut elsewhere."""
        builder = BatchBuilder()
        for put in puts:
            builder.add(put.shape, put.message, publisher=self._publisher)
            if builder.size >= BATCH_BYTES:
                break
        sent = puts[: len(builder)]
        await self._client.publish_batch(builder.build(), sequence=sent[0].number, timeout=_YEAR_SECONDS)
        self.refusal = None
        self.arrived = sent[-1].number
        for put in sent:
            self._waiting.pop(put.number)[1].set_result(None)
