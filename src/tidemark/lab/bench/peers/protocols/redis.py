"""Redis streams over RESP: XADD, and XREAD or XREADGROUP with XACK. There is a stream for each kind."""

from __future__ import annotations

import re

from tidemark.lab.bench.peers.bare_peer import BarePublisher, BareReader, Handshake
from tidemark.lab.bench.peers.peer_events import EVENT_BYTES, MARK, EventRows, Heads
from tidemark.lab.bench.system.load import Load

FIELD = b"e"
#: Entries that one answer has at most.
READ_EVENTS_MAX = 2_000
#: The head of an answer to XREAD; its group is the number of entries.
_ANSWER = re.compile(rb"\*1\r\n\*2\r\n\$\d+\r\nbench\.\d\r\n\*(\d+)\r\n")
#: What stands between the id of an entry and its event.
_BETWEEN = b"\r\n*2\r\n$1\r\n%b\r\n$%d\r\n" % (FIELD, EVENT_BYTES)
_ID = re.compile(rb"(\d+-\d+)" + re.escape(_BETWEEN + MARK))


def command(*words: bytes) -> bytes:
    """Returns a command as RESP has it: an array of strings."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def stream_of(kind: int) -> bytes:
    """Returns the key of the stream that has the events of a kind."""
    return b"bench.%d" % kind


class RedisPublisher(BarePublisher):
    """Publishes a batch in one transaction, so that a reader that waits is woken once a batch."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        add = command(b"XADD", stream_of(0), b"*", FIELD, bytes(EVENT_BYTES))
        before = add[: -EVENT_BYTES - 2]
        self._rows = EventRows(load, before, b"\r\n")

    def batch(self, first: int, count: int, sent: int) -> bytes:
        rows = self._rows.rows(first, count, sent)
        return rows if count == 1 else command(b"MULTI") + rows + command(b"EXEC")

    def answers(self, data: bytes) -> int:
        assert b"-ERR" not in data, data[:200]
        return data.count(b"$")


class XreadReader(BareReader):
    """Reads with XREAD and keeps its place itself."""

    _missing = 0
    _place = b"0-0"

    def subscribe(self) -> None:
        self._missing = 0
        self._ask()

    def _ask(self) -> None:
        self.say(
            command(
                b"XREAD", b"COUNT", b"%d" % READ_EVENTS_MAX, b"BLOCK", b"0", b"STREAMS",
                stream_of(self.kind), self._place,
            )
        )  # fmt: skip

    def heard(self, data: bytes, last: int, heads: Heads) -> None:
        if not self._missing:
            answer = _ANSWER.search(data)
            if answer is None:
                return
            self._missing, self.control_end = int(answer[1]), answer.end()
            self.answered(self._missing)
        self._missing -= len(heads)
        if len(heads):
            self.consumed(data, last)
        if not self._missing:
            self._ask()

    def answered(self, entries: int) -> None:
        """An answer with this many entries has begun."""

    def consumed(self, data: bytes, last: int) -> None:
        """Note the place after the events of `data`, of which the last begins at `last`."""
        end = last - len(_BETWEEN)
        self._place = data[data.rindex(b"\n", 0, end) + 1 : end]


class GroupReader(XreadReader):
    """Reads with XREADGROUP in a group of its own, which keeps its place, and acknowledges each event.

    Whoever comes back asks first for what was sent to a connection that was gone.
    """

    _known = False
    _is_behind = False

    def subscribe(self) -> None:
        self._is_behind = self._known
        super().subscribe()

    def greet(self, handshake: Handshake) -> None:
        if not self._known:
            name = self.record.name.encode()
            handshake.say(command(b"XGROUP", b"CREATE", stream_of(self.kind), name, b"0", b"MKSTREAM"))
            assert handshake.until(b"\r\n") == b"+OK\r\n"
            self._known = True

    def _ask(self) -> None:
        self.say(
            command(
                b"XREADGROUP", b"GROUP", self.record.name.encode(), b"one",
                b"COUNT", b"%d" % READ_EVENTS_MAX, b"BLOCK", b"0", b"STREAMS", stream_of(self.kind),
                b"0" if self._is_behind else b">",
            )
        )  # fmt: skip

    def answered(self, entries: int) -> None:
        if not entries:
            self._is_behind = False

    def consumed(self, data: bytes, last: int) -> None:
        ids = _ID.findall(data, 0, last + len(MARK))
        self.say(command(b"XACK", stream_of(self.kind), self.record.name.encode(), *ids))
