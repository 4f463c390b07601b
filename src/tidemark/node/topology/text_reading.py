"""TextReading: the documents that come over connections, parsed so that nobody else waits for it.

A topology or an access document of a mebibyte takes about a second to parse. A short text is parsed at once,
a longer one on a thread, one after the other; of those that wait only a few are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from tidemark.errors import TidemarkError

#: A longer text is parsed on a thread.
AT_ONCE_CHARACTERS_MAX = 16 << 10
#: Longer texts that are being parsed or wait for that, of one kind.
WAITING_MAX = 8

_T = TypeVar("_T")


class TextReading(Generic[_T]):
    """Parses the documents of one kind, which belong to one broker."""

    def __init__(self, parse: Callable[[str, int], _T]) -> None:
        """`parse` makes a document of a text and its version; it shares nothing with others."""
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
                return await asyncio.to_thread(self._parse, text, version)
        finally:
            self._waiting -= 1
