"""Lists inside a message.

Items of fixed width stand side by side. Items of variable width are preceded by their number and the
end of each, so that any item is reached in constant time:

    count u32 | ends u32[count] | bytes

A list of lists is a list of variable items. A count that the bytes have no room for is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from struct import pack, unpack, unpack_from
from typing import Any

from tidemark.errors import DecodeError


def pack_list(items: Sequence[Any], letter: str | None, depth: int) -> bytes:
    """The bytes of stored values that are nested `depth` lists deep.

    `letter` is struct's letter for items of fixed width, None for items that are bytes.
    """
    if depth > 1:
        return _pack_variable([pack_list(item, letter, depth - 1) for item in items])
    if letter is None:
        return _pack_variable(items)
    if letter == "16s":
        return b"".join(items)
    return pack(f"<{len(items)}{letter}", *items)


def unpack_list(data: bytes, letter: str | None, width: int, depth: int) -> list[Any]:
    """The stored values that `pack_list` packed; DecodeError if `data` is no such list.

    `width` is the bytes of an item of fixed width; it is not used when `letter` is None.
    """
    if depth > 1:
        return [unpack_list(item, letter, width, depth - 1) for item in _unpack_variable(data)]
    if letter is None:
        return _unpack_variable(data)
    count, rest = divmod(len(data), width)
    if rest:
        raise DecodeError(f"a list of {len(data)} bytes does not hold whole items of {width}")
    if letter == "16s":
        return [data[at : at + 16] for at in range(0, len(data), 16)]
    return list(unpack(f"<{count}{letter}", data))


def _pack_variable(items: Sequence[bytes]) -> bytes:
    ends = accumulate(map(len, items))
    return pack(f"<{len(items) + 1}I", len(items), *ends) + b"".join(items)


def _unpack_variable(data: bytes) -> list[bytes]:
    if len(data) < 4:
        raise DecodeError("a list is shorter than its count")
    (count,) = unpack_from("<I", data)
    base = 4 + 4 * count
    if base > len(data):
        raise DecodeError(f"a list claims {count} items in {len(data)} bytes")
    ends = unpack_from(f"<{count}I", data, 4)
    if (ends[-1] if count else 0) != len(data) - base:
        raise DecodeError("the items of a list do not fill it")
    if any(a > b for a, b in pairwise(ends)):
        raise DecodeError("the items of a list overlap")
    return [data[base + a : base + b] for a, b in pairwise(chain((0,), ends))]
