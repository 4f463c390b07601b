"""Swarm: a seed makes a whole world - topology, workload, thresholds, faults - and runs it to its end.

A run is a storm of STORM_US with faults, then healing, then at most REST_US to come to rest, then the checks.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from random import Random

from tidemark.broker.overlay.overlay import OVERLAP_US
from tidemark.sim.judging.ground_truth import ViolationError
from tidemark.sim.judging.oracle import check_routes, check_world, is_caught_up
from tidemark.sim.judging.topics import check_topics
from tidemark.sim.swarm.faults import FaultInjector
from tidemark.sim.swarm.plan import (
    SECOND,
    plan_of,
    with_access,
    with_durability,
    with_economy,
    with_expiry,
    with_held_quota,
    with_history,
    with_link_versions,
    with_rates,
    with_retention,
    with_storage,
)
from tidemark.sim.swarm.planted import planted
from tidemark.sim.swarm.workers import in_order
from tidemark.sim.world.moving_publisher import MovingPublisher
from tidemark.sim.world.network import LinkFaults
from tidemark.sim.world.pipeline import Pipeline
from tidemark.sim.world.publisher import SimPublisher
from tidemark.sim.world.subscriber import SimSubscriber
from tidemark.sim.world.topic_keeper import TOPIC, KeptTopicPublisher, TopicKeeper
from tidemark.sim.world.trace import Trace
from tidemark.sim.world.world import World

SELECTORS = (
    "",
    "kind = 'a'",
    "n > 50",
    "kind IN ('a', 'b') AND n < 80",
    "n = 7 OR kind = 'd'",
    "kind <> 'c'",
)
PATTERNS = ("t.>", "t.x", "t.*")
#: How long faults happen, and how long the world then has to come to rest, in microseconds.
STORM_US = 2 * SECOND
REST_US = 60 * SECOND
#: The same for a world whose links have a bandwidth: 1,500 events take a minute over three hops of 4 kB/s.
REST_WITH_RATES_US = 240 * SECOND
STEP_US = SECOND // 4
#: In how many worlds a topic is removed and created again.
KEPT_TOPIC_SHARE = 0.25
#: In how many worlds with several pubends a publisher goes from one to another.
MOVING_PUBLISHER_SHARE = 0.5
#: When all is quiet, nacks have to stop within this many microseconds.
CALM_US = SECOND
#: An answer of silence that was lost is asked for again late, while nobody lacks an event: so often.
CALM_TRIES = 12
#: The same where a clock may jump by an hour and nacks ask for a second each: brokers that have all been
#: restarted ask for the whole hour of silence, a second of it in 30 ms over three hops.
CALM_TRIES_WITH_AN_HOUR = 240


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """The result of one seed."""

    seed: int
    events: int = 0
    deliveries: int = 0
    gaps: int = 0
    #: broker counters over all lives, and how often each fault happened
    coverage: dict[str, int] = field(default_factory=dict)
    #: digest of every ledger and of the frames sent: equal runs have equal digests
    digest: str = ""
    #: the promise that was broken; None if all were kept
    violation: str | None = None


class SeedRun:
    """One seed's world from its start to its checks."""

    def __init__(self, seed: int, *, profile: str = "swarm", trace: Trace | None = None) -> None:
        self.seed = seed
        self.chance = Random(seed)
        # A generator of its own: whatever draws from it leaves the rest of a seed's world unchanged.
        history = Random(f"history of {seed}")
        plan = with_history(plan_of(self.chance, profile), history)
        plan = with_expiry(plan, Random(f"expiry of {seed}"))
        plan = with_retention(plan, Random(f"retention of {seed}"))
        plan = with_storage(plan, Random(f"storage, {seed}"))
        plan = with_durability(plan, Random(f"durability of {seed}"))
        plan = with_economy(plan, Random(f"economy of {seed}"))
        plan = with_rates(plan, Random(f"rates of {seed}"), profile)
        plan = with_access(plan, Random(f"access of {seed}"), profile)
        plan = with_held_quota(plan, Random(f"held bytes of {seed}"))
        self.plan = with_link_versions(plan, Random(f"link versions of {seed}"), profile)
        self.world = World(self.plan, self.chance.randrange(1 << 30), trace)
        self.fault_injector = FaultInjector(self.world, self.plan, Random(self.chance.random()))
        self._populate()
        self._acknowledge_one_by_one(Random(f"acknowledgements of {seed}"))
        self._keep_a_topic(Random(f"topics of {seed}"))
        self._let_a_publisher_move(Random(f"moving publishers of {seed}"))
        if self.plan.has_archive:
            self.world.pipeline = Pipeline(self.world, Random(history.random()))

    def _populate(self) -> None:
        world, chance = self.world, self.chance
        for pubend, host in self.plan.pubends.items():
            for _ in range(chance.randint(1, 2)):
                name = f"pub{len(world.publishers)}"
                world.publishers.append(
                    SimPublisher(
                        world,
                        name,
                        pubend,
                        host,
                        Random(chance.random()),
                        self.plan.validities,
                        self.plan.topics,
                    )
                )
        machines = sorted(world.machines)
        for number in range(chance.randint(1, 6)):
            kind = chance.choice(("holds", "holds", "leaves", "passes"))
            world.subscribers.append(
                SimSubscriber(
                    world,
                    f"{kind}{number}",
                    chance.choice(machines),
                    chance.choice(PATTERNS),
                    chance.choice(SELECTORS),
                    Random(chance.random()),
                    credit=chance.choice((100, 1_000, 100_000)),
                    kind=kind,  # type: ignore[arg-type]  # one of the three
                    reaches_back=self.plan.reaches_back,
                    moves=self.plan.moves,
                )
            )

    def _acknowledge_one_by_one(self, chance: Random) -> None:
        """Some subscribers take an event when the broker has the acknowledgement of the last one on disk."""
        for subscriber in self.world.subscribers:
            subscriber.is_auto = subscriber.kind == "leaves" and chance.random() < self.plan.auto_share

    def _keep_a_topic(self, chance: Random) -> None:
        """In some worlds a topic is removed and created again, and there is a publisher of its events."""
        world = self.world
        if chance.random() >= KEPT_TOPIC_SHARE or world.access is not None:
            return
        world.topic_keeper = TopicKeeper(world, Random(chance.random()))
        pubend = chance.choice(sorted(self.plan.pubends))
        name, machine = f"pub{len(world.publishers)}", self.plan.pubends[pubend]
        made = KeptTopicPublisher(world, name, pubend, machine, Random(chance.random()), topics=(TOPIC,))
        world.publishers.append(made)

    def _let_a_publisher_move(self, chance: Random) -> None:
        """In some worlds with several pubends there is a publisher that goes from one to another."""
        world, pubends = self.world, sorted(self.plan.pubends)
        if chance.random() >= MOVING_PUBLISHER_SHARE or len(pubends) < 2 or world.access is not None:
            return
        name, pubend = f"pub{len(world.publishers)}", chance.choice(pubends)
        machine = self.plan.pubends[pubend]
        made = MovingPublisher(
            world, name, pubend, machine, Random(chance.random()), self.plan.validities, self.plan.topics
        )
        world.publishers.append(made)

    def execute(self) -> SeedOutcome:
        """Run the storm, heal, let the world rest, check it; ViolationError if a promise was broken."""
        world, engine = self.world, self.world.engine
        start = engine.now
        for publisher in self.world.publishers:
            publisher.connect()
            publisher.begin(start + STORM_US)
            self._publishing(publisher, start + STORM_US)
            late = partial(publisher.discover, self.plan.late_topic)
            engine.after(self.chance.randint(STORM_US // 4, STORM_US), late)
        for subscriber in self.world.subscribers:
            engine.after(self.chance.randrange(SECOND), subscriber.come)
            self._consuming(subscriber, start + STORM_US)
        if world.pipeline is not None:
            world.pipeline.start()
        if world.topic_keeper is not None:
            world.topic_keeper.begin(start + STORM_US)
        if world.held_bytes is not None:
            world.held_bytes.begin()
        self.fault_injector.begin(start + STORM_US)
        engine.run(start + STORM_US)
        self._heal()
        rest = REST_US if self.plan.link_rate is None else REST_WITH_RATES_US
        while not self._is_quiet() and engine.now < start + STORM_US + rest:
            engine.run(engine.now + STEP_US)
        check_world(self.world)
        self._nacks_stop()
        check_routes(self.world)
        check_topics(self.world)
        return self._outcome()

    def _outcome(self) -> SeedOutcome:
        world = self.world
        ledgers = [
            each
            for subscriber in world.subscribers
            for life in subscriber.lives
            for each in life.ledger.values()
        ]
        return SeedOutcome(
            self.seed,
            sum(len(each) for each in world.ground_truth.durable.values()),
            sum(len(each.events) for each in ledgers),
            sum(len(each.gaps) for each in ledgers),
            dict(world.coverage()),
            self._digest(),
        )

    def _digest(self) -> str:
        world = self.world
        lives = [
            (life.name, sorted(life.ledger.items())) for each in world.subscribers for life in each.lives
        ]
        return sha256(repr((lives, sorted(world.network.sent.items()))).encode()).hexdigest()

    def _is_quiet(self) -> bool:
        """Every event is acknowledged, every subscriber has committed all of its own and has one host.

        The hosts have come to the end of every stream, also where all that is left has expired.
        """
        world = self.world
        return (
            all(publisher.is_idle for publisher in world.publishers)
            and all(
                is_caught_up(each, world) and len(world.hosts_of(each.life.name)) == 1
                for each in world.subscribers
            )
            and all(
                machine.has_delivered(pubend, world.ground_truth.last(pubend))
                for machine in world.machines.values()
                for pubend in self.plan.pubends
            )
        )

    def _nacks_stop(self) -> None:
        engine, sent = self.world.engine, self.world.network.sent
        # What brokers say of their links and routes is heard when the live frames before it have left.
        engine.run(engine.now + self.world.network.waiting_us())
        # A broker that returns to a better route follows both for a while, and nacks once what lies between.
        # A link that has died often is a better route again after three half-lives at the latest.
        returned = self.plan.return_delay + self.plan.silence_patience + OVERLAP_US
        engine.run(engine.now + CALM_US + returned + 3 * self.plan.damping)
        asks_for_an_hour = self.plan.fault_weights.skew and self.plan.thresholds.chop_ticks_max <= SECOND
        for _ in range(CALM_TRIES_WITH_AN_HOUR if asks_for_an_hour else CALM_TRIES):
            before = sent.get("Nack", 0)
            engine.run(engine.now + CALM_US)
            if sent.get("Nack", 0) == before:
                return
        raise ViolationError("everyone has everything, and still somebody asks for more")

    def _publishing(self, publisher: SimPublisher, until: int) -> None:
        rest = publisher.chance.choice((20_000, 100_000, 400_000))

        def publish() -> None:
            if self.world.engine.now < until:
                publisher.publish(publisher.chance.choice((1, 1, 2, 6)))
                self.world.engine.after(publisher.chance.randint(1, rest), publish)

        self.world.engine.after(publisher.chance.randint(1, rest), publish)

    def _consuming(self, subscriber: SimSubscriber, until: int) -> None:
        """Commit now and then as long as the world runs; leave, change and unsubscribe during the storm."""
        chance = subscriber.chance

        def consume() -> None:
            now = self.world.engine.now
            if now < until:
                self._be_fickle(subscriber)
            subscriber.commit()
            pace = 100_000 if now < until else 20_000
            self.world.engine.after(chance.randint(pace // 10, pace), consume)

        self.world.engine.after(chance.randint(1, 100_000), consume)

    def _be_fickle(self, subscriber: SimSubscriber) -> None:
        chance = subscriber.chance
        if chance.random() < self.plan.leaves:
            if subscriber.is_away:
                subscriber.come()
            else:
                subscriber.leave(unnoticed=chance.random() < 0.3)
        elif chance.random() < self.plan.changes:
            subscriber.change(chance.choice(SELECTORS))
        elif chance.random() < self.plan.ends:
            subscriber.unsubscribe()

    def _heal(self) -> None:
        world = self.world
        world.network.faults = LinkFaults()
        self.fault_injector.heal()
        for subscriber in world.subscribers:
            subscriber.come()
        for publisher in world.publishers:
            publisher.connect()


def run_seed(
    seed: int, *, profile: str = "swarm", bug: str | None = None, trace: Trace | None = None
) -> SeedOutcome:
    """Run one seed, with `bug` planted if it is given; raises ViolationError if a promise is broken."""
    with planted(bug) if bug else nullcontext():
        return SeedRun(seed, profile=profile, trace=trace).execute()


def try_seed(
    seed: int, profile: str = "swarm", bug: str | None = None, trace: Trace | None = None
) -> SeedOutcome:
    """Run one seed; a broken promise, or any exception, is in `violation` of the outcome."""
    try:
        return run_seed(seed, profile=profile, bug=bug, trace=trace)
    except AssertionError as error:
        return SeedOutcome(seed, violation=str(error) or f"an assertion failed in {_place(error)}")
    except Exception as error:
        return SeedOutcome(seed, violation=f"{type(error).__name__} in {_place(error)}: {error}")


def run_many(
    first: int, count: int, *, profile: str = "swarm", jobs: int = 1, report: Callable[[SeedOutcome], None]
) -> None:
    """Run `count` seeds, `jobs` at a time; `report` gets each outcome in the order of the seeds."""
    attempt = partial(try_seed, profile=profile)
    with closing(in_order(attempt, range(first, first + count), jobs)) as outcomes:
        for outcome in outcomes:
            report(outcome)


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].name}, {frames[-1].filename.rpartition('/')[2]} line {frames[-1].lineno}"
