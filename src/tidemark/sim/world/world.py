"""World: a network of machines with publishers and subscribers, and the ground truth about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from random import Random

from tidemark.access.document import AccessDocument
from tidemark.broker.config import BrokerConfig
from tidemark.broker.effects import DrainNotice, RecoveredPubend
from tidemark.broker.overlay.layout import Layout, pair
from tidemark.message.batches.batch import EventBatch
from tidemark.sim.judging.ground_truth import GroundTruth, ViolationError
from tidemark.sim.judging.held_bytes import HeldBytes
from tidemark.sim.judging.oracle import RunningChecks
from tidemark.sim.judging.shown_fields import ShownFields, schema_without
from tidemark.sim.swarm.plan import SECOND, WorldPlan
from tidemark.sim.world.access import SimAccess
from tidemark.sim.world.engine import Engine
from tidemark.sim.world.machine import Machine
from tidemark.sim.world.network import Network
from tidemark.sim.world.pipeline import Pipeline
from tidemark.sim.world.publisher import SimPublisher
from tidemark.sim.world.subscriber import Life, SimSubscriber
from tidemark.sim.world.topic_keeper import SCHEMAS, TopicKeeper
from tidemark.sim.world.trace import Trace
from tidemark.ticks import Range, RangeSet
from tidemark.wire.frames import ClientFrame, Deliver, Fetch, Gap, Knowledge, PeerFrame, Publish, Refused
from tidemark.wire.limits import LINK_NEWEST, LINK_OLDEST
from tidemark.wire.versions import agree_link, is_spoken

START = 1_000_000 * SECOND
#: Hosts count what subscriptions with a quota are owed this often, in microseconds.
HELD_QUOTA_US = 100_000
#: A broker notices within this many microseconds that a client is gone.
UNNOTICED_US_MAX = 1_000_000
#: A broker is told of a topology change within this many microseconds.
HEARS_US_MAX = 300_000


def drain_notice(layout: Layout, name: str) -> DrainNotice | None:
    """Return what a broker that is being drained tells publishers; None if it is not drained."""
    return DrainNotice(f"{name!r} is being drained") if name in layout.draining else None


class World:
    """Machines, network, clients and checks of one seed, in one thread."""

    def __init__(self, plan: WorldPlan, seed: int, trace: Trace | None = None) -> None:
        self.plan = plan
        self.trace = trace
        self.seed = seed
        self.chance = Random(seed)
        self.engine = Engine(START)
        #: what events look like where fields may be hidden; None while brokers are open
        self.shown_fields = None if plan.rulebook is None else ShownFields()
        self.schema = schema_without(("secret",) if plan.rulebook is None else ())
        schemas = (*SCHEMAS, *(self.shown_fields.schemas if self.shown_fields else (self.schema,)))
        #: fingerprint of a schema -> what reads the key of its events
        self._key = {each.fingerprint: each.accessor("key") for each in schemas}
        self.topics = plan.topics
        self.ground_truth = GroundTruth(self.schema)
        for pubend in plan.pubends:
            self.ground_truth.host(pubend)
        damaged = {name: RangeSet() for name in plan.pubends}
        self.checks = RunningChecks(self, damaged=damaged, is_early=plan.may_let_go)
        #: fault -> how often it happened; and the sums of the counters of brokers that have ended
        self.fault_counts: Counter[str] = Counter()
        self._counted: Counter[str] = Counter()
        self._skew_max = 0
        self.largest_batch = 0
        self.network = Network(self.engine, Random(self.chance.random()), self._sent, self._arrived)
        self.network.faults = plan.link_faults
        self.network.rate = plan.link_rate
        #: who passed a fetch on last, to whom, and the fetch; for strangers who answer it
        self.last_fetch: tuple[str, str, Fetch] | None = None
        #: who may see what; None while brokers are open
        self.access = None if plan.rulebook is None else SimAccess(plan.rulebook, self.ground_truth)
        self.held_bytes = None if plan.held_bytes is None else HeldBytes(self, plan.held_bytes)
        #: the current overlay; a broker may still work with an older one
        self.layout = plan.layout
        self.topology_changes = 0
        self.machines = {
            name: Machine(self, name, Random(self.chance.random())) for name in self.layout.brokers
        }
        self._links_down: set[frozenset[str]] = set()
        self._clients: dict[int, tuple[str, Callable[[ClientFrame], None], Callable[[], None]]] = {}
        #: client -> the user that it is
        self._users: dict[int, str] = {}
        self._next_client = 1
        self.publishers: list[SimPublisher] = []
        self.subscribers: list[SimSubscriber] = []
        self.pipeline: Pipeline | None = None
        #: who removes a topic and creates it again; None where nobody does
        self.topic_keeper: TopicKeeper | None = None
        #: subscribers may be told of gaps: policy releases history early, or a disk lost some
        self.gaps_allowed = plan.may_let_go and not plan.has_archive
        #: pubend -> tick -> the bytes of every event that was ever durable
        self._messages: dict[str, dict[int, bytes]] = {name: {} for name in plan.pubends}
        for machine in self.machines.values():
            machine.start()

    def config_of(self, name: str, incarnation: int) -> BrokerConfig:
        """Returns the configuration of a broker of this world."""
        plan = self.plan
        return BrokerConfig(
            name,
            incarnation,
            self.layout,
            plan.pubend_policy,
            plan.host_policy,
            plan.thresholds,
            plan.window_bytes_max,
            release_period=plan.release_period,
            silence_patience=plan.silence_patience,
            return_delay=plan.return_delay,
            linger=plan.linger,
            damping=plan.damping,
            drain_notice=drain_notice(self.layout, name),
            pubend_policies=plan.pubend_policies,
            cache_bytes_max=plan.cache_bytes_max,
            held_quota_period=HELD_QUOTA_US,
            link_version=self.machines[name].link_version,
        )

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Returns the names of the machines that a machine is linked to."""
        return self.layout.neighbours(name)

    # Links.

    def started(self, machine: Machine) -> None:
        """A machine has started: bring its links up."""
        if machine.name not in self.layout.brokers:
            return
        for peer in self.neighbours(machine.name):
            self.engine.after(1_000, lambda peer=peer: self._connect(machine.name, peer))  # type: ignore[misc]

    def cut(self, a: str, b: str) -> None:
        """Take a link down until `mend`."""
        self._links_down.add(frozenset((a, b)))
        self._disconnect(a, b)

    def mend(self, a: str, b: str) -> None:
        """Bring a link up again."""
        self._links_down.discard(frozenset((a, b)))
        self._connect(a, b)

    def crash(self, name: str) -> None:
        """Crash a machine, with its links and connections."""
        self.machines[name].crash()
        for peer in sorted(self.machines):
            if peer != name:
                self._disconnect(name, peer)

    def restart(self, name: str) -> None:
        """Start a machine again, if it is down and still in the overlay."""
        if name in self.layout.brokers and self.machines[name].broker is None:
            self.machines[name].start()

    # The overlay at run time.

    def change_topology(self, layout: Layout, chance: Random) -> None:
        """Change the overlay; each broker is told, and each link made or removed, at a random time soon."""
        before, self.layout = self.layout, layout
        self.topology_changes += 1
        for name in sorted(set(layout.brokers) - set(before.brokers)):
            self.machines[name] = Machine(self, name, Random(chance.random()))
            self.machines[name].start()
        for name in sorted(set(before.brokers) - set(layout.brokers)):
            self.engine.after(chance.randint(1, HEARS_US_MAX), partial(self._retire, name, before))
        number = self.topology_changes
        for name in layout.brokers:
            told = partial(self.machines[name].topology_changed, number, layout, drain_notice(layout, name))
            self.engine.after(chance.randint(1, HEARS_US_MAX), told)
        for a, b in sorted(set(before.all_links()) ^ set(layout.all_links())):
            self.engine.after(chance.randint(1, HEARS_US_MAX), partial(self._align, a, b))

    def _align(self, a: str, b: str) -> None:
        """Connect or disconnect a link, as the current overlay has it or not."""
        if pair(a, b) in self.layout.all_links():
            self._connect(a, b)
        else:
            self._disconnect(a, b)

    def part(self, a: str, b: str) -> None:
        """A broker closes a link that its overlay lacks; the link returns if a newer overlay has it."""
        self._disconnect(a, b)
        self.engine.after(HEARS_US_MAX, partial(self._connect, a, b))

    def _retire(self, name: str, before: Layout) -> None:
        """Switch off a machine that has left the overlay."""
        if name in self.layout.brokers or name not in self.machines:
            return
        machine = self.machines[name]
        machine.crash()
        for peer in before.neighbours(name):
            if peer in self.machines:
                self._disconnect(name, peer)
        del self.machines[name]
        if self.access is not None:
            self.access.forget(name)

    def link_version(self, a: str, b: str) -> int:
        """Returns the version of the protocol between brokers in which two machines speak to each other."""
        return agree_link(LINK_OLDEST, self.machines[a].link_version, mine=self.machines[b].link_version)

    def is_up(self, name: str) -> bool:
        """Whether a machine's broker is running."""
        return name in self.machines and self.machines[name].broker is not None

    def _connect(self, a: str, b: str) -> None:
        if frozenset((a, b)) in self._links_down or pair(a, b) not in self.layout.all_links():
            return
        if not (self.is_up(a) and self.is_up(b)):
            return
        self.machines[a].link_up(b)
        self.machines[b].link_up(a)

    def _disconnect(self, a: str, b: str) -> None:
        self.network.cut(a, b)
        for end, other in ((a, b), (b, a)):
            if end in self.machines:
                self.machines[end].link_down(other)

    def tell_access(self, sender: str, receiver: str, document: AccessDocument) -> None:
        """An access document reaches a neighbour, unless the link is down."""
        machine = self.machines.get(receiver)
        if machine is not None and machine.has_link(sender):
            machine.access_heard(document)

    def _sent(self, sender: str, receiver: str, frame: PeerFrame) -> None:
        if isinstance(frame, Knowledge):
            self.checks.knowledge(sender, receiver, frame)
        elif isinstance(frame, Fetch):
            self.last_fetch = sender, receiver, frame

    def _arrived(self, sender: str, receiver: str, frame: PeerFrame) -> None:
        if receiver in self.machines:
            version = self.link_version(sender, receiver) if sender in self.machines else LINK_NEWEST
            if not is_spoken(frame, version):
                raise ViolationError(f"{sender} said {frame!r}, which {receiver} does not know in {version}")
            self.machines[receiver].peer_frame(sender, frame)

    # Clients.

    def connect(
        self, name: str, receive: Callable[[ClientFrame], None], gone: Callable[[], None], user: str = ""
    ) -> int:
        """Open a client's connection to a broker; returns its number.

        `receive` is called with each frame from the broker, `gone` when the broker's end is lost. `user` is
        who it is, where brokers have accounts.
        """
        client = self._next_client
        self._next_client += 1
        self._clients[client] = (name, receive, gone)
        self._users[client] = user
        self.machines[name].client_came(client, user)
        return client

    def disconnect(self, client: int, *, unnoticed: bool = False) -> None:
        """Close a client's connection; the broker notices at once, or (`unnoticed`) after up to a second."""
        known = self._clients.pop(client, None)
        if known is not None:
            delay = self.chance.randint(500, UNNOTICED_US_MAX) if unnoticed else 500
            self.engine.after(delay, lambda: self.machines[known[0]].client_gone(client))

    def connection_lost(self, client: int) -> None:
        """The broker's end of a connection is gone; the client notices soon."""
        known = self._clients.pop(client, None)
        if known is not None:
            self.engine.after(500, known[2])

    def to_broker(self, client: int, frame: ClientFrame) -> None:
        """Send a frame from a client to its broker."""

        def arrive() -> None:
            if client in self._clients:
                self.machines[self._clients[client][0]].client_frame(client, frame)

        self.engine.after(200, arrive)

    def publishes(self, name: str, client: int, frame: Publish) -> None:
        """A broker takes a batch; ViolationError if the user has a quota, and had to wait longer."""
        if self.access is not None:
            user, amount = self._users[client], (frame.batch.count, len(frame.batch.data))
            quota = self.access.quota(name, user)
            self.checks.publishing.take(name, user, self.engine.now, amount, quota)

    def to_client(self, client: int, frame: ClientFrame) -> None:
        """Send a frame from a broker to a client; deliveries and gaps are checked on the way."""
        if isinstance(frame, Deliver | Gap) and client in self._clients:
            machine = self.machines[self._clients[client][0]]
            self.checks.told(self.engine.now + machine.skew, frame)
            if self.access is not None and isinstance(frame, Deliver) and frame.batch is not None:
                user = self._users[client]
                self.checks.seen(self.access, machine.name, user, frame.batch, self._selector_of(user, frame))

        def arrive() -> None:
            if client in self._clients:
                self._clients[client][1](frame)

        self.engine.after(200, arrive)

    def _selector_of(self, user: str, frame: Deliver) -> str:
        """Returns the selector that a user had given for what it is told; "" for an earlier life."""
        assert frame.batch is not None
        lives = [each.life for each in self.subscribers if each.name == user and each.life.name == frame.name]
        wants = [life.wanted_at(frame.pubend, int(frame.batch.ticks[0])) or life.wants[-1] for life in lives]
        return wants[0].selector if wants else ""

    def refused(self, subscriber: SimSubscriber, frame: Refused) -> None:
        """A subscriber was refused, which none in this world should be."""
        raise ViolationError(f"{subscriber.name} was refused: {frame.reason}")

    def frame_refused(self, name: str, reason: str) -> None:
        """A broker has refused a frame; ViolationError if there are no hostile strangers in this world."""
        if not self.plan.fault_weights.hostile:
            raise ViolationError(f"{name} refused a frame: {reason}")

    def is_owed(self, life: Life, key: str) -> bool:
        """Whether the rules have shown an event to a subscription throughout its life."""
        return self.access is None or self.access.is_shown_throughout(life.user, key, *life.documents)

    def set_skew(self, name: str, skew: int) -> None:
        """Set how many microseconds a machine's time of day is ahead."""
        self.machines[name].skew = skew
        self._skew_max = max(self._skew_max, skew)

    @property
    def latest(self) -> int:
        """The latest time of day that any machine has had so far."""
        return self.engine.now + self._skew_max

    def hosts_of(self, name: str) -> list[str]:
        """Returns the sorted names of the machines whose brokers host a subscription of this name."""
        brokers = {each.name: each.broker for each in self.machines.values() if each.broker is not None}
        return sorted(machine for machine, broker in brokers.items() if broker.hosts(name))

    def known_from(self, subscriber: SimSubscriber, pubend: str) -> int | None:
        """Returns the tick from which the broker that a subscriber asked last accounts for it, or None."""
        broker = self.machines[subscriber.asked_at].broker if subscriber.asked_at is not None else None
        return broker.known_from(subscriber.life.name, pubend) if broker is not None else None

    def is_served(self, subscriber: SimSubscriber) -> bool:
        """Whether a subscriber is connected, and the broker that it asked has not ended that meanwhile.

        A broker ends connections whose rules have changed; the subscriber hears of it a little later.
        """
        machine = self.machines.get(subscriber.asked_at or "")
        return subscriber.client is not None and machine is not None and machine.has(subscriber.client)

    def is_believed(self, sender: str, receiver: str, frame: Knowledge) -> bool:
        """Whether the receiver follows the sender for the pubend and the frame covers its interest."""
        broker = self.machines[receiver].broker if receiver in self.machines else None
        stream = broker.stream(frame.pubend) if broker is not None else None
        return stream is not None and stream.upstream == sender and frame.version >= stream.attached

    # Ground truth.

    def count(self, counters: Mapping[str, int]) -> None:
        """Keep the counters of a broker that has ended."""
        self._counted.update(counters)

    def coverage(self) -> Counter[str]:
        """Returns the sums of the counters of all lives of all brokers, and `fault_NAME` for each fault."""
        total = self._counted.copy()
        for machine in self.machines.values():
            if machine.broker is not None:
                total.update(machine.broker.counters)
        total.update({f"fault_{name}": count for name, count in self.fault_counts.items()})
        return total

    def key_of(self, batch: EventBatch, row: int) -> str:
        """Returns the key of an event, which identifies it in the whole world."""
        shape = batch.shapes[int(batch.prelude("shape")[row])]
        return str(self._key[shape.fingerprint](batch.message(row)))

    def is_as_published(self, batch: EventBatch, row: int) -> bool:
        """Whether an event is what its publisher made, in all fields that are not hidden."""
        published, message = self.ground_truth[self.key_of(batch, row)], batch.message(row)
        if self.shown_fields is None:
            return message == published.message
        shape = batch.shapes[int(batch.prelude("shape")[row])]
        return self.shown_fields.is_of(published.event, shape.fingerprint, message)

    def logged(self, pubend: str, batch: EventBatch) -> None:
        """Record that these events are durable."""
        messages = self._messages[pubend]
        self.largest_batch = max(self.largest_batch, batch.held_bytes)
        for row, tick in enumerate(batch.ticks.tolist()):
            if tick not in messages:
                messages[tick] = batch.message(row)
                self.ground_truth.become_durable(pubend, tick, self.key_of(batch, row))

    def damage_found(self, pubend: str, ranges: Iterable[Range], *, rots: int) -> None:
        """A log reports damaged ranges; ViolationError if nothing was ever damaged on its machine."""
        for base, upto in ranges:
            if not rots:
                raise ViolationError(f"{pubend}: ({base}, {upto}] is damaged, and nothing did that")
            self.checks.damaged[pubend].add(base, upto)

    def recovered(
        self,
        pubend: str,
        state: RecoveredPubend,
        batches: Iterable[EventBatch],
        damaged: Iterable[Range],
        *,
        rots: int,
    ) -> None:
        """Compare a recovered log with what was durable: nothing may be missing or changed.

        Where marks are damaged, the log may take expired events that it has let go for lost ones.
        Events that a crash left on disk although no sync covered them become durable now.
        """
        self.damage_found(pubend, damaged, rots=rots)
        lost, expired = self.checks.lost.get(pubend, 0), self.checks.expired.get(pubend, 0)
        if state.lost > (max(lost, expired) if rots else lost):
            raise ViolationError(f"{pubend} has lost up to {state.lost}, and let go only up to {lost}")
        self.checks.lost[pubend] = max(lost, state.lost)
        found = {
            tick: batch.message(row) for batch in batches for row, tick in enumerate(batch.ticks.tolist())
        }
        durable = self.ground_truth.durable[pubend]
        for tick, message in self._messages[pubend].items():
            if (
                tick > state.lost
                and (tick > expired or self.ground_truth[durable[tick]].alive_at(tick, self.latest))
                and found.get(tick) != message
                and not self.checks.damaged[pubend].contains(tick)
            ):
                raise ViolationError(
                    f"{pubend}: {self.ground_truth.durable[pubend][tick]} at {tick} was durable and is gone"
                )
        for batch in batches:
            self.logged(pubend, batch)
