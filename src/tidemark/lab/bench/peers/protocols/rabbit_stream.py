"""The stream protocol of RabbitMQ: a stream for each kind, read in chunks from an offset."""

from __future__ import annotations

from struct import Struct, pack, unpack_from

import numpy as np

from tidemark.lab.bench.peers.bare_peer import BarePublisher, BareReader, Handshake
from tidemark.lab.bench.peers.peer_events import EVENT_BYTES, EventRows, Heads, find_events
from tidemark.lab.bench.system.load import Load

DECLARE_PUBLISHER, PUBLISH, CONFIRM, SUBSCRIBE, DELIVER, CREDIT = 1, 2, 3, 7, 8, 9
CREATE, PROPERTIES, SASL, AUTHENTICATE, TUNE, OPEN = 13, 17, 18, 19, 20, 21
_ANSWER_BIT, _OK, _EXISTS = 0x8000, 1, 5
#: Chunks that a reader can take before it grants more.
CREDIT_CHUNKS = 10
_FROM_OFFSET = 4
_CORRELATION = 7
#: Where a Deliver has the offset of the first event of its chunk: after the key, the version, the id of the
#: subscription, and the magic byte, type, entries, records, time and epoch of the chunk.
_FIRST_OFFSET = 2 + 2 + 1 + 1 + 1 + 2 + 4 + 8 + 8
_CONFIRMED = Struct(">HHBI")


def text(content: bytes) -> bytes:
    """Returns a string with its length before it."""
    return pack(">H", len(content)) + content


def frame(key: int, content: bytes) -> bytes:
    """Returns a frame of version 1."""
    return pack(">IHH", len(content) + 4, key, 1) + content


def request(key: int, content: bytes) -> bytes:
    """Returns a frame that is answered."""
    return frame(key, pack(">I", _CORRELATION) + content)


def call(handshake: Handshake, key: int, content: bytes, *, fine: tuple[int, ...] = (_OK,)) -> None:
    """Ask something; AssertionError unless the answer is one of `fine`."""
    handshake.say(request(key, content))
    answer = handshake.exactly(unpack_from(">I", handshake.exactly(4))[0])
    found, _, _, code = unpack_from(">HHIH", answer)
    assert found == key | _ANSWER_BIT, f"{answer!r} is not the answer to {key}"
    assert code in fine, f"command {key} was answered with {code}"


def connected(handshake: Handshake) -> None:
    """Introduce a client as guest, without heartbeats."""
    call(handshake, PROPERTIES, bytes(4))
    call(handshake, SASL, b"")
    login = b"\x00guest\x00guest"
    call(handshake, AUTHENTICATE, text(b"PLAIN") + pack(">I", len(login)) + login)
    tune = handshake.exactly(unpack_from(">I", handshake.exactly(4))[0])
    key, _, frame_bytes_max, _ = unpack_from(">HHII", tune)
    assert key == TUNE, tune
    handshake.say(frame(TUNE, pack(">II", frame_bytes_max, 0)))
    call(handshake, OPEN, text(b"/"))


def stream_of(kind: int) -> bytes:
    """Returns the name of the stream that has the events of a kind."""
    return b"bench.%d" % kind


def create_streams(port: int, kinds: int) -> None:
    """Create the streams."""
    handshake = Handshake(port)
    connected(handshake)
    for kind in range(kinds):
        call(handshake, CREATE, text(stream_of(kind)) + bytes(4), fine=(_OK, _EXISTS))
    handshake.socket.close()


def whole_frames(data: bytes) -> tuple[list[bytes], bytes]:
    """Returns the frames in `data` without their lengths, and the bytes after the last whole one."""
    frames, at = [], 0
    while len(data) - at >= 4:
        (size,) = unpack_from(">I", data, at)
        if len(data) - at - 4 < size:
            break
        frames.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return frames, data[at:]


class StreamPublisher(BarePublisher):
    """Publishes a batch as one frame for each stream."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        # The number of a message means something only to publishers with a name.
        self._rows = EventRows(load, pack(">QI", 0, EVENT_BYTES))

    def greet(self, handshake: Handshake) -> None:
        connected(handshake)
        for kind in range(self.load.kinds):
            call(handshake, DECLARE_PUBLISHER, bytes((kind,)) + text(b"") + text(stream_of(kind)))

    def batch(self, first: int, count: int, sent: int) -> bytes:
        numbers = np.arange(first, first + count, dtype=np.int64)
        kinds = self.load.kinds_of(numbers)
        frames = []
        for kind in np.unique(kinds).tolist():
            wanted = kinds == kind
            rows = self._rows.rows_of(numbers[wanted], kinds[wanted], sent)
            frames.append(frame(PUBLISH, pack(">BI", kind, int(wanted.sum())) + rows))
        return b"".join(frames)

    def answers(self, data: bytes) -> int:
        frames, self.rest = whole_frames(self.rest + data)
        count = 0
        for each in frames:
            key, _, _, confirmed = _CONFIRMED.unpack_from(each)
            assert key == CONFIRM, each[:200]
            count += confirmed
        return count


class StreamReader(BareReader):
    """Reads chunks of a stream from an offset on, which it keeps itself."""

    #: The offset of the next event: the number of events that the reader has had.
    _place = 0

    def greet(self, handshake: Handshake) -> None:
        connected(handshake)

    def subscribe(self) -> None:
        place = pack(">HQH", _FROM_OFFSET, self._place, CREDIT_CHUNKS)
        self.say(request(SUBSCRIBE, b"\x01" + text(stream_of(self.kind)) + place))

    def data_received(self, data: bytes) -> None:
        """Take the events of whole chunks: a chunk may begin before the offset that was asked for."""
        frames, self.rest = whole_frames(self.rest + data)
        for each in frames:
            (key,) = unpack_from(">H", each)
            if key == DELIVER:
                self._chunk(each)
                self.say(frame(CREDIT, pack(">BH", 1, 1)))
            elif key == SUBSCRIBE | _ANSWER_BIT:
                assert unpack_from(">HHIH", each)[3] == _OK, each

    def _chunk(self, chunk: bytes) -> None:
        (first,) = unpack_from(">Q", chunk, _FIRST_OFFSET)
        heads, last = find_events(chunk)
        new = heads[max(0, self._place - first) :]
        if len(new):
            self._place += len(new)
            self.heard(chunk, last, new)

    def heard(self, data: bytes, last: int, heads: Heads) -> None:  # noqa: ARG002  (what others need)
        self.took(heads)
