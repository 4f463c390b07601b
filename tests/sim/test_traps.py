"""A scenario for each trap of the protocol, numbered as in docs/traps.md.

Each scenario is a small tree of brokers driven by hand; it ends with the checks of the oracle, and asserts
that what it is about really happened. Trap 9, a subscriber that moves, is tested elsewhere: docs/traps.md
says where.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.sim.scenario import Halfway, Scenario
from tidemark.broker.effects import PeerFrameReceived
from tidemark.broker.publishing.pubend import PubendPolicy
from tidemark.sim.judging.oracle import is_caught_up
from tidemark.sim.swarm.plan import SECOND
from tidemark.ticks import Thresholds
from tidemark.wire.frames import Acked, Gap, Hello, Knowledge, Nack, Published

A, B = "kind = 'a'", "kind = 'b'"


def test_trap_01_a_relays_silence_is_not_silence_for_a_selector_it_did_not_know() -> None:
    story = Scenario("phb - relay - shb1, relay - shb2")
    narrow = story.subscriber("narrow", "shb1", A)
    story.wait(0.3)
    story.publish("ab")  # the relay remembers silence where b is
    story.wait(0.1)
    assert story.kinds_sent("phb", "relay") == "a"
    wide = story.subscriber("wide", "shb2", B)
    story.trickle("babababa")
    missed = story.lose(Knowledge, receiver="shb2", where=lambda frame: frame.batch is not None, times=4)
    story.wait(0.5)
    story.end()
    assert missed.lost == 4
    assert story.count("relay", "answers_cached") > 0  # its silence from before was of no use to anyone
    assert story.got(narrow) == "aaaaa"
    assert set(story.got(wide)) == {"b"}


def test_trap_02_a_subscription_starts_at_the_tick_where_the_last_broker_knows_it() -> None:
    story = Scenario("phb - relay - shb")
    story.subscriber("first", "shb", A)
    story.wait(0.3)
    story.world.network.clog("relay", "phb")  # the new interest waits here
    late = story.subscriber("late", "shb", B)
    story.wait(0.2)
    (before,) = story.publish("b")
    story.wait(0.2)
    assert "p" not in late.life.ledger
    story.world.network.unclog("relay", "phb")
    story.wait(0.2)
    (after,) = story.publish("b")
    story.end()
    start = late.life.ledger["p"].start
    assert story.tick(before) <= start < story.tick(after)
    assert story.got(late) == "b"


def test_trap_02_a_subscription_that_is_covered_already_starts_at_once() -> None:
    story = Scenario("phb - relay - shb")
    story.subscriber("first", "shb", "kind IN ('a', 'b')")
    story.wait(0.3)
    said = len(story.interests("shb", "relay"))
    late = story.subscriber("late", "shb", B)
    story.wait(0.2)
    story.publish("ab")
    story.end()
    assert len(story.interests("shb", "relay")) == said
    assert story.count("shb", "interest_covered") > 0
    assert story.got(late) == "b"


def test_trap_03_after_a_restart_nobody_trusts_an_old_interest() -> None:
    story = Scenario("phb - relay - shb")
    sub = story.subscriber("sub", "shb", A)
    story.wait(0.3)
    story.publish("ab")
    story.wait(0.1)
    assert story.kinds_sent("phb", "relay") == "a"
    story.world.network.clog("shb", "relay")  # the relay, born again, does not learn what is wanted below
    story.power_loss("relay")
    mark = len(story.sent)
    story.wait(0.1)
    story.publish("ab")
    story.wait(0.1)
    assert story.kinds_sent("phb", "relay", mark) == ""  # nobody follows it
    assert story.interests("relay", "phb")[-1].wanted == ()
    story.world.network.unclog("shb", "relay")
    story.wait(0.5)
    assert story.interests("relay", "phb")[-1].wanted != ()
    assert story.kinds_sent("phb", "relay", mark) == "a"  # asked for on behalf of who follows by now
    story.end()
    assert story.got(sub) == "aa"


def test_trap_04_silence_that_was_advertised_survives_a_crash_and_a_clock_that_went_back() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(1.0)
    promised = max(frame.upto for frame in story.frames(Knowledge, "phb"))
    story.world.set_skew("phb", -3_600 * SECOND)
    story.power_loss("phb")
    story.wait(0.2)
    (key,) = story.publish("a")
    story.end()
    assert story.tick(key) > promised
    assert story.counted("clock_back") > 0
    assert story.got(sub) == "a"


def test_trap_05_acked_means_on_the_platter() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    story.machine("phb").stall_disk(5 * SECOND)
    story.publish("ab")
    story.wait(1.0)
    assert story.publisher.acknowledged == 0
    assert story.kinds_sent("phb", "shb") == ""
    story.power_loss("phb")  # what was not synced is gone, and nobody was told of it
    assert not story.world.ground_truth.durable["p"]
    story.end()
    assert story.publisher.acknowledged == 2
    assert story.got(sub) == "ab"


def test_trap_05_what_is_repeated_is_recognised_after_a_crash_although_the_log_was_chopped() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    story.publisher_is_deaf = True  # the acknowledgement never arrives
    keys = story.publish("ab")
    story.wait(1.0)
    assert story.lost >= story.tick(keys[-1])  # everyone has it: the log lets it go
    story.power_loss("phb")
    story.publisher_is_deaf = False
    story.end()
    assert story.count("phb", "publishes_repeated") == 1
    assert len(story.world.ground_truth.durable["p"]) == 2
    assert story.got(sub) == "ab"


def test_trap_06_a_subscriber_may_be_ahead_of_its_host() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    story.machine("shb").stall_disk(5 * SECOND)  # what was delivered does not get to the disk
    story.publish("abc")
    story.wait(0.1)
    assert story.got(sub) == "abc"
    story.power_loss("shb")
    story.wait(0.01)
    story.publish("d")
    story.end()
    assert story.count("shb", "tokens_ahead") > 0
    assert story.got(sub) == "abcd"


def test_trap_06_a_token_that_the_broker_keeps_is_confirmed_once_it_is_on_disk() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb", kind="leaves")
    story.wait(0.3)
    story.publish("ab")
    story.wait(0.2)
    story.machine("shb").stall_disk(5 * SECOND)
    confirmed = len([frame for _, frame in story.told if isinstance(frame, Acked)])
    story.publish("cd")
    story.wait(0.2)
    assert story.got(sub) == "abcd"
    assert len([frame for _, frame in story.told if isinstance(frame, Acked)]) == confirmed
    story.power_loss("shb")
    story.wait(0.4)
    story.end()  # it is told to go on from no earlier than what was confirmed, and to forget the rest
    assert story.got(sub) == "abcd"


@pytest.mark.parametrize("kept", [0, 1], ids=["nothing", "half"])
def test_trap_07_the_pfs_does_not_double_what_is_delivered_again_after_a_crash(kept: int) -> None:
    story = Scenario("phb - shb")
    live = story.subscriber("live", "shb", A)
    away = story.subscriber("away", "shb")
    story.wait(0.3)
    away.leave()
    for kinds in ("ab", "ba", "aa"):
        story.publish(kinds)
        story.wait(0.12)  # longer than the PFS takes to be synced, now and then
    story.power_loss("shb", Halfway(0) if kept else None)
    story.wait(0.5)
    story.power_loss("shb", Halfway(0) if kept else None)
    story.end()
    assert story.count("shb", "switchovers") > 0
    assert story.got(away) == "abbaaa"
    assert story.got(live) == "aaaa"


def test_trap_08_nobody_counts_as_having_released_everything_because_he_is_unknown() -> None:
    story = Scenario("phb - relay - shb1, relay - shb2")
    here = story.subscriber("here", "shb1")
    away = story.subscriber("away", "shb2")
    story.wait(0.3)
    away.leave()
    keys = story.publish("ab")
    story.world.cut("relay", "shb2")
    story.power_loss("relay")  # it has forgotten that anyone is behind shb2
    story.wait(3.0)
    assert story.got(here) == "ab"
    assert story.lost < story.tick(keys[0])
    story.end()
    story.wait(1.0)
    assert story.got(away) == "ab"
    assert story.lost >= story.tick(keys[-1])


def test_trap_10_a_slow_subscriber_leaves_at_a_tick_and_goes_on_exactly_there() -> None:
    story = Scenario("phb - shb")
    slow = story.subscriber("slow", "shb", credit=100)
    quick = story.subscriber("quick", "shb")
    story.wait(0.3)
    story.stop_reading(slow)
    story.trickle("abcd" * 5)
    story.wait(1.0)
    assert story.count("shb", "catchups_slow") == 1
    assert story.got(quick) == "abcd" * 5  # who is not slow notices nothing
    assert story.got(slow) == ""
    story.go_on_reading(slow)
    story.wait(1.0)
    story.end()
    assert story.count("shb", "switchovers") >= 1
    assert story.got(slow) == "abcd" * 5


def test_trap_11_switch_over_has_neither_hole_nor_overlap_while_the_constream_moves_on() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    other = story.subscriber("other", "shb", A)
    story.wait(0.3)
    sub.leave()
    story.publish("abcd")
    story.wait(0.2)
    story.trickle("abcd" * 10)
    story.machine("shb").stall_disk(SECOND // 5)  # the read of the PFS takes its time
    sub.come()
    moved, joined = story.count("shb", "events_matched"), story.count("shb", "switchovers")
    story.wait(0.15)
    assert story.count("shb", "events_matched") > moved
    assert story.count("shb", "switchovers") == joined
    story.end()
    assert story.count("shb", "switchovers") == joined + 1
    assert story.got(sub) == "abcd" * 11
    assert story.got(other) == "a" * 11


def test_trap_12_a_changed_selector_has_a_tick_also_when_catching_up_after_a_crash() -> None:
    story = Scenario("phb - relay - shb")
    sub = story.subscriber("sub", "shb", A, kind="leaves")
    story.wait(0.3)
    story.stop_reading(sub)
    story.publish("ab")
    story.wait(0.1)
    sub.change(B)
    story.wait(0.3)
    story.publish("ab")
    story.wait(0.1)
    assert story.got(sub) == ""  # all of it is still to be committed
    story.power_loss("shb")
    story.end()
    assert story.counted("changes") == 1
    assert story.got(sub) == "ab"  # the a of before, the b of after


def test_trap_12_a_selector_that_is_changed_twice_holds_for_each_of_its_times() -> None:
    story = Scenario("phb - relay - shb")
    sub = story.subscriber("sub", "shb", A, kind="leaves")
    story.wait(0.3)
    story.stop_reading(sub)
    for selector in (B, "kind = 'c'"):
        story.publish("abc")
        story.wait(0.1)
        sub.change(selector)
        story.wait(0.3)
    story.publish("abc")
    story.wait(0.1)
    sub.leave()
    story.wait(0.1)
    story.end()
    assert story.got(sub) == "abc"


def test_trap_12_of_who_holds_its_own_token_the_tick_is_the_token_also_after_a_crash() -> None:
    story = Scenario("phb - relay - shb")
    sub = story.subscriber("sub", "shb", A)
    story.wait(0.3)
    story.publish("ab")
    story.wait(0.1)
    story.stop_reading(sub)
    story.publish("ab")
    story.wait(0.1)
    assert story.got(sub) == "a"
    sub.change(B)
    story.wait(0.3)
    story.publish("ab")
    story.wait(0.1)
    story.power_loss("shb")
    story.end()
    assert story.got(sub) == "abb"  # what it had consumed by the old one, all beyond by the new one


def test_trap_13_an_event_that_expires_on_its_way_is_silence_and_the_token_passes_it() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    late = story.subscriber("late", "shb")
    story.wait(0.3)
    late.leave()
    story.world.cut("phb", "shb")
    dead = story.publish("a", validity_ms=150) + story.publish("b", validity_ms=3_600_000)
    story.wait(0.5)
    story.world.mend("phb", "shb")
    story.wait(0.5)
    assert story.got(sub) == "b"
    assert story.upto(sub) >= story.tick(dead[-1])
    story.end()
    assert story.got(late) == "b"
    assert story.counted("events_expired") > 0


def test_trap_13_an_event_that_expires_before_a_subscriber_returns_is_silence_for_it_alone() -> None:
    story = Scenario("phb - shb")
    here = story.subscriber("here", "shb")
    away = story.subscriber("away", "shb")
    story.wait(0.3)
    away.leave()
    story.publish("a", validity_ms=150)
    story.wait(0.5)
    story.publish("b")
    story.end()
    assert story.got(here) == "ab"
    assert story.got(away) == "b"
    assert story.counted("events_expired") > 0


def test_trap_13_a_pubend_lets_expired_events_go_although_a_durable_subscriber_is_away() -> None:
    story = Scenario("phb - shb")
    away = story.subscriber("away", "shb")
    story.wait(0.3)
    away.leave()
    story.wait(0.1)
    short: list[str] = []
    for _ in range(10):
        short += story.publish("abcd", validity_ms=150)
        story.wait(0.1)
    story.wait(2)
    [status] = story.broker("phb").describe_pubends()
    assert status.bytes == 0
    assert status.released is not None
    assert status.released < story.tick(short[0])  # its subscriber lacks all of them
    assert story.counted("logs_expired") > 0
    story.publish("b")
    story.power_loss("phb")
    story.end()
    assert story.got(away) == "b"
    assert story.counted("gaps_told") == 0


def test_trap_14_frames_of_a_former_life_are_not_listened_to() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    former = next(story.frames(Hello, "phb", "shb"))
    story.power_loss("phb")
    story.wait(0.2)
    before = story.count("shb", "former_lives")
    story.machine("shb").peer_frame("phb", former)  # it was somewhere all the time
    story.publish("a")
    story.wait(0.1)
    assert story.count("shb", "former_lives") == before + 1
    assert story.got(sub) == "a"  # the present life is still listened to
    story.end()


def test_trap_14_nobody_is_listened_to_before_he_has_introduced_himself() -> None:
    story = Scenario("phb - shb")
    story.subscriber("sub", "shb")
    story.wait(0.3)
    now = story.world.engine.now
    broker = story.broker("shb")
    frame = Knowledge("p", now, now + 3_600 * SECOND, 0, True, 1 << 60)
    story.world.cut("phb", "shb")
    before = broker.counters["former_lives"]
    broker.handle(PeerFrameReceived("phb", frame), now, now)
    assert broker.counters["former_lives"] == before + 1
    story.publish("a")
    story.end()


def test_trap_15_what_many_ask_for_is_asked_for_once() -> None:
    story = Scenario("phb - relay - shb1, relay - shb2, relay - shb3")
    subs = [story.subscriber(f"sub{n}", f"shb{n}") for n in (1, 2, 3)]
    story.wait(0.3)
    story.lose(Knowledge, receiver="relay", where=lambda frame: frame.batch is not None, times=3)
    for kind in "abc":
        story.publish(kind)
        story.wait(0.01)
    story.wait(0.5)
    below = [range_ for n in (1, 2, 3) for range_ in story.nacked(f"shb{n}", "relay")]
    above = story.nacked("relay", "phb")
    assert len(above) == len(set(above))
    assert len(below) >= 2 * len(above)
    assert story.count("relay", "ranges_consolidated") > 0
    story.end()
    assert [story.got(sub) for sub in subs] == ["abc"] * 3


def test_trap_15_nacks_are_chopped_capped_and_less_and_less_often_repeated() -> None:
    few = Thresholds(
        gct_us=0, nrt_us=50_000, nrt_us_max=400_000, chop_ticks_max=100_000, outstanding_ranges_max=2
    )
    beating = PubendPolicy(heartbeat_idle=100_000)
    story = Scenario("phb - shb", {"thresholds": few, "pubend_policy": beating})
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    story.lose(Knowledge, receiver="shb", where=lambda frame: frame.batch is not None)
    deaf = story.lose(Knowledge, receiver="shb")
    story.trickle("a" * 50)
    story.wait(1.2)
    deaf.stop()  # from now on it knows that it does not know
    story.wait(4.0)
    asked = [each for each in story.sent if isinstance(each.frame, Nack)]
    ranges = story.nacked("shb", "phb")
    assert all(upto - base <= 100_000 for base, upto in ranges)
    assert all(len(nack.ranges) <= 2 for nack in story.frames(Nack))
    lost = max(ranges, key=ranges.count)
    times = [each.at for each in asked if isinstance(each.frame, Nack) and lost in each.frame.ranges]
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert len(waits) >= 3
    assert waits == sorted(waits)
    story.end()
    assert story.got(sub) == "a" * 50


def test_trap_16_a_batch_can_straddle_a_token_and_a_release() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    story.stop_reading(sub)
    keys = story.publish("abcdabcd")
    story.wait(0.1)
    sub.pending["p"].cut(story.tick(keys[3]))  # it has consumed half of the batch when it commits
    sub.commit()
    story.wait(0.5)
    assert story.lost == story.tick(keys[3])  # half of the batch may go
    sub.leave()
    story.wait(0.1)
    story.power_loss("phb")
    story.end()
    assert story.got(sub) == "abcdabcd"


def test_trap_16_a_batch_can_be_larger_than_what_is_read_at_once() -> None:
    story = Scenario("phb - relay - shb", {"window_bytes_max": 2_000})
    sub = story.subscriber("sub", "shb", A)
    story.wait(0.3)
    sub.leave()
    story.publish("abcd" * 100)
    story.publish("a")
    story.wait(0.5)
    story.power_loss("shb")
    story.end()
    assert story.world.largest_batch > 8 << 10
    assert story.got(sub) == "a" * 101


def test_trap_17_what_cannot_be_reached_is_not_lost() -> None:
    story = Scenario("phb - relay - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    unheard = story.lose(Nack, receiver="phb")
    story.lose(Knowledge, receiver="relay", where=lambda frame: frame.batch is not None, times=1)
    story.publish("a")
    story.wait(5.0)
    assert unheard.lost > 5  # it keeps asking
    story.world.cut("phb", "relay")
    story.wait(5.0)
    story.power_loss("relay")
    story.wait(1.0)
    assert not is_caught_up(sub, story.world)
    assert not [frame for _, frame in story.told if isinstance(frame, Gap)]
    story.end()
    assert story.gaps(sub) == []
    assert story.got(sub) == "a"


def test_trap_18_recovery_runs_on_what_the_last_crash_left_again_and_again() -> None:
    story = Scenario("phb - shb")
    sub = story.subscriber("sub", "shb")
    story.wait(0.3)
    sent = ""
    for number in range(12):
        sent += "abcd"
        story.publish("abcd")
        story.wait(0.003 * number)
        story.power_loss("phb", Halfway(0), off=0.01)
        story.wait(0.002 * number)  # it has hardly begun
        story.power_loss("phb", Halfway(0), off=0.01)
        story.power_loss("shb", Halfway(0), off=0.01)
        story.wait(0.35)
    story.end()
    acked = [frame for _, frame in story.told if isinstance(frame, Published)]
    assert acked[-1].sequence == len(sent)
    assert story.got(sub) == sent
