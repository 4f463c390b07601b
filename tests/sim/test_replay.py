"""Replaying the past without a durable name, in stories of two brokers."""

from __future__ import annotations

from random import Random

import pytest

from tests.sim.scenario import COMMIT_US, Pace, Scenario
from tidemark.sim.world.subscriber import SimSubscriber
from tidemark.ticks import CheckpointToken


def replaying(story: Scenario, since: int = 1, *, credit: int = 1 << 20) -> SimSubscriber:
    """A subscriber without a durable name that begins in the past, with each of its connections."""
    made = SimSubscriber(
        story.world, "passes", "shb", "t.>", "kind = 'a'", Random(1), credit, "passes", reaches_back=1.0
    )
    made.life.past = CheckpointToken({"p": since})
    story.world.subscribers.append(made)
    story._paces["passes"] = Pace(made)

    def consume() -> None:
        made.commit()
        story.world.engine.after(COMMIT_US, consume)

    consume()
    made.come()
    return made


@pytest.mark.parametrize("credit", [200, 1 << 20])
def test_the_past_is_replayed_in_order_and_what_comes_follows_without_a_seam(credit: int) -> None:
    story = Scenario("phb - shb")
    keeper = story.subscriber("keeper", "shb")
    story.wait(0.5)
    keeper.leave()  # so that nothing is released
    since = story.world.engine.now
    story.publish("ab" * 20)
    story.wait(0.5)
    passer = replaying(story, since, credit=credit)
    story.trickle("ab" * 10)
    story.wait(2.0)
    assert story.got(passer) == "a" * 30
    assert story.gaps(passer) == []
    keeper.come()
    story.end()


def test_a_replay_whose_broker_fails_begins_again_in_the_past() -> None:
    story = Scenario("phb - shb")
    keeper = story.subscriber("keeper", "shb")
    story.wait(0.5)
    keeper.leave()
    story.publish("ab" * 20)
    story.wait(0.5)
    passer = replaying(story)
    story.wait(0.5)
    story.power_loss("shb")
    story.wait(2.0)
    first, *_, last = passer.lives
    assert first is not last
    assert last.past is not None
    assert len(first.ledger["p"].events) == 20
    keeper.come()
    story.end()


def test_what_was_released_is_a_gap_for_who_replays() -> None:
    story = Scenario("phb - shb")
    story.subscriber("keeper", "shb")
    story.wait(0.5)
    story.publish("ab" * 20)
    story.wait(3.0)
    assert story.lost > 0
    passer = replaying(story)
    story.publish("a")
    story.wait(1.0)
    assert story.gaps(passer)[0][0] == 1
    assert story.got(passer).endswith("a")
    story.end()
