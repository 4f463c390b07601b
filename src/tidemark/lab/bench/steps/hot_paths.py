"""HotPath: a way through a broker that is taken for every event, batch or delivery, again and again.

The broker and its store are in this process, on one thread, without sockets and without a sync. As a program,
`python -m tidemark.lab.bench.steps.hot_paths NAME TIMES take` takes a path a number of times and prints how
many units it served; with `prepare` it only prepares. `instructions.py` runs it on a simulated processor.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep

from tidemark.broker.effects import ClientFrameReceived, ClientGone, Effect, SendClient, Woken
from tidemark.lab.bench.system.fanout import KINDS
from tidemark.lab.bench.system.load import SCHEMA, TOPIC, Batches, Load, selector
from tidemark.lab.bench.system.steps import PUBEND, PUBLISHER, BrokerInProcess, broker_in_process
from tidemark.ticks import CheckpointToken
from tidemark.wire.codec import encode
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import Ack, Deliver, Publish, Subscribe, Topic
from tidemark.wire.limits import FRAME_BYTES_MAX

#: Bytes of credit that no subscriber uses up.
CREDIT_BYTES = 1 << 40
#: Times that a path is taken before it counts.
WARM_TIMES = 3
_FIRST_CLIENT = 2
_WAKES = 10
_WAKE_SECONDS = 0.05


class HotPath(ABC):
    """A path; `units` is what is counted by, such as events, and how many of them one time has."""

    def __init__(self, in_process: BrokerInProcess) -> None:
        self.in_process = in_process
        self._sequence = 0
        #: the newest tick that a subscriber was told of
        self._told = 0
        in_process.decoder.bytes_max = FRAME_BYTES_MAX
        in_process.pump(ClientFrameReceived(PUBLISHER, Topic(TOPIC, False, (SCHEMA.text,))))

    @abstractmethod
    def prepare(self) -> None:
        """Make what the next time needs and does not count, such as the bytes of a frame."""

    @abstractmethod
    def take(self) -> int:
        """Take the path once; returns how many units it served."""

    def subscribe(self, count: int) -> None:
        """Start durable subscribers, of one kind each, that are there."""
        for number in range(count):
            self.subscribed(number)
        for _ in range(_WAKES):
            sleep(_WAKE_SECONDS)
            self.in_process.pump(Woken())

    def subscribed(self, number: int) -> int:
        """A subscriber comes, for the first time or again; returns the events that it gets at once."""
        wanted = selector(number % KINDS)
        frame = Subscribe(f"s{number}", TOPIC, wanted, True, CREDIT_BYTES)
        return self._heard(self.in_process.pump(ClientFrameReceived(_FIRST_CLIENT + number, frame)))

    def published(self, batches: Batches) -> bytes:
        """Returns the bytes of the next Publish."""
        frame = Publish(PUBEND, "steps", self._sequence + 1, batches.batch(self._sequence))
        self._sequence += batches.events
        return b"".join(bytes(piece) for piece in encode(frame))

    def publish(self, raw: bytes) -> int:
        """Handle a Publish from its bytes to the bytes of all that it causes; returns the deliveries."""
        (frame,) = self.in_process.decoder.feed(raw)
        assert isinstance(frame, Publish)
        return self._heard(self.in_process.pump(ClientFrameReceived(PUBLISHER, frame)))

    def _heard(self, effects: list[Effect]) -> int:
        """Encode what is sent to clients; returns the events that are delivered."""
        events = 0
        for effect in effects:
            assert isinstance(effect, SendClient)
            encode(effect.frame)
            if type(effect.frame) is Deliver:
                self._told = max(self._told, effect.frame.upto)
                events += 0 if effect.frame.batch is None else effect.frame.batch.count
        return events


class Publishing(HotPath):
    """A publisher's events, which nobody wants now: one durable subscriber is away."""

    events = 1

    def __init__(self, in_process: BrokerInProcess) -> None:
        super().__init__(in_process)
        self._batches = Batches(Load(KINDS), self.events)
        self.subscribe(1)
        in_process.pump(ClientGone(_FIRST_CLIENT))
        self._raw = b""

    def prepare(self) -> None:
        self._raw = self.published(self._batches)

    def take(self) -> int:
        self.publish(self._raw)
        return self.events


class PublishingBatches(Publishing):
    """The same in batches of 100."""

    events = 100


class PublishingTogether(PublishingBatches):
    """The same in ten batches of 100 that arrive in one read, of which a node makes one."""

    frames = 10

    def __init__(self, in_process: BrokerInProcess) -> None:
        super().__init__(in_process)
        in_process.decoder = FrameDecoder(FRAME_BYTES_MAX, joins=True)

    def prepare(self) -> None:
        self._raw = b"".join(self.published(self._batches) for _ in range(self.frames))

    def take(self) -> int:
        return self.frames * super().take()


class FanningOut(HotPath):
    """A batch of 100 to 100 subscribers, a quarter each; the units are deliveries."""

    events = 100
    subscribers = 100

    def __init__(self, in_process: BrokerInProcess) -> None:
        super().__init__(in_process)
        self._batches = Batches(Load(KINDS), self.events)
        self.subscribe(self.subscribers)
        self._raw = b""

    def prepare(self) -> None:
        self._raw = self.published(self._batches)

    def take(self) -> int:
        return self.publish(self._raw)


class Delivering(FanningOut):
    """One event to 4 subscribers, of which one wants it."""

    events = 1
    subscribers = 4


class Returning(HotPath):
    """Eight subscribers, a quarter each, return after 2,000 events; the units are deliveries."""

    subscribers = 8
    missed = 2_000

    def __init__(self, in_process: BrokerInProcess) -> None:
        super().__init__(in_process)
        self._batches = Batches(Load(KINDS), 100)
        self.subscribe(self.subscribers)

    def prepare(self) -> None:
        """All leave, having acknowledged everything, and miss some events."""
        for number in range(self.subscribers):
            if self._told:
                ack = Ack(((f"s{number}", CheckpointToken({PUBEND: self._told})),))
                self.in_process.pump(ClientFrameReceived(_FIRST_CLIENT + number, ack))
            self.in_process.pump(ClientGone(_FIRST_CLIENT + number))
        for _ in range(self.missed // self._batches.events):
            self.publish(self.published(self._batches))

    def take(self) -> int:
        events = sum(self.subscribed(number) for number in range(self.subscribers))
        assert events == self.subscribers * self.missed // KINDS, f"{events} came back"
        return events


PATHS: dict[str, tuple[type[HotPath], str]] = {
    "publish one event": (Publishing, "event"),
    "publish a batch of 100": (PublishingBatches, "event"),
    "publish ten batches of 100": (PublishingTogether, "event"),
    "deliver one event": (Delivering, "delivery"),
    "fan a batch of 100 out": (FanningOut, "delivery"),
    "return with a selector": (Returning, "delivery"),
}


@contextmanager
def opened(name: str) -> Iterator[HotPath]:
    """A path in a broker of its own, warm."""
    with broker_in_process() as in_process:
        path = PATHS[name][0](in_process)
        for _ in range(WARM_TIMES):
            path.prepare()
            path.take()
        yield path


def main(name: str, times: int, *, takes: bool) -> int:
    """Take a path, or only prepare it; returns the units that it served."""
    units = 0
    with opened(name) as path:
        for _ in range(times):
            path.prepare()
            units += path.take() if takes else 0
    return units


if __name__ == "__main__":
    print(main(sys.argv[1], int(sys.argv[2]), takes=sys.argv[3] == "take"))
