"""Tidemark's own protocol in the same form: one topic, a selector for each kind, batches that are ready."""

from __future__ import annotations

from struct import Struct
from time import monotonic_ns

import numpy as np
from numpy.typing import NDArray

from tidemark.lab.bench.peers.bare_peer import BarePublisher, Handshake
from tidemark.lab.bench.processes.bare_subscriber import BareSubscriber
from tidemark.lab.bench.system.load import (
    SCHEMA,
    TOPIC,
    Batches,
    Load,
    kinds_in,
    numbers_of,
    sent_in,
)
from tidemark.message.batches.batch import EventBatch
from tidemark.wire.codec import encode
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import Connect, Deliver, Frame, Ping, Pong, Publish, Published, Topic, Welcome
from tidemark.wire.layouts import HEADER_BYTES

PUBLISHER = "bench publisher"
#: What the payload of a Publish begins with.
_SEQUENCE = Struct("<q")


def frame_bytes(frame: Frame) -> bytes:
    """Returns the bytes of a frame."""
    return b"".join(encode(frame))


class _ReadyFrame:
    """The bytes of a Publish, in which only the numbers change from one to the next."""

    def __init__(self, pubend: str, batch: EventBatch) -> None:
        head, _ = encode(Publish(pubend, PUBLISHER, 1, batch))
        self._data = bytearray(b"".join((head, batch.data)))
        self._events = np.arange(batch.count)
        inside = EventBatch(memoryview(self._data)[len(head) :], batch.shapes, batch.publishers)
        self._numbers, self._kinds, self._sent = numbers_of(inside), kinds_in(inside), sent_in(inside)

    def numbered(self, first: int, kinds: NDArray[np.int32], sent: int) -> bytes:
        """Returns the bytes that publish the events from number `first` on, which are of these kinds."""
        _SEQUENCE.pack_into(self._data, HEADER_BYTES, first + 1)
        np.add(self._events, first, out=self._numbers)
        self._kinds[:] = kinds
        self._sent[:] = sent
        return bytes(self._data)


class TidemarkPublisher(BarePublisher):
    """Publishes a batch as one frame."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        #: number of events -> the frame of so many
        self._frames: dict[int, _ReadyFrame] = {}
        self._decoder = FrameDecoder()
        self._pubend = ""

    def greet(self, handshake: Handshake) -> None:
        handshake.say(frame_bytes(Connect(PUBLISHER)))
        welcome = self._next(handshake)
        assert isinstance(welcome, Welcome), welcome
        self._pubend = welcome.pubends[0]
        handshake.say(frame_bytes(Topic(TOPIC, False, (SCHEMA.text,))))
        topic = self._next(handshake)
        assert isinstance(topic, Topic), topic

    def _next(self, handshake: Handshake) -> Frame:
        frames: list[Frame] = []
        while not frames:
            frames = self._decoder.feed(handshake.some())
        assert len(frames) == 1, frames
        return frames[0]

    def batch(self, first: int, count: int, sent: int) -> bytes:
        frame = self._frames.get(count)
        if frame is None:
            frame = self._frames[count] = _ReadyFrame(self._pubend, Batches(self.load, count).batch(0))
        return frame.numbered(first, self.load.kinds_between(first, first + count), sent)

    def answers(self, data: bytes) -> int:
        upto = self.acknowledged
        for frame in self._decoder.feed(data):
            match frame:
                case Published(sequence=sequence):
                    upto = sequence
                case Ping(stamp):
                    self.say(frame_bytes(Pong(stamp)))
                case _:
                    raise AssertionError(f"the publisher heard {frame}")
        return upto - self.acknowledged


class TidemarkReader(BareSubscriber):
    """The lean subscriber of the other benchmarks, which also notes how long events took."""

    #: nanoseconds from sending to arrival of each event, while they are wanted
    latencies: list[int] | None = None

    def _take(self, frame: Deliver) -> None:
        super()._take(frame)
        if self.latencies is not None and frame.batch is not None:
            self.latencies += (monotonic_ns() - sent_in(frame.batch)).tolist()
