"""Which frames to a neighbour wait for which, and that no answer waits twice."""

from __future__ import annotations

from dataclasses import replace

from tests.broker.desk import batch
from tidemark.broker.outgoing import (
    HISTORY_SHARE,
    ITEM_BYTES,
    LEAVING_MAX,
    PARTS_MAX,
    TOLD_MAX,
    HistoryQueue,
    is_history,
)
from tidemark.wire.frames import Fetched, Knowledge, Nack, Together


def answer(base: int, upto: int, version: int = 1) -> Knowledge:
    return Knowledge("p", base, upto, 0, False, version)


def queue(*frames: Knowledge | Fetched) -> HistoryQueue[str]:
    made: HistoryQueue[str] = HistoryQueue()
    for at, frame in enumerate(frames):
        made.put(frame, f"frame {at}", 100)
    return made


def test_answers_are_history_and_all_else_is_live() -> None:
    assert is_history(answer(1, 2))
    assert is_history(Fetched(1, "p", 1, 2, 0))
    assert not is_history(Knowledge("p", 1, 2, 0, True, 1))
    assert not is_history(Nack("p", ((1, 2),), 1))


def test_an_answer_that_waits_is_not_queued_again() -> None:
    made = queue(answer(10, 20), answer(20, 30), Fetched(7, "p", 1, 2, 0))
    assert made.rest(answer(12, 28)) == [], "two that wait cover it"
    assert made.rest(Fetched(7, "p", 1, 2, 0)) == []
    for other in (
        Fetched(8, "p", 1, 2, 0),
        answer(10, 20, version=2),  # an answer that accounts for more
        answer(15, 15),  # it tells what is lost
        answer(30, 40),
    ):
        assert made.rest(other) == [other]


def test_of_an_answer_that_waits_in_part_only_the_rest_is_queued() -> None:
    whole = Knowledge("p", 10, 30, 5, False, 1, batch(12, 18, 22, 28), ((13, 15), (24, 26)))
    made = queue(answer(14, 25))
    first, last = made.rest(whole)
    assert (first.base, first.upto, first.lost, first.damaged) == (10, 14, 5, ((13, 14),))
    assert (last.base, last.upto, last.lost, last.damaged) == (25, 30, 5, ((25, 26),))
    assert [part.batch.ticks.tolist() for part in (first, last) if part.batch is not None] == [[12], [28]]


def test_an_answer_is_cut_into_few_parts_however_much_of_it_waits() -> None:
    made = queue(*(answer(at, at + 1) for at in range(0, 20_000, 2)))
    parts = made.rest(answer(0, 20_000))
    assert [(part.base, part.upto) for part in parts] == [
        *((at, at + 1) for at in range(1, 2 * PARTS_MAX - 2, 2)),
        (2 * PARTS_MAX - 1, 20_000),
    ]


def test_a_newer_answer_takes_the_place_of_those_that_account_for_less() -> None:
    made = queue(answer(0, 9), answer(10, 20), Fetched(7, "p", 1, 2, 0), answer(20, 30), answer(25, 40))
    made.put(answer(10, 30, version=2), "newer", 70)
    assert made.bytes == 4 * 100 - 100 + 70
    assert made.rest(answer(10, 30, version=2)) == []
    assert made.rest(answer(12, 18)) == [], "the newer one accounts for all that the older one does"
    taken = [made.take() for _ in range(4)]
    assert taken == ["frame 0", "newer", "frame 2", "frame 4"]
    assert not made
    assert made.bytes == 0


def test_an_older_answer_does_not_take_the_place_of_a_newer_one() -> None:
    made = queue(answer(10, 20, version=2))
    made.put(answer(0, 30), "older", 100)
    assert [made.take() for _ in range(2)] == ["frame 0", "older"]


def test_what_tells_of_a_pubend_that_the_neighbour_has_left_is_dropped() -> None:
    other = replace(answer(10, 20), pubend="q")
    made = queue(answer(10, 20), other, Fetched(7, "p", 1, 2, 0), answer(20, 30, version=2))
    made.drop("r")
    assert made.bytes == 400
    made.drop("p")
    assert (made.bytes, made.rest(answer(10, 20)), made.rest(other)) == (100, [answer(10, 20)], [])
    assert made.rest(Fetched(7, "p", 1, 2, 0)) == [Fetched(7, "p", 1, 2, 0)]
    made.put(answer(10, 20), "again", 100)
    assert [made.take() for _ in range(2)] == ["frame 1", "again"]
    assert (made.bytes, made.held_bytes, bool(made)) == (0, 0, False)


def test_a_neighbour_that_leaves_and_comes_back_leaves_nothing_behind() -> None:
    made: HistoryQueue[str] = HistoryQueue()
    made.put(replace(answer(1, 2), pubend="q"), "first", 100)
    for _ in range(100):
        made.put(answer(10, 20), "answer", 100)
        made.drop("p")
    assert made.held_bytes == 100 + ITEM_BYTES
    assert made.take() == "first"


def test_what_has_left_can_be_asked_for_again() -> None:
    made = queue(answer(10, 20), answer(20, 30), Fetched(7, "p", 1, 2, 0))
    assert [made.take(before) for before in (1_000, 1_100)] == ["frame 0", "frame 1"]
    assert made.rest(answer(10, 30), 1_099) == []
    assert made.rest(answer(10, 30), 1_100) == [answer(10, 20)]
    assert made.rest(answer(20, 30), 1_200) == [answer(20, 30)]
    assert made.rest(Fetched(7, "p", 1, 2, 0)) == []
    assert made.take(1_200) == "frame 2"
    assert (made.bytes, bool(made)) == (0, False)
    assert made.rest(Fetched(7, "p", 1, 2, 0), 1_300) == [Fetched(7, "p", 1, 2, 0)]


def test_an_answer_that_is_being_sent_is_not_queued_again() -> None:
    made = queue(answer(10, 20), Fetched(7, "p", 1, 2, 0), answer(20, 30), answer(35, 40))
    assert [made.take() for _ in range(3)] == ["frame 0", "frame 1", "frame 2"]
    assert made.rest(answer(12, 28)) == []
    assert made.rest(answer(5, 50)) == [answer(5, 10), answer(30, 35), answer(40, 50)]
    assert made.rest(Fetched(7, "p", 1, 2, 0)) == []
    for other in (
        Fetched(8, "p", 1, 2, 0),
        answer(10, 20, version=2),  # an answer that accounts for more
        answer(15, 15),  # it tells what is lost
        replace(answer(10, 20), pubend="q"),
    ):
        assert made.rest(other) == [other]


def test_an_answer_is_cut_into_few_parts_whatever_waits_and_is_being_sent() -> None:
    frames = [answer(at, at + 2, version=at % 3 + 1) for at in range(0, 600, 6)]
    made = queue(*frames)
    for _ in range(50):
        made.take()
    assert len(made.rest(answer(0, 1_000))) == PARTS_MAX


def test_what_is_remembered_of_answers_that_are_being_sent_is_bounded() -> None:
    made = queue(*(answer(at, at + 1) for at in range(1_000)))
    for _ in range(1_000):
        made.take()
    assert made.rest(answer(0, 1_000)) == [answer(0, 1_000 - LEAVING_MAX)]


def test_answers_that_overlap_leave_one_after_the_other() -> None:
    made = queue(answer(0, 10), answer(5, 15))
    made.take()
    assert made.rest(answer(5, 10), 100) == [answer(5, 10)]
    made.put(answer(5, 10), "again", 100)
    assert [made.take() for _ in range(2)] == ["frame 1", "again"]


def test_an_answer_whose_range_has_left_with_another_leaves_too() -> None:
    made = queue(answer(0, 10), answer(2, 4), answer(20, 30))
    assert [made.take() for _ in range(3)] == ["frame 0", "frame 1", "frame 2"]
    made = queue(answer(0, 10), answer(2, 4), answer(2, 4))
    assert [made.take() for _ in range(3)] == ["frame 0", "frame 1", "frame 2"]
    assert not made


def test_history_has_its_share_of_a_link_that_live_frames_fill() -> None:
    made = queue(*(answer(at, at + 1) for at in range(10)))
    taken = 0
    for _ in range(2 * (HISTORY_SHARE - 1)):
        made.passed(100)
        while made.is_owed:
            made.take()
            taken += 1
    assert taken == 2


def test_live_frames_owe_nothing_to_history_that_was_not_there() -> None:
    made: HistoryQueue[str] = HistoryQueue()
    made.passed(1_000_000)
    made.put(answer(1, 2), "late", 100)
    assert not made.is_owed


def first(base: int, upto: int, version: int = 1) -> Knowledge:
    return Knowledge("p", base, upto, 0, True, version, batch(upto))


def test_first_time_knowledge_that_is_on_its_way_is_not_sent_as_an_answer_too() -> None:
    made = queue()
    made.tell(Together((Nack("p", ((1, 2),), 1), first(10, 20, version=2))), 1_000)
    made.tell(first(20, 30), 1_500)
    assert made.rest(answer(10, 30), 999) == []
    assert made.rest(answer(5, 25), 999) == [answer(5, 10)]
    assert made.rest(answer(12, 25, version=2), 999) == [answer(20, 25, version=2)], "20 to 30 is of before"
    other = replace(answer(10, 30), pubend="q")
    assert made.rest(other, 999) == [other]
    assert made.rest(answer(10, 30), 1_000) == [answer(10, 20)], "what has been sent can be asked for"
    made.tell(first(30, 40), 2_000)
    made.drop("p")
    assert made.rest(answer(10, 40), 1_000) == [answer(10, 40)]


def test_silence_that_is_told_for_the_first_time_is_no_part_of_what_is_remembered() -> None:
    made = queue()
    made.tell(Knowledge("p", 10, 20, 0, True, 1), 1_000)
    assert made.rest(answer(10, 20), 0) == [answer(10, 20)]


def test_of_first_time_knowledge_that_waits_the_newest_is_remembered() -> None:
    made = queue()
    for at in range(TOLD_MAX + 1):
        made.tell(first(at, at + 1), 1_000)
    assert made.rest(answer(0, TOLD_MAX + 1), 0) == [answer(0, 1)]
