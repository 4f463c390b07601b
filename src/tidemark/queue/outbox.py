"""MessageOutbox: messages that were put, on their way to their pubend, each until it is on the broker's disk.

Every message is in the state file, with its number, before it is added here. It is sent under that number
until a broker has it, by this process or a later one: the pubend recognises by the number what it already
has. No message is given up, and none overtakes another.
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

#: Messages that may wait for a broker; beyond that, putting is refused.
OUTBOX_MESSAGES_MAX = 10_000
#: Messages are sent in batches of about so many bytes.
BATCH_BYTES = 1 << 20
#: How long to wait after a refusal before sending again.
RETRY_SECONDS = 0.5
#: A message is sent as long as the process lives; calls that wait for it have their own timeouts.
_YEAR_SECONDS = 365 * 86_400.0


class MessageOutbox:
    """The messages that one queue has put. Threads add messages, the event loop sends them."""

    def __init__(
        self, client: Client, publisher: str, puts: Sequence[Put], last: int, wake: Callable[[], None]
    ) -> None:
        """Begin with the `puts` of an earlier process, whose last message had the number `last`.

        `wake`, which any thread may call, has `added` called on the loop.
        """
        self._client = client
        self._publisher = publisher
        self._wake = wake
        self._added = asyncio.Event()
        #: number -> message and its outcome, in the order of the numbers. Threads and the loop share this
        #: dict,
        #: so every access is a single step.
        self._waiting: dict[int, tuple[Put, Future[None]]] = {put.number: (put, Future()) for put in puts}
        #: every message up to this number is at a broker
        self.arrived = puts[0].number - 1 if puts else last
        #: why the last attempt failed
        self.refusal: TidemarkError | None = None

    # For threads.

    def add(self, put: Put) -> None:
        """Send a message after all that were added before."""
        self._waiting[put.number] = put, Future()
        self._wake()

    def outcome(self, number: int) -> Future[None] | None:
        """A future that is done when the message `number` is at a broker; None if it already was."""
        found = self._waiting.get(number)
        return None if found is None else found[1]

    # On the loop.

    async def encode(self, topic: str, fields: dict[str, Any], timeout: float) -> tuple[Shape, bytes]:
        """The message, encoded in a schema of its topic, which is declared at the broker if that is needed.

        NotConnectedError if no broker answers within `timeout` seconds; EncodeError if the message does not
        fit its topic, or is too large.
        """
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
        """A thread has added a message."""
        self._added.set()

    async def send(self) -> None:
        """Send every message that is added, until the task is cancelled."""
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
        """Send as many messages as fit into a batch.

        After a failure the batches may be cut at other places: the pubend goes by the numbers alone.
        """
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
