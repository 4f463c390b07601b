"""What the oracle checks of a topic that was removed and created again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.sim.judging.ground_truth import ViolationError
from tidemark.sim.world.topic_keeper import TOPIC, schema_of

if TYPE_CHECKING:
    from tidemark.sim.world.world import World


def check_topics(world: World) -> None:
    """Raise ViolationError unless all brokers have the topic in one generation, with the right schemas.

    Nothing that was confirmed is forgotten: the generation is at least the highest that a client was told by
    a broker that is still there. What a broker confirmed while it was cut off goes with it if an
    administrator removes it before it is back. Call when all is healed, and everything was passed on.
    """
    if world.topic_keeper is None:
        return
    known: dict[str, tuple[int, tuple[tuple[int, tuple[str, ...]], ...]]] = {}
    for name in world.layout.brokers:
        registry = world.machines[name].registry
        creations = registry.creations_of(TOPIC)
        known[name] = (
            registry.generation(TOPIC),
            tuple((each.creation, tuple(each.texts.values())) for each in creations),
        )
        for each in creations:
            if list(each.texts.values()) != [schema_of(each.creation).text]:
                raise ViolationError(f"{name} has {list(each.texts.values())} as {TOPIC} of {each.creation}")
    if len(set(known.values())) > 1:
        raise ViolationError(f"brokers disagree about the generations of {TOPIC}: {known}")
    generation = min(generation for generation, _ in known.values())
    confirmed = world.topic_keeper.confirmed(world.layout.brokers)
    if generation < confirmed:
        raise ViolationError(f"{TOPIC} is in generation {generation}, and {confirmed} was confirmed")
