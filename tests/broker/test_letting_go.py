"""What a pubend lets go: what is released, early by policy, expired; and what it keeps for newcomers."""

from __future__ import annotations

import pytest

from tests.broker.desk import batch
from tests.broker.pubend_root import Root
from tidemark.broker.effects import ExpireLog, LogExpired, LoseLog, RecoveredPubend
from tidemark.broker.publishing.pubend import PubendPolicy
from tidemark.ticks import TICK_MIN

# Release.


def test_what_everyone_has_released_goes() -> None:
    root = Root(RecoveredPubend(last=500, sizes=((50, 10), (500, 10))))
    assert root.released(50, 300) == [LoseLog("p", 50)]
    assert root.released(40, 200) == []  # minima never go back
    assert root.released(50, 400) == []
    assert root.counters["released"] == 1
    assert root.counters["released_early"] == 0


def test_silence_does_not_go_with_the_events_before_it() -> None:
    root = Root(RecoveredPubend(last=100, sizes=((50, 10), (100, 10))), PubendPolicy(lease_ahead=1_000))
    root.beat(200_000)
    root.sync()
    root.beat(400_000)
    assert root.pubend.position > 200_000
    assert root.released(40, 40) == [], "there is no event"
    assert root.released(70, 70) == [LoseLog("p", 50)]
    assert root.released(90, 90) == []
    assert root.released(200_000, 200_000) == [LoseLog("p", 100)]
    assert root.released(200_001, 200_001) == []


def test_a_part_of_a_batch_may_go() -> None:
    root = Root()
    root.publish(1, 4, 100)
    root.sync()
    root.publish(5, 1, 200)
    root.sync()
    assert root.released(99, 99) == [], "it begins beyond"
    assert root.released(101, 200) == [LoseLog("p", 101)]
    assert root.pubend.bytes > 0
    assert root.released(150, 200) == [LoseLog("p", 103)]
    assert root.released(200, 200) == [LoseLog("p", 200)]
    assert root.pubend.bytes == 0


def test_what_a_full_disk_has_taken_goes_with_the_events_before_it() -> None:
    root = Root(policy=PubendPolicy(lease_ahead=1_000))
    root.publish(1, 1, 100)
    root.sync()
    root.publish(2, 1, 200)
    root.full()
    root.beat(200_000)
    root.sync()
    root.beat(400_000)
    assert root.pubend.describe().last_event == 200
    assert root.released(300, 300) == [LoseLog("p", 200)], "nobody waits for more"


def test_age_releases_early_but_never_beyond_what_is_delivered() -> None:
    sizes = tuple((tick, 10) for tick in (50, 150, 300, 500))
    root = Root(RecoveredPubend(last=500, sizes=sizes), PubendPolicy(max_retain=100))
    assert root.released(50, 300, wall=120) == [LoseLog("p", 50)]
    assert root.released(50, 300, wall=250) == [LoseLog("p", 150)]
    assert root.released(50, 300, wall=1_000) == [LoseLog("p", 300)]
    assert root.counters["released_early"] == 2


def test_size_releases_early_whole_batches_and_only_as_many_as_needed() -> None:
    state = RecoveredPubend(last=400, sizes=((100, 50), (200, 50), (300, 50), (400, 50)))
    root = Root(state, PubendPolicy(max_bytes=120))
    assert root.pubend.bytes == 200
    assert root.released(0, 400) == [LoseLog("p", 200)]
    assert root.pubend.bytes == 100
    assert root.released(0, 400) == []


def test_size_does_not_release_beyond_what_is_delivered() -> None:
    state = RecoveredPubend(last=400, sizes=((100, 50), (200, 50), (300, 50), (400, 50)))
    root = Root(state, PubendPolicy(max_bytes=0))
    assert root.released(0, 150) == [LoseLog("p", 100)]
    assert root.pubend.bytes == 150  # the batch up to 200 is still needed


def test_what_is_published_counts_towards_the_size() -> None:
    root = Root(policy=PubendPolicy(max_bytes=10))
    root.publish(1, 1, 100)
    assert root.pubend.bytes == 0
    root.sync()
    assert root.pubend.bytes == len(batch(0).data)
    assert root.released(0, 100) == [LoseLog("p", 100)]
    assert root.pubend.bytes == 0


def test_the_archive_holds_release_and_policy_may_say_otherwise() -> None:
    for unarchived, expected in ((False, 40), (True, 300)):
        policy = PubendPolicy(max_retain=100, release_unarchived=unarchived)
        root = Root(RecoveredPubend(last=500, sizes=((40, 10), (300, 10), (500, 10))), policy)
        root.pubend.archived = 40
        assert root.released(200, 300, wall=10_000) == [LoseLog("p", expected)]


def test_what_the_archive_has_is_let_go_early_if_it_asks_but_not_what_a_live_subscriber_lacks() -> None:
    root = Root(RecoveredPubend(last=500, sizes=((100, 10), (500, 10))), PubendPolicy(archive=True))
    root.pubend.archived = 300
    assert root.released(100, 200) == [LoseLog("p", 100)]
    root.pubend.dismiss(400)  # of which the archive has less, and a live subscriber still less
    assert root.take() == [LoseLog("p", 200)]
    assert root.lost == 200, "the stream hears of it at once, and tells nobody what was erased"
    assert root.released(100, 450) == [LoseLog("p", 300)]
    assert root.lost == 300, "also of what goes only after a live subscriber has got it"
    root.pubend.archived = 500
    assert root.released(100, 450) == []
    root.pubend.dismiss(350)
    assert root.take() == [LoseLog("p", 350)]
    root.pubend.dismiss(310)
    assert root.take() == []


@pytest.mark.parametrize("state", [RecoveredPubend(), RecoveredPubend(last=7, lost=3)])
def test_it_describes_itself(state: RecoveredPubend) -> None:
    described = Root(state).pubend.describe()
    assert described.last_event == (7 if state.last == 7 else None)
    assert described.lost == (3 if state.last == 7 else None)
    assert described.bytes == 0


# Expired events.


def test_the_log_is_asked_for_expired_events_when_the_oldest_should_have_expired() -> None:
    root = Root(policy=PubendPolicy(expiry=100))
    root.publish(1, 1, 50)
    root.sync()
    assert root.expire(200) == []  # no event has a validity
    root.publish(2, 1, 300, validity_ms=1)
    root.sync()
    assert root.expire(310) == [ExpireLog("p", 310, 300)]
    assert root.expire(500) == []  # it has not answered yet
    root.pubend.expired(LogExpired("p", 50, 1_300))
    assert root.pubend.bytes > 0
    assert root.expire(1_299) == []
    assert root.expire(1_300) == [ExpireLog("p", 1_300, 300)]
    root.pubend.expired(LogExpired("p", 300, None))
    assert (root.pubend.bytes, root.pubend.lost, root.counters["logs_expired"]) == (0, TICK_MIN, 2)
    assert root.expire(9_000) == []


def test_what_the_log_has_left_of_expired_events_is_asked_for_at_once_while_there_is_progress() -> None:
    root = Root(RecoveredPubend(last=500, sizes=((100, 10), (500, 10))), PubendPolicy(expiry=100))
    assert root.expire(1_000) == [ExpireLog("p", 1_000, 500)]
    root.pubend.expired(LogExpired("p", 100, 900))
    assert root.take() == [ExpireLog("p", 1_000, 500)]
    root.pubend.expired(LogExpired("p", 100, 1_000))  # nothing could be let go
    assert root.take() == []
    assert root.expire(1_099) == []
    assert root.expire(1_100) == [ExpireLog("p", 1_100, 500)]


def test_a_log_of_an_earlier_life_is_asked_too_and_again_when_its_oldest_events_have_gone() -> None:
    root = Root(RecoveredPubend(last=500, sizes=((100, 10), (500, 10))), PubendPolicy(expiry=100))
    assert root.expire(1_000) == [ExpireLog("p", 1_000, 500)]
    root.pubend.expired(LogExpired("p", TICK_MIN, None))
    assert root.expire(2_000) == []
    root.released(100, 100)
    assert root.expire(3_000) == [ExpireLog("p", 3_000, 500)]


def test_what_has_expired_waits_for_the_archive_unless_policy_says_otherwise() -> None:
    state = RecoveredPubend(last=500, sizes=((100, 10), (500, 10)))
    root = Root(state, PubendPolicy(expiry=100, archive=True))
    root.pubend.archived = 120
    assert root.expire(1_000) == [ExpireLog("p", 1_000, 120)]
    root = Root(state, PubendPolicy(expiry=100, archive=True, release_unarchived=True))
    assert root.expire(1_000) == [ExpireLog("p", 1_000, 500)]


# What is kept for newcomers.


def test_what_everyone_has_released_is_kept_for_a_while() -> None:
    state = RecoveredPubend(last=500, sizes=((100, 10), (300, 10), (500, 10)))
    root = Root(state, PubendPolicy(min_retain=1_000, min_retain_bytes=1_000))
    assert root.released(500, 500, wall=1_099) == []
    assert root.released(500, 500, wall=1_200) == [LoseLog("p", 100)]
    assert root.released(500, 500, wall=1_250) == []  # nothing would be freed
    assert root.released(500, 500, wall=9_000) == [LoseLog("p", 500)]


def test_no_more_is_kept_than_bytes_allow_and_nothing_while_the_disk_is_full() -> None:
    state = RecoveredPubend(last=500, sizes=((100, 10), (300, 10), (500, 10)))
    root = Root(state, PubendPolicy(min_retain=1_000, min_retain_bytes=20))
    assert root.released(500, 500, wall=600) == [LoseLog("p", 100)]
    root.publish(1, 1, 700)
    root.full()
    assert root.released(500, 500, wall=700) == [LoseLog("p", 500)]


def test_nothing_is_kept_for_newcomers_at_a_broker_that_is_being_drained() -> None:
    state = RecoveredPubend(last=500, sizes=((100, 10), (500, 10)))
    root = Root(state, PubendPolicy(min_retain=1_000, min_retain_bytes=1_000))
    assert root.released(500, 500, wall=600) == []
    root.pubend.is_draining = True
    assert root.released(500, 500, wall=600) == [LoseLog("p", 500)]


def test_policy_lets_go_also_what_would_be_kept_for_newcomers() -> None:
    state = RecoveredPubend(last=500, sizes=((100, 10), (300, 10), (500, 10)))
    root = Root(state, PubendPolicy(min_retain=9_000, min_retain_bytes=1_000, max_retain=700))
    assert root.released(500, 500, wall=1_010) == [LoseLog("p", 300)]
