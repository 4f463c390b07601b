"""Oracle: knows every event that was published and every selector, and judges what arrived (FAULTS).

Some promises are watched while the world runs (`Watch`), the rest when all is healed and quiet (`judge`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemark.broker.overlay.routing import Routing
from tidemark.sim.judging.ground_truth import ViolationError
from tidemark.sim.world.subscriber import ConsumedPubend, Life, SimSubscriber
from tidemark.ticks import RangeSet
from tidemark.wire.frames import Deliver, Gap, Knowledge

if TYPE_CHECKING:
    from tidemark.sim.world.world import World


@dataclass
class RunningChecks:
    """What can be seen to be wrong at once."""

    world: World
    #: pubend -> everything at or below was let go
    lost: dict[str, int] = field(default_factory=dict)
    #: pubend -> what a disk lost
    damaged: dict[str, RangeSet] = field(default_factory=dict)
    #: history may be let go before everyone has consumed it
    is_early: bool = False

    def let_go(self, pubend: str, upto: int) -> None:
        """A pubend lets history go: everyone who is durable must have consumed it, unless policy says so."""
        self.lost[pubend] = max(self.lost.get(pubend, 0), upto)
        if self.is_early:
            return
        for subscriber in self.world.subscribers:
            received = subscriber.life.ledger.get(pubend)
            if subscriber.life.past is not None:
                continue  # what it wanted of before its time may be let go while it is on its way there
            if subscriber.life.durable and not subscriber.is_ending and received and received.upto < upto:
                raise ViolationError(
                    f"{pubend} let go up to {upto}, but {subscriber.name} has only got to {received.upto}"
                )

    def knowledge(self, sender: str, receiver: str, frame: Knowledge) -> None:
        """D only if it was published; S, if the receiver believes it, only if nobody there wants what is."""
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
                continue  # what is passed on to its host is judged then
            if subscriber.is_ending or (subscriber.client is None and not subscriber.life.durable):
                continue
            received = subscriber.life.ledger.get(pubend)
            if received is not None and received.upto >= tick:
                continue  # it has got that far: a late answer does not matter to it
            if subscriber.life.past is not None or subscriber.life.has_moved:
                known = self.world.known_from(subscriber, pubend)
                if known is None or tick <= known:
                    continue  # what was before its time there it gets in another way
            if subscriber.life.surely_wants(
                pubend, tick, lambda want: self.world.ground_truth.matches(want.pattern, want.selector, key)
            ):
                raise ViolationError(
                    f"{sender} told {receiver} of silence at {tick}, where {key} is for {subscriber.name}"
                )

    def told(self, wall: int, frame: Deliver | Gap) -> None:
        """Nothing is delivered that has expired; a gap is only where history is gone."""
        if isinstance(frame, Gap):
            if frame.name.startswith("pass"):
                return  # not durable: what it cannot take it misses
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
    """Raise ViolationError for the first thing that is not as promised. Call when all is healed and quiet."""
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


def _everyone_is_at_one_broker(world: World) -> None:
    """However a subscriber moved: one broker has its subscription in the end, the one where it is."""
    for subscriber in world.subscribers:
        hosts = world.hosts_of(subscriber.life.name)
        is_right = hosts == [subscriber.machine] if subscriber.is_welcome else len(hosts) == 1
        if subscriber.life.durable and not is_right:
            raise ViolationError(f"{subscriber.name} is at {subscriber.machine}, and hosted by {hosts}")


def _acknowledged_is_durable(world: World) -> None:
    for publisher in world.publishers:
        durable = world.ground_truth.durable[publisher.pubend].values()
        keys = [key for key in durable if key.startswith(f"{publisher.name}/")]
        if len(keys) != len(set(keys)):
            raise ViolationError(f"an event of {publisher.name} is logged twice")
        order = [int(key.partition("/")[2]) for key in keys]
        if order != sorted(order):
            raise ViolationError(f"the events of {publisher.name} are logged out of order")
        missing = {f"{publisher.name}/{n}" for n in range(1, publisher.acknowledged + 1)} - set(keys)
        if missing:
            raise ViolationError(f"acknowledged and not on disk: {sorted(missing)[:3]}")


def _is_right(world: World, life: Life, pubend: str, received: ConsumedPubend) -> None:
    """Every matching event beyond the start exactly once and in order, or in a gap; and nothing else."""
    where = f"{life.name} at {pubend}"
    wanted = dict(_wanted(world, life, pubend, received))
    got = dict(received.events)
    if [tick for tick, _ in received.events] != sorted(got):
        raise ViolationError(f"{where}: out of order or twice")
    for tick, key in got.items():
        if wanted.get(tick) != key:
            raise ViolationError(f"{where}: {key} at {tick} was not wanted or not published")
    # Of one that has expired nobody may have heard but its pubend: to the others it was silence.
    valid = (tick for tick, key in wanted.items() if world.ground_truth[key].alive_at(tick, world.latest))
    last = max(valid, default=received.start)
    if life.is_last and received.upto < last:
        raise ViolationError(f"{where}: told up to {received.upto}, but there is an event at {last}")
    excused = RangeSet(received.gaps)
    for tick, key in wanted.items():
        if tick > received.upto or tick in got or excused.contains(tick):
            continue
        if world.ground_truth[key].alive_at(tick, world.latest):
            raise ViolationError(f"{where}: {key} at {tick} is missing")
    excused_by_age = life.past is not None and world.pipeline is None
    if received.gaps and life.durable and not world.gaps_allowed and not excused_by_age:
        raise ViolationError(f"{where}: a gap that nothing justifies, {received.gaps[0]}")


def _wanted(world: World, life: Life, pubend: str, received: ConsumedPubend) -> Iterator[tuple[int, str]]:
    for tick, key in world.ground_truth.durable[pubend].items():
        want = life.wanted_at(pubend, tick) if tick > received.start else None
        if want is not None and world.ground_truth.matches(want.pattern, want.selector, key):
            yield tick, key


def _memory_is_bounded(world: World) -> None:
    """A broker without subscribers remembers no more than it may; one with some, little more."""
    for machine in world.machines.values():
        for name, size in machine.window_bytes():
            if size > world.plan.window_bytes_max + world.largest_batch:
                raise ViolationError(f"{machine.name} holds {size} bytes of {name}")


def check_routes(world: World) -> None:
    """Raise ViolationError unless each pubend comes to each broker by the way that the overlay names.

    Call when all has been healed for longer than it takes to return to a better way.
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
    """It has committed all there is for it."""
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
            if want is not None and is_valid and truth.matches(want.pattern, want.selector, key):
                return False
    return True
