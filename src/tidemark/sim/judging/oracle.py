"""Oracle: checks a simulated world against the ground truth; docs/simulator.md lists the promises it checks.

`RunningChecks` checks some promises while the world runs. `check_world` and `check_routes` check the rest
once every fault is healed and nothing is under way. Each raises ViolationError at the first broken promise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemark.broker.overlay.routing import Routing
from tidemark.sim.judging.ground_truth import ViolationError
from tidemark.sim.judging.publishing_rates import PublishingRates
from tidemark.sim.judging.shown_fields import named_in
from tidemark.sim.world.subscriber import ConsumedPubend, Life, SimSubscriber
from tidemark.ticks import RangeSet
from tidemark.wire.frames import Deliver, Fetched, Gap, Knowledge, PeerFrame

if TYPE_CHECKING:
    from tidemark.broker.broker import Broker
    from tidemark.message.batches.batch import EventBatch
    from tidemark.sim.world.access import SimAccess
    from tidemark.sim.world.world import World


#: What answers may carry in vain, in worlds whose links have a bandwidth: a share of what was needed, and so
#: many bytes of each pubend for each fault, which may have made an answer late or a question pointless. A
#: fault may move the streams of several brokers to other ways, on which nobody knows yet how long answers
#: take, and a nack names ticks: what it asks for at first may have this many bytes of events.
NEEDLESS_SHARE = 0.1
NEEDLESS_BYTES = 4_000
NEEDLESS_BYTES_A_FAULT = 6_000


#: More than a world's events: with such a bound `min_retain` is bounded by time only.
MUCH_BYTES = 1 << 20


@dataclass
class RunningChecks:
    """The checks that need not wait for the end of a run."""

    world: World
    #: pubend -> the tick up to which the pubend has released its history
    lost: dict[str, int] = field(default_factory=dict)
    #: pubend -> the ticks that a damaged disk lost
    damaged: dict[str, RangeSet] = field(default_factory=dict)
    #: pubend -> the tick up to which the pubend has let expired events go
    expired: dict[str, int] = field(default_factory=dict)
    #: pubends that were asked to let go up to a tick, wherever that is
    dismissed: set[str] = field(default_factory=set)
    #: a policy may release history before every durable subscriber has consumed it
    is_early: bool = False
    #: bytes of events that came in answers, to those that waited for them and to those that did not
    needed_bytes: int = 0
    needless_bytes: int = 0
    publishing: PublishingRates = field(default_factory=PublishingRates)

    def let_go(self, pubend: str, upto: int, wall: int) -> None:
        """A pubend releases history at the time of day `wall`.

        It must end at an event: what is released beyond looks like lost events to whoever reads there. Unless
        `is_early`, every durable subscriber must have consumed it, and min_retain must have passed.
        """
        before = self.lost.get(pubend, 0)
        self.lost[pubend] = max(before, upto)
        if not self.is_early:
            self._is_consumed(pubend, before, upto, wall)
        is_excused = (
            self.damaged.get(pubend) or self.world.plan.fault_weights.full or pubend in self.dismissed
        )
        if not is_excused and upto not in self.world.ground_truth.durable[pubend]:
            raise ViolationError(f"{pubend} lets silence go, behind its events up to {upto}")

    def _is_consumed(self, pubend: str, before: int, upto: int, wall: int) -> None:
        """Every durable subscriber must have consumed `(before, upto]`, and it must be old enough."""
        self._is_old(pubend, before, upto, wall)
        for subscriber in self.world.subscribers:
            received = subscriber.life.ledger.get(pubend)
            if subscriber.life.past is not None:
                continue  # it asked for history older than its subscription, which may be released meanwhile
            if subscriber.life.durable and not subscriber.is_ending and received and received.upto < upto:
                raise ViolationError(
                    f"{pubend} let go up to {upto}, but {subscriber.name} has only got to {received.upto}"
                )

    def _is_old(self, pubend: str, base: int, upto: int, wall: int) -> None:
        """No valid event of `(base, upto]` may be younger than min_retain, where nothing else bounds that."""
        policy = self.world.plan.policy_of(pubend)
        weights = self.world.plan.fault_weights
        if policy.min_retain_bytes < MUCH_BYTES or weights.full or weights.reform:
            return  # bounded by bytes; and a full disk, or a broker that was told to drain, keeps nothing
        for tick, key in self.world.ground_truth.within(pubend, base, upto):
            if tick > wall - policy.min_retain and self.world.ground_truth[key].alive_at(tick, wall):
                raise ViolationError(f"{pubend} let {key} at {tick} go, which it keeps for newcomers")

    def expire(self, pubend: str, upto: int) -> None:
        """A pubend has let go what has expired: no event of it may be valid for anybody."""
        self.expired[pubend] = max(self.expired.get(pubend, 0), upto)
        truth = self.world.ground_truth
        for tick, key in truth.within(pubend, self.lost.get(pubend, 0), upto):
            if truth[key].alive_at(tick, self.world.latest):
                raise ViolationError(f"{pubend} let {key} at {tick} go as expired, which is still valid")

    def knowledge(self, sender: str, receiver: str, frame: Knowledge) -> None:
        """A broker sends knowledge: D must be durable, and S must hide no event that is wanted.

        S is checked only where the receiver believes it, and for subscribers that asked the receiver.
        """
        truth, here = self.world.ground_truth, dict[int, str]()
        if frame.batch is not None:
            for row, tick in enumerate(frame.batch.ticks.tolist()):
                here[tick] = self.world.key_of(frame.batch, row)
                if truth.durable[frame.pubend].get(tick) != here[tick]:
                    raise ViolationError(f"{sender} told {receiver} of {here[tick]}, which is not durable")
        if not self.world.is_believed(sender, receiver, frame):
            return
        missing = [each for each in truth.within(frame.pubend, frame.base, frame.upto) if each[0] not in here]
        excused = RangeSet(frame.damaged)
        for tick, key in missing:
            is_valid = truth[key].alive_at(tick, self.world.latest)
            if tick > frame.lost and is_valid and not excused.contains(tick):
                self._is_not_wanted(sender, receiver, frame.pubend, tick, key)

    def _is_not_wanted(self, sender: str, receiver: str, pubend: str, tick: int, key: str) -> None:
        for subscriber in self.world.subscribers:
            if subscriber.asked_at != receiver:
                continue  # the frame that is passed on to its host is checked when it is sent
            if subscriber.is_ending or not (subscriber.life.durable or self.world.is_served(subscriber)):
                continue
            received = subscriber.life.ledger.get(pubend)
            if received is not None and received.upto >= tick:
                continue  # the subscriber is past this tick, so a late answer does not matter
            if subscriber.life.past is not None or subscriber.life.has_moved:
                known = self.world.known_from(subscriber, pubend)
                if known is None or tick <= known:
                    continue  # the broker does not account for this tick, and fetches it in another way
            if self.world.is_owed(subscriber.life, key) and subscriber.life.surely_wants(
                pubend, tick, lambda want: self.world.ground_truth.matches(want.pattern, want.selector, key)
            ):
                raise ViolationError(
                    f"{sender} told {receiver} of silence at {tick}, where {key} is for {subscriber.name}"
                )

    def heard(self, broker: Broker, sender: str, frame: PeerFrame) -> None:
        """A broker is about to handle a frame: count the bytes of answers, and whether they were needed."""
        if not (isinstance(frame, Knowledge) and not frame.first) and not isinstance(frame, Fetched):
            return
        if frame.batch is None:
            return
        ticks = frame.batch.ticks
        needed = sum(
            int(((ticks > base) & (ticks <= upto)).sum()) for base, upto in broker.awaits(sender, frame)
        )
        self.needed_bytes += len(frame.batch.data) * needed // len(ticks)
        self.needless_bytes += len(frame.batch.data) * (len(ticks) - needed) // len(ticks)

    def seen(self, access: SimAccess, machine: str, user: str, batch: EventBatch, selector: str) -> None:
        """Events go to a user: the document in force at the broker has to show every one of them.

        The selector that the user had given for them names no field that is hidden from it by now. Exactly
        the fields that the document hides may be missing, and the batch names no topics and publishers but
        those of its events, unless the user sees everything.
        """
        assert self.world.shown_fields is not None
        if batch.with_used_names() is not batch and not access.sees_all(machine, user):
            raise ViolationError(
                f"{machine} tells {user} of {batch.shapes} and {batch.publishers}, not all its own"
            )
        for row, tick in enumerate(batch.ticks.tolist()):
            key = self.world.key_of(batch, row)
            if not access.is_shown(machine, user, key):
                raise ViolationError(
                    f"{machine} shows {user} the event {key} at {tick}, which the access document "
                    f"{access.number(machine)} hides"
                )
            hidden = access.hidden(machine, user, key)
            if hidden & named_in(selector):
                raise ViolationError(
                    f"{machine} shows {user} the event {key} at {tick}, chosen by {selector!r}; the access "
                    f"document {access.number(machine)} hides {sorted(hidden)} from its selectors"
                )
            shape = batch.shapes[int(batch.prelude("shape")[row])]
            lacking = self.world.shown_fields.lacking(shape.fingerprint)
            if hidden != lacking:
                raise ViolationError(
                    f"{machine} shows {user} the event {key} without the fields {sorted(lacking)}; by the "
                    f"access document {access.number(machine)}, {sorted(hidden)} are hidden fields"
                )

    def told(self, wall: int, frame: Deliver | Gap) -> None:
        """A frame goes to a subscriber: no event has expired, and a gap lies where history is gone."""
        if isinstance(frame, Gap):
            if frame.name.startswith("pass"):
                return  # not durable: it misses the events that it has no credit for
            gone = RangeSet(self.damaged[frame.pubend])
            if self.world.pipeline is None:
                gone.add(0, max(0, self.lost.get(frame.pubend, 0)))
            published = self.world.ground_truth.within(frame.pubend, frame.base, frame.upto)
            if not all(gone.contains(tick) for tick, _ in published):
                raise ViolationError(f"{frame.name} is told a gap {frame}, where not all is gone")
        elif frame.batch is not None:
            for row, tick in enumerate(frame.batch.ticks.tolist()):
                key = self.world.key_of(frame.batch, row)
                if not self.world.ground_truth[key].alive_at(tick, wall):
                    raise ViolationError(f"{frame.name} is told of {key}, which has expired")


def check_world(world: World) -> None:
    """Raise ViolationError at the first promise that is broken. Call when all is healed and quiet."""
    _acknowledged_is_durable(world)
    for subscriber in world.subscribers:
        for life in subscriber.lives:
            for pubend in world.ground_truth.durable:
                received = life.ledger.get(pubend)
                if received is not None:
                    _is_right(world, life, pubend, received)
                elif life.is_last:
                    raise ViolationError(f"{life.name} never started at {pubend}")
    _everyone_is_at_one_broker(world)
    _memory_is_bounded(world)
    _answers_were_needed(world)
    _honest_brokers_are_believed(world)


def _everyone_is_at_one_broker(world: World) -> None:
    """However often a subscriber moved, exactly one broker hosts its subscription: the one it is at."""
    for subscriber in world.subscribers:
        hosts = world.hosts_of(subscriber.life.name)
        is_right = hosts == [subscriber.machine] if subscriber.is_welcome else len(hosts) == 1
        if subscriber.life.durable and not is_right:
            raise ViolationError(f"{subscriber.name} is at {subscriber.machine}, and hosted by {hosts}")


def _acknowledged_is_durable(world: World) -> None:
    """Every acknowledged event is on disk, once, at one pubend, and in each in its publisher's order."""
    for publisher in world.publishers:
        keys: list[str] = []
        for durable in world.ground_truth.durable.values():
            here = [key for key in durable.values() if key.startswith(f"{publisher.name}/")]
            order = [int(key.partition("/")[2]) for key in here]
            if order != sorted(order):
                raise ViolationError(f"the events of {publisher.name} are logged out of order")
            keys += here
        if len(keys) != len(set(keys)):
            raise ViolationError(f"an event of {publisher.name} is logged twice")
        missing = {f"{publisher.name}/{n}" for n in range(1, publisher.acknowledged + 1)} - set(keys)
        if missing:
            raise ViolationError(f"acknowledged and not on disk: {sorted(missing)[:3]}")


def _is_right(world: World, life: Life, pubend: str, received: ConsumedPubend) -> None:
    """A subscriber got every matching event after its start once and in order, or a gap; nothing else."""
    where = f"{life.name} at {pubend}"
    wanted = dict(_wanted(world, life, pubend, received))
    got = dict(received.events)
    if [tick for tick, _ in received.events] != sorted(got):
        raise ViolationError(f"{where}: out of order or twice")
    for tick, key in got.items():
        if wanted.get(tick) != key:
            raise ViolationError(f"{where}: {key} at {tick} was not wanted or not published")
    # Only its pubend need know of an event that has expired: to all others it may be silence.
    valid = (
        tick
        for tick, key in wanted.items()
        if world.ground_truth[key].alive_at(tick, world.latest) and world.is_owed(life, key)
    )
    last = max(valid, default=received.start)
    if life.is_last and received.upto < last:
        raise ViolationError(f"{where}: told up to {received.upto}, but there is an event at {last}")
    excused = RangeSet(received.gaps)
    for tick, key in wanted.items():
        if tick > received.upto or tick in got or excused.contains(tick):
            continue
        if world.ground_truth[key].alive_at(tick, world.latest) and world.is_owed(life, key):
            raise ViolationError(f"{where}: {key} at {tick} is missing")
    excused_by_age = life.past is not None and world.pipeline is None
    if received.gaps and life.durable and not world.gaps_allowed and not excused_by_age:
        raise ViolationError(f"{where}: a gap that nothing justifies, {received.gaps[0]}")


def _wanted(world: World, life: Life, pubend: str, received: ConsumedPubend) -> Iterator[tuple[int, str]]:
    """Yields tick and key of every durable event that the subscription wanted, from its start on."""
    for tick, key in world.ground_truth.durable[pubend].items():
        want = life.wanted_at(pubend, tick) if tick > received.start else None
        if want is not None and world.ground_truth.matches(want.pattern, want.selector, key):
            yield tick, key


def _memory_is_bounded(world: World) -> None:
    """No broker's window of a pubend is larger than its bound plus one batch."""
    for machine in world.machines.values():
        for name, size in machine.window_bytes():
            if size > world.plan.window_bytes_max + world.largest_batch:
                raise ViolationError(f"{machine.name} holds {size} bytes of {name}")


def _honest_brokers_are_believed(world: World) -> None:
    """Nothing that brokers said was out of its place, unless they went by different layouts for a while."""
    misplaced = world.coverage()["frames_misplaced"]
    if misplaced and not world.topology_changes:
        raise ViolationError(f"{misplaced} reports of honest brokers counted for nothing")


def _answers_were_needed(world: World) -> None:
    """What was sent in answers is bounded by what was needed, where frames cost what they cost in reality.

    Links without a bandwidth lose and repeat frames by themselves.
    """
    if world.plan.link_rate is None:
        return
    needed, needless = world.checks.needed_bytes, world.checks.needless_bytes
    lost = NEEDLESS_BYTES_A_FAULT * sum(world.fault_counts.values()) * len(world.plan.pubends)
    allowed = NEEDLESS_SHARE * needed + NEEDLESS_BYTES + lost
    if needless > allowed:
        raise ViolationError(
            f"answers had {needless} bytes of events that nobody waited for, and {needed} that somebody did"
        )


def check_routes(world: World) -> None:
    """Raise ViolationError unless each broker has each pubend from the neighbour that the routing names.

    Call when everything has been healed for longer than `return_delay`, after which brokers return to a
    better route, and for as long as they follow both then.
    """
    layout = world.layout
    live = {name: frozenset(layout.neighbours(name)) for name in layout.brokers}
    for name, machine in world.machines.items():
        assert machine.broker is not None
        routing = Routing(layout, name)
        for pubend in layout.pubends:
            stream = machine.broker.stream(pubend)
            wanted = routing.upstream(pubend, live)
            if stream is None or stream.upstream != wanted:
                found = stream.upstream if stream is not None else "nowhere"
                raise ViolationError(f"{name} has {pubend} from {found}, and should have it from {wanted}")
            for follower in stream.followers:
                if Routing(layout, follower).upstream(pubend, live) != name:
                    raise ViolationError(f"{follower} follows {name} for {pubend}, and should not")


def is_caught_up(subscriber: SimSubscriber, world: World) -> bool:
    """Whether a subscriber has committed every valid durable event that it wants."""
    life, truth = subscriber.life, world.ground_truth
    if not subscriber.is_subscribed or subscriber.is_ending:
        return False
    for pubend in truth.durable:
        received = life.ledger.get(pubend)
        if received is None:
            return False
        for tick, key in truth.within(pubend, received.upto, truth.last(pubend)):
            want = life.wanted_at(pubend, tick)
            is_valid = truth[key].alive_at(tick, world.latest)
            is_wanted = want is not None and truth.matches(want.pattern, want.selector, key)
            if is_valid and is_wanted and world.is_owed(life, key):
                return False
    return True
