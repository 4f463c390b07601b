"""A pubend by itself: ticks, the disk before the word, repetition, silence, full disks."""

from __future__ import annotations

import pytest

from tests.broker.desk import batch
from tests.broker.pubend_root import Root, announced, appended, published, refused
from tidemark.broker.effects import AppendLease, RecoveredPubend, SendClient
from tidemark.broker.publishing import joined_batches, pubend, remembered_publishers
from tidemark.broker.publishing.pubend import PubendPolicy
from tidemark.wire.frames import Publish, Refused

FULL = "the disk is full: nothing was logged, send again when there is room"


# Publishing.


def test_nothing_is_acknowledged_or_passed_on_before_it_is_synced() -> None:
    root = Root(RecoveredPubend(last=10))
    effects = root.publish(1, 2, 100)
    assert appended(effects) == [("me", 1, [100, 101])]
    assert len(effects) == 1
    assert root.known == []
    assert root.sync() == [published(2, 101)]
    assert root.known == [(10, 101, [100, 101])]


def test_publishers_are_answered_before_their_events_are_passed_on() -> None:
    root = Root(RecoveredPubend(last=10))
    root.publish(1, 1, 100)
    root.publish(1, 1, 100, publisher="you")
    root.commit.synced(root.syncs[-1])
    root.commit.flush()
    assert root.take() == [published(1, 100)]
    assert root.known == []
    root.pubend.settle()
    root.sync()
    assert root.known == [(10, 100, [100]), (100, 101, [101])]


def test_what_has_become_durable_together_is_passed_on_together(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Root(RecoveredPubend(last=10))
    root.publish(1, 1, 100)
    root.sync()
    for sequence in (2, 4, 6):
        root.publish(sequence, 2, 100 * sequence)
    root.commit.synced(root.syncs[-1])
    root.commit.flush()
    root.take()
    monkeypatch.setattr(joined_batches, "MERGED_BYTES_MAX", 3 * len(batch(0, 1).data) - 1)
    root.sync()
    assert root.known == [(10, 100, [100]), (100, 401, [200, 201, 400, 401]), (401, 601, [600, 601])]


def test_what_one_publisher_sends_in_a_row_is_logged_as_one_batch() -> None:
    root = Root(RecoveredPubend(last=10))
    root.turn.wall = 100
    for publisher, sequence in (("me", 1), ("me", 3), ("you", 1), ("me", 5), ("me", 5), ("me", 7)):
        root.pubend.received(7, Publish("p", publisher, sequence, batch(0, 0)))
    root.pubend.log()
    root.pubend.settle()
    root.commit.flush()
    rows = [("me", 1, [100, 101, 102, 103]), ("you", 1, [104, 105]), ("me", 5, [106, 107, 108, 109])]
    assert appended(root.take()) == rows
    # Each batch that came is answered, the one that was repeated too.
    assert root.sync() == [
        published(2, 101),
        published(4, 103),
        published(2, 105, "you"),
        published(6, 107),
        published(6, 107),
        published(8, 109),
    ]
    assert root.known == [(10, 109, list(range(100, 110)))]
    assert root.beat(10**7, 10**7) != []  # nothing is thought to be on its way any more


def test_batches_that_came_together_are_not_joined_over_a_gap_or_beyond_a_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = Root(RecoveredPubend(last=10))
    monkeypatch.setattr(joined_batches, "MERGED_BYTES_MAX", 3 * len(batch(0, 0).data) - 1)
    for sequence, wall in ((1, 100), (3, 101), (5, 101), (7, 500)):
        root.turn.wall = wall
        root.pubend.received(7, Publish("p", "me", sequence, batch(0, 0)))
    root.pubend.log()
    root.pubend.settle()
    root.commit.flush()
    rows = [("me", 1, [100, 101, 102, 103]), ("me", 5, [104, 105]), ("me", 7, [500, 501])]
    assert appended(root.take()) == rows
    root.full()
    assert appended(root.publish(1, 1, 600)) == [("me", 1, [600])]


def test_a_repeated_batch_is_acknowledged_and_not_logged_again() -> None:
    root = Root(RecoveredPubend(last=10))
    root.publish(1, 2, 100)
    root.sync()
    assert root.publish(1, 2, 200) == [published(2, 101)]
    assert root.counters["publishes_repeated"] == 1


def test_a_batch_that_is_repeated_before_it_is_synced_waits_for_the_same_sync() -> None:
    root = Root()
    root.publish(1, 2, 100)
    assert root.publish(1, 2, 150) == []
    assert root.sync() == [published(2, 101)]
    assert root.sync() == [published(2, 101)]  # after a sync of its own, which costs nothing


def test_a_repetition_that_goes_on_is_logged_from_where_it_is_new() -> None:
    root = Root(RecoveredPubend(last=10))
    root.publish(1, 2, 100)
    root.sync()
    assert appended(root.publish(1, 3, 200)) == [("me", 3, [200])]
    assert root.sync() == [published(3, 200)]


def test_publishers_are_remembered_across_lives() -> None:
    root = Root(RecoveredPubend(last=101, publishers={"me": (2, 101)}))
    assert root.publish(1, 2, 500) == [published(2, 101)]
    assert appended(root.publish(3, 1, 500)) == [("me", 3, [500])]


def test_publishers_are_numbered_apart() -> None:
    root = Root()
    assert appended(root.publish(1, 1, 100, "me")) == [("me", 1, [100])]
    assert appended(root.publish(1, 1, 100, "you")) == [("you", 1, [101])]


def test_a_batch_that_skips_ahead_is_refused() -> None:
    root = Root()
    root.publish(1, 1, 100)
    assert root.publish(3, 1, 100) == [
        refused("sequence", "expected sequence 2, got 3: send again from there")
    ]
    assert root.counters["publishes_refused"] == 1
    assert len(root.syncs) == 1


def test_a_publisher_that_is_not_remembered_is_not_told_to_publish_everything_again() -> None:
    root = Root()
    (effect,) = root.publish(500, 1, 100, "orders")
    assert isinstance(effect, SendClient)
    assert isinstance(effect.frame, Refused)
    assert effect.frame.code == "sequence"
    assert "nothing is remembered of the publisher 'orders'" in effect.frame.reason
    assert "else go on under another name" in effect.frame.reason
    assert root.syncs == []


def test_a_name_that_cannot_be_remembered_is_refused_and_pushes_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remembered_publishers, "PUBLISHERS_BYTES_MAX", 3 * 260)
    root = Root()
    for name in ("one", "two"):
        root.publish(1, 1, 100, name)
    root.full()
    for name in ("one", "two", "six"):
        root.publish(1, 1, 200, name)
    root.sync()
    assert root.publish(1, 1, 300, "ten") == [refused("limit", pubend.TOO_MANY_NAMES, "ten")]
    for number in range(5):  # a client that made its name takes nobody's place
        assert appended(root.publish(1, 1, 400 + number, f"publisher-{number:016x}"))
    assert appended(root.publish(2, 1, 500, "one")) == [("one", 2, [500])]
    root.sync()
    assert appended(root.publish(1, 2, 600, "one")) == []
    assert root.pubend.describe().publishers == 8


def test_of_names_that_clients_made_only_those_that_published_last_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remembered_publishers, "MADE_NAMES_MAX", 3)
    root = Root(RecoveredPubend(publishers={f"publisher-{number:016x}": (7, 7) for number in range(4)}))
    for number in (1, 5):
        root.publish(8 if number == 1 else 1, 1, 100, f"publisher-{number:016x}")
    root.sync()
    assert root.pubend.describe().publishers == 3
    known = [number for number in range(6) if appended(root.publish(9, 1, 200, f"publisher-{number:016x}"))]
    assert known == [1]


def test_ticks_grow_although_the_clock_goes_back() -> None:
    root = Root(RecoveredPubend(last=1_000, lease=5_000_000))
    root.publish(1, 1, 50)
    root.sync()
    assert root.known == [(5_000_000, 5_000_001, [5_000_001])]
    assert root.counters["clock_back"] == 1


# A full disk.


def test_a_full_disk_refuses_and_rolls_the_numbering_back() -> None:
    root = Root()
    root.publish(1, 1, 100)
    root.sync()
    root.publish(2, 2, 200)
    root.publish(4, 1, 300)  # gathers while the sync runs
    assert root.full() == [refused("full", FULL), refused("full", FULL)]
    assert root.known[-1] == (root.known[-1][0], 100, [100])  # nothing of it was passed on
    assert root.publish(4, 1, 400) == [
        refused("sequence", "expected sequence 2, got 4: send again from there")
    ]
    assert appended(root.publish(2, 2, 400)) == [("me", 2, [400, 401])]
    assert root.sync() == [published(3, 401)]
    assert root.known[-1] == (100, 401, [400, 401])


def test_ticks_that_a_full_disk_refused_are_not_given_again() -> None:
    root = Root()
    root.publish(1, 3, 100)
    root.full()
    assert appended(root.publish(1, 1, 50)) == [("me", 1, [103])]


def test_a_repetition_of_what_found_the_disk_full_is_refused_with_it() -> None:
    root = Root()
    root.publish(1, 1, 100)
    root.publish(1, 1, 100)
    assert root.full() == [refused("full", FULL), refused("full", FULL)]
    assert appended(root.publish(1, 1, 200)) == [("me", 1, [200])]


def test_a_lease_that_found_the_disk_full_is_asked_for_again() -> None:
    root = Root(policy=PubendPolicy(heartbeat=10, lease_ahead=1_000))
    assert root.beat(100) == [AppendLease("p", 1_100)]
    assert root.beat(120) == []
    root.full()
    assert root.known == []
    assert root.beat(140) == [AppendLease("p", 1_140)]
    root.sync()
    root.beat(160)
    assert root.known[-1][1:] == (160, [])


# Silence.


def test_silence_is_advertised_only_as_far_as_the_lease_on_disk() -> None:
    root = Root(RecoveredPubend(last=0), PubendPolicy(heartbeat=10, lease_ahead=1_000))
    assert root.beat(100) == [AppendLease("p", 1_100)]
    assert root.known == []
    root.sync()
    assert root.beat(200) == []
    assert root.known == [(0, 200, [])]
    assert root.beat(205) == []  # not so soon again
    assert root.known == [(0, 200, [])]
    assert root.beat(700) == [AppendLease("p", 1_700)]  # renewed when half of it is used
    assert root.beat(5_000) == []
    assert root.known[-1] == (700, 1_100, [])


def test_silence_goes_on_although_the_clock_went_back() -> None:
    root = Root(RecoveredPubend(last=5_000, lease=9_000), PubendPolicy(heartbeat=10, lease_ahead=1_000))
    root.beat(100, wall=50)
    root.sync()
    root.beat(120, wall=70)
    root.beat(140, wall=90)
    assert root.known == [(9_000, 9_001, []), (9_001, 9_002, [])]


def test_a_stream_never_stands_before_what_it_may_have_said() -> None:
    """Others heard of silence up to the lease: who starts at what they released must not start before it."""
    root = Root(RecoveredPubend(last=5_000, lease=9_000))
    assert root.pubend.position == 9_000


def test_there_is_no_silence_while_an_event_is_on_its_way_to_the_disk() -> None:
    root = Root(RecoveredPubend(last=0), PubendPolicy(heartbeat=10, lease_ahead=1_000))
    root.beat(50)
    root.sync()
    root.publish(1, 1, 100)
    root.beat(200)
    assert root.known == []
    root.sync()
    root.beat(300)
    assert root.known == [(0, 100, [100]), (100, 300, [])]


def test_after_a_crash_no_event_gets_a_tick_that_may_have_been_said_to_be_silent() -> None:
    root = Root(RecoveredPubend(last=100, lease=1_100))
    assert appended(root.publish(1, 1, 500)) == [("me", 1, [1_101])]


def test_the_last_event_is_announced_when_nobody_releases_it_and_after_recovery() -> None:
    root = Root(RecoveredPubend(last=100), PubendPolicy(ack_expected=1_000))
    assert announced(root, 10) == 100
    assert announced(root, 20) is None
    assert announced(root, 2_000) == 100
    root.released(100, 100)
    assert announced(root, 9_000) is None
