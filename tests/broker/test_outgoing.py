"""Which frames to a neighbour wait for which, and that no answer waits twice."""

from __future__ import annotations

from tidemark.broker.outgoing import HISTORY_SHARE, HistoryQueue, is_history
from tidemark.wire.frames import Fetched, Knowledge, Nack


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
    assert made.has(answer(12, 28)), "two that wait cover it"
    assert made.has(Fetched(7, "p", 1, 2, 0))
    assert not made.has(Fetched(8, "p", 1, 2, 0))
    assert not made.has(answer(15, 31))
    assert not made.has(answer(10, 20, version=2)), "an answer that accounts for more"
    assert not made.has(answer(15, 15)), "it tells what is lost"


def test_what_has_left_can_be_asked_for_again() -> None:
    made = queue(answer(10, 20), answer(20, 30), Fetched(7, "p", 1, 2, 0))
    assert [made.take() for _ in range(2)] == ["frame 0", "frame 1"]
    assert not made.has(answer(10, 20))
    assert made.has(Fetched(7, "p", 1, 2, 0))
    assert made.take() == "frame 2"
    assert (made.bytes, bool(made)) == (0, False)
    assert not made.has(Fetched(7, "p", 1, 2, 0))


def test_answers_that_overlap_leave_one_after_the_other() -> None:
    made = queue(answer(0, 10), answer(5, 15))
    made.take()
    assert not made.has(answer(5, 10))
    made.put(answer(5, 10), "again", 100)
    assert [made.take() for _ in range(2)] == ["frame 1", "again"]


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
