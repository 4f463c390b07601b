"""What the archive asks a pubend to let go, as after an erasure, no other broker tells any more."""

from __future__ import annotations

import pytest

from tests.sim.scenario import Scenario
from tidemark.broker.publishing.pubend import PubendPolicy
from tidemark.sim.swarm.plan import SECOND

#: A pubend that says nothing by itself for as long as the story lasts.
IDLE = PubendPolicy(heartbeat=1_000 * SECOND, heartbeat_idle=1_000 * SECOND)
SMALL_WINDOWS = {"window_bytes_max": 1, "cache_bytes_max": 1 << 20}


def story_of(tree: str, **settings: int) -> Scenario:
    """A story in which subscribers get gaps for what was let go, since no archive answers."""
    story = Scenario(tree, {"pubend_policy": IDLE, **settings})
    story.world.gaps_allowed = story.world.checks.is_early = True
    return story


def dismiss(story: Scenario) -> None:
    """The archive has everything, and asks the pubend to let it go."""
    pubend = story.broker("phb")._pubends["p"]
    pubend.archived = pubend.position
    pubend.dismiss(pubend.position)


@pytest.mark.parametrize("settings", [{}, SMALL_WINDOWS])
@pytest.mark.parametrize("tree", ["phb - shb", "phb - relay - shb"])
def test_who_returns_to_another_broker_gets_nothing_of_what_was_let_go_while_the_pubend_is_idle(
    tree: str, settings: dict[str, int]
) -> None:
    story = story_of(tree, **settings)
    here, away = story.subscriber("here", "shb"), story.subscriber("away", "shb")
    story.wait(0.5)
    away.leave()
    story.publish("ab")
    story.wait(0.5)
    assert story.got(here) == "ab"
    assert bool(story.count("shb", "cache_writes")) == bool(settings)
    dismiss(story)
    story.wait(0.1)
    away.come()
    story.wait(0.5)
    assert story.got(away) == ""
    ((base, upto),) = story.gaps(away)
    assert base < upto == story.lost
    story.publish("c")
    story.end()
    assert (story.got(here), story.got(away)) == ("abc", "c")


def test_without_a_request_to_let_go_it_is_told_from_memory_or_from_the_disk() -> None:
    for settings in ({}, SMALL_WINDOWS):
        story = story_of("phb - shb", **settings)
        away = story.subscriber("away", "shb")
        story.subscriber("here", "shb")
        story.wait(0.5)
        away.leave()
        story.publish("ab")
        story.wait(0.5)
        away.come()
        story.wait(0.5)
        assert story.got(away) == "ab"
        story.end()
