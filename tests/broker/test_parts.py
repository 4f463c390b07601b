"""The parts of a broker, each by itself: stimuli in, whole lists of effects compared."""

from __future__ import annotations

import numpy as np

from tidemark.broker.audience import Audience
from tidemark.broker.catchup import Catchup
from tidemark.broker.commit import GroupCommit
from tidemark.broker.effects import AppendEvents, AppendLease, LoseLog, Outbox, SendClient
from tidemark.broker.interest import HERE, STARTED_ONLY, Interests
from tidemark.broker.pubend import Pubend, PubendPolicy, PubendState
from tidemark.broker.release import Minima
from tidemark.broker.window import Window
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.registry import Registry
from tidemark.message.schema import Schema
from tidemark.ticks import TICK_MAX
from tidemark.wire.frames import Interest, Publish, Published, Refused, Wanted

SCHEMA = Schema.parse("[n: int]")


def batch(*ticks: int) -> EventBatch:
    builder = BatchBuilder()
    for tick in ticks:
        builder.add(Shape("t", SCHEMA.fingerprint), SCHEMA.encode({"n": tick % 1_000}))
    built = builder.build()
    built.fill_ticks(np.array(ticks, np.int64))
    return built


class Desk:
    """A pubend with its surroundings written down."""

    def __init__(self, state: PubendState | None = None, policy: PubendPolicy | None = None) -> None:
        self.out = Outbox()
        self.syncs: list[int] = []
        self.known: list[tuple[int, int, list[int]]] = []
        self.commit = GroupCommit(self.syncs.append)
        policy = policy or PubendPolicy()
        self.pubend = Pubend("p", state or PubendState(), policy, self.out, self.commit, self._publish)

    def _publish(self, base: int, upto: int, events: EventBatch | None) -> None:
        self.known.append((base, upto, [] if events is None else events.ticks.tolist()))

    def publish(self, sequence: int, count: int, wall: int) -> None:
        self.pubend.received(7, Publish("p", "me", sequence, batch(*range(count))), wall)
        self.commit.flush()

    def sync(self) -> None:
        self.commit.synced(self.syncs[-1])

    def sent(self) -> list[object]:
        return [effect.frame for effect in self.out.take() if isinstance(effect, SendClient)]


def test_nothing_is_acknowledged_or_passed_on_before_it_is_synced() -> None:
    desk = Desk(PubendState(last=10))
    desk.publish(1, 2, 100)
    assert [type(effect) for effect in desk.out.take()] == [AppendEvents]
    assert desk.known == []
    desk.sync()
    assert desk.sent() == [Published("p", "me", 2, 101)]
    assert desk.known == [(10, 101, [100, 101])]


def test_a_repeated_batch_is_acknowledged_and_not_logged_again() -> None:
    desk = Desk(PubendState(last=10))
    desk.publish(1, 2, 100)
    desk.sync()
    desk.out.take()
    desk.publish(1, 2, 200)
    assert desk.out.take() == [SendClient(7, Published("p", "me", 2, 101))]


def test_a_repetition_that_goes_on_is_logged_from_where_it_is_new() -> None:
    desk = Desk(PubendState(last=10))
    desk.publish(1, 2, 100)
    desk.sync()
    desk.out.take()
    desk.publish(1, 3, 200)
    (append,) = desk.out.take()
    assert isinstance(append, AppendEvents)
    assert (append.sequence, append.batch.ticks.tolist()) == (3, [200])


def test_publishers_are_remembered_across_lives() -> None:
    desk = Desk(PubendState(last=101, publishers={"me": (2, 101)}))
    desk.publish(1, 2, 500)
    assert desk.sent() == [Published("p", "me", 2, 101)]


def test_a_batch_that_skips_ahead_is_refused() -> None:
    desk = Desk()
    desk.publish(2, 1, 100)
    (refused,) = desk.sent()
    assert isinstance(refused, Refused)
    assert "expected sequence 1" in refused.reason


def test_ticks_grow_although_the_clock_goes_back() -> None:
    desk = Desk(PubendState(last=1_000, lease=5_000))
    desk.publish(1, 1, 50)
    desk.sync()
    assert desk.known == [(1_000, 5_001, [5_001])]


def test_silence_is_advertised_only_as_far_as_the_lease_on_disk() -> None:
    desk = Desk(PubendState(last=0), PubendPolicy(heartbeat=10, lease_ahead=1_000))
    desk.pubend.beat(now=100, wall=100)
    assert desk.out.take() == [AppendLease("p", 1_100)]
    assert desk.known == []
    desk.commit.flush()
    desk.sync()
    desk.pubend.beat(now=200, wall=200)
    assert desk.known == [(0, 200, [])]
    desk.pubend.beat(now=205, wall=205)
    assert desk.known == [(0, 200, [])]


def test_silence_goes_on_although_the_clock_went_back() -> None:
    desk = Desk(PubendState(last=5_000, lease=9_000), PubendPolicy(heartbeat=10, lease_ahead=1_000))
    desk.pubend.beat(now=100, wall=50)
    desk.pubend.beat(now=120, wall=70)
    assert desk.known == [(5_000, 5_001, []), (5_001, 5_002, [])]


def test_a_tick_is_released_when_everyone_has_it_and_early_only_by_policy() -> None:
    desk = Desk(PubendState(last=500), PubendPolicy(max_retain=100))
    desk.pubend.released(50, 300, now=0, wall=150)
    assert desk.out.take() == [LoseLog("p", 50)]
    desk.pubend.released(60, 300, now=0, wall=1_000)
    assert desk.out.take() == [LoseLog("p", 300)]  # early, but never beyond what is delivered


def test_the_archive_holds_release() -> None:
    desk = Desk(PubendState(last=500))
    desk.pubend.archived = 40
    desk.pubend.released(300, 300, now=0, wall=0)
    assert desk.out.take() == [LoseLog("p", 40)]


def test_while_a_sync_runs_the_next_group_gathers() -> None:
    tickets: list[int] = []
    done: list[str] = []
    commit = GroupCommit(tickets.append)
    commit.after(lambda: done.append("a"))
    commit.flush()
    commit.after(lambda: done.append("b"))
    commit.flush()
    assert tickets == [1]
    commit.synced(1)
    assert done == ["a"]
    commit.flush()
    commit.synced(1)  # of a former life: ignored
    assert done == ["a"]
    commit.synced(2)
    assert done == ["a", "b"]


def test_an_unknown_source_holds_release_and_nobody_does_not() -> None:
    minima = Minima(["a", "b"])
    minima.report("a", 5, 9)
    assert minima.total() is None
    minima.report("b", TICK_MAX, TICK_MAX)
    assert minima.total() == (5, 9)
    minima.doubt("b")
    assert minima.total() is None
    minima.report("b", 3, 4)
    assert minima.total() == (5, 9)  # never back


A, B = Wanted("t", "n > 1"), Wanted("t", "n > 2")


def test_a_neighbour_that_has_not_spoken_wants_everything() -> None:
    interests = Interests(["up", "down"], 1, Registry())
    said = interests.say("up")
    assert said is not None
    assert said.wanted is None
    interests.heard("down", Interest(1, (A,)))
    assert interests.say("up") == Interest(said.version + 1, (A,))
    interests.forget("down")
    again = interests.say("up")
    assert again is not None
    assert again.wanted is None


def test_silence_accounts_for_an_interest_only_from_the_version_that_includes_it() -> None:
    interests = Interests(["up", "down"], 1, Registry())
    interests.heard("down", Interest(1, ()))
    first = interests.say("up")
    mine = interests.want_here([A])
    second = interests.say("up")
    assert first is not None
    assert second is not None
    assert interests.tag("up", first.version, HERE) < mine
    assert interests.tag("up", second.version, HERE) == mine
    assert interests.tag("up", 0, HERE) == STARTED_ONLY


def test_what_is_wanted_already_starts_at_once() -> None:
    interests = Interests(["up", "down"], 1, Registry())
    interests.heard("down", Interest(1, (A,)))
    said = interests.say("up")
    assert said is not None
    mine = interests.want_here([A])
    assert interests.say("up") is None
    assert interests.tag("up", said.version, HERE) == mine


def test_an_audience_follows_a_topic_as_its_schema_evolves() -> None:
    registry = Registry()
    registry.declare("t", SCHEMA)
    audience = Audience(registry)
    audience.add(1, "t", "n = 5")
    assert [members.tolist() for _, members in audience.matches(batch(5))] == [[1]]
    wider = Schema.parse("[n: int, note: string?]")
    registry.declare("t", wider)
    audience.add(2, "t", "note = 'x'")
    builder = BatchBuilder()
    builder.add(Shape("t", wider.fingerprint), wider.encode({"n": 5, "note": "x"}))
    assert [members.tolist() for _, members in audience.matches(builder.build())] == [[1, 2]]


def test_the_window_forgets_its_oldest_but_not_what_is_needed() -> None:
    window = Window(bytes_max=100, floor=0)
    window.learn(0, 10, batch(5))
    window.learn(10, 20, batch(15))
    window.shrink(keep_beyond=7)
    assert window.floor == 5
    assert window.knowledge.text(4, 16) == "Q" * 2 + "S" * 9 + "DS"
    found = window.events(0, 20)
    assert found is not None
    assert found.ticks.tolist() == [15]


def test_events_learnt_out_of_order_are_read_in_order_and_once() -> None:
    window = Window(bytes_max=1 << 20, floor=0)
    window.learn(10, 20, batch(15))
    window.learn(0, 10, batch(3, 5))
    window.learn(0, 20, batch(3, 5, 15))
    found = window.events(0, 20)
    assert found is not None
    assert found.ticks.tolist() == [3, 5, 15]


def test_a_catchup_tells_in_order_and_only_what_it_has() -> None:
    catchup = Catchup(0)
    catchup.matched(0, 100, np.array([10, 20, 30]))
    assert catchup.missing() == [(9, 10), (19, 20), (29, 30)]
    catchup.arrived(15, 25, batch(20))
    assert catchup.ready(9) == (9, None)
    catchup.arrived(5, 12, batch(10, 11))
    told = catchup.ready(9)
    assert told is not None
    upto, events = told
    assert events is not None
    assert (upto, events.ticks.tolist()) == (29, [10, 20])
    catchup.arrived(25, 40, None)  # it is not there any more
    assert catchup.ready(9) == (100, None)
    assert catchup.needs_read


def test_a_catchup_stops_where_credit_ends() -> None:
    catchup = Catchup(0)
    catchup.matched(0, 100, np.array([10, 20]))
    catchup.arrived(0, 100, batch(10, 20))
    told = catchup.ready(1)
    assert told is not None
    assert told[0] == 19
    assert catchup.ready(0) is None


def test_a_gap_reaches_exactly_as_far_as_what_was_lost() -> None:
    catchup = Catchup(0)
    catchup.matched(0, 100, np.array([10, 20, 30]))
    catchup.arrived(15, 25, batch(20))
    assert catchup.lost(5) is None
    assert catchup.lost(50) == 19
    catchup.ready(9)
    catchup.skip(19)
    told = catchup.ready(9)
    assert told is not None
    assert told[0] == 29
    assert catchup.lost(50) == 50
