"""A named publisher leaves a pubend and comes to another: what is on disk, what counts, and who is told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.desk import MORNING, Desk, batch, sent, told
from tidemark.broker.config import Recovered
from tidemark.broker.effects import AppendMove, Effect, LogFull, RecoveredPubend, SyncLog
from tidemark.broker.publishing import publishing
from tidemark.message.publisher_names import PublisherMove, made_name
from tidemark.wire.frames import ClientFrame, Hello, Publish, Published, Refused
from tidemark.wire.limits import MOVE_MAX, MOVES_AHEAD_US
from tidemark.wire.moving.frames import Come, Leave, Left


def publish(sequence: int, count: int = 1) -> Publish:
    return Publish("p", "me", sequence, batch(*range(count)))


def leave(move: int = 1, to: str = "q", sequence: int = 0) -> Leave:
    return Leave("p", "me", sequence, move, to)


def moves(effects: list[Effect]) -> list[AppendMove]:
    return [each for each in effects if isinstance(each, AppendMove)]


def code(frames: list[ClientFrame]) -> str:
    (refused,) = frames
    assert isinstance(refused, Refused)
    return refused.code


@pytest.fixture(name="at")
def declared() -> Desk:
    at = Desk()
    at.declare()
    return at


def test_a_publisher_that_leaves_is_told_what_is_here_once_that_is_on_disk(at: Desk) -> None:
    (published,) = at.do(1, publish(1, 5))
    assert isinstance(published, Published)
    taken = at.say(1, leave())
    (moved,) = moves(taken)
    assert moved == AppendMove("p", "me", 5, published.tick, PublisherMove(1, "q"))
    assert told(taken, 1) == []
    assert told(at.finish(taken), 1) == [Left("p", "me", 5, published.tick, 1, "q")]


def test_what_was_on_its_way_when_the_publisher_left_is_refused_and_what_is_logged_is_acknowledged(
    at: Desk,
) -> None:
    at.do(1, publish(1, 5))
    at.do(1, leave())
    assert code(at.do(1, publish(6))) == "moved"
    assert code(at.do(1, publish(4, 3))) == "moved"
    (again,) = at.do(1, publish(3, 2))
    assert isinstance(again, Published)
    assert again.sequence == 5


def test_a_publisher_leaves_once_however_often_it_asks(at: Desk) -> None:
    at.do(1, publish(1, 5))
    (left,) = at.do(1, leave())
    for again in (leave(), leave(to="r"), leave(move=2), leave(to="p")):
        effects = at.finish(at.say(1, again))
        assert (told(effects, 1), moves(effects)) == ([left], [])


def test_whoever_only_asks_where_a_publisher_is_moves_nothing(at: Desk) -> None:
    (published,) = at.do(1, publish(1))
    assert isinstance(published, Published)
    assert at.do(1, leave(to="p")) == [Left("p", "me", 1, published.tick, 0, "p")]
    assert isinstance(at.do(1, publish(2))[0], Published)


def test_a_publisher_that_comes_goes_on_with_its_next_number(at: Desk) -> None:
    effects = at.say(1, Come("p", "me", 57, 3))
    assert [each.move for each in moves(effects)] == [PublisherMove(3)]
    assert told(effects, 1) == []
    (came,) = told(at.finish(effects), 1)
    assert isinstance(came, Published)
    assert came.sequence == 57
    (known,) = at.do(1, publish(50, 8))
    assert isinstance(known, Published)
    assert at.broker.counters["events_published"] == 0
    assert code(at.do(1, publish(59))) == "sequence"
    assert isinstance(at.do(1, publish(58))[0], Published)
    assert at.broker.counters["events_published"] == 1


def test_a_publisher_that_says_again_that_it_comes_is_answered_and_nothing_is_written(at: Desk) -> None:
    at.do(1, Come("p", "me", 57, 3))
    (published,) = at.do(1, publish(58))
    effects = at.finish(at.say(1, Come("p", "me", 57, 3)))
    assert (told(effects, 1), moves(effects)) == ([published], [])


def test_a_publisher_comes_back_and_earlier_words_change_nothing(at: Desk) -> None:
    at.do(1, publish(1, 5))
    at.do(1, leave())
    at.do(1, Come("p", "me", 9, 2))
    assert isinstance(at.do(1, publish(10))[0], Published)
    for late in (leave(), leave(move=2)):
        effects = at.finish(at.say(1, late))
        assert moves(effects) == []
        (left,) = told(effects, 1)
        assert isinstance(left, Left)
        assert (left.sequence, left.move, left.to) == (10, 2, "p")
    assert code(at.do(1, Come("p", "me", 5, 1))) == "moved"
    assert isinstance(at.do(1, publish(11))[0], Published)


def test_a_pubend_that_a_publisher_only_passes_through_takes_nothing_of_it(at: Desk) -> None:
    (left,) = at.do(1, leave(move=4, to="r", sequence=57))
    assert isinstance(left, Left)
    assert (left.sequence, left.move, left.to) == (57, 4, "r")
    assert code(at.do(1, Come("p", "me", 57, 3))) == "moved"  # it was on its way
    assert code(at.do(1, publish(58))) == "moved"


def test_a_move_that_is_not_on_disk_when_the_disk_is_full_has_not_happened(at: Desk) -> None:
    at.do(1, publish(1, 5))
    effects = at.say(1, leave())
    (sync,) = [each for each in effects if isinstance(each, SyncLog)]
    assert told(at.finish(at.give(LogFull(sync.ticket))), 1) == []
    assert isinstance(at.do(1, publish(6))[0], Published)
    effects = at.say(1, Come("p", "you", 57, 1))
    (sync,) = [each for each in effects if isinstance(each, SyncLog)]
    assert code(told(at.finish(at.give(LogFull(sync.ticket))), 1)) == "full"
    assert code(at.do(1, Publish("p", "you", 58, batch(0)))) == "sequence"


def test_moves_are_recovered() -> None:
    state = RecoveredPubend(
        last=MORNING,
        publishers={"me": (5, MORNING), "you": (7, MORNING)},
        moves={"me": PublisherMove(1, "q"), "you": PublisherMove(4)},
    )
    at = Desk(recovered=Recovered(pubends={"p": state}))
    at.declare()
    assert code(at.do(1, publish(6))) == "moved"
    assert at.do(1, leave(to="r")) == [Left("p", "me", 5, MORNING, 1, "q")]
    assert code(at.do(1, Come("p", "you", 7, 3))) == "moved"
    assert isinstance(at.do(1, Publish("p", "you", 8, batch(0)))[0], Published)


def test_a_move_that_leaves_no_room_for_others_is_not_made(at: Desk) -> None:
    assert at.do(1, leave(move=MOVE_MAX)) == []
    assert code(at.do(1, Come("p", "me", 1, MORNING + MOVES_AHEAD_US + 1))) == "limit"
    assert isinstance(at.do(1, Come("p", "me", 1, MORNING + 5))[0], Published)
    assert isinstance(at.do(1, leave(move=MORNING + 6))[0], Left)


def test_a_name_that_a_client_made_does_not_move(at: Desk) -> None:
    made = made_name("0" * 16)
    assert code(at.do(1, Leave("p", made, 0, 1, "q"))) == "unknown"
    assert code(at.do(1, Come("p", made, 0, 1))) == "unknown"


def test_only_a_pubend_that_is_hosted_here_can_be_come_to(at: Desk) -> None:
    assert code(at.do(1, Come("elsewhere", "me", 0, 1))) == "pubend"
    assert code(at.do(1, Leave("elsewhere", "me", 0, 1, "p"))) == "pubend"


# Through the overlay.


def relay(**settings: Any) -> Desk:
    """A broker whose pubend is at its neighbour `up`, with a neighbour `down` behind it."""
    at = Desk(upstream="up", downstream=("down",), **settings)
    for peer in ("up", "down"):
        at.link(peer)
        at.hear(peer, Hello(peer, 1))
    return at


def test_the_question_goes_to_the_pubend_and_the_answer_back_the_same_way() -> None:
    at = relay()
    assert sent(at.say(1, leave()), "up", Leave) == [leave()]
    left = Left("p", "me", 5, 9, 1, "q")
    assert told(at.hear("down", left), 1) == []  # it was not asked
    assert told(at.hear("up", left), 1) == [left]
    assert told(at.hear("up", left), 1) == []
    assert sent(at.hear("down", leave()), "up", Leave) == [leave()]
    assert sent(at.hear("up", left), "down", Left) == [left]
    assert at.broker.counters["answers_late"] == 2


def test_a_question_is_not_sent_back_to_where_it_came_from() -> None:
    at = relay()
    assert sent(at.hear("up", leave()), "up", Leave) == []


def test_a_pubend_answers_a_question_of_a_neighbour() -> None:
    at = Desk(downstream=("down",))
    at.declare()
    at.link("down")
    at.hear("down", Hello("down", 1))
    (left,) = sent(at.finish(at.hear("down", leave())), "down", Left)
    assert (left.sequence, left.move, left.to) == (0, 1, "q")
    assert code(at.do(1, publish(1))) == "moved"


def test_no_more_questions_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "ASKED_MAX", 2)
    at = relay()
    for name in ("a", "b", "c"):
        at.say(1, Leave("p", name, 0, 1, "q"))
    answers = [at.hear("up", Left("p", name, 0, 9, 1, "q")) for name in ("a", "b", "c")]
    assert [len(told(each, 1)) for each in answers] == [0, 1, 1]
