"""A file of an object store that is read piece by piece: each read asks the store for a range of bytes."""

from __future__ import annotations

import io
from collections.abc import Callable

#: Reads that are smaller than this ask for so much, and the rest waits for the next one: the end of a Parquet
#: file is read in small pieces.
AHEAD_BYTES = 64 << 10


class RangedFile(io.RawIOBase):
    """Reads ranges of an object; it never changes."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        """`fetch(start, end)` returns the bytes from `start` up to `end`."""
        super().__init__()
        self._size = size
        self._fetch = fetch
        self._at = 0
        self._held_from, self._held = 0, b""

    def readable(self) -> bool:
        """True: the file can be read."""
        return True

    def seekable(self) -> bool:
        """True: reading can begin at any place."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; nothing is read."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        """The place."""
        return self._at

    def size(self) -> int:
        """Number of bytes."""
        return self._size

    def read(self, size: int | None = -1) -> bytes:
        """The bytes from here on; fewer only at the end."""
        wanted = self._size if size is None or size < 0 else self._at + size
        end = min(wanted, self._size)
        if self._at >= end:
            return b""
        held_to = self._held_from + len(self._held)
        if not self._held_from <= self._at <= end <= held_to:
            start, upto = self._at, end
            if end - self._at < AHEAD_BYTES:
                # At the end of the file, what lies before is wanted next.
                upto = min(self._size, self._at + AHEAD_BYTES)
                start = max(0, min(self._at, upto - AHEAD_BYTES))
            found = self._fetch(start, upto)
            if upto - start > AHEAD_BYTES:
                self._at = end
                return found
            self._held_from, self._held = start, found
        data = self._held[self._at - self._held_from : end - self._held_from]
        self._at = end
        return data

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill a buffer."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
