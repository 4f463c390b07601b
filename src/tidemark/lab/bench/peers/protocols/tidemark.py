"""Tidemark's own protocol in the same form: one topic, a selector for each kind, batches that are ready."""

from __future__ import annotations

from functools import cache
from time import monotonic_ns

from tidemark.lab.bench.peers.bare_peer import BarePublisher, Handshake
from tidemark.lab.bench.processes.bare_subscriber import BareSubscriber
from tidemark.lab.bench.system.load import SCHEMA, TOPIC, Batches, Load, sent_in
from tidemark.message.batches.batch import EventBatch
from tidemark.wire.codec import encode
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import Connect, Deliver, Frame, Ping, Pong, Publish, Published, Topic, Welcome

PUBLISHER = "bench publisher"


def frame_bytes(frame: Frame) -> bytes:
    """Returns the bytes of a frame."""
    return b"".join(encode(frame))


class TidemarkPublisher(BarePublisher):
    """Publishes a batch as one frame."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        self._batches = cache(lambda count: Batches(load, count))
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
        batch: EventBatch = self._batches(count).batch(first)
        sent_in(batch)[:] = sent
        return frame_bytes(Publish(self._pubend, PUBLISHER, first + 1, batch))

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
