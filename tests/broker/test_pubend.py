"""A pubend by itself: ticks, the disk before the word, repetition, silence, full disks, release."""

from __future__ import annotations

import pytest

from tests.broker.desk import batch
from tidemark.broker.effects import (
    AppendEvents,
    AppendLease,
    Effect,
    ExpireLog,
    LogExpired,
    LoseLog,
    RecoveredPubend,
    SendClient,
    SyncLog,
)
from tidemark.broker.publishing import joined_batches, pubend, remembered_publishers
from tidemark.broker.publishing.pubend import Pubend, PubendPolicy
from tidemark.broker.turn import Turn
from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import TICK_MIN
from tidemark.wire.frames import Publish, Published, Refused

FULL = "the disk is full: nothing was logged, send again when there is room"


class Root:
    """A pubend with its surroundings written down."""

    def __init__(self, state: RecoveredPubend | None = None, policy: PubendPolicy | None = None) -> None:
        self.turn = Turn()
        self.commit = self.turn.log
        self.syncs: list[int] = []
        #: knowledge passed on: base, upto, ticks of events
        self.known: list[tuple[int, int, list[int]]] = []
        #: what was told as let go at once
        self.lost = TICK_MIN
        self.pubend = Pubend("p", state or RecoveredPubend(), policy or PubendPolicy(), self.turn, self)

    @property
    def counters(self) -> dict[str, int]:
        return self.turn.counters

    def first(self, base: int, upto: int, lost: int, version: int, batch: EventBatch | None) -> None:
        """The pubend passes knowledge on."""
        del lost, version
        self.known.append((base, upto, [] if batch is None else batch.ticks.tolist()))

    def tell_lost(self, lost: int) -> None:
        """The pubend has let go of something at once."""
        self.lost = lost

    def take(self) -> list[Effect]:
        """The effects since the last call, without syncs, whose tickets are kept."""
        effects = self.turn.out.take()
        self.syncs += [each.ticket for each in effects if isinstance(each, SyncLog)]
        return [each for each in effects if not isinstance(each, SyncLog)]

    def publish(
        self, sequence: int, count: int, wall: int, publisher: str = "me", validity_ms: int = 0
    ) -> list[Effect]:
        self.turn.wall = wall
        events = batch(*range(count), validity_ms=validity_ms)
        self.pubend.received(7, Publish("p", publisher, sequence, events))
        self.pubend.log()
        self.pubend.settle()
        self.commit.flush()
        return self.take()

    def sync(self) -> list[Effect]:
        self.commit.synced(self.syncs[-1])
        self.pubend.settle()
        self.commit.flush()
        return self.take()

    def full(self) -> list[Effect]:
        assert self.commit.failed(self.syncs[-1])
        return self.take()

    def beat(self, now: int, wall: int | None = None) -> list[Effect]:
        self.turn.now, self.turn.wall = now, now if wall is None else wall
        self.pubend.beat()
        self.commit.flush()
        return self.take()

    def expire(self, now: int, wall: int | None = None) -> list[Effect]:
        self.turn.now, self.turn.wall = now, now if wall is None else wall
        self.pubend.expire()
        return self.take()

    def released(self, released: int, delivered: int, wall: int = 0) -> list[Effect]:
        self.turn.now, self.turn.wall = 0, wall
        self.pubend.released(released, delivered)
        return self.take()


def appended(effects: list[Effect]) -> list[tuple[str, int, list[int]]]:
    """Publisher, first sequence number and ticks of what is logged."""
    return [
        (each.publisher, each.sequence, each.batch.ticks.tolist())
        for each in effects
        if isinstance(each, AppendEvents)
    ]


def published(sequence: int, tick: int, publisher: str = "me") -> SendClient:
    return SendClient(7, Published("p", publisher, sequence, tick))


def refused(code: str, reason: str, publisher: str = "me") -> SendClient:
    return SendClient(7, Refused("publish", publisher, code, reason))


def announced(root: Root, now: int) -> int | None:
    """What the pubend announces at this monotonic time."""
    root.turn.now = now
    return root.pubend.announcement()


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
