"""SteppedBroker: a broker with its real store on a real data directory, stepped by hand, and its clients.

Nothing runs by itself: effects are carried out at once, in order, and time is a number. So a start of the
broker with everything that follows takes milliseconds, and happens the same way each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tidemark.broker.broker import Broker
from tidemark.broker.effects import (
    ClientFrameReceived,
    ClientGone,
    CommitTables,
    SendClient,
    Stimulus,
    SyncPfs,
    Woken,
)
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.registry import Registry
from tidemark.message.schema import Schema
from tidemark.node.config.loading import load
from tidemark.node.disk.data_directory import DataDirectory
from tidemark.node.node import broker_config, open_store
from tidemark.node.server import hosted
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import (
    Ack,
    Acked,
    ClientFrame,
    Credit,
    Deliver,
    Gap,
    Publish,
    Published,
    Refused,
    Subscribe,
    Subscribed,
    Topic,
)

MILLISECOND = 1_000
SECOND = 1_000 * MILLISECOND
#: When the story begins, in microseconds since 1970; ticks grow from here.
BEGIN = 1_700_000_000 * SECOND
CREDIT = 1 << 20
SCHEMA = Schema.parse("[key: string, n: int, text: string]")
#: Text that makes events as long as they usually are.
TEXT = "x" * 300
_key = SCHEMA.accessor("key")


@dataclass
class Reader:
    """A durable subscriber and its ledger, which outlives every broker."""

    name: str
    #: it wants the events whose n is below this
    below: int
    #: it holds its own token; otherwise the broker keeps it
    holds: bool
    topic: str = "t"
    client: int | None = None
    #: it was told at least once that it is subscribed
    is_subscribed: bool = False
    #: pubend -> the tick up to which it has consumed everything, and where it began
    upto: dict[str, int] = field(default_factory=dict)
    start: dict[str, int] = field(default_factory=dict)
    #: (tick, key) in the order of arrival, and the gaps that it was told
    events: list[tuple[int, str]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    #: what the broker has confirmed that it keeps as the reader's token, and what was sent for that
    kept: dict[str, int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    #: the pubends of which it has heard on this connection
    heard: set[str] = field(default_factory=set)
    #: what the broker refused it
    refusals: list[str] = field(default_factory=list)

    def copy(self) -> Reader:
        """Returns a reader that is as far as this one, and not connected."""
        return replace(
            self,
            client=None,
            upto=dict(self.upto),
            start=dict(self.start),
            events=list(self.events),
            gaps=list(self.gaps),
            kept=dict(self.kept),
            asked={},
            heard=set(),
            refusals=[],
        )

    def receive(self, frame: ClientFrame) -> None:
        """Write a frame from the broker into the ledger."""
        match frame:
            case Subscribed(_, token, _):
                self.is_subscribed = True
                for pubend, tick in token.items():
                    self._goes_on(pubend, tick)
                    self._reaches(pubend, tick, tick)
            case Acked():
                self.kept = dict(self.asked)
            case Deliver(_, pubend, base, upto, batch):
                self._reaches(pubend, base, upto)
                if batch is not None:
                    ticks = batch.ticks.tolist()
                    self.events += [(tick, str(_key(batch.message(row)))) for row, tick in enumerate(ticks)]
            case Gap(_, pubend, base, upto):
                self._reaches(pubend, base, upto)
                self.gaps.append((base, upto))
            case Refused(_, _, _, reason):
                self.refusals.append(reason)
            case _:
                pass

    def _goes_on(self, pubend: str, tick: int) -> None:
        """A reader whose token the broker keeps has forgotten what it did not acknowledge."""
        if not self.holds and pubend not in self.heard and pubend in self.upto:
            self.upto[pubend] = max(tick, self.kept.get(pubend, tick))
            self.events = [each for each in self.events if each[0] <= self.upto[pubend]]

    def _reaches(self, pubend: str, base: int, upto: int) -> None:
        known = self.upto.get(pubend)
        if known is None:
            self.start[pubend] = known = base
        # A client that has a token tells its application itself of what the broker skips. Without one it
        # takes the broker's word, once on each connection.
        if base > known and (self.holds or pubend in self.heard):
            self.gaps.append((known, base))
        self.heard.add(pubend)
        self.upto[pubend] = max(known, upto)


@dataclass
class Writer:
    """A publisher and its ledger."""

    name: str
    client: int | None = None
    sequence: int = 0
    #: (key, n, topic) of every event
    sent: list[tuple[str, int, str]] = field(default_factory=list)
    #: last sequence number of each batch -> its first
    batches: dict[int, int] = field(default_factory=dict)
    #: key -> the tick of every event that was acknowledged
    ticks: dict[str, int] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)

    def copy(self) -> Writer:
        """Returns a publisher that is as far as this one, and not connected."""
        return replace(
            self,
            client=None,
            sent=list(self.sent),
            batches=dict(self.batches),
            ticks=dict(self.ticks),
            refusals=[],
        )

    def receive(self, frame: ClientFrame) -> None:
        """Write a frame from the broker into the ledger."""
        match frame:
            case Published(_, _, last, tick):
                # The events of a batch have consecutive ticks.
                for sequence in range(self.batches[last], last + 1):
                    self.ticks[self.sent[sequence - 1][0]] = tick - (last - sequence)
            case Refused(_, _, _, reason):
                self.refusals.append(reason)
            case _:
                pass


class SteppedBroker:
    """One life of the broker, from its start to its stop or its death."""

    def __init__(self, directory: Path, now: int, *, accept_damage: bool = False) -> None:
        """Start the broker at the time `now`, in microseconds. Raises StorageError if it refuses."""
        options: dict[str, Any] = {"storage.data_dir": str(directory), "storage.segment": "64KiB"}
        if accept_damage:
            options["storage.accept_damage"] = "tables"
        config = load(options=options)
        self.now = now
        self._data = DataDirectory(directory)
        try:
            self._store = open_store(config, self._data)
        except BaseException:
            self._data.close()
            raise
        try:
            pubends = hosted(config.topology, config.broker.name)
            found = self._store.recover(pubends, now)
            self._broker = Broker(broker_config(config, self._store.incarnation), Registry(), found)
        except BaseException:
            self._end()
            raise
        self.pubend = next(iter(pubends))
        self._clients: dict[int, Reader | Writer] = {}
        self._next_client = 1
        self._give(Woken())

    @property
    def alarms(self) -> tuple[str, ...]:
        """What the broker says that an administrator should look at."""
        return self._store.alarms

    def pass_time(self, microseconds: int) -> None:
        """Let time pass, with the broker awake whenever it likes."""
        until = self.now + microseconds
        while self.now < until:
            self.now = min(until, max(self.now + MILLISECOND, self._broker.next_wake()))
            self._give(Woken())

    def stop(self) -> None:
        """Stop the broker in order."""
        for client in list(self._clients):
            self._leave(client)
        self.pass_time(SECOND)
        for effect in (SyncPfs(0), CommitTables(0)):
            self._store.carry_out(effect)
        self._end()

    def kill(self) -> None:
        """Let go of the files as a process that is killed does, as far as one process can do that to itself.

        SQLite removes its write-ahead log when it is closed, so a caller that needs the files of a killed
        process copies them before.
        """
        self._store.abandon()
        self._data.close()

    def welcome(self, readers: Sequence[Reader], writers: Sequence[Writer]) -> None:
        """Everybody comes, publishes and reads on."""
        self.pass_time(SECOND)
        for reader in readers:
            self.subscribe(reader)
        self.pass_time(2 * SECOND)
        for writer in writers:
            self.publish(writer, 2)
        for _ in range(3):
            self.pass_time(SECOND)
            for reader in readers:
                self.acknowledge(reader)

    def subscribe(self, reader: Reader) -> None:
        """A reader comes, for the first time or again."""
        reader.client = self._connect(reader)
        reader.heard.clear()
        token = CheckpointToken(reader.upto) if reader.holds and reader.is_subscribed else None
        selector = f"n < {reader.below}"
        self._say(
            reader.client, Subscribe(reader.name, reader.topic, selector, True, CREDIT, token, self.now)
        )

    def acknowledge(self, reader: Reader) -> None:
        """A reader acknowledges all that it has, and can take as much again."""
        assert reader.client is not None
        reader.asked = dict(reader.upto)
        self._say(reader.client, Ack(((reader.name, CheckpointToken(reader.upto)),), 1))
        self._say(reader.client, Credit(reader.name, CREDIT))

    def leave(self, who: Reader | Writer) -> None:
        """A client's connection ends."""
        if who.client is not None:
            self._leave(who.client)
            who.client = None

    def publish(self, writer: Writer, count: int, topic: str = "t") -> None:
        """A publisher publishes some events in one batch, on a topic that it declares."""
        if writer.client is None:
            writer.client = self._connect(writer)
        self._say(writer.client, Topic(topic, False, (SCHEMA.text,)))
        builder = BatchBuilder()
        first = writer.sequence + 1
        for _ in range(count):
            writer.sequence += 1
            event = {"key": f"{writer.name}/{writer.sequence}", "n": writer.sequence % 10, "text": TEXT}
            builder.add(
                Shape(topic, SCHEMA.fingerprint), SCHEMA.encode(event), publisher=writer.name, validity_ms=0
            )
            writer.sent.append((str(event["key"]), int(str(event["n"])), topic))
        writer.batches[writer.sequence] = first
        batch = EventBatch.parse(bytearray(builder.build().data))
        self._say(writer.client, Publish(self.pubend, writer.name, first, batch))

    def _connect(self, who: Reader | Writer) -> int:
        client = self._next_client
        self._next_client += 1
        self._clients[client] = who
        return client

    def _leave(self, client: int) -> None:
        del self._clients[client]
        self._give(ClientGone(client))

    def _say(self, client: int, frame: ClientFrame) -> None:
        self._give(ClientFrameReceived(client, frame))

    def _give(self, stimulus: Stimulus) -> None:
        """Have the broker handle a stimulus, and everything that follows from it at once."""
        waiting = deque([stimulus])
        while waiting:
            for effect in self._broker.handle(waiting.popleft(), self.now, self.now):
                if isinstance(effect, SendClient):
                    if effect.client in self._clients:
                        self._clients[effect.client].receive(effect.frame)
                    continue
                done = self._store.carry_out(effect)
                if done is not None:
                    waiting.append(done)

    def _end(self) -> None:
        self._store.close()
        self._data.close()
