"""The events that peers carry, and how they are found in what a server sends.

An event has 250 bytes as in `system.load`: a mark in place of a format, its number, the time at which it was
sent, its kind, and a payload. The mark occurs nowhere else, so a subscriber finds the events in the bytes of
any protocol with one regular expression, and does no work in Python for each of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.lab.bench.system.load import MESSAGE_BYTES, PAYLOAD, Load

MARK = bytes.fromhex("f1e7d3c5b9a6958b")
#: What follows the mark.
HEAD = np.dtype([("n", "<i8"), ("sent", "<i8"), ("kind", "<i4")])
_REST = PAYLOAD[: MESSAGE_BYTES - len(MARK) - HEAD.itemsize]
EVENT_BYTES = MESSAGE_BYTES
EVENT = MARK + bytes(HEAD.itemsize) + _REST
#: A regular expression for a whole event; its group is the head.
WHOLE_EVENT = re.escape(MARK) + b"(.{%d})" % HEAD.itemsize + b".{%d}" % len(_REST)
_WHOLE = re.compile(WHOLE_EVENT, re.DOTALL)
#: Where a row names the kind of its event, by a topic such as `bench.0` or a header: its last byte.
_NAMED_KIND = re.compile(rb"bench[./]0|kind:0")
#: Packet identifiers of MQTT are 1 to this number.
PACKETS = 65_535

Heads = NDArray[Any]


def heads_of(found: Sequence[bytes]) -> Heads:
    """Returns the heads of events, as an array of HEAD, from their bytes."""
    return np.frombuffer(b"".join(found), HEAD)


def find_events(data: bytes) -> tuple[Heads, int]:
    """Returns the heads of all whole events in `data`, and where the last of them begins, or -1."""
    heads = heads_of(_WHOLE.findall(data))
    if not len(heads):
        return heads, -1
    last = data.rfind(MARK)
    if last + EVENT_BYTES > len(data):
        last = data.rfind(MARK, 0, last)
    return heads, last


class EventRows:
    """Makes what a publisher sends for consecutive events: one row of bytes each, all of one size."""

    def __init__(self, load: Load, before: bytes, after: bytes = b"", packet_at: int = -1) -> None:
        """`before` and `after` are the bytes around an event of kind 0, as the protocol has them.

        With `packet_at` each row has 1 + n % 65535 there, in two bytes, as the packet identifiers of MQTT.
        """
        self._load = load
        self._row = np.frombuffer(before + EVENT + after, np.uint8)
        self._head = len(before) + len(MARK)
        self._digits = [found.end() - 1 for found in _NAMED_KIND.finditer(before)]
        self._packet = packet_at

    def rows(self, first: int, count: int, sent: int = 0) -> bytes:
        """Returns the bytes of the events `first <= n < first + count`."""
        numbers = np.arange(first, first + count, dtype=np.int64)
        return self.rows_of(numbers, self._load.kinds_of(numbers), sent)

    def rows_of(self, numbers: NDArray[np.int64], kinds: NDArray[np.int32], sent: int = 0) -> bytes:
        """Returns the bytes of the events numbers[event], kinds[event]."""
        count = len(numbers)
        rows = np.tile(self._row, (count, 1))
        heads = np.empty(count, HEAD)
        heads["n"], heads["sent"], heads["kind"] = numbers, sent, kinds
        rows[:, self._head : self._head + HEAD.itemsize] = heads.view(np.uint8).reshape(count, -1)
        for at in self._digits:
            rows[:, at] = kinds + ord("0")
        if self._packet >= 0:
            packets = (1 + numbers % PACKETS).astype(">u2")
            rows[:, self._packet : self._packet + 2] = packets.view(np.uint8).reshape(count, 2)
        return rows.tobytes()
