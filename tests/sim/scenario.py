"""Scenario: a small simulated world that a test drives by hand, so that the test reads as a story.

One pubend `p` lives at the first broker of the tree. Events are letters: `publish("ab")` publishes two, whose
`kind` is a and b, and `got(subscriber)` says which arrived, in order. Links take a millisecond and lose
nothing unless a test says so; subscribers commit every 20 ms unless they are stopped. Times are in seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, TypeVar

from tidemark.broker.broker import Broker
from tidemark.broker.hosting.host import HostPolicy
from tidemark.broker.overlay.layout import MAIN_TREE, Layout, pair
from tidemark.sim.judging.oracle import check_world, is_caught_up
from tidemark.sim.swarm.plan import SECOND, WorldPlan
from tidemark.sim.world.machine import Machine
from tidemark.sim.world.network import LinkFaults
from tidemark.sim.world.publisher import SimPublisher
from tidemark.sim.world.subscriber import Kind, SimSubscriber
from tidemark.sim.world.world import START, World
from tidemark.ticks import Range, Thresholds
from tidemark.wire.frames import ClientFrame, Interest, Knowledge, Nack, PeerFrame, Published, Together
from tidemark.wire.peer_layouts import singly

T = TypeVar("T")

STEADY = LinkFaults(delay_min=1_000, delay_max=1_000)
COMMIT_US = 20_000
#: Seconds within which a scenario must come to rest at the end.
REST_S = 30


class Script(Random):
    """No chance at all: events have the kinds that the test gave, and every other choice is the first one."""

    def __init__(self) -> None:
        super().__init__(0)
        self.kinds: deque[str] = deque()
        self.validity_ms: int | None = None

    def choice(self, seq: Any) -> Any:
        if seq == "abcd":
            return self.kinds.popleft()
        return self.validity_ms if self.validity_ms is not None and isinstance(seq[0], int) else seq[0]

    def randint(self, a: int, b: int) -> int:
        del b
        return a


class Halfway(Random):
    """Everything in the middle: half of the writes survive a crash, and the next one is torn in two."""

    def randint(self, a: int, b: int) -> int:
        return (a + b) // 2


class Nothing(Random):
    """Everything at its least: of what was not synced nothing survives a crash."""

    def randint(self, a: int, b: int) -> int:
        del b
        return a


class Aim(Random):
    """Damages a record of the disk of this name, the one at `at` of those there are."""

    def __init__(self, disk: str, at: int) -> None:
        super().__init__(0)
        self._disk = disk
        self._at = at

    def choice(self, seq: Any) -> Any:
        return [place for place in seq if place[0].path.endswith(self._disk)][self._at]


@dataclass(frozen=True, slots=True)
class Sent:
    """A frame that one broker sent to another, alone or together with others."""

    at: float
    sender: str
    receiver: str
    frame: PeerFrame
    lost: bool


@dataclass(slots=True)
class Loss:
    """Frames that are lost on their way while this lasts."""

    matches: Callable[[str, str, PeerFrame], bool]
    left: int
    lost: int = 0

    def takes(self, sender: str, receiver: str, frame: PeerFrame) -> bool:
        """Whether this frame is lost; counts it."""
        if self.left <= self.lost or not self.matches(sender, receiver, frame):
            return False
        self.lost += 1
        return True

    def stop(self) -> None:
        """From now on everything arrives."""
        self.left = self.lost


@dataclass
class Pace:
    """A subscriber that commits now and then, or not."""

    subscriber: SimSubscriber
    is_reading: bool = True


@dataclass
class Scenario:
    """`tree` is like "phb - relay - shb1, relay - shb2"; `settings` are fields of a WorldPlan.

    With "{b1 b2}" for a name it is a tree of cells: every broker of one is linked to every one of the next.
    """

    tree: str
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        layout = layout_of(self.tree)
        self.root = layout.pubends["p"]
        defaults: dict[str, Any] = {
            "link_faults": STEADY,
            "topics": ("t.x",),
            "host_policy": HostPolicy(silence=COMMIT_US, save=COMMIT_US),
            "release_period": COMMIT_US,
            "silence_patience": 20_000,
            "thresholds": Thresholds(gct_us=20_000, nrt_us=50_000, nrt_us_max=400_000),
        }
        self.world = World(WorldPlan(layout, **(defaults | self.settings)), 1)
        self.sent: list[Sent] = []
        self.told: list[tuple[int, ClientFrame]] = []
        self._losses: list[Loss] = []
        self._paces: dict[str, Pace] = {}
        self._listen()
        self.script = Script()
        self._published = 0
        self.publisher = SimPublisher(self.world, "pub", "p", self.root, self.script)
        self.world.publishers.append(self.publisher)
        self.publisher.connect()
        self.wait(0.3)

    def _listen(self) -> None:
        send, to_client = self.world.network.send, self.world.to_client

        def observed(sender: str, receiver: str, frame: PeerFrame) -> None:
            kept: list[PeerFrame] = []
            for each in singly(frame):
                lost = any(loss.takes(sender, receiver, each) for loss in self._losses)
                self.sent.append(Sent(self.now, sender, receiver, each, lost))
                kept += [] if lost else [each]
            if kept:
                send(sender, receiver, kept[0] if len(kept) == 1 else Together(tuple(kept)))

        def heard(client: int, frame: ClientFrame) -> None:
            self.told.append((client, frame))
            if not (isinstance(frame, Published) and self.publisher_is_deaf):
                to_client(client, frame)

        self.publisher_is_deaf = False
        self.world.network.send = observed  # type: ignore[method-assign]  # a hook
        self.world.to_client = heard  # type: ignore[method-assign]  # a hook

    # Clients.

    def publish(self, kinds: str, *, validity_ms: int = 0) -> list[str]:
        """Publish one batch, an event for each letter; returns their keys."""
        self.script.kinds.extend(kinds)
        self.script.validity_ms = validity_ms
        first, self._published = self._published, self._published + len(kinds)
        self.publisher.publish(len(kinds))
        return [f"pub/{number + 1}" for number in range(first, self._published)]

    def trickle(self, kinds: str, every: float = 0.02) -> None:
        """Publish one event after another, so that there is something at all times."""
        for at, kind in enumerate(kinds):
            self.world.engine.after(int(at * every * SECOND), partial(self._publish, kind))

    def _publish(self, kinds: str) -> None:
        self.publish(kinds)

    def subscriber(
        self, name: str, at: str, selector: str = "", *, kind: Kind = "holds", credit: int = 1 << 20
    ) -> SimSubscriber:
        """Returns a subscriber that comes now; the name of one that is not durable must begin with "pass"."""
        made = SimSubscriber(self.world, name, at, "t.>", selector, Random(1), credit, kind)
        self.world.subscribers.append(made)
        pace = self._paces[name] = Pace(made)

        def consume() -> None:
            if pace.is_reading:
                made.commit()
            self.world.engine.after(COMMIT_US, consume)

        consume()
        made.come()
        return made

    def stop_reading(self, subscriber: SimSubscriber) -> None:
        """Let a subscriber stay connected without committing or granting credit."""
        self._paces[subscriber.name].is_reading = False

    def go_on_reading(self, subscriber: SimSubscriber) -> None:
        """Let the subscriber commit again."""
        self._paces[subscriber.name].is_reading = True

    # The world.

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.world.engine.run(self.world.engine.now + int(seconds * SECOND))

    def lose(
        self,
        kind: type[PeerFrame],
        *,
        sender: str | None = None,
        receiver: str | None = None,
        times: int = 1 << 30,
        where: Callable[[Any], bool] = lambda _: True,
    ) -> Loss:
        """Lose the next `times` frames of this kind."""

        def matches(source: str, target: str, frame: PeerFrame) -> bool:
            on_the_way = sender in (None, source) and receiver in (None, target)
            return on_the_way and isinstance(frame, kind) and where(frame)

        self._losses.append(Loss(matches, times))
        return self._losses[-1]

    def power_loss(self, name: str, chance: Random | None = None, *, off: float = 0.05) -> None:
        """A machine crashes, its disks keep what `chance` says of what was not synced, and it restarts."""
        disk = self.world.machines[name]._disk
        usual = disk._chance
        disk._chance = chance or Nothing(0)
        self.world.crash(name)
        disk._chance = usual
        self.wait(off)
        self.world.restart(name)

    def rot(self, name: str, disk: str, at: int) -> None:
        """Damage a record on a machine's disk (log or pfs), and allow gaps from now on."""
        assert self.machine(name).rot(Aim(disk, at))
        self.world.gaps_allowed = True

    def end(self) -> None:
        """Mend everything, let the world rest, and check it."""
        for loss in self._losses:
            loss.stop()
        for name in self.world.machines:
            self.machine(name).free_disk()
            self.world.restart(name)
        for a, b in self.world.layout.all_links():
            self.world.network.unclog(a, b)
            self.world.network.unclog(b, a)
            self.world.mend(a, b)
        self.publisher.connect()
        for pace in self._paces.values():
            pace.is_reading = True
            pace.subscriber.come()
        for _ in range(REST_S * 4):
            self.wait(0.25)
            if self.publisher.is_idle and all(is_caught_up(s, self.world) for s in self.world.subscribers):
                break
        check_world(self.world)
        before = len(list(self.frames(Nack)))
        self.wait(1.0)
        assert len(list(self.frames(Nack))) == before, "everyone has everything, and still somebody asks"

    # Observations.

    @property
    def now(self) -> float:
        """The time since the world began."""
        return (self.world.engine.now - START) / SECOND

    def machine(self, name: str) -> Machine:
        """One of the machines."""
        return self.world.machines[name]

    def broker(self, name: str) -> Broker:
        """The broker that runs on it now."""
        broker = self.machine(name).broker
        assert broker is not None
        return broker

    def alarms(self, name: str) -> tuple[str, ...]:
        """Returns the alarms of a machine's store."""
        store = self.machine(name)._disk._store
        assert store is not None
        return store.alarms

    def count(self, name: str, counter: str) -> int:
        """Returns a counter of a broker in its present life."""
        return self.broker(name).counters[counter]

    def counted(self, counter: str) -> int:
        """Returns the sum of a counter over all lives of all brokers."""
        return self.world.coverage()[counter]

    def frames(self, kind: type[T], sender: str | None = None, receiver: str | None = None) -> Iterator[T]:
        """The frames of this kind that one broker sent to another, so far."""
        for each in self.sent:
            on_the_way = sender in (None, each.sender) and receiver in (None, each.receiver)
            if on_the_way and isinstance(each.frame, kind):
                yield each.frame

    def kinds_sent(self, sender: str, receiver: str, since: int = 0) -> str:
        """The kinds of the events that went over a link, from the frame with this number on."""
        batches = [
            each.frame.batch
            for each in self.sent[since:]
            if isinstance(each.frame, Knowledge) and (each.sender, each.receiver) == (sender, receiver)
        ]
        keys = [self.world.key_of(b, row) for b in batches if b is not None for row in range(b.count)]
        return "".join(self.kind(key) for key in keys)

    def nacked(self, sender: str, receiver: str) -> list[Range]:
        """Returns every range that was nacked over a link, with repetitions."""
        return [each for frame in self.frames(Nack, sender, receiver) for each in frame.ranges]

    def interests(self, sender: str, receiver: str) -> list[Interest]:
        """Returns the interests that a broker has sent to a neighbour."""
        return list(self.frames(Interest, sender, receiver))

    def kind(self, key: str) -> str:
        """The kind of an event."""
        return str(self.world.ground_truth[key].event["kind"])

    def tick(self, key: str) -> int:
        """The tick of an event that is durable."""
        return next(tick for tick, known in self.world.ground_truth.durable["p"].items() if known == key)

    def got(self, subscriber: SimSubscriber) -> str:
        """The kinds of all that a subscriber has consumed and committed, in order."""
        ledgers = [life.ledger["p"] for life in subscriber.lives if "p" in life.ledger]
        return "".join(self.kind(key) for ledger in ledgers for _, key in ledger.events)

    def gaps(self, subscriber: SimSubscriber) -> list[Range]:
        """Returns the gaps that a subscriber was told of."""
        return [gap for life in subscriber.lives if "p" in life.ledger for gap in life.ledger["p"].gaps]

    def upto(self, subscriber: SimSubscriber) -> int:
        """Returns the tick up to which a subscriber has consumed everything."""
        return subscriber.life.ledger["p"].upto

    @property
    def lost(self) -> int:
        """The tick up to which the pubend has released its history."""
        return self.world.checks.lost.get("p", 0)


def layout_of(tree: str) -> Layout:
    """The overlay that a tree of brokers, or cells, describes; the pubend `p` is at the first of them."""
    parents = _parents(tree)
    cells = {name: tuple(name.strip("{}").split()) for name in parents}
    edges = frozenset(pair(name, parent) for name, parent in parents.items() if parent is not None)
    links = frozenset(pair(a, b) for x, y in edges for a in cells[x] for b in cells[y])
    return Layout(cells, links, {"p": next(iter(cells.values()))[0]}, {MAIN_TREE: edges})


def _parents(tree: str) -> dict[str, str | None]:
    """The parent of each, of a tree like "a - b - c, b - d"."""
    parents: dict[str, str | None] = {}
    for branch in tree.split(","):
        names = [name.strip() for name in branch.split("-")]
        parents.setdefault(names[0], None)
        parents.update(zip(names[1:], names[:-1], strict=True))
    return parents
