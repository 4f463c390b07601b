"""TextReading: the documents that come over connections, parsed so that nobody else waits for it.

A topology or an access document of a mebibyte takes about a second to parse. A short text is parsed at once,
a longer one on a thread, one after the other; of those that wait only a few are kept. The thread rests
REST_TIMES as long as it works: the event loop waits for the interpreter lock whenever the thread works.
"""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, TypeVar

from tidemark.errors import TidemarkError
from tidemark.message.codec.rest import Rest, no_rest
from tidemark.node.turns.thread_rest import ThreadRest

#: A longer text is parsed on a thread.
AT_ONCE_CHARACTERS_MAX = 16 << 10
#: Longer texts that are being parsed or wait for that, of one kind.
WAITING_MAX = 8
#: How many times as long as it has worked the thread rests.
REST_TIMES = 2

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Parse(Protocol[_T_co]):
    """Makes a document of a text and its version, and shares nothing with others."""

    def __call__(self, text: str, version: int, *, rest: Rest = no_rest) -> _T_co:
        """Return the document; what takes long calls `rest` from time to time."""


class TextReading(Generic[_T]):
    """Parses the documents of one kind, which belong to one broker."""

    def __init__(self, parse: Parse[_T]) -> None:
        self._parse = parse
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0

    async def read(self, text: str, version: int) -> _T:
        """Return the document. Raises what `parse` raises, and TidemarkError if too many texts wait."""
        if len(text) <= AT_ONCE_CHARACTERS_MAX:
            return self._parse(text, version)
        if self._waiting >= WAITING_MAX:
            raise TidemarkError(f"{WAITING_MAX} other texts are being read: try again later")
        self._waiting += 1
        try:
            async with self._one_at_a_time:
                return await asyncio.to_thread(self._parse_restfully, text, version)
        finally:
            self._waiting -= 1

    def _parse_restfully(self, text: str, version: int) -> _T:
        return self._parse(text, version, rest=ThreadRest(lambda took: took * REST_TIMES))
