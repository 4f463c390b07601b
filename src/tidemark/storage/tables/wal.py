"""The write-ahead log of SQLite: finds damage in it that SQLite would pass over without a word.

SQLite reads the frames of a log up to the first whose checksum is wrong, and takes that one for the end, as
if a crash had torn it. Every frame after it is forgotten, however many commits they were. But each commit is
synced before the next one begins. So a bad frame with a later commit behind it was on the platter once: that
is no torn tail. Of the last commit nobody can tell by the file alone; its generation tells.

    log   := magic u32 | version u32 | page bytes u32 | checkpoint u32 | two salts u32 | two sums u32 | frames
    frame := page number u32 | pages after a commit, else 0 u32 | both salts | both sums | page

Numbers are big-endian. The sums of a frame go on from those of the frame before; in place of frames with
other salts there is none, because the log was used from its start again.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from struct import Struct

import numpy as np
from numpy.typing import NDArray

_HEADER = Struct(">8I")
_FRAME = Struct(">6I")
#: With the last bit set, sums are of big-endian words.
_MAGIC = 0x377F0682
_PAGE_BYTES_LARGEST = 65_536
#: bytes of a frame's header, and of the log's, that the sums cover
_FRAME_SUMMED, _HEADER_SUMMED = 8, 24

Words = NDArray[np.uint32]
Sums = tuple[int, int]


def damage_in(path: Path) -> str | None:
    """Returns what is wrong with the write-ahead log at `path`; None if nothing is, or there is none."""
    data = path.read_bytes() if path.exists() else b""
    if len(data) < _HEADER.size + _FRAME.size:
        return None
    magic, _, page_bytes, _, salt, other_salt, *told = _HEADER.unpack_from(data)
    order = ">" if magic & 1 else "<"
    sums = _sums((0, 0), np.frombuffer(data, f"{order}u4", _HEADER_SUMMED // 4))
    if magic & ~1 != _MAGIC or sums != tuple(told):
        return "the head of its write-ahead log is damaged"
    page_bytes = _PAGE_BYTES_LARGEST if page_bytes == 1 else page_bytes
    frame_bytes = _FRAME.size + page_bytes
    bad: int | None = None
    is_committed = False
    for at in range(_HEADER.size, len(data) - frame_bytes + 1, frame_bytes):
        _, pages, *salts, first, second = _FRAME.unpack_from(data, at)
        if salts != [salt, other_salt]:
            # Of the first bad frame the salts themselves may be what is damaged.
            bad = at if bad is None else bad
            continue
        if bad is None:
            sums = _sums(sums, np.frombuffer(data, f"{order}u4", _FRAME_SUMMED // 4, at))
            sums = _sums(sums, np.frombuffer(data, f"{order}u4", page_bytes // 4, at + _FRAME.size))
            bad = None if sums == (first, second) else at
        elif is_committed:
            return f"its write-ahead log is damaged at byte {bad}, with commits behind it"
        if bad is not None and pages:
            is_committed = True
    return None


def _sums(before: Sums, words: Words) -> Sums:
    """Returns both sums after these words, from the sums before them.

    For each two words x and y: first += x + second; second += y + first, modulo 2^32. That is a linear map,
    so all pairs are taken at once, each multiplied by the power of the map for the pairs after it.
    """
    pairs = words.astype(np.uint32).reshape(-1, 2)
    count = len(pairs)
    powers = _powers(count)
    xs, both = pairs[:, 0], pairs[:, 0] + pairs[:, 1]
    later = powers[count - 1 :: -1] if count else powers[:0]
    sums = []
    for row in (0, 1):
        start = int(powers[count, row, 0]) * before[0] + int(powers[count, row, 1]) * before[1]
        rest = (later[:, row, 0] * xs + later[:, row, 1] * both).sum(dtype=np.uint32)
        sums.append((start + int(rest)) & 0xFFFF_FFFF)
    return sums[0], sums[1]


@cache
def _powers(count: int) -> NDArray[np.uint32]:
    """Returns the powers 0 to `count` of the map of one pair, modulo 2^32."""
    powers = np.zeros((count + 1, 2, 2), np.uint32)
    powers[0] = np.eye(2, dtype=np.uint32)
    step = np.array([[1, 1], [1, 2]], np.uint32)
    for at in range(count):
        powers[at + 1] = step @ powers[at]
    return powers
