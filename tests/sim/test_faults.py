"""A scenario for each fault that the system must survive and that is no trap: docs/faults.md lists them.

Frames of former lives, slow subscribers, crashes around a sync and crashes of a subscriber hosting broker are
in test_traps. Stale blocks and mixed versions are the storage's and the wire's to test.
"""

from __future__ import annotations

import pytest

from tests.sim.scenario import Halfway, Scenario
from tidemark.broker.publishing.pubend import PubendPolicy
from tidemark.sim.judging.ground_truth import ViolationError
from tidemark.sim.judging.oracle import check_world
from tidemark.sim.swarm.plan import SECOND
from tidemark.sim.world.network import LinkFaults
from tidemark.ticks import RangeSet, Thresholds
from tidemark.wire.frames import AckExpected, Deliver, Knowledge, Nack, Refused, Release

A, B = "kind = 'a'", "kind = 'b'"


def has_events(frame: Knowledge) -> bool:
    return frame.batch is not None


def test_a_data_frame_that_is_lost_is_asked_for_and_delivered_once() -> None:
    story = Scenario("phb - relay - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    lost = story.lose(Knowledge, sender="relay", where=has_events, times=1)
    story.trickle("abc")
    story.wait(0.3)
    story.end()
    assert lost.lost == 1
    assert story.nacked("shb", "relay")
    assert story.nacked("relay", "phb") == []  # the relay remembers it
    assert story.got(sub) == "abc"


def test_a_data_frame_that_is_repeated_is_dropped() -> None:
    twice = LinkFaults(delay_min=1_000, delay_max=1_000, repeat=1.0)
    story = Scenario("phb - relay - shb", {"link_faults": twice})
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    story.trickle("abcd" * 4)
    story.end()
    assert story.got(sub) == "abcd" * 4


def test_data_frames_that_overtake_each_other_ask_nothing_within_the_gap_curiosity_threshold() -> None:
    mixed = LinkFaults(delay_min=1_000, delay_max=15_000, reorder=1.0)
    patient = Thresholds(gct_us=50_000, nrt_us=100_000)
    story = Scenario("phb - shb", {"link_faults": mixed, "thresholds": patient})
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    story.trickle("abcd" * 10, every=0.003)
    story.end()
    arrivals = [each.frame.upto for each in story.sent if isinstance(each.frame, Knowledge)]
    assert arrivals == sorted(arrivals)  # sent in order, and then mixed up by the link
    assert list(story.frames(Nack)) == []
    assert story.got(sub) == "abcd" * 10


def test_when_the_last_data_frame_is_lost_silence_brings_it() -> None:
    story = Scenario("phb - relay - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    lost = story.lose(Knowledge, sender="phb", where=has_events, times=1)
    story.publish("a")
    story.wait(0.7)
    assert lost.lost == 1
    assert story.got(sub) == "a"
    story.end()


def test_when_the_last_data_frame_and_all_silence_are_lost_an_announcement_brings_it() -> None:
    story = Scenario("phb - relay - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    story.lose(Knowledge, sender="phb", where=lambda frame: frame.first)
    story.publish("a")
    story.wait(1.0)
    assert story.got(sub) == ""
    story.wait(2.0)
    assert list(story.frames(AckExpected))
    assert story.got(sub) == "a"
    story.end()


def test_a_nack_that_is_lost_is_repeated() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    story.lose(Knowledge, where=has_events, times=1)
    lost = story.lose(Nack, times=3)
    story.publish("a")
    story.wait(2.0)
    assert lost.lost == 3
    assert len(set(story.nacked("shb", "phb"))) < len(story.nacked("shb", "phb"))
    assert story.got(sub) == "a"
    story.end()


def test_a_release_that_is_lost_holds_storage_longer_and_redelivers_nothing() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    lost = story.lose(Release)
    (first,) = story.publish("a")
    story.wait(1.0)
    assert lost.lost > 0
    assert story.lost < story.tick(first)
    lost.stop()
    story.publish("b")
    story.wait(1.0)
    assert story.lost >= story.tick(first)
    story.end()
    assert story.got(sub) == "ab"


@pytest.mark.parametrize("way", [("phb", "relay"), ("relay", "phb")], ids=["down", "up"])
def test_a_link_that_works_one_way_only_loses_nothing(way: tuple[str, str]) -> None:
    story = Scenario("phb - relay - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    story.world.network.clog(*way)
    keys = story.publish("ab")
    story.wait(1.0)
    assert story.lost < story.tick(keys[0])  # nobody took what did not arrive for consumed
    assert story.got(sub) == ("" if way == ("phb", "relay") else "ab")
    story.world.network.unclog(*way)
    story.wait(1.0)
    assert story.got(sub) == "ab"
    story.end()


def test_a_slow_subscriber_costs_bounded_memory_and_others_nothing() -> None:
    story = Scenario("phb - shb", {"window_bytes_max": 2_000})
    slow = story.subscriber("slow", "shb", credit=200)
    quick = story.subscriber("quick", "shb")
    story.wait(0.3)
    story.stop_reading(slow)
    story.trickle("abcd" * 50, every=0.005)
    story.wait(1.5)
    assert story.got(quick) == "abcd" * 50
    waiting = [frame for _, frame in story.told if isinstance(frame, Deliver) and frame.name == "slow.0"]
    assert sum(len(frame.batch.body) for frame in waiting if frame.batch is not None) < 400
    assert all(size <= 2_000 + story.world.largest_batch for _, size in story.machine("shb").window_bytes())
    story.end()
    assert story.got(slow) == "abcd" * 50


def test_when_all_subscribers_return_at_once_each_range_is_asked_for_once() -> None:
    story = Scenario("phb - relay - shb1, relay - shb2")
    subs = [story.subscriber(f"sub{n}", f"shb{1 + n % 2}") for n in range(10)]
    story.wait(0.3)
    for sub in subs:
        sub.leave()
    story.trickle("abcd" * 20, every=0.005)
    story.wait(1.0)
    for name in ("relay", "shb1", "shb2"):
        story.power_loss(name)  # nothing is in anyone's memory
    story.wait(0.2)
    before = len(story.nacked("relay", "phb"))
    for sub in subs:
        sub.come()
    story.wait(0.5)
    asked = story.nacked("relay", "phb")[before:]
    assert asked
    assert len(set(asked)) == len(asked)
    assert story.count("relay", "ranges_consolidated") > 0
    story.end()
    assert [story.got(sub) for sub in subs] == ["abcd" * 20] * 10


@pytest.mark.parametrize("step", range(6))
def test_a_relay_that_is_wiped_at_any_step_loses_nothing(step: int) -> None:
    story = Scenario("phb - relay - shb")
    sub = story.subscriber("sub", "shb", A)
    for number in range(6):
        if number == step:
            story.power_loss("relay", off=0.02)
        story.publish("ab")
        story.wait(0.05)
    story.end()
    assert set(story.got(sub)) <= {"a"}
    assert len(story.got(sub)) >= 6 - 2 - step


def test_a_subscriber_that_crashes_before_it_commits_gets_everything_again() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    story.publish("ab")
    story.wait(0.1)
    story.stop_reading(sub)
    story.publish("cd")
    story.wait(0.1)
    assert sub.pending["p"].events
    sub.leave(unnoticed=True)
    story.go_on_reading(sub)
    sub.come()
    story.wait(0.1)
    story.end()
    assert story.got(sub) == "abcd"


def test_an_older_token_is_replayed_from_as_long_as_history_is_there() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    holder = story.subscriber("holder", "shb")
    story.wait(0.3)
    holder.leave()  # holds history
    first, *_ = story.publish("abcd")
    story.wait(0.5)
    assert story.got(sub) == "abcd"
    sub.leave()
    sub.life.ledger["p"].cut(story.tick(first))  # its database was restored from a backup
    assert story.got(sub) == "a"
    sub.come()
    story.wait(0.5)
    assert story.got(sub) == "abcd"
    assert story.gaps(sub) == []
    story.end()


def test_an_older_token_whose_history_is_gone_gets_a_gap_for_exactly_that() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    first, *_, last = story.publish("abcd")
    story.wait(1.0)
    assert story.lost >= story.tick(last)
    sub.leave()
    story.wait(0.1)
    sub.life.ledger["p"].cut(story.tick(first))
    story.world.gaps_allowed = True
    gone = story.lost
    sub.come()
    story.wait(0.5)
    ((base, upto),) = story.gaps(sub)
    assert base == story.tick(first)
    assert story.tick(last) <= upto <= max(gone, story.lost)
    story.publish("b")
    story.end()
    assert story.got(sub) == "ab"


def test_a_torn_tail_is_cut_at_the_last_whole_record() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    story.publish("ab")
    story.wait(0.1)
    story.machine("phb").stall_disk(SECOND)
    story.publish("cd")
    story.publish("ab")
    story.wait(0.01)
    story.power_loss("phb", Halfway(0))  # the world checks that all that was durable is there
    story.end()
    assert story.got(sub) == "abcdab"
    assert story.gaps(sub) == []


@pytest.mark.parametrize("found", ["reading", "recovering"])
def test_bit_rot_is_a_gap_exactly_there_and_an_alarm(found: str) -> None:
    story = Scenario("phb - shb", {"window_bytes_max": 100})
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    sub.leave()
    for kind in "abcd":
        story.publish(kind)
        story.wait(0.05)
    story.power_loss("shb")
    story.rot("phb", "log", -2)
    if found == "recovering":
        story.power_loss("phb")
        assert story.alarms("phb")
    sub.come()
    story.wait(1.0)
    story.end()
    assert story.count("phb", "ranges_damaged") > 0
    missing = [kind for kind in "abcd" if kind not in story.got(sub)]
    assert len(missing) == 1
    assert story.alarms("phb")
    ((base, upto),) = RangeSet(story.gaps(sub))
    assert [story.kind(key) for _, key in story.world.ground_truth.within("p", base, upto)] == missing


def test_a_rotten_pfs_is_made_up_for_by_matching_again() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb", A)
    other = story.subscriber("other", "shb", B)
    story.wait(0.3)
    sub.leave()
    for kinds in ("ab", "cd", "ba", "aa"):
        story.publish(kinds)
        story.wait(0.25)
    story.rot("shb", "pfs", 2)
    story.power_loss("shb")
    story.end()
    assert story.gaps(sub) == []
    assert story.got(sub) == "aaaa"
    assert story.got(other) == "bb"
    assert story.count("shb", "refilters") > 0


def test_a_sync_that_fails_stops_the_broker_before_it_acknowledges_anything() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    life = story.machine("phb").life
    story.machine("phb").fail_next_sync()
    story.publish("ab")
    story.wait(0.05)
    assert story.machine("phb").broker is None  # stopped
    assert story.publisher.acknowledged == 0
    story.end()
    assert story.machine("phb").life > life
    assert story.got(sub) == "ab"


def test_a_full_disk_refuses_publishers_and_serves_readers_until_there_is_room() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    away = story.subscriber("away", "shb")
    holder = story.subscriber("holder", "shb")
    story.wait(0.3)
    away.leave()
    holder.leave()  # so that nothing is let go, which would make room
    story.publish("ab")
    story.wait(0.3)
    story.machine("phb").fill_disk()
    story.publish("cd")
    story.wait(0.5)
    assert story.count("phb", "log_full") > 0
    assert "full" in [frame.code for _, frame in story.told if isinstance(frame, Refused)]
    away.come()
    story.wait(0.5)
    assert story.got(away) == "ab"  # reads go on
    story.machine("phb").free_disk()
    story.wait(1.0)
    assert story.got(sub) == "abcd"
    story.end()


def test_a_full_disk_of_a_subscriber_host_holds_release_and_loses_nothing() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    story.machine("shb").fill_disk()
    (key,) = story.publish("a")
    story.wait(1.0)
    assert story.got(sub) == "a"
    assert story.lost < story.tick(key)
    story.power_loss("shb")
    story.end()
    assert story.got(sub) == "a"


def test_a_disk_that_stalls_makes_everyone_wait_and_nothing_is_taken_for_done() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    story.machine("phb").stall_disk(30 * SECOND)
    story.publish("ab")
    story.wait(29.0)
    assert story.publisher.acknowledged == 0
    assert story.got(sub) == ""
    story.wait(2.0)
    assert story.publisher.acknowledged == 2
    story.end()
    assert story.got(sub) == "ab"


def test_a_clock_that_jumps_an_hour_either_way_leaves_ticks_in_order() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    keys: list[str] = []
    for skew in (0, 3_600, -3_600, 0):
        story.world.set_skew("phb", skew * SECOND)
        keys += story.publish("a")
        story.wait(0.3)
    story.power_loss("phb")
    story.wait(0.3)
    keys += story.publish("b")
    story.end()
    ticks = [story.tick(key) for key in keys]
    assert ticks == sorted(set(ticks))
    assert story.counted("clock_back") > 0
    assert story.got(sub) == "aaaab"


@pytest.mark.parametrize("paused", ["phb", "relay", "shb"])
def test_a_process_that_stood_still_past_every_timeout_does_no_harm(paused: str) -> None:
    story = Scenario("phb - relay - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    story.machine(paused).pause(20 * SECOND)
    story.publish("ab")
    story.wait(10.0)
    for name, parent in (("relay", "phb"), ("shb", "relay")):
        if paused in (name, parent):
            story.world.cut(name, parent)  # the neighbours gave up on it
            story.world.mend(name, parent)
    story.wait(15.0)
    story.publish("c")
    story.wait(1.0)
    story.end()
    assert story.got(sub) == "abc"


def test_a_subscriber_whose_old_connection_hangs_is_fenced_off_it() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    story.publish("ab")
    story.wait(0.1)
    sub.leave(unnoticed=True)  # the broker does not know yet
    sub.come()
    story.publish("cd")
    story.wait(1.5)
    story.end()
    assert story.count("shb", "fences") == 1
    assert story.got(sub) == "abcd"


def test_interest_that_changes_during_a_partition_errs_towards_data() -> None:
    story = Scenario("phb - relay - shb")
    sub = story.subscriber("sub", "shb", A)
    story.wait(0.3)
    story.world.cut("phb", "relay")
    late = story.subscriber("late", "shb", B)
    story.publish("ab")
    story.wait(0.5)
    assert "p" not in late.life.ledger
    mark = len(story.sent)
    story.world.mend("phb", "relay")
    story.wait(0.5)
    story.publish("ab")
    story.end()
    assert story.kinds_sent("phb", "relay", mark).count("b") >= 1
    assert story.got(sub) == "aa"
    assert story.got(late)[-1] == "b"


@pytest.mark.parametrize("policy", [PubendPolicy(max_retain=SECOND), PubendPolicy(max_bytes=400)])
def test_early_release_is_a_gap_for_exactly_what_was_let_go(policy: PubendPolicy) -> None:
    story = Scenario("phb - shb", {"pubend_policy": policy})
    here = story.subscriber("here", "shb")
    away = story.subscriber("away", "shb")
    story.wait(0.3)
    away.leave()
    (first,) = story.publish("a")
    story.trickle("bcd" + "abcd" * 9, every=0.05)
    story.wait(2.1)
    away.come()
    story.wait(0.3)
    assert story.counted("released_early") > 0
    ((base, upto),) = story.gaps(away)
    assert base == story.tick(first) - 1
    assert story.tick(first) < upto <= story.lost  # what lies beyond, it has: the oracle sees to that
    assert 0 < len(story.got(away)) < 40
    story.end()
    assert story.gaps(here) == []
    assert story.got(here) == "abcd" * 10


def test_a_crash_while_history_is_let_go_loses_nothing_that_is_not_released() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    for number in range(8):
        story.publish("abcd")
        story.wait(0.05 + 0.003 * number)
        story.power_loss("phb", Halfway(0), off=0.02)
        story.power_loss("shb", Halfway(0), off=0.02)
        story.wait(0.35)
    story.end()
    assert story.lost > 0
    assert story.gaps(sub) == []
    assert story.got(sub) == "abcd" * 8


def test_the_oracle_would_notice_if_a_story_ended_badly() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    story.publish("ab")
    story.wait(0.3)
    story.end()
    sub.life.ledger["p"].events.pop()
    with pytest.raises(ViolationError, match="missing"):
        check_world(story.world)
