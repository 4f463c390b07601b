"""Oracle: knows every event that was published and every selector, and judges what arrived (FAULTS)."""

from __future__ import annotations

from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.topics import TopicPattern
from tidemark.sim.actors import Received, Subscriber, ViolationError
from tidemark.sim.world import World


def judge(world: World) -> None:
    """Raise ViolationError for the first thing that is not as promised. Call when all is healed and quiet."""
    _acknowledged_is_durable(world)
    for subscriber in world.subscribers:
        for pubend in world.truth:
            received = subscriber.ledger.get(pubend)
            if received is None:
                raise ViolationError(f"{subscriber.name} never started at {pubend}")
            _complete(world, subscriber, pubend, received)


def _acknowledged_is_durable(world: World) -> None:
    for publisher in world.publishers:
        keys = [key for key in world.truth[publisher.pubend].values() if key.startswith(f"{publisher.name}/")]
        if len(keys) != len(set(keys)):
            raise ViolationError(f"an event of {publisher.name} is logged twice")
        missing = {f"{publisher.name}/{n}" for n in range(1, publisher.acknowledged + 1)} - set(keys)
        if missing:
            raise ViolationError(f"acknowledged and not on disk: {sorted(missing)[:3]}")


def _complete(world: World, subscriber: Subscriber, pubend: str, received: Received) -> None:
    """Every matching event beyond the start exactly once and in order, or in a gap; and nothing else."""
    where = f"{subscriber.name} at {pubend}"
    wanted = {tick: key for tick, key in _matching(world, subscriber, pubend) if received.start < tick}
    got = dict(received.events)
    if [tick for tick, _ in received.events] != sorted(got):
        raise ViolationError(f"{where}: out of order or twice")
    for tick, key in got.items():
        if wanted.get(tick) != key:
            raise ViolationError(f"{where}: {key} at {tick} was not wanted or not published")
    last = max(wanted, default=received.start)
    if received.upto < last:
        raise ViolationError(f"{where}: told up to {received.upto}, but there is an event at {last}")
    for tick, key in wanted.items():
        if tick not in got and not any(base < tick <= upto for base, upto in received.gaps):
            raise ViolationError(f"{where}: {key} at {tick} is missing")
    if received.gaps and not world.gaps_allowed:
        raise ViolationError(f"{where}: a gap that nothing justifies, {received.gaps[0]}")


def _matching(world: World, subscriber: Subscriber, pubend: str) -> list[tuple[int, str]]:
    pattern = TopicPattern.parse(subscriber.pattern)
    tree = Selector.parse(subscriber.selector, world.schema).tree
    found: list[tuple[int, str]] = []
    for tick, key in world.truth[pubend].items():
        topic, event = world.facts[key]
        if pattern.matches(topic) and evaluate(tree, lambda path, event=event: event.get(path[0])) is True:  # type: ignore[misc]
            found.append((tick, key))
    return sorted(found)
