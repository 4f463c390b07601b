"""Steps: what one event costs in a broker, step by step, without sockets, threads or a sync.

The broker and its store run in this process, on one thread. Each step is timed by itself, for events back to
back, and for events some time apart, when other programs have used the processor's caches.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic_ns, perf_counter_ns, sleep, time_ns

from tidemark.access.document import AccessDocument
from tidemark.broker.broker import Broker
from tidemark.broker.effects import (
    ClientFrameReceived,
    Effect,
    SendClient,
    SendPeer,
    Stimulus,
    SyncLog,
    Woken,
)
from tidemark.lab.bench.report import Measurement, Section
from tidemark.lab.bench.system.load import SCHEMA, TOPIC, Batches, Load
from tidemark.message.registry import Registry
from tidemark.node.config.loading import load
from tidemark.node.disk.data_directory import DataDirectory
from tidemark.node.node import broker_config, open_store
from tidemark.node.server import hosted
from tidemark.persistence.store import Store
from tidemark.wire.codec import encode
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import Publish, Subscribe, Topic

PUBEND = "main"
PUBLISHER, SUBSCRIBER = 1, 2
APART_SECONDS = 0.005
#: Events before the ones that count.
WARM = 200
#: More rounds of stimuli than the broker and its disk need to answer each other.
ROUNDS_MAX = 50
STARTS = 10
#: step -> whether the answer to the publisher waits for it
STEPS = {
    "read and decode": True,
    "handle the publish": True,
    "append to the log": True,
    "write to the file": True,
    "handle the sync, answer": True,
    "match, deliver, PFS": False,
}


@dataclass
class BrokerInProcess:
    """A broker with its store in this process, and the nanoseconds of its steps."""

    broker: Broker
    store: Store
    taken: dict[str, list[int]] = field(default_factory=lambda: {step: [] for step in STEPS})
    decoder: FrameDecoder = field(default_factory=FrameDecoder)

    def pump(self, *stimuli: Stimulus) -> list[Effect]:
        """Handle stimuli, what the disk reports of them, and all deliveries; return the frames to clients."""
        said: list[Effect] = []
        waiting = list(stimuli)
        for _ in range(ROUNDS_MAX):
            if waiting:
                effects = [each for stimulus in waiting for each in self.broker.handle(stimulus, *_times())]
            elif self.broker.is_behind:
                effects = self.broker.deliver(*_times())
            else:
                break
            waiting = self.carry_out(effects)
            said += [each for each in effects if isinstance(each, SendClient)]
        return said

    def carry_out(self, effects: list[Effect]) -> list[Stimulus]:
        """Carry out the effects for the disk; returns what the disk reports."""
        reports = [
            self.store.carry_out(each) for each in effects if not isinstance(each, (SendClient, SendPeer))
        ]
        return [each for each in reports if each is not None]

    def publish(self, raw: bytes) -> None:
        """Handle one event from the bytes of its Publish frame to the bytes of the frames it causes."""
        clock, times = perf_counter_ns, [perf_counter_ns()]
        (frame,) = self.decoder.feed(memoryview(raw))
        times.append(clock())
        assert isinstance(frame, Publish)
        effects = self.broker.handle(ClientFrameReceived(PUBLISHER, frame), *_times())
        times.append(clock())
        for each in effects[:-1]:
            self.store.carry_out(each)
        times.append(clock())
        assert isinstance(effects[-1], SyncLog)
        synced = self.store.carry_out(effects[-1])
        times.append(clock())
        assert synced is not None
        answers = self.broker.hear(synced, *_times())
        said = [encode(each.frame) for each in answers if isinstance(each, SendClient)]
        times.append(clock())
        rest = self.broker.settle()
        said += [encode(each.frame) for each in rest if isinstance(each, SendClient)]
        times.append(clock())
        assert len(said) == 2, "the publisher has its answer, the subscriber its event"
        for step, began, ended in zip(STEPS, times[:-1], times[1:], strict=True):
            self.taken[step].append(ended - began)
        self.pump(*self.carry_out([*answers, *rest]))


def step_sections(events: int) -> Iterator[Section]:
    """Yields a section for events back to back and one for events apart."""
    for case, apart in (("back to back", 0.0), (f"{APART_SECONDS * 1e3:g} ms apart", APART_SECONDS)):
        taken = _measured(events, apart)
        medians = {step: median(found[WARM:]) / 1e3 for step, found in taken.items()}
        until = sum(value for step, value in medians.items() if STEPS[step])
        rows = [*medians.items(), ("up to the answer", until), ("all", sum(medians.values()))]
        yield Section(
            "one event in the broker, one thread, no sockets and no sync",
            [Measurement(case, step, value, "µs") for step, value in rows],
            notes=("p50 of each step; a publisher's answer waits for all but the last",),
        )


def _measured(events: int, apart: float) -> dict[str, list[int]]:
    with broker_in_process() as in_process:
        _set_up(in_process)
        frames = _frames(events + WARM)
        gc.collect()
        gc.freeze()
        try:
            for frame in frames:
                if apart:
                    sleep(apart)
                in_process.publish(frame)
            return in_process.taken
        finally:
            gc.unfreeze()


@contextmanager
def broker_in_process(access: AccessDocument | None = None) -> Iterator[BrokerInProcess]:
    """A broker with its store in this process, in a directory that is removed afterwards.

    Without `access` it is open.
    """
    with TemporaryDirectory(prefix="tidemark-steps-") as path:
        options = {"storage.data_dir": path, "storage.durability": "os", "broker.listen": "127.0.0.1:0"}
        config = load(options=options)
        directory = DataDirectory(config.storage.data_dir)
        store = open_store(config, directory)
        try:
            found = store.recover(hosted(config.topology, config.broker.name), time_ns() // 1_000)
            settings = replace(broker_config(config, store.incarnation), access=access)
            broker = Broker(settings, Registry(), found)
            yield BrokerInProcess(broker, store)
        finally:
            store.close()
            directory.close()


def _set_up(in_process: BrokerInProcess) -> None:
    """Declare the topic and start a durable subscriber with unlimited credit."""
    in_process.pump(ClientFrameReceived(PUBLISHER, Topic(TOPIC, False, (SCHEMA.text,))))
    in_process.pump(ClientFrameReceived(SUBSCRIBER, Subscribe("s", TOPIC, "", True, 1 << 40)))
    for _ in range(STARTS):
        sleep(0.05)
        in_process.pump(Woken())


def _frames(events: int) -> list[bytes]:
    batches = Batches(Load(), 1)
    frames = (Publish(PUBEND, "steps", number + 1, batches.batch(number)) for number in range(events))
    return [b"".join(bytes(piece) for piece in encode(frame)) for frame in frames]


def _times() -> tuple[int, int]:
    return monotonic_ns() // 1_000, time_ns() // 1_000
