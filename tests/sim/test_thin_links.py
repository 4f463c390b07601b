"""Thin links: history arrives at the rate of the line, once, and live events do not wait for it.

A line of 1 Mbit carries 125,000 bytes a second. The bytes of all frames are counted, on every hop.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from random import Random

import pytest

from tests.sim.scenario import COMMIT_US, Pace, Scenario
from tidemark.broker.effects import ReadLog
from tidemark.sim.swarm.plan import SECOND
from tidemark.sim.world.network import LinkFaults, LinkRate
from tidemark.sim.world.subscriber import SimSubscriber
from tidemark.ticks import CheckpointToken, Thresholds
from tidemark.wire.codec import encode, size_of
from tidemark.wire.frames import Fetch, Knowledge, Nack

pytestmark = pytest.mark.slow

MBIT = LinkRate(125_000)
LAN = LinkRate(12_500_000)
BATCHES = 50
EVENTS = 250
#: Seconds within which a live event has to be there.
LIVE_S = 1.0


@dataclass
class Outcome:
    """What a catch-up took."""

    seconds: float
    #: the bytes of the history as knowledge, and what each hop carried meanwhile for each of them
    history: int
    carried: dict[tuple[str, str], float]
    #: the longest that a live event took
    latency: float

    @property
    def used(self) -> float:
        """The share of the line's rate at which the history arrived."""
        return self.history / MBIT.bytes_per_second / self.seconds


def catch_up(tree: str, delay: int, *, fetched: bool) -> Outcome:
    """History is published while a subscriber behind a line of 1 Mbit is away; then it comes.

    `fetched`: the subscriber's broker has never seen it, so that the history is fetched, not nacked.
    """
    names = [name.strip() for name in tree.split("-")]
    host = names[-1]
    settings = {"link_faults": LinkFaults(delay_min=delay, delay_max=delay), "thresholds": Thresholds()}
    story = Scenario(tree, settings)
    far = story.subscriber("far", names[0] if fetched else host)
    story.wait(1.0)
    far.leave()
    for _ in range(BATCHES):
        story.publish("a" * EVENTS)
        story.wait(0.02)
    history = _size_of_history(story)
    for name in names:
        story.power_loss(name)  # no window has anything any more
    story.wait(2.0)
    network = story.world.network
    for a, b in pairwise(names):
        network.rates[a, b] = network.rates[b, a] = MBIT if b == host else LAN
    live = story.subscriber("live", host, "kind = 'b'")
    story.wait(2.0)
    before, start, sent = dict(network.carried), story.world.engine.now, len(story.sent)
    if fetched:
        far = _newcomer(story, host)
    far.come()
    latency = 0.0
    while story.got(far).count("a") < BATCHES * EVENTS:
        assert story.world.engine.now - start < 60 * SECOND, "it takes for ever"
        latency = max(latency, _live_event(story, live))
    carried = {ends: (sent - before.get(ends, 0)) / history for ends, sent in network.carried.items()}
    # From the first question on: before that, the broker settles whose subscriber it is.
    asked = next(each.at for each in story.sent[sent:] if isinstance(each.frame, Nack | Fetch))
    outcome = Outcome(story.now - asked, history, carried, latency)
    story.end()
    return outcome


def _newcomer(story: Scenario, host: str) -> SimSubscriber:
    """A subscriber that begins at the start of history, at a broker that has not seen it."""
    made = SimSubscriber(story.world, "new", host, "t.>", "kind = 'a'", Random(1), 1 << 20)
    made.life.past = CheckpointToken({"p": 1})
    story.world.subscribers.append(made)
    story._paces["new"] = Pace(made)

    def consume() -> None:
        made.commit()
        story.world.engine.after(COMMIT_US, consume)

    consume()
    return made


def _live_event(story: Scenario, live: SimSubscriber) -> float:
    """Publish an event for `live`; returns the seconds until it has committed it."""
    before, began = len(story.got(live)), story.world.engine.now
    story.publish("b")
    while len(story.got(live)) == before:
        story.wait(0.05)
        assert story.world.engine.now - began < 20 * SECOND, "a live event is starved"
    return (story.world.engine.now - began) / SECOND


def _size_of_history(story: Scenario) -> int:
    """The bytes of all events of kind a, as the answers of a pubend's broker have them."""
    store = story.machine(story.root)._disk
    ticks = [tick for tick, key in story.world.ground_truth.durable["p"].items() if story.kind(key) == "a"]
    size, at = 0, ticks[0] - 1
    while at < ticks[-1]:
        answer = store.read(ReadLog("p", at, ticks[-1]))
        for batch in answer.batches:
            size += size_of(encode(Knowledge("p", 0, ticks[-1], 0, False, 1, batch)))
        at = answer.upto
    return size


@pytest.mark.parametrize("fetched", [False, True], ids=["nacked", "fetched"])
@pytest.mark.parametrize("tree", ["phb - shb", "phb - relay - shb"])
def test_history_arrives_once_at_the_rate_of_the_line_and_live_events_before_it(
    tree: str, fetched: bool
) -> None:
    outcome = catch_up(tree, 10_000, fetched=fetched)
    assert outcome.used >= 0.85
    assert max(outcome.carried.values()) <= 1.3
    assert outcome.latency < LIVE_S


@pytest.mark.parametrize(("delay", "fetched"), [(100_000, True), (300_000, False)], ids=["fetched", "nacked"])
def test_a_line_with_a_long_round_trip_is_not_idle_between_two_answers(delay: int, fetched: bool) -> None:
    outcome = catch_up("phb - shb", delay, fetched=fetched)
    assert outcome.used >= 0.8
    assert max(outcome.carried.values()) <= 1.3
