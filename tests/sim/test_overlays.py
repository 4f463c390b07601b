"""Stories of overlays with redundant brokers and links: what goes another way is not lost or repeated."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.sim.scenario import Scenario
from tidemark.broker.overlay.layout import pair
from tidemark.broker.overlay.link_quality import DAMPED
from tidemark.sim.judging.oracle import check_routes
from tidemark.ticks import RangeSet
from tidemark.wire.frames import Interest, Nack, Release, Unfollow

A, B = "kind = 'a'", "kind = 'b'"
#: DSN'02, 5: p1, a cell of two, and five subscriber hosting brokers linked to both.
PAPER = "p1 - {b1 b2}, {b1 b2} - s1, {b1 b2} - s2, {b1 b2} - s3, {b1 b2} - s4, {b1 b2} - s5"
HOSTS = ("s1", "s2", "s3", "s4", "s5")


def upstream(story: Scenario, name: str) -> str | None:
    stream = story.broker(name).stream("p")
    assert stream is not None
    return stream.upstream


def carrier(story: Scenario) -> tuple[str, str]:
    """The broker of the paper's cell that the pubend comes into it by, and the other one."""
    return ("b1", "b2") if upstream(story, "b1") == "p1" else ("b2", "b1")


def settled(story: Scenario) -> None:
    """End the story, and check that every pubend takes the way that the layout prefers."""
    story.end()
    story.wait(2.0)
    check_routes(story.world)


def test_one_link_of_a_bundle_carries_a_pubend_and_cellmates_take_it_from_there() -> None:
    story = Scenario(PAPER)
    subs = [story.subscriber(f"sub{host}", host) for host in HOSTS]
    story.wait(0.5)
    one, other = carrier(story)
    assert upstream(story, other) == one
    story.trickle("abcd" * 5)
    story.wait(0.5)
    assert story.kinds_sent("p1", one) == "abcd" * 5
    assert story.kinds_sent("p1", other) == ""
    settled(story)
    assert [story.got(sub) for sub in subs] == ["abcd" * 5] * 5


@pytest.mark.parametrize("fault", ["crash", "links"])
def test_when_the_carrier_fails_the_other_takes_over_and_nothing_is_lost_or_repeated(fault: str) -> None:
    story = Scenario(PAPER)
    subs = [story.subscriber(f"sub{host}", host, A if at % 2 else B) for at, host in enumerate(HOSTS)]
    story.wait(0.5)
    one, other = carrier(story)
    story.trickle("abcd" * 50, every=0.01)
    story.wait(0.5)
    if fault == "crash":
        story.world.crash(one)
    else:
        story.world.cut("p1", one)
    story.wait(0.6)
    assert upstream(story, other) == "p1"
    if fault == "links":
        assert upstream(story, one) == other  # routed around inside the cell
    story.wait(1.0)
    settled(story)
    assert upstream(story, one) == "p1"  # and back
    assert [story.got(sub) for sub in subs] == [("a" if at % 2 else "b") * 50 for at in range(5)]


@pytest.mark.parametrize("kinds", ["abaab", "abcda"], ids=["alike", "different"])
def test_those_who_come_over_together_ask_once(kinds: str) -> None:
    story = Scenario(PAPER)
    subs = [
        story.subscriber(f"sub{host}", host, f"kind = '{kind}'")
        for host, kind in zip(HOSTS, kinds, strict=True)
    ]
    story.wait(0.5)
    one, other = carrier(story)
    story.trickle("abcd" * 50, every=0.01)
    story.wait(0.5)
    for host in HOSTS:
        story.world.network.clog(one, host)  # what it passes on is lost, before it crashes
    story.wait(0.2)
    story.world.crash(one)
    for host in HOSTS:
        story.world.network.unclog(one, host)
    story.wait(1.5)
    asked = story.nacked(other, "p1")
    needed = RangeSet(sorted(asked)).ticks()
    assert needed > 0
    assert sum(upto - base for base, upto in asked) <= 1.1 * needed
    settled(story)
    assert all(len(story.got(sub)) == 50 for sub in subs)


def test_a_relay_does_not_answer_a_newcomer_with_what_it_left_out_before() -> None:
    story = Scenario("p1 - {b1 b2}, {b1 b2} - s1, {b1 b2} - s2")
    story.wait(0.3)
    one = upstream(story, "s1")
    assert one is not None
    other = "b2" if one == "b1" else "b1"
    sub = story.subscriber("sub", "s1", A)
    story.subscriber("else", "s2", B)
    story.wait(0.5)
    story.world.network.clog(one, "s1")  # it gets nothing, and nobody notices
    story.trickle("ab" * 20)
    story.wait(0.6)
    story.world.cut(one, "s1")
    story.wait(0.5)
    assert upstream(story, "s1") == other
    assert story.got(sub) == "a" * 20
    settled(story)


def test_a_way_back_is_taken_after_a_moment_and_the_old_one_is_told() -> None:
    story = Scenario(PAPER, {"return_delay": 400_000})
    sub = story.subscriber("sub", "s1")
    story.wait(0.5)
    one, other = carrier(story)
    story.world.cut("p1", one)
    story.wait(0.1)
    assert upstream(story, one) == other
    story.world.mend("p1", one)
    story.wait(0.1)
    assert upstream(story, one) == other  # not yet
    story.wait(1.0)
    assert upstream(story, one) == "p1"
    assert list(story.frames(Unfollow, one, other))
    assert story.counted("returns") > 0
    story.publish("ab")
    settled(story)
    assert story.got(sub) == "ab"


def test_a_link_that_flaps_costs_no_repair_from_the_root() -> None:
    story = Scenario("p1 - relay - s1")
    sub = story.subscriber("sub", "s1", A)
    story.wait(0.5)
    story.trickle("ab" * 20)
    for _ in range(3):
        story.world.cut("relay", "s1")
        story.wait(0.05)
        story.world.mend("relay", "s1")
        story.wait(0.1)
    settled(story)
    assert story.nacked("s1", "relay")
    assert story.nacked("relay", "p1") == []  # the relay went on asking for what s1 wants
    assert story.got(sub) == "a" * 20


def follows(story: Scenario, who: str, whom: str) -> int:
    """How often one broker has begun to follow another, or has changed what it wants of it."""
    return sum(
        isinstance(each.frame, Interest) and (each.sender, each.receiver) == (who, whom)
        for each in story.sent
    )


def test_a_link_that_dies_again_and_again_is_not_chosen_again_each_time() -> None:
    story = Scenario("p1 - {b1 b2}, {b1 b2} - s1")
    sub = story.subscriber("sub", "s1")
    story.wait(0.5)
    one = upstream(story, "s1")
    assert one is not None
    other = "b2" if one == "b1" else "b1"
    before = follows(story, "s1", one)
    story.trickle("abcd" * 15, every=1.0)
    for _ in range(36):
        story.world.cut(one, "s1")
        story.wait(0.6)
        assert upstream(story, "s1") == other
        story.world.mend(one, "s1")
        story.wait(1.0)
    assert follows(story, "s1", one) - before == 2  # after the third death it is damped
    condition = story.broker("s1").link_condition(one)
    assert (condition.deaths, condition.grade) == (36, DAMPED)
    assert condition.damped_seconds is not None
    story.wait(60.0)
    assert upstream(story, "s1") == one  # it has worked for a while
    settled(story)
    assert story.got(sub) == "abcd" * 15


def test_a_cell_takes_a_pubend_by_its_fast_link_and_not_by_the_one_that_the_hash_names() -> None:
    story = Scenario(PAPER)
    subs = [story.subscriber(f"sub{host}", host) for host in HOSTS]
    story.wait(0.5)
    one, other = carrier(story)
    # 128 kbit, which the broker at the sending end measures: it tells `one`, and `one` tells `other`.
    story.world.machines["p1"].link_measured(one, 40_000, 16_000)
    story.trickle("abcd" * 5)
    story.wait(1.0)
    assert (upstream(story, other), upstream(story, one)) == ("p1", other)
    assert story.broker(one).link_condition("p1").grade == 3
    # A rate that is a little better changes nothing, one that is much better does.
    story.world.machines["p1"].link_measured(one, 40_000, 70_000)
    story.wait(1.0)
    assert upstream(story, one) == other
    story.world.machines["p1"].link_measured(one, 400, 100_000_000)
    story.wait(1.0)
    settled(story)
    assert upstream(story, one) == "p1"
    assert [story.got(sub) for sub in subs] == ["abcd" * 5] * 5


def test_those_who_follow_a_relay_that_has_lost_its_way_take_another() -> None:
    story = Scenario("p1 - {b1 b2}, {b1 b2} - s1")
    sub = story.subscriber("sub", "s1")
    story.wait(0.5)
    one = upstream(story, "s1")
    assert one is not None
    other = "b2" if one == "b1" else "b1"
    story.world.cut("p1", one)
    story.world.cut("b1", "b2")
    story.trickle("abcd", every=0.01)
    story.wait(1.0)
    assert upstream(story, "s1") == other
    assert story.got(sub) == "abcd"
    story.world.mend("p1", one)
    story.world.mend("b1", "b2")
    settled(story)
    assert upstream(story, "s1") == one


def test_that_a_way_is_lost_is_passed_on_and_nobody_moves_when_there_is_no_way_left() -> None:
    story = Scenario("p1 - {b1 b2}, {b1 b2} - {c1 c2}, {c1 c2} - s1")
    sub = story.subscriber("sub", "s1")
    story.wait(0.5)
    names = ("c1", "c2", "s1")
    before = {name: upstream(story, name) for name in names}
    story.world.crash("p1")
    story.wait(5.0)
    assert {name: upstream(story, name) for name in names} == before
    story.world.restart("p1")
    story.wait(1.0)
    # One broker of the second cell has neither its cellmate nor the cell above it.
    gone = before["s1"]
    assert gone is not None
    mate = "c2" if gone == "c1" else "c1"
    for each in ("b1", "b2", mate):
        story.world.cut(gone, each)
    story.trickle("abcd", every=0.01)
    story.wait(1.0)
    assert upstream(story, "s1") == mate
    assert story.got(sub) == "abcd"
    for each in ("b1", "b2", mate):
        story.world.mend(gone, each)
    settled(story)


def test_a_drained_broker_is_used_by_nobody() -> None:
    story = Scenario(PAPER)
    sub = story.subscriber("sub", "s1")
    story.wait(0.5)
    one, other = carrier(story)
    story.world.change_topology(replace(story.world.layout, draining=frozenset({one})), Random(1))
    story.trickle("abcd" * 20)
    story.wait(2.0)
    assert upstream(story, other) == "p1"
    assert {upstream(story, host) for host in HOSTS} == {other}
    story.world.change_topology(story.world.layout.without(one), Random(1))
    story.wait(0.5)
    story.publish("ab")
    settled(story)
    assert story.got(sub) == "abcd" * 20 + "ab"


def test_a_broker_that_joins_is_used_and_one_without_links_left_goes_by_its_cellmates() -> None:
    story = Scenario("p1 - {b1} - s1")
    sub = story.subscriber("sub", "s1")
    story.wait(0.5)
    layout = story.world.layout
    cells = dict(layout.cells) | {"{b1}": ("b1", "b2")}
    links = layout.links | {pair("b2", "p1"), pair("b2", "s1")}
    story.world.change_topology(replace(layout, cells=cells, links=links), Random(1))
    story.trickle("abcd" * 10)
    story.wait(1.0)
    assert upstream(story, "b2") in ("p1", "b1")
    links -= {pair("b1", "p1"), pair("b1", "s1")}
    story.world.change_topology(replace(story.world.layout, links=links), Random(1))
    story.wait(1.0)
    assert (upstream(story, "b1"), upstream(story, "s1")) == ("b2", "b2")
    settled(story)
    assert story.got(sub) == "abcd" * 10


def test_a_host_with_nobody_begins_only_when_the_pubend_holds() -> None:
    story = Scenario("p1 - relay - s1")
    story.wait(0.3)
    lost = story.lose(Release, sender="relay")
    sub = story.subscriber("sub", "s1")
    story.wait(1.0)
    assert "p" not in sub.life.ledger
    lost.stop()
    story.wait(0.6)
    assert "p" in sub.life.ledger
    story.publish("a")
    settled(story)
    assert story.got(sub) == "a"


def test_a_host_is_known_after_the_pubends_broker_was_born_again_and_holds_until_it_reports() -> None:
    story = Scenario("p1 - s1")
    sub = story.subscriber("sub", "s1")
    story.wait(0.5)
    story.world.cut("p1", "s1")
    (key,) = story.publish("a")
    story.power_loss("p1")
    story.wait(1.0)
    assert story.lost < story.tick(key)
    settled(story)
    assert story.got(sub) == "a"


def test_a_host_that_is_struck_off_holds_nothing() -> None:
    story = Scenario("p1 - s1", {"ends": 0.0})
    sub = story.subscriber("sub", "s1")
    story.wait(0.5)
    story.world.crash("s1")
    (key,) = story.publish("a")
    story.wait(1.0)
    assert story.lost < story.tick(key)
    story.world.gaps_allowed = story.world.checks.is_early = True  # an administrator chose to
    hosts = story.broker("p1")._reports.hosts["p"]
    assert hosts.known == ("s1",)
    assert hosts.remove("s1")
    story.wait(0.5)
    assert story.lost >= story.tick(key)
    story.end()
    assert story.gaps(sub)


def test_what_a_neighbour_wanted_that_is_gone_is_forgotten_after_a_while() -> None:
    story = Scenario("p1 - relay - s1", {"linger": 300_000})
    story.subscriber("sub", "s1", A)
    story.wait(0.5)
    assert story.interests("relay", "p1")[-1].wanted
    story.world.cut("relay", "s1")
    story.wait(0.2)
    assert story.interests("relay", "p1")[-1].wanted
    story.wait(0.5)
    assert story.interests("relay", "p1")[-1].wanted == ()
    settled(story)
    assert isinstance(story.interests("s1", "relay")[-1], Interest)
    assert all(nack.version for nack in story.frames(Nack))
