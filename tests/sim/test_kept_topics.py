"""Worlds in which a topic is removed and created again while brokers crash and links are cut."""

from __future__ import annotations

import pytest

from tidemark.sim.judging.ground_truth import ViolationError
from tidemark.sim.judging.topics import check_topics
from tidemark.sim.swarm.swarm import SeedRun
from tidemark.sim.world.topic_keeper import TOPIC

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished() -> SeedRun:
    run = SeedRun(5)
    run.execute()
    return run


def test_all_brokers_agree_about_a_topic_that_came_and_went(finished: SeedRun) -> None:
    keeper = finished.world.topic_keeper
    assert keeper is not None
    assert keeper.removals > 1
    generations = {each.registry.generation(TOPIC) for each in finished.world.machines.values()}
    assert len(generations) == 1
    assert generations.pop() >= keeper.confirmed(finished.world.layout.brokers) > 0


def test_events_of_several_creations_were_delivered(finished: SeedRun) -> None:
    world = finished.world
    keys = [key for each in world.ground_truth.durable.values() for key in each.values()]
    logged = [world.ground_truth[key].event for key in keys if world.ground_truth[key].topic == TOPIC]
    assert {type(event["extra"]) for event in logged} == {int, str}


def test_a_broker_that_has_forgotten_a_removal_is_noticed(finished: SeedRun) -> None:
    machine = min(finished.world.machines.values(), key=lambda each: each.name)
    machine.registry.remove(TOPIC, machine.registry.generation(TOPIC) + 2)
    with pytest.raises(ViolationError, match=TOPIC):
        check_topics(finished.world)
