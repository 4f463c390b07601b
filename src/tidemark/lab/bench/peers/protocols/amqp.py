"""AMQP 0-9-1 with publisher confirms: a durable classic queue for each subscriber, bound by the kind."""

from __future__ import annotations

from struct import Struct, pack

from tidemark.lab.bench.peers.bare_peer import BarePublisher, BareReader, Handshake
from tidemark.lab.bench.peers.peer_events import EVENT_BYTES, EventRows, Heads
from tidemark.lab.bench.system.load import Load

EXCHANGE = b"bench"
#: Events that a consumer may have got and not acknowledged.
PREFETCH_EVENTS = 5_000
_METHOD, _HEADER, _BODY, _END = 1, 2, 3, b"\xce"
_FRAME = Struct(">BHI")
_FRAME_BYTES_MAX = 131_072
_PERSISTENT = 2
#: Class and method of each thing that is said.
START_OK, TUNE_OK, OPEN = (10, 11), (10, 31), (10, 40)
CHANNEL_OPEN, EXCHANGE_DECLARE, QUEUE_DECLARE, QUEUE_BIND = (20, 10), (40, 10), (50, 10), (50, 20)
QOS, CONSUME, PUBLISH, ACK, CONFIRM_SELECT = (60, 10), (60, 20), (60, 40), (60, 80), (85, 10)
_NO_TABLE = bytes(4)
_ACK_FRAME = Struct(">BHIHHQBB")


def short(content: bytes) -> bytes:
    """Returns a short string: one byte of length."""
    return bytes((len(content),)) + content


def frame(kind: int, channel: int, content: bytes) -> bytes:
    """Returns a frame."""
    return _FRAME.pack(kind, channel, len(content)) + content + _END


def method(name: tuple[int, int], content: bytes = b"", channel: int = 1) -> bytes:
    """Returns a frame that calls a method."""
    return frame(_METHOD, channel, pack(">HH", *name) + content)


def published(exchange: bytes, key: bytes, payload: bytes) -> bytes:
    """Returns the three frames of a persistent message."""
    header = pack(">HHQHB", 60, 0, len(payload), 0x1000, _PERSISTENT)
    return (
        method(PUBLISH, bytes(2) + short(exchange) + short(key) + b"\x00")
        + frame(_HEADER, 1, header)
        + frame(_BODY, 1, payload)
    )


def call(handshake: Handshake, said: bytes, answer: tuple[int, int]) -> bytes:
    """Say something and wait for its answer; returns the arguments of the answer."""
    handshake.say(said)
    kind, _, size = _FRAME.unpack(handshake.exactly(_FRAME.size))
    content = handshake.exactly(size + 1)[:-1]
    expected = pack(">HH", *answer)
    assert kind == _METHOD, content
    assert content[:4] == expected, f"{content!r} in place of {answer}"
    return content[4:]


def connected(handshake: Handshake) -> None:
    """Introduce a client as guest, without heartbeats, and open channel 1."""
    call(handshake, b"AMQP\x00\x00\x09\x01", (10, 10))
    login = b"\x00guest\x00guest"
    start = _NO_TABLE + short(b"PLAIN") + pack(">I", len(login)) + login + short(b"en_US")
    call(handshake, method(START_OK, start, 0), (10, 30))
    handshake.say(method(TUNE_OK, pack(">HIH", 16, _FRAME_BYTES_MAX, 0), 0))
    call(handshake, method(OPEN, short(b"/") + b"\x00\x00", 0), (10, 41))
    call(handshake, method(CHANNEL_OPEN, b"\x00"), (20, 11))


def declare_exchange(port: int) -> None:
    """Declare the durable direct exchange."""
    handshake = Handshake(port)
    connected(handshake)
    wanted = bytes(2) + short(EXCHANGE) + short(b"direct") + b"\x02" + _NO_TABLE
    call(handshake, method(EXCHANGE_DECLARE, wanted), (40, 11))
    handshake.socket.close()


class Confirms:
    """Counts the messages that are confirmed, one by one in any order, or all up to a number."""

    def __init__(self) -> None:
        #: everything up to here is confirmed, and those beyond that are
        self._upto = 0
        self._beyond: set[int] = set()

    @property
    def count(self) -> int:
        """Messages that are confirmed."""
        return self._upto + len(self._beyond)

    def confirm(self, tag: int, *, is_multiple: bool) -> None:
        """Message `tag` is confirmed, or all messages up to it."""
        if is_multiple:
            self._upto = max(self._upto, tag)
            self._beyond = {each for each in self._beyond if each > self._upto}
        elif tag > self._upto:
            self._beyond.add(tag)
        while self._upto + 1 in self._beyond:
            self._upto += 1
            self._beyond.remove(self._upto)


class AmqpPublisher(BarePublisher):
    """Publishes persistent messages on a channel with confirms."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        whole = published(EXCHANGE, b"bench.0", bytes(EVENT_BYTES))
        self._rows = EventRows(load, whole[: -EVENT_BYTES - len(_END)], _END)
        self._confirms = Confirms()

    def greet(self, handshake: Handshake) -> None:
        connected(handshake)
        call(handshake, method(CONFIRM_SELECT, b"\x00"), (85, 11))

    def batch(self, first: int, count: int, sent: int) -> bytes:
        return self._rows.rows(first, count, sent)

    def answers(self, data: bytes) -> int:
        data = self.rest + data
        before, at = self._confirms.count, 0
        while len(data) - at >= _ACK_FRAME.size:
            _, _, _, *name, tag, is_multiple, _ = _ACK_FRAME.unpack_from(data, at)
            assert tuple(name) == ACK, data[at : at + 200]
            self._confirms.confirm(tag, is_multiple=bool(is_multiple))
            at += _ACK_FRAME.size
        self.rest = data[at:]
        return self._confirms.count - before


class AmqpReader(BareReader):
    """Consumes a durable queue of its own, and acknowledges everything up to the newest event it has."""

    _known = False
    #: events of this connection; the newest has this delivery tag
    _tag = 0

    def greet(self, handshake: Handshake) -> None:
        connected(handshake)
        queue = short(self.record.name.encode())
        if not self._known:
            call(handshake, method(QUEUE_DECLARE, bytes(2) + queue + b"\x02" + _NO_TABLE), (50, 11))
            bound = bytes(2) + queue + short(EXCHANGE) + short(b"bench.%d" % self.kind) + b"\x00" + _NO_TABLE
            call(handshake, method(QUEUE_BIND, bound), (50, 21))
            self._known = True
        call(handshake, method(QOS, pack(">IHB", 0, PREFETCH_EVENTS, 0)), (60, 11))
        self._tag = 0

    def subscribe(self) -> None:
        queue = short(self.record.name.encode())
        self.say(method(CONSUME, bytes(2) + queue + short(b"one") + b"\x00" + _NO_TABLE))

    def heard(self, data: bytes, last: int, heads: Heads) -> None:  # noqa: ARG002  (what others need)
        if len(heads):
            self._tag += len(heads)
            self.say(method(ACK, pack(">QB", self._tag, 1)))
