"""The cache of history on disk: what is in its index, what is read from it, and when upstream is asked."""

from __future__ import annotations

from tests.broker.desk import batch
from tidemark.broker.effects import CacheRead, ChopCache, Effect, ReadCache, SendPeer, WriteCache
from tidemark.broker.streams import disk_cache
from tidemark.broker.streams.disk_cache import ENTRY_BYTES, DiskCache, split
from tidemark.broker.streams.interest import HERE, Interests
from tidemark.broker.streams.interest_coverage import InterestCoverage
from tidemark.broker.streams.stream import Stream
from tidemark.broker.turn import Turn
from tidemark.message.registry import Registry
from tidemark.ticks import Thresholds
from tidemark.wire.frames import Interest, Knowledge, Nack


class Relay:
    """A stream with a small window and a cache, between `up` and the followers `f` and `g`."""

    def __init__(self, window_bytes: int = 1, cache_bytes: int = 1 << 20) -> None:
        self.turn = Turn()
        self.turn.now = 1_000_000
        self.interests = Interests(1, Registry(), self.turn)
        self.cache = DiskCache(self.turn, cache_bytes)
        thresholds = Thresholds(gct_us=0)
        self.stream = Stream(
            "p", self.interests, self.turn, window_bytes, thresholds, is_hosted=False, cache=self.cache
        )
        for number, follower in enumerate(("f", "g")):
            self.interests.heard(follower, Interest("p", 10 + number, None))
            self.stream.follow(follower)
        said = self.interests.say("p", "up")
        assert said is not None
        self.version = said.version
        self.stream.attach("up", self.version)
        self.turn.out.take()

    def learns(self, base: int, *ticks: int) -> list[WriteCache]:
        """First-time knowledge comes; what is written to the cache."""
        self.stream.first(base, ticks[-1], 0, self.version, batch(*ticks))
        self.stream.shrink()
        return [each for each in self.turn.out.take() if isinstance(each, WriteCache)]

    def asks(self, follower: str, base: int, upto: int) -> list[Effect]:
        """A follower asks; what the stream reads, and what it sends."""
        self.stream.nacked(follower, [(base, upto)], version=10)
        self.stream.wake()
        return self.turn.out.take()

    def answers(self, asked: ReadCache, *ticks: int, is_found: bool = True) -> list[Effect]:
        """The cache answers; what the stream sends."""
        self.stream.cached(CacheRead(asked, is_found, batch(*ticks) if ticks else None))
        self.stream.wake()
        return self.turn.out.take()


def test_what_a_window_lets_go_is_written_and_answers_who_asks_later() -> None:
    relay = Relay()
    written = relay.learns(0, 10, 20, 30)
    assert [(each.base, each.upto) for each in written] == [(0, 30)]
    read = ReadCache(1, "p", 5, 25, relay.version)
    assert relay.asks("f", 5, 25) == [read]
    [sent] = relay.answers(read, 10, 20, 30)
    assert isinstance(sent, SendPeer)
    assert isinstance(sent.frame, Knowledge)
    assert (sent.peer, sent.frame.base, sent.frame.upto, sent.frame.version) == ("f", 5, 25, 10)
    assert sent.frame.batch is not None
    assert sent.frame.batch.ticks.tolist() == [10, 20]


def test_an_entry_that_is_not_there_any_more_is_asked_for_upstream_and_not_looked_for_again() -> None:
    relay = Relay()
    relay.learns(0, 10, 20, 30)
    [read] = relay.asks("f", 0, 30)
    assert isinstance(read, ReadCache)
    assert relay.answers(read, is_found=False) == [SendPeer("up", Nack("p", ((0, 30),), relay.version))]
    relay.stream.leave("f")
    relay.stream.follow("f")
    relay.turn.out.take()
    assert not [each for each in relay.asks("f", 0, 30) if isinstance(each, ReadCache)]


def test_an_entry_is_read_once_for_all_who_ask_for_parts_of_it_meanwhile() -> None:
    relay = Relay()
    relay.learns(0, 10, 20, 30)
    relay.stream.nacked("f", [(9, 10), (19, 20)], version=10)
    (read,) = [each for each in relay.turn.out.take() if isinstance(each, ReadCache)]
    assert relay.asks("g", 25, 30) == []
    sent = relay.answers(read, 10, 20, 30)
    told = [
        (each.peer, each.frame.base, each.frame.upto)
        for each in sent
        if isinstance(each, SendPeer) and isinstance(each.frame, Knowledge)
    ]
    assert sorted(told) == [("f", 9, 10), ("f", 19, 20), ("g", 25, 30)]
    assert not [each for each in sent if isinstance(each, SendPeer) and isinstance(each.frame, Nack)]
    assert [type(each) for each in relay.asks("f", 9, 10)] == [ReadCache]


def test_all_who_wait_for_an_entry_that_is_not_there_any_more_are_asked_for_upstream() -> None:
    relay = Relay()
    relay.learns(0, 10, 20, 30)
    (read,) = relay.asks("f", 9, 10)
    assert isinstance(read, ReadCache)
    assert relay.asks("g", 25, 30) == []
    sent = relay.answers(read, is_found=False)
    nacks = [each.frame for each in sent if isinstance(each, SendPeer) and isinstance(each.frame, Nack)]
    assert [nack.ranges for nack in nacks] == [((9, 10), (25, 30))]


def test_what_was_learnt_for_an_older_interest_answers_nobody_who_wants_more() -> None:
    relay = Relay()
    for follower in ("f", "g"):
        relay.interests.heard(follower, Interest("p", 20, ()))
    said = relay.interests.say("p", "up")
    assert said is not None
    relay.version = said.version
    relay.learns(0, 10, 20)
    relay.interests.heard("f", Interest("p", 30, None))
    said = relay.interests.say("p", "up")
    assert said is not None
    relay.stream.nacked("f", [(0, 20)], version=30)
    relay.stream.wake()
    assert relay.turn.out.take() == [SendPeer("up", Nack("p", ((0, 20),), said.version))]


def test_an_answer_that_is_older_than_the_window_is_kept_for_the_next_who_asks() -> None:
    relay = Relay()
    relay.learns(100, 110, 120)
    assert relay.asks("f", 50, 100) == [SendPeer("up", Nack("p", ((50, 100),), relay.version))]
    relay.stream.answer(50, 100, 0, relay.version, batch(60, 70))
    written = [each for each in relay.turn.out.take() if isinstance(each, WriteCache)]
    assert [(each.base, each.upto) for each in written] == [(50, 100)]
    assert relay.asks("g", 60, 90) == [ReadCache(written[0].number, "p", 60, 90, relay.version)]
    # The same again is not written again.
    relay.stream.answer(50, 100, 0, relay.version, batch(60, 70))
    assert not [each for each in relay.turn.out.take() if isinstance(each, WriteCache)]


def test_the_oldest_entries_go_when_there_are_too_many_bytes() -> None:
    turn = Turn()
    cache = DiskCache(turn, 3 * ENTRY_BYTES)
    for number in range(5):
        cache.keep("p", 10 * number, 10 * number + 10, 1, None)
        cache.written(number + 1)
    assert [each.upto for each in turn.out.take() if isinstance(each, ChopCache)] == [1, 2]
    assert [(each.base, each.upto) for each in cache.find("p", 0, 100, 1)] == [(20, 30), (30, 40), (40, 50)]
    assert cache.find("p", 0, 100, 2) == []
    assert cache.find("q", 0, 100, 1) == []
    cache.forget_pubend("p")
    assert cache.find("p", 0, 100, 1) == []
    cache.forget(3)


def test_nothing_more_is_cached_while_too_much_is_on_its_way_to_the_disk() -> None:
    turn = Turn()
    cache = DiskCache(turn, 1 << 40)
    unwritten = disk_cache.UNWRITTEN_BYTES_MAX // ENTRY_BYTES + 1
    for number in range(unwritten + 5):
        cache.keep("p", number, number + 1, 1, None)
    assert len(turn.out.take()) == unwritten
    cache.written(1)
    cache.keep("p", 1 << 30, 1 << 31, 1, None)
    assert len(turn.out.take()) == 1


def test_a_range_is_split_among_entries_and_what_is_left() -> None:
    turn = Turn()
    cache = DiskCache(turn, 1 << 20)
    for base, upto in ((10, 20), (15, 30), (40, 50)):
        cache.keep("p", base, upto, 1, None)
    reads, left = split(5, 45, cache.find("p", 5, 45, 1))
    assert [(entry.base, part) for entry, part in reads] == [(10, (10, 20)), (15, (20, 30)), (40, (40, 45))]
    assert left == [(5, 10), (30, 40)]


def test_a_broker_without_a_cache_writes_nothing() -> None:
    relay = Relay(cache_bytes=0)
    assert relay.learns(0, 10, 20, 30) == []
    assert relay.asks(HERE, 0, 30) == [SendPeer("up", Nack("p", ((0, 30),), relay.version))]


def test_coverage_says_for_which_version_each_part_is_complete() -> None:
    coverage = InterestCoverage()
    coverage.learnt(5, 100, 100)
    coverage.learnt(7, 200, 200)
    coverage.need(6)
    coverage.answered(6, 120, 150)
    assert coverage.versions(50, 250) == [
        (50, 100, 0),
        (100, 120, 5),
        (120, 150, 6),
        (150, 200, 5),
        (200, 250, 7),
    ]
    assert coverage.versions(210, 220) == [(210, 220, 7)]
