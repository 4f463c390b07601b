"""A connection to a broker that outlasts the broker's absence, for a bounded time.

The client looks for a lost broker by itself, but a question that was under way when it was lost fails. Here
it is asked again, with a back-off, until `retry_seconds` have passed without an answer: then one clear error.
Only for what may be asked twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from tidemark import sync
from tidemark.client.backoff import Backoff
from tidemark.errors import NotConnectedError, RefusedError, TimedOutError
from tidemark.wire.frames import Fetched

T = TypeVar("T")

#: The first connection of a query: a broker that was never there is a mistake more often than a fault.
CONNECT_SECONDS_MAX = 10.0
_CLOSE_SECONDS = 1.0


class Supervised:
    """Questions to one broker, asked until they are answered."""

    def __init__(
        self, url: str, retry_seconds: float, *, publisher: str | None = None, pubend: str | None = None
    ) -> None:
        self._url = url
        self._retry_seconds = retry_seconds
        self._publisher = publisher
        self._pubend = pubend
        self._client: sync.Client | None = None

    def __enter__(self) -> Supervised:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect; the next question connects again."""
        client, self._client = self._client, None
        if client is not None:
            client.close(_CLOSE_SECONDS)

    def run(self, question: Callable[[sync.Client], T]) -> T:
        """What the question gives; NotConnectedError when no broker has answered it for too long.

        A full disk is waited out like an absence.
        """
        deadline = time.monotonic() + self._retry_seconds
        backoff = Backoff()
        while True:
            try:
                return question(self._connected(deadline))
            except (NotConnectedError, TimedOutError, RefusedError) as error:
                if isinstance(error, RefusedError) and error.code != "full":
                    raise
                if time.monotonic() >= deadline:
                    raise NotConnectedError(
                        f"{self._url}: no answer for {self._retry_seconds:g} s ({error}). Start the broker, "
                        "or correct the option `broker`; the query then goes on where it was"
                    ) from None
                self._forget_after(error)
            time.sleep(min(backoff.delay(), max(0.0, deadline - time.monotonic())))

    def ask(self, what: str, **arguments: Any) -> Any:
        """See Client.ask."""
        return self.run(lambda client: client.ask(what, **arguments))

    def fetch(
        self, pubend: str, base: int, upto: int, pattern: str, selector: str, *, bytes_max: int
    ) -> Fetched:
        """See Client.fetch."""
        return self.run(
            lambda client: client.fetch(pubend, base, upto, pattern, selector, bytes_max=bytes_max)
        )

    def _connected(self, deadline: float) -> sync.Client:
        if self._client is None:
            left = max(0.1, min(CONNECT_SECONDS_MAX, deadline - time.monotonic()))
            self._client = sync.connect(
                self._url, publisher=self._publisher, pubend=self._pubend, connect_timeout=left
            )
        return self._client

    def _forget_after(self, error: Exception) -> None:
        """A publisher's numbers went on although their fate is open: only a new client starts from before."""
        if self._publisher is not None or isinstance(error, TimedOutError):
            self.close()
