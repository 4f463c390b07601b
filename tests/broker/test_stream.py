"""A stream by itself: what it passes on, to whom, what it answers, and what it asks for."""

from __future__ import annotations

import pytest

from tests.broker.desk import batch
from tests.broker.parts import GCT_US, AtStream, ticks_of
from tidemark.broker.effects import Effect, LogRead, ReadLog, SendPeer
from tidemark.broker.streams import answers, window
from tidemark.broker.streams.answers import ANSWER_FRAME_BYTES
from tidemark.broker.streams.interest import HERE, STARTED_ONLY
from tidemark.broker.streams.stream import ANNOUNCED_US
from tidemark.message.topic_selector import TopicSelector
from tidemark.wire.frames import AckExpected, Interest, Knowledge, Nack

ALL = Interest("p", 7, None)


def sent(effects: list[Effect]) -> list[tuple[str, int, int, bool, int, list[int]]]:
    """All effects, each knowledge that was sent: to whom, base, upto, first, tag, ticks of events."""
    found = []
    for effect in effects:
        assert isinstance(effect, SendPeer)
        assert isinstance(effect.frame, Knowledge)
        frame = effect.frame
        found.append((effect.peer, frame.base, frame.upto, frame.first, frame.version, ticks_of(frame.batch)))
    return found


def relay() -> tuple[AtStream, int]:
    """A stream from "up" to "down", which wants everything; and the interest version that "up" was told."""
    at = AtStream()
    at.followed("down", ALL)
    return at, at.attach()


# First-time knowledge.


def test_a_new_follower_is_told_at_once_how_far_the_stream_reaches_and_from_where_all_it_wants_comes() -> (
    None
):
    at = AtStream(is_hosted=True)
    at.stream.position = 30
    assert sent(at.followed("down", ALL)) == [("down", 30, 30, True, 7, [])]
    at.stream.promise()
    assert at.take() == []  # only once
    at.followed("down", Interest("p", 8, None))
    at.stream.promise()
    assert sent(at.take()) == [("down", 30, 30, True, 8, [])]  # the answer to a changed interest


def test_a_relay_answers_an_interest_when_upstream_has_answered_its_own() -> None:
    at = AtStream()
    first = at.attach()
    at.stream.first(10, 20, 0, first, None)
    assert sent(at.followed("down", ALL)) == [("down", 20, 20, True, STARTED_ONLY, [])]
    said = at.interests.say("p", "up")
    assert said is not None
    at.stream.promise()
    assert at.take() == []  # upstream has not heard of it
    at.stream.first(25, 25, 0, said.version, None)
    assert sent(at.take()) == [
        ("down", 25, 25, True, STARTED_ONLY, []),  # where the stream stands
        ("down", 25, 25, True, 7, []),
    ]
    at.stream.first(25, 25, 0, said.version, None)
    assert at.take() == []  # it has been told


def test_a_relay_answers_by_itself_for_what_it_gets_anyway() -> None:
    at = AtStream()
    at.followed("down", ALL)
    version = at.attach()
    at.stream.first(10, 20, 0, version, None)
    at.take()
    at.followed("other", Interest("p", 5, (TopicSelector("t", "n > 1"),)))
    assert at.interests.say("p", "up") is None
    at.stream.promise()
    assert sent(at.take()) == [("other", 20, 20, True, 5, [])]


def test_a_promise_counts_only_beyond_what_came_for_an_older_interest() -> None:
    at = AtStream()
    at.followed("down", ALL)
    at.stream.first(10, 40, 0, at.attach("old"), None)
    at.take()
    version = at.attach("new")
    at.stream.first(30, 30, 0, version, None)  # the new neighbour is behind the old one
    assert at.stream._coverage.since(version) == 40
    at.stream.first(20, 20, 0, version - 1, None)  # of before it was attached: nothing
    assert at.stream._coverage.newest == version


def test_the_window_accounts_only_for_what_was_wanted_when_it_learnt() -> None:
    at = AtStream()
    narrow = at.interests.want_here(TopicSelector("t", "n > 5"))
    at.stream.first(0, 20, 0, at.attach(), None)
    assert at.stream.accounted(0, 20, narrow) == [(0, 20)]
    wide = at.interests.want_here(TopicSelector("t", ""))
    assert at.stream.accounted(0, 20, wide) == []  # upstream has not been told
    said = at.interests.say("p", "up")
    assert said is not None
    at.stream.first(30, 40, 0, said.version, None)
    assert at.stream.accounted(0, 40, wide) == [(30, 40)]
    assert at.stream.accounted(0, 40, narrow) == [(0, 20), (30, 40)]
    assert AtStream(is_hosted=True).stream.accounted(0, 40, 1) == []  # its log knows more


def test_first_time_knowledge_goes_at_once_to_followers_and_subscribers_with_their_tags() -> None:
    at = AtStream(is_hosted=True)
    at.followed("down", ALL)
    at.stream.first(10, 20, 0, 0, batch(15))
    assert sent(at.take()) == [("down", 10, 20, True, 7, [15])]
    here = at.interests.tags("p", None)[HERE]
    assert at.listener.advances == [(here, 10, 20)]
    assert at.stream.position == 20


def test_first_time_knowledge_is_passed_on_although_there_is_a_hole_before_it() -> None:
    at, version = relay()
    at.stream.first(10, 20, 0, version, None)
    at.take()
    at.stream.first(25, 30, 0, version, batch(28))
    assert sent(at.take()) == [("down", 25, 30, True, 7, [28])]


def test_what_was_passed_on_already_is_not_passed_on_again() -> None:
    at, version = relay()
    at.stream.first(10, 20, 0, version, batch(15))
    at.take()
    at.stream.first(10, 20, 0, version, batch(15))
    assert at.take() == []


def test_a_follower_gets_only_the_events_that_it_wants() -> None:
    at = AtStream(is_hosted=True)
    at.followed("down", Interest("p", 7, (TopicSelector("t", "n > 100"),)))
    at.stream.first(0, 20, 0, 0, batch(15, 16, 17, values=(5, 500, 6)))
    assert sent(at.take()) == [("down", 0, 20, True, 7, [16])]
    assert at.turn.counters["events_left_out"] == 2


def test_an_event_past_its_validity_is_silence_to_a_follower() -> None:
    at = AtStream(is_hosted=True)
    at.followed("down", ALL)
    at.turn.wall = 5_000
    at.stream.first(0, 20, 0, 0, batch(15, validity_ms=1))
    assert sent(at.take()) == [("down", 0, 20, True, 7, [])]
    assert at.turn.counters["events_expired"] == 1


def test_knowledge_tagged_lower_than_the_attached_version_tells_only_how_far_the_stream_reaches() -> None:
    at, version = relay()
    at.stream.first(10, 20, 0, version - 1, batch(15))
    assert sent(at.take()) == [("down", 20, 20, True, STARTED_ONLY, [])]
    assert at.listener.advances == [(STARTED_ONLY, 20, 20)]
    assert at.turn.counters["knowledge_overtaken"] == 1


def test_a_neighbour_that_is_followed_gets_nothing_back() -> None:
    at = AtStream()
    at.followed("up", ALL)
    version = at.attach("up")
    at.stream.first(10, 20, 0, version, batch(15))
    assert at.take() == []


# Nacks and answers.


def test_a_nack_is_answered_from_the_window_without_asking_anyone() -> None:
    at = AtStream(is_hosted=True)
    at.followed("down", ALL)
    at.stream.first(0, 20, 0, 0, batch(15))
    at.take()
    at.stream.nacked("down", [(10, 20)], version=7)
    assert sent(at.take()) == [("down", 10, 20, False, 7, [15])]


def test_nacks_of_many_leave_as_one_after_the_gap_curiosity_threshold() -> None:
    at, version = relay()
    at.followed("side", Interest("p", 9, None))
    version = at.attach()
    at.stream.first(40, 50, 0, version, None)
    at.take()
    at.stream.nacked("down", [(10, 40)], version=7)
    at.stream.nacked("side", [(10, 40)], version=9)
    at.stream.wake()
    assert at.take() == []
    at.turn.now = GCT_US
    at.stream.wake()
    assert at.take() == [SendPeer("up", Nack("p", ((10, 40),), version))]
    assert at.turn.counters["ranges_consolidated"] == 1


def test_an_answer_goes_only_to_those_that_asked() -> None:
    at, version = relay()
    at.followed("side", Interest("p", 9, None))
    version = at.attach()
    at.stream.nacked("side", [(10, 20)], version=9)
    at.stream.answer(10, 20, 0, version, batch(15))
    assert sent(at.take()) == [("side", 10, 20, False, 9, [15])]
    assert at.listener.answers == []


def test_an_answer_that_is_not_complete_for_what_upstream_was_told_is_ignored() -> None:
    at, version = relay()
    at.stream.nacked("down", [(10, 20)], version=7)
    at.stream.answer(10, 20, 0, version - 1, None)
    assert at.take() == []
    assert at.turn.counters["answers_unsound"] == 1


def test_a_nack_of_a_neighbour_that_does_not_follow_is_dropped() -> None:
    at, _ = relay()
    at.stream.nacked("stranger", [(10, 20)], version=1)
    at.turn.now = 10 * GCT_US
    at.stream.wake()
    assert at.take() == []
    assert at.turn.counters["nacks_dropped"] == 1


def test_what_only_a_follower_that_has_left_asked_for_is_not_asked_for_any_more() -> None:
    at, _ = relay()
    at.stream.nacked("down", [(10, 20)], version=7)
    at.stream.leave("down")
    at.turn.now = 10 * GCT_US
    at.stream.wake()
    assert at.take() == []


def test_at_the_pubends_own_broker_the_log_is_read_once_and_its_answer_passed_on_with_the_damage() -> None:
    at = AtStream(is_hosted=True)
    at.followed("down", ALL)
    at.stream.nacked("down", [(10, 30)], version=7)
    at.stream.nacked("down", [(10, 30)], version=7)
    assert at.take() == [ReadLog("p", 10, 30)]
    at.stream.read(LogRead("p", 10, 20, 30, 0, (batch(15),), ((16, 18),)))
    effects = at.take()
    assert effects[-1] == ReadLog("p", 20, 30)  # the log had read a part only
    assert sent(effects[:-1]) == [("down", 10, 15, False, 7, [15]), ("down", 15, 20, False, 7, [])]
    assert [each.frame.damaged for each in effects[:-1]] == [(), ((16, 18),)]  # type: ignore[union-attr]


def test_what_is_read_for_subscribers_here_alone_reaches_them_as_the_batches_of_the_log() -> None:
    at = AtStream(is_hosted=True)
    at.stream.window.raise_floor(30)
    at.stream.nacked(HERE, [(10, 30)])
    assert at.take() == [ReadLog("p", 10, 30)]
    at.stream.read(LogRead("p", 10, 30, 30, 0, (batch(15), batch(16, 17))))
    assert at.listener.answers == [(10, 17, [15, 16, 17], []), (17, 30, [], [])]
    assert at.listener.batches == [2, 0]


# L, announcements.


def test_all_followers_are_told_at_once_what_the_pubend_let_go_although_there_is_no_tick_to_tell() -> None:
    at = AtStream(is_hosted=True)
    at.followed("down", ALL)
    at.stream.first(0, 30, 0, 0, batch(10, 20))
    at.take()
    for _ in range(2):  # only once
        at.stream.tell_lost(20)
    assert at.take() == [SendPeer("down", Knowledge("p", 30, 30, 20, True, STARTED_ONLY, None))]


def test_a_relay_passes_on_what_is_lost_also_if_an_answer_has_told_it_before() -> None:
    at, version = relay()
    at.stream.first(0, 30, 0, version, batch(10, 20))
    at.take()
    at.stream.answer(20, 20, 20, version, None)
    at.stream.first(30, 30, 20, STARTED_ONLY, None)
    at.stream.first(30, 30, 20, STARTED_ONLY, None)
    assert at.take() == [SendPeer("down", Knowledge("p", 30, 30, 20, True, STARTED_ONLY, None))]


def test_those_that_asked_for_what_is_lost_are_told_and_not_asked_for_any_more() -> None:
    at, version = relay()
    at.stream.nacked("down", [(10, 20)], version=7)
    at.stream.lose(25)
    assert at.take() == [SendPeer("down", Knowledge("p", 25, 25, 25, False, STARTED_ONLY))]
    assert at.listener.losses == 1
    at.turn.now = 10 * GCT_US
    at.stream.wake()
    assert at.take() == []
    at.stream.lose(20)  # less than before: nothing
    assert at.listener.losses == 1
    assert version > 0


def test_an_announcement_is_passed_on_and_not_repeated_too_soon() -> None:
    at, _ = relay()
    assert at.stream.ack_expected(99)
    assert at.take() == [SendPeer("down", AckExpected("p", 99))]
    assert at.listener.advances == [(STARTED_ONLY, 99, 99)]
    at.turn.now = ANNOUNCED_US - 1
    assert not at.stream.ack_expected(99)
    assert at.take() == []
    at.turn.now = ANNOUNCED_US
    assert at.stream.ack_expected(99)


def test_a_window_over_its_bound_lets_go_only_what_the_subscribers_here_have_consumed() -> None:
    at = AtStream(is_hosted=True, window_bytes_max=1)
    at.stream.first(0, 20, 0, 0, batch(15))
    at.listener.consumed = 10
    at.stream.shrink()
    assert at.stream.window.floor < 10
    at.listener.consumed = 20
    at.stream.shrink()
    assert at.stream.window.floor == 15
    assert at.turn.counters["windows_shrunk"] == 1


def test_a_long_answer_goes_in_frames_that_live_events_do_not_wait_long_for() -> None:
    at = AtStream(is_hosted=True)
    at.followed("down", ALL)
    count = 4 * ANSWER_FRAME_BYTES // 40
    many = batch(*range(1, count + 1))
    at.stream.nacked("down", [(0, count)], version=7)
    at.take()
    at.stream.read(LogRead("p", 0, count, count, 0, (many,)))
    frames = sent(at.take())
    assert len(frames) >= len(many.data) // ANSWER_FRAME_BYTES
    assert [upto for _, _, upto, _, _, _ in frames[:-1]] == [base for _, base, _, _, _, _ in frames[1:]]
    assert (frames[0][1], frames[-1][2]) == (0, count)
    assert [tick for frame in frames for tick in frame[5]] == list(range(1, count + 1))


# Nacks name ticks, and not bytes.


def test_a_nack_for_a_dense_range_is_answered_in_part_and_the_asker_told_where_that_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window, "PIECE_BYTES", 1)
    monkeypatch.setattr(answers, "NACK_BYTES_MAX", 1)
    at = AtStream(is_hosted=True)
    at.followed("down", ALL)
    at.stream.first(0, 30, 0, 0, batch(10))
    at.stream.first(30, 60, 0, 0, batch(40))
    at.take()
    at.stream.nacked("down", [(0, 60)], version=7)
    assert sent(at.take()) == [("down", 0, 10, False, 7, [10]), ("down", 10, 10, False, STARTED_ONLY, [])]
    assert at.turn.counters["answers_stopped"] == 1
    at.stream.nacked("down", [(10, 30), (35, 60)], version=7)
    assert sent(at.take()) == [
        ("down", 10, 30, False, 7, []),
        ("down", 35, 40, False, 7, [40]),
        ("down", 40, 40, False, STARTED_ONLY, []),
    ]


def test_the_log_is_read_for_one_nack_up_to_a_bound_and_further_for_who_is_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "NACK_BYTES_MAX", 2 * len(batch(15).data))
    at = AtStream(is_hosted=True)
    at.followed("down", ALL)
    at.stream.nacked("down", [(10, 50)], version=7)
    at.stream.nacked(HERE, [(45, 60)])
    at.take()
    at.stream.read(LogRead("p", 10, 20, 50, 0, (batch(15),)))
    assert at.take()[-1] == ReadLog("p", 20, 50)  # not as much yet
    at.stream.read(LogRead("p", 20, 30, 50, 0, (batch(25),)))
    *told, stopped, read = at.take()
    assert sent([*told, stopped]) == [
        ("down", 20, 25, False, 7, [25]),
        ("down", 25, 30, False, 7, []),
        ("down", 30, 30, False, STARTED_ONLY, []),
    ]
    assert read == ReadLog("p", 45, 50)
    # What the neighbour asks for next is read anew.
    at.stream.nacked("down", [(30, 50)], version=7)
    assert at.take() == [ReadLog("p", 30, 45)]


def test_who_hears_that_an_answer_stops_asks_for_the_rest_at_once() -> None:
    at, version = relay()
    at.stream.nacked("down", [(10, 50)], version=7)
    at.turn.now = 2 * GCT_US
    at.stream.wake()
    assert at.take() == [SendPeer("up", Nack("p", ((10, 50),), version))]
    at.stream.answer(10, 30, 0, version, batch(15))
    at.stream.wake()
    assert sent(at.take()) == [("down", 10, 30, False, 7, [15])]
    at.stream.answer(30, 30, 0, STARTED_ONLY, None)
    at.stream.wake()
    assert at.take() == [SendPeer("up", Nack("p", ((30, 50),), version))]
    at.stream.answer(30, 30, 0, STARTED_ONLY, None)
    at.stream.answer(40, 40, 0, STARTED_ONLY, None)  # nothing was asked for from there on
    at.stream.wake()
    assert at.take() == [SendPeer("up", Nack("p", ((30, 50),), version))]


def test_of_a_nack_with_more_ranges_than_brokers_ask_for_the_first_are_answered() -> None:
    at = AtStream(is_hosted=True)
    at.followed("down", ALL)
    at.stream.first(0, 10_000, 0, 0, None)
    at.take()
    at.stream.nacked("down", [(2 * n, 2 * n + 1) for n in range(4_096)], version=7)
    assert len(at.take()) == answers.RANGES_MAX


def test_of_what_a_neighbour_asks_for_without_end_a_bounded_part_is_remembered() -> None:
    at, _ = relay()
    for nack in range(100):
        at.stream.nacked("down", [(2 * n, 2 * n + 1) for n in range(64 * nack, 64 * nack + 64)], version=7)
    assert len(at.stream.awaited(0, 100_000)) == answers.WANTED_RANGES_MAX
    assert at.turn.counters["nacks_dropped"] > 0
