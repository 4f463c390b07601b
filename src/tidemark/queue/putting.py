"""MessagePutter: puts the messages of one queue into the state file first, and then into a pubend.

The connection for putting is opened when it is first needed: a queue that only gets messages has none.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from tidemark.client.client import Client
from tidemark.client.loop_thread import LoopThread
from tidemark.errors import RefusedError, TimedOutError
from tidemark.message.batches.batch import Shape
from tidemark.queue.messages import Message, to_fields
from tidemark.queue.outbox import OUTBOX_MESSAGES_MAX, MessageOutbox
from tidemark.queue.state import Put, QueueState

#: Opens a client that publishes as this publisher, into this pubend.
OpenClient = Callable[[str, str], Coroutine[Any, Any, Client]]


class MessagePutter:
    """The putting half of one queue. Any thread may use it."""

    def __init__(self, name: str, state: QueueState, loop: LoopThread, open_client: OpenClient) -> None:
        self._name = name
        self._state = state
        self._loop = loop
        self._open_client = open_client
        #: the publisher, as pubends know it, and where it puts; None while no broker has hosted a pubend
        self._publisher = ""
        self._pubend: str | None = None
        #: what an earlier process put and is not known to be at a broker, and how many messages it had put
        self._former: list[Put] = []
        self._former_puts = 0
        #: held while the outbox is opened
        self._lock = threading.Lock()
        self._outbox: MessageOutbox | None = None
        self._sending: tuple[Client, asyncio.Task[None]] | None = None

    def go_on(self, hosted: Iterable[str]) -> None:
        """Send what an earlier process put and is not known to be at a broker.

        `hosted` are the pubends of the broker; a queue without a pubend of its own takes one of them.
        """
        self._publisher, self._pubend = self._state.putting(hosted)
        self._former = self._state.outbox()
        self._former_puts = self._state.puts
        if self._former:
            self._opened_outbox()

    @property
    def arrived(self) -> int | None:
        """The number of the last message that is at a broker; None if this process has not put any."""
        return None if self._outbox is None else self._outbox.arrived

    def put(self, topic: str, message: Message, message_id: str | None, end: float) -> None:
        """Put a message; see Queue.put. `end` is a time of time.monotonic()."""
        fields = to_fields(message)
        outbox = self._opened_outbox()
        number = None if message_id is None else self._state.find(message_id)
        if number is None:
            encoded = self._loop.run(outbox.encode, topic, fields, end - time.monotonic())
            number = self._enter(outbox, encoded, message_id)
        if not self._state.is_mine:
            self._wait(outbox, number, end)

    def _enter(self, outbox: MessageOutbox, encoded: tuple[Shape, bytes], message_id: str | None) -> int:
        """Write a message into the state file, from where it will be sent; return the message's number.

        RefusedError with the code "full" if too many messages wait for a broker.
        """
        with self._state.transaction():
            number = None if message_id is None else self._state.find(message_id)
            if number is not None:
                return number  # another thread was faster
            if self._state.puts - outbox.arrived >= OUTBOX_MESSAGES_MAX:
                reason = f"{OUTBOX_MESSAGES_MAX} messages wait for a broker: nothing was put, try again later"
                raise RefusedError(reason, what="put", name=encoded[0].topic, code="full")
            # This commit also deletes messages that have arrived. If a crash forgets the deletion, they are
            # sent again, and the pubend recognises them.
            self._state.arrived(outbox.arrived)
            put = self._state.put(*encoded, message_id)
            self._state.after_commit(lambda: outbox.add(put))
        return put.number

    def flush(self, end: float) -> None:
        """Wait until everything that was put is on the broker's disk; see Queue.flush."""
        if self._outbox is not None:
            self._wait(self._outbox, self._state.puts, end)

    def _wait(self, outbox: MessageOutbox, number: int, end: float) -> None:
        outcome = outbox.outcome(number)
        if outcome is None:
            return
        try:
            outcome.result(max(0.0, end - time.monotonic()))
        except TimeoutError:
            kept = "what was put is kept and will arrive: put it again only with a message_id"
            said = outbox.refusal
            if isinstance(said, RefusedError):
                raise said.with_reason(f"{said.reason}; {kept}") from None
            raise TimedOutError(f"no broker has confirmed it in time; {kept}") from None

    def _opened_outbox(self) -> MessageOutbox:
        with self._lock:
            if self._outbox is None:
                self._outbox = self._loop.run(self._open_outbox)
            return self._outbox

    async def _open_outbox(self) -> MessageOutbox:
        if self._pubend is None:
            reason = "there was no pubend to put into: nothing was put, connect to a broker that hosts one"
            raise RefusedError(reason, what="put", name=self._name, code="unknown")
        client = await self._open_client(self._publisher, self._pubend)
        outbox = MessageOutbox(
            client,
            self._publisher,
            self._former,
            self._former_puts,
            wake=lambda: self._loop.soon(outbox.added),
        )
        task = asyncio.get_running_loop().create_task(outbox.send(), name="tidemark outbox")
        self._sending = client, task
        return outbox

    async def disconnect(self) -> None:
        """Stop sending. Messages that have not arrived stay in the state file."""
        if self._sending is not None:
            client, task = self._sending
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await client.close(0)

    def forget_arrived(self) -> None:
        """Delete the messages that are at a broker from the state file."""
        if self._outbox is not None:
            self._state.arrived(self._outbox.arrived)
