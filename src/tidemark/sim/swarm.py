"""Swarm: a seed makes a whole world - topology, workload, thresholds, faults - and runs it to its end."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from random import Random

from tidemark.broker.host import HostPolicy
from tidemark.broker.pubend import PubendPolicy
from tidemark.sim.actors import Publisher, Subscriber
from tidemark.sim.network import LinkFaults
from tidemark.sim.oracle import judge
from tidemark.sim.world import SECOND, Plan, World
from tidemark.ticks import Thresholds

SELECTORS = (
    "",
    "kind = 'a'",
    "n > 50",
    "kind IN ('a', 'b') AND n < 80",
    "n = 7 OR kind = 'd'",
    "kind <> 'c'",
)
PATTERNS = ("t.>", "t.x", "t.*")
#: How long faults go on, and how long the world then has to come to rest.
STORM_US = 3 * SECOND
REST_US = 30 * SECOND
STEP_US = SECOND // 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run was like."""

    seed: int
    events: int
    deliveries: int
    gaps: int
    crashes: int
    #: of every ledger and of the frames sent: equal runs have equal digests
    digest: str


def plan_of(chance: Random, *, faults: bool) -> Plan:
    """A random tree of one to six brokers, with one to three pubends anywhere in it."""
    names = [f"b{n}" for n in range(chance.randint(1, 6))]
    parents: dict[str, str | None] = {
        name: chance.choice(names[:at]) if at else None for at, name in enumerate(names)
    }
    pubends = {f"p{n}": chance.choice(names) for n in range(chance.randint(1, 3))}
    bad = LinkFaults(
        loss=chance.choice((0.0, 0.02, 0.2)),
        repeat=chance.choice((0.0, 0.05)),
        reorder=chance.choice((0.0, 0.1)),
        delay_max=chance.choice((500, 5_000, 60_000)),
    )
    return Plan(
        parents,
        pubends,
        bad if faults else LinkFaults(),
        window_bytes_max=chance.choice((2_000, 20_000, 1 << 20)),
        pubend_policy=PubendPolicy(lease_ahead=chance.choice((100_000, SECOND))),
        host_policy=HostPolicy(
            silence=chance.choice((20_000, 200_000)), save=chance.choice((20_000, 200_000))
        ),
        thresholds=Thresholds(
            gct_us=chance.choice((0, 20_000)),
            nrt_us=chance.choice((20_000, 100_000)),
            nrt_us_max=500_000,
            chop_ticks_max=chance.choice((SECOND, 3_600 * SECOND)),
            outstanding_ranges_max=chance.choice((2, 64)),
        ),
    )


class Run:
    """One seed's world on its way from start to judgement."""

    def __init__(self, seed: int, *, faults: bool = True) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.plan = plan_of(self.chance, faults=faults)
        self.world = World(self.plan, self.chance.randrange(1 << 30))
        self.crashes = 0
        self._faults = faults
        self._populate()

    def _populate(self) -> None:
        world, chance = self.world, self.chance
        for pubend, host in self.plan.pubends.items():
            for _ in range(chance.randint(1, 2)):
                name = f"pub{len(world.publishers)}"
                world.publishers.append(Publisher(world, name, pubend, host, Random(chance.random())))
        machines = sorted(world.machines)
        for number in range(chance.randint(1, 6)):
            world.subscribers.append(
                Subscriber(
                    world,
                    f"sub{number}",
                    chance.choice(machines),
                    chance.choice(PATTERNS),
                    chance.choice(SELECTORS),
                    Random(chance.random()),
                    credit=chance.choice((3, 20, 1_000)),
                )
            )

    def execute(self) -> Outcome:
        """Storm, heal, rest, judge."""
        engine = self.world.engine
        start = engine.now
        for publisher in self.world.publishers:
            publisher.connect()
            self._publishing(publisher, start + STORM_US)
        for subscriber in self.world.subscribers:
            engine.after(self.chance.randrange(SECOND), subscriber.come)
            self._consuming(subscriber, start + STORM_US)
        if self._faults:
            self._break_things(start + STORM_US)
        engine.run(start + STORM_US)
        self._heal()
        while not self._is_quiet() and engine.now < start + STORM_US + REST_US:
            engine.run(engine.now + STEP_US)
        judge(self.world)
        events = sum(len(each) for each in self.world.truth.values())
        ledgers = [each for subscriber in self.world.subscribers for each in subscriber.ledger.values()]
        deliveries = sum(len(each.events) for each in ledgers)
        gaps = sum(len(each.gaps) for each in ledgers)
        return Outcome(self.seed, events, deliveries, gaps, self.crashes, self._digest())

    def _digest(self) -> str:
        world = self.world
        ledgers = [(each.name, sorted(each.ledger.items())) for each in world.subscribers]
        return sha256(repr((ledgers, sorted(world.network.sent.items()))).encode()).hexdigest()

    def _is_quiet(self) -> bool:
        """Everything is acknowledged and everyone has committed all there is."""
        lasts = {name: max(truth, default=0) for name, truth in self.world.truth.items()}
        return all(publisher.is_idle for publisher in self.world.publishers) and all(
            name in subscriber.ledger and subscriber.ledger[name].upto >= last
            for subscriber in self.world.subscribers
            for name, last in lasts.items()
        )

    def _publishing(self, publisher: Publisher, until: int) -> None:
        rest = publisher.chance.choice((20_000, 100_000, 400_000))

        def publish() -> None:
            if self.world.engine.now < until:
                publisher.publish(publisher.chance.choice((1, 1, 2, 6)))
                self.world.engine.after(publisher.chance.randint(1, rest), publish)

        self.world.engine.after(publisher.chance.randint(1, rest), publish)

    def _consuming(self, subscriber: Subscriber, until: int) -> None:
        def consume() -> None:
            now = self.world.engine.now
            if now < until and self._faults and subscriber.chance.random() < 0.03:
                if subscriber.is_away:
                    subscriber.come()
                else:
                    subscriber.leave()
            subscriber.commit()
            pace = 100_000 if now < until else 2_000
            self.world.engine.after(subscriber.chance.randint(pace // 10, pace), consume)

        self.world.engine.after(subscriber.chance.randint(1, 100_000), consume)

    def _break_things(self, until: int) -> None:
        names = sorted(self.world.machines)
        links = [(name, parent) for name, parent in self.plan.parents.items() if parent is not None]
        rest = self.chance.choice((200_000, 800_000, 10 * SECOND))

        def mischief() -> None:
            if self.world.engine.now >= until:
                return
            self._one_fault(names, links)
            self.world.engine.after(self.chance.randint(1, rest), mischief)

        self.world.engine.after(self.chance.randint(1, rest), mischief)

    def _one_fault(self, names: list[str], links: list[tuple[str, str]]) -> None:
        what = self.chance.random()
        if what < 0.4:
            name = self.chance.choice(names)
            self.crashes += 1
            self.world.crash(name)
            self.world.engine.after(self.chance.randint(1_000, 800_000), lambda: self.world.restart(name))
        elif what < 0.8 and links:
            a, b = self.chance.choice(links)
            self.world.cut(a, b)
            self.world.engine.after(self.chance.randint(1_000, 800_000), lambda: self.world.mend(a, b))
        else:
            machine = self.world.machines[self.chance.choice(names)]
            machine.skew = self.chance.choice((0, -3_600 * SECOND, 30 * SECOND, 5_000))

    def _heal(self) -> None:
        world = self.world
        world.network.faults = LinkFaults()
        for name in sorted(world.machines):
            world.restart(name)
        for name, parent in self.plan.parents.items():
            if parent is not None:
                world.mend(name, parent)
        for subscriber in world.subscribers:
            subscriber.come()
        for publisher in world.publishers:
            publisher.connect()


def run_seed(seed: int, *, faults: bool = True) -> Outcome:
    """Run one seed; raises ViolationError if something is not as promised."""
    return Run(seed, faults=faults).execute()


def run_many(first: int, count: int, *, faults: bool, report: Callable[[int, str | None], None]) -> int:
    """Run seeds one after the other; `report` gets each with what went wrong, if anything."""
    failed = 0
    for seed in range(first, first + count):
        try:
            run_seed(seed, faults=faults)
        except AssertionError as error:
            failed += 1
            report(seed, str(error) or f"an assertion failed in {_place(error)}")
        else:
            report(seed, None)
    return failed


def _place(error: AssertionError) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].name}, line {frames[-1].lineno}" if frames else "an unknown place"
