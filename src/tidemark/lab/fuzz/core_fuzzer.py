"""The fuzzer of the core: hostile connections to a broker without sockets, on a disk in memory.

What is said is the same as to a real broker, byte for byte, and goes through the same decoder, core, store
and encoder, at some thousand frames a second. So it finds in seconds what the fuzzer of the process finds in
minutes, and it notices what a process would only be slow at: a frame after which a broker never comes to
rest. The process around the core, its sockets and leases, is what only the other fuzzer has.

A well-behaved publisher and a durable subscriber work beside them. A seed decides everything.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from random import Random
from traceback import format_exc

from tidemark.broker.broker import Broker
from tidemark.broker.config import BrokerConfig
from tidemark.broker.effects import (
    ClientFrameReceived,
    ClientGone,
    DropAnswers,
    Effect,
    LinkDown,
    LinkUp,
    PeerFrameReceived,
    RefuseClient,
    RefusePeer,
    SendClient,
    SendPeer,
    Stimulus,
    Woken,
)
from tidemark.broker.overlay.layout import MAIN_TREE, Layout, pair
from tidemark.errors import NeighbourError, WireError
from tidemark.lab.fuzz.connections import (
    HostileClient,
    HostileConnection,
    HostileNeighbour,
    Said,
    pubend_of,
)
from tidemark.lab.fuzz.frame_maker import FrameMaker
from tidemark.lab.fuzz.frame_work import FrameWork
from tidemark.lab.fuzz.values import HostileValues
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.registry import Registry
from tidemark.message.schema import Schema
from tidemark.node.connection import FROM_CLIENT, FROM_PEER
from tidemark.persistence.store import Store, StoreDisks, StoreSettings
from tidemark.storage.disk.memory_disk import MemoryDisk, keep_all
from tidemark.storage.tables.memory_tables import MemoryTables
from tidemark.ticks.tick import CLOCKS_APART_MAX
from tidemark.wire.codec import encode
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import (
    AckExpected,
    Ask,
    Claim,
    ClientFrame,
    Credit,
    Deliver,
    Frame,
    Hello,
    Knowledge,
    Overlay,
    Publish,
    Published,
    Refused,
    Subscribe,
    Topic,
)
from tidemark.wire.limits import EPOCHS_AHEAD_US, FRAME_BYTES_MAX

PUBEND = "pa"
NEIGHBOURS = tuple(f"b{number}" for number in range(1, 9))
#: Neighbours of the broker's own cell.
CELLMATES = NEIGHBOURS[:2]
CLIENTS = 6
#: The clients that behave well.
PUBLISHER, SUBSCRIBER = 1, 2
GOOD = Schema.parse("[n: int]")
BEGIN = 1_700_000_000_000_000
#: How long a step may take, in microseconds.
STEPS_TAKE = (10, 1_000, 100_000, 1_000_000, 3_000_000)
#: So many effects may follow from each other, through the disk, before the broker rests.
FOLLOWING_MAX = 20_000
#: So many effects may wait for the disk while more is said.
FOR_DISK_MAX = 500
#: After so many steps the process dies and starts again.
LIFE_STEPS = 1_500
#: Steps between two events of the good publisher.
PUBLISH_STEPS = 20


@dataclass(slots=True)
class CoreReport:
    """What a run has done and found."""

    seed: int
    frames: int = 0
    delivered: int = 0
    #: what brokers have counted, in all lives
    counters: Counter[str] = field(default_factory=Counter)
    #: errors that nobody has foreseen, which ended a connection only -> how many
    unforeseen: Counter[str] = field(default_factory=Counter)
    #: what is wrong; empty if nothing is
    failure: str = ""
    last: list[str] = field(default_factory=list)


class CoreFuzzer:
    """One run: a broker in memory and everybody who talks to it."""

    def __init__(self, seed: int) -> None:
        self.report = CoreReport(seed)
        self._chance = Random(seed)
        self._log, self._pfs, self._witness = MemoryDisk("log"), MemoryDisk("pfs"), MemoryDisk("witness")
        self._tables = MemoryTables()
        self._now = BEGIN
        #: client, or neighbour -> its connection
        self.open: dict[int | str, CoreConnection] = {}
        self._next_client = SUBSCRIBER + 1
        self._said = Said()
        #: counts what the broker does for each frame
        self.work = FrameWork()
        pubends = [PUBEND, *map(pubend_of, NEIGHBOURS)]
        values = HostileValues(self._chance, pubends, ["a", *NEIGHBOURS])
        shared = self, values, FrameMaker(values), self._said
        self._connections: list[CoreConnection] = [
            CoreClient(f"evil-client-{number}", *shared) for number in range(CLIENTS)
        ]
        self._connections += [CoreNeighbour(name, *shared) for name in NEIGHBOURS]
        #: what the broker has asked of the disk and is not done yet
        self._for_disk: deque[Effect] = deque()
        #: the good publisher's events: how many were sent, which was acknowledged last, what was delivered
        self._sent = 0
        self._acknowledged = 0
        self._delivered: list[int] = []
        self._start()
        for _ in range(10):
            self._pass_time(100_000)  # until the good subscriber has started

    def run(self, steps: int) -> CoreReport:
        """Let so many hostile things be said; the report says what came of it."""
        try:
            for step in range(1, steps + 1):
                self._chance.choice(self._connections).step()
                if self._chance.random() < 0.5 or len(self._for_disk) > FOR_DISK_MAX:
                    self._rest()
                if step % 5 == 0:
                    self._pass_time(self._chance.choice(STEPS_TAKE))
                if step % PUBLISH_STEPS == 0:
                    self._publish()
                if step % LIFE_STEPS == 0:
                    self._die()
                    self._start()
            self._settle()
        except Exception:
            self.report.failure = format_exc()
            self.report.last = list(self._said.last)
        self.report.counters += Counter(self._broker.counters)
        self.report.frames = self._said.frames
        self.report.delivered = len(self._delivered)
        return self.report

    # The broker.

    def _start(self) -> None:
        disks = StoreDisks(self._log, self._pfs, self._tables, self._witness)
        self._store = Store(disks, StoreSettings(segment_bytes=1 << 16), identity=7)
        found = self._store.recover([PUBEND], self._now)
        self._broker = Broker(BrokerConfig("a", self._store.incarnation, _layout()), Registry(), found)
        self._for_disk.clear()
        self.give(Woken())
        self._say(PUBLISHER, Topic("good", False, (GOOD.text,)))
        self._say(SUBSCRIBER, Subscribe("good", "good", "", True, 1 << 40))
        if self._sent > self._acknowledged:
            self._sent = self._acknowledged
            self._publish()

    def _die(self) -> None:
        self.report.counters += Counter(self._broker.counters)
        for each in list(self.open.values()):
            each.is_there = False
        self.open.clear()
        for disk in (self._log, self._pfs, self._witness):
            disk.crash(keep_all)
        self._tables = self._tables.crash()

    def give(self, stimulus: Stimulus) -> None:
        """Have the broker handle a stimulus. What it asks of the disk is done later, in order."""
        waiting = deque([stimulus])
        while waiting:
            for effect in self._broker.handle(waiting.popleft(), self._now - BEGIN, self._now):
                match effect:
                    case SendClient(client, frame):
                        self._send(client, frame)
                    case SendPeer(peer, frame):
                        self._send(peer, frame)
                    case DropAnswers():
                        pass  # no answer waits here
                    case RefuseClient(client, _, cause):
                        waiting += self._refused(client, ClientGone(client), cause)
                    case RefusePeer(peer, _, cause):
                        waiting += self._refused(peer, LinkDown(peer), cause)
                    case _:
                        self._for_disk.append(effect)

    def _rest(self) -> None:
        """Let the disk do its work, and all that follows from that. AssertionError if it never ends."""
        done = 0
        while self._for_disk:
            done += 1
            assert done < FOLLOWING_MAX, f"the broker does not come to rest: {self._for_disk[0]!r:.500}"
            answer = self._store.carry_out(self._for_disk.popleft())
            if answer is not None:
                self.give(answer)

    def _send(self, who: int | str, frame: Frame) -> None:
        for _ in encode(frame):
            pass  # what cannot be encoded would end the connection
        self._check_times(frame)
        if who in self.open:
            self.open[who].receive(frame)
        elif who == PUBLISHER and isinstance(frame, Published):
            self._acknowledged = frame.sequence
        elif who == SUBSCRIBER and isinstance(frame, Deliver) and frame.batch is not None:
            self._deliver(frame.batch)
        assert who not in (PUBLISHER, SUBSCRIBER) or not isinstance(frame, Refused), frame

    def _check_times(self, frame: Frame) -> None:
        """AssertionError if the broker passes on a time of day to which no honest broker comes.

        Each claim may follow the one before, and there are not as many claims in a run as a second has
        microseconds.
        """
        match frame:
            case Claim(name, epoch):
                latest = self._now + EPOCHS_AHEAD_US + 1_000_000
                assert epoch <= latest, f"the broker believes the epoch {epoch} of {name!r}"
            case AckExpected(pubend, tick) | Knowledge(pubend, upto=tick):
                assert tick <= self._now + CLOCKS_APART_MAX, f"the broker believes {tick} of {pubend!r}"
            case _:
                pass

    def _refused(self, who: int | str, gone: Stimulus, cause: BaseException) -> list[Stimulus]:
        if not isinstance(cause, WireError | NeighbourError):
            self.report.unforeseen[repr(cause)[:200]] += 1
        connection = self.open.pop(who, None)
        assert connection is not None, f"a client that behaves well was refused: {cause!r}"
        connection.is_there = False
        return [gone]

    # The clients that behave well.

    def _pass_time(self, microseconds: int) -> None:
        self._now += microseconds
        self.give(Woken())
        self._rest()

    def _say(self, client: int, frame: ClientFrame) -> None:
        self.give(ClientFrameReceived(client, frame))
        self._rest()

    def _publish(self) -> None:
        """Publish the next event, and with it what was not acknowledged before a crash."""
        self._sent += 1
        builder = BatchBuilder()
        builder.add(Shape("good", GOOD.fingerprint), GOOD.encode({"n": self._sent}), publisher="good")
        batch = EventBatch.parse(bytearray(builder.build().data))
        self._say(PUBLISHER, Publish(PUBEND, "good", self._sent, batch))
        self._say(SUBSCRIBER, Credit("good", 1 << 20))

    def _deliver(self, batch: EventBatch) -> None:
        numbers = [int(GOOD.accessor("n")(batch.message(row))) for row in range(batch.count)]
        # The subscriber acknowledges nothing, so the broker delivers every event again in its next life.
        self._delivered += [each for each in numbers if each > len(self._delivered)]

    def _settle(self) -> None:
        """Let time pass. AssertionError unless the good subscriber has got every event in order."""
        self._publish()
        for _ in range(40):
            self._pass_time(100_000)
        expected = list(range(1, self._sent + 1))
        assert self._acknowledged == self._sent, f"{self._sent} were sent, {self._acknowledged} acknowledged"
        assert self._delivered == expected, f"{self._sent} were sent, {self._delivered[-5:]} came last"

    def next_client(self) -> int:
        """Returns the number of a client that is new."""
        self._next_client += 1
        return self._next_client


class CoreConnection(HostileConnection):
    """A hostile connection that hands its frames to the core."""

    #: the client's number, or the neighbour's name
    number: int | str
    is_there = False

    def __init__(
        self, who: str, world: CoreFuzzer, values: HostileValues, maker: FrameMaker, said: Said
    ) -> None:
        super().__init__(who, ("", 0), values, maker, said)
        self._world = world

    @property
    def is_open(self) -> bool:
        """Whether the broker has not closed the connection."""
        return self.is_there

    def hear(self) -> None:
        """What the broker says is there at once."""

    def receive(self, frame: Frame) -> None:
        """The broker says something."""
        self._said.heard[type(frame).__name__] += 1
        self._values.learn(frame)
        self._unread.append(frame)

    def close(self) -> None:
        """The connection is gone."""
        if self.is_there:
            self.is_there = False
            del self._world.open[self.number]
            self._world.give(self._gone())

    def _begin(self) -> None:
        self.is_there = True
        self._unread.clear()
        self._world.open[self.number] = self

    def _give(self, raw: bytes) -> None:
        with self._world.work.of(raw, self._said):
            self._hand_over(raw)

    def _hand_over(self, raw: bytes) -> None:
        try:
            frames = FrameDecoder(FRAME_BYTES_MAX, joins=True).feed(raw)
        except WireError:
            self.close()
            return
        for frame in frames:
            stimulus = self._stimulus(frame)
            if stimulus is None:
                self.close()
            elif self.is_there:
                self._world.give(stimulus)

    def _gone(self) -> Stimulus:
        raise NotImplementedError

    def _stimulus(self, frame: Frame) -> Stimulus | None:
        """What the broker hears of a frame; None for one that its process would refuse."""
        raise NotImplementedError


class CoreClient(CoreConnection, HostileClient):
    """A hostile client."""

    number: int

    def _open(self) -> bool:
        self.number = self._world.next_client()
        self._begin()
        return True

    def _gone(self) -> Stimulus:
        return ClientGone(self.number)

    def _stimulus(self, frame: Frame) -> Stimulus | None:
        is_said = type(frame) in FROM_CLIENT or isinstance(frame, Ask)
        return ClientFrameReceived(self.number, frame) if is_said else None  # type: ignore[arg-type]  # just checked


class CoreNeighbour(CoreConnection, HostileNeighbour):
    """A hostile neighbour."""

    number: str

    def _open(self) -> bool:
        self.number = self.who
        self._incarnation += 1
        self._begin()
        self._world.give(LinkUp(self.who))
        self._world.give(PeerFrameReceived(self.who, Hello(self.who, self._incarnation)))
        return self.is_there

    def _gone(self) -> Stimulus:
        return LinkDown(self.who)

    def _stimulus(self, frame: Frame) -> Stimulus | None:
        is_said = type(frame) in FROM_PEER and not isinstance(frame, Overlay)
        return PeerFrameReceived(self.who, frame) if is_said else None  # type: ignore[arg-type]  # just checked


def _layout() -> Layout:
    """A cell of three around the broker, and cells of one around that; some have another way besides."""
    others = [name for name in NEIGHBOURS if name not in CELLMATES]
    tree = frozenset(pair("a", name) for name in others)
    extra = frozenset(pair(mate, name) for mate in CELLMATES for name in others[:2])
    cells = {"a": ("a", *CELLMATES)} | {name: (name,) for name in others}
    pubends = {PUBEND: "a"} | {pubend_of(name): name for name in NEIGHBOURS}
    return Layout(cells, tree | extra, pubends, {MAIN_TREE: tree})
