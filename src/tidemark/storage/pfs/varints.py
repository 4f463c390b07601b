"""Varints: unsigned numbers in as few bytes as they need, seven bits a byte, the lowest first (LEB128).

`pack` and `unpack` take whole arrays, `put` and `take` one number. A number has at most 64 bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidemark.errors import DecodeError
from tidemark.message.batches.batch import Buffer

Numbers = NDArray[np.uint64]

_MORE = 0x80
_BYTES_MAX = 10


def pack(values: Numbers) -> bytes:
    """values[i] -> their bytes, one after the other."""
    sizes = np.ones(len(values), np.int64)
    for place in range(1, _BYTES_MAX):
        longer = values >= np.uint64(1 << 7 * place)
        if not longer.any():
            break
        sizes += longer
    if len(values) == 0 or sizes.max() == 1:
        return values.astype(np.uint8).tobytes()
    starts = sizes.cumsum() - sizes
    out = np.empty(int(sizes.sum()), np.uint8)
    for place in range(int(sizes.max())):
        rows = np.flatnonzero(sizes > place)
        bits = (values[rows] >> np.uint64(7 * place)).astype(np.uint8) & np.uint8(_MORE - 1)
        out[starts[rows] + place] = bits | np.where(sizes[rows] > place + 1, np.uint8(_MORE), np.uint8(0))
    return out.tobytes()


def unpack(data: Buffer) -> Numbers:
    """Returns all the numbers in `data`. Raises DecodeError if the last one is cut off or one is too long."""
    octets = np.frombuffer(data, np.uint8)
    final = octets < _MORE
    if final.all():
        return octets.astype(np.uint64)
    if not final[-1]:
        raise DecodeError("the last number is cut off")
    ends = np.flatnonzero(final) + 1
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    sizes = ends - starts
    if sizes.max() > _BYTES_MAX:
        raise DecodeError("a number has more than 64 bits")
    bits = octets & np.uint8(_MORE - 1)
    numbers = bits[starts].astype(np.uint64)
    for place in range(1, int(sizes.max())):  # most numbers have one byte
        rows = np.flatnonzero(sizes > place)
        numbers[rows] |= bits[starts[rows] + place].astype(np.uint64) << np.uint64(7 * place)
    return numbers


def put(out: bytearray, value: int) -> None:
    """Append one number to `out`."""
    assert 0 <= value < 1 << 64
    while value >= _MORE:
        out.append(value & (_MORE - 1) | _MORE)
        value >>= 7
    out.append(value)


def take(data: Buffer, at: int) -> tuple[int, int]:
    """Returns the number at `at`, and where it ends. Raises DecodeError if it is cut off or too long."""
    value = shift = 0
    while at < len(data) and shift < 7 * _BYTES_MAX:
        octet = data[at]
        at += 1
        value |= (octet & (_MORE - 1)) << shift
        if octet < _MORE:
            return value, at
        shift += 7
    raise DecodeError("a number is cut off, or has more than 64 bits")
