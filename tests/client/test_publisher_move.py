"""Where a named publisher is: what it asks and says on its way from one pubend to another."""

from __future__ import annotations

from tests.client.test_outgoing import add
from tidemark.client.publishing.outgoing import PublisherStream
from tidemark.client.publishing.publisher_move import PublisherPlace
from tidemark.wire.moving.frames import Come, Leave, Left


def made() -> PublisherPlace:
    stream = PublisherStream("me", "p", is_named=True)
    for _ in range(3):
        add(stream)
        stream.seal()
    return PublisherPlace(stream)


def test_at_the_broker_of_its_pubend_a_publisher_has_nothing_to_ask() -> None:
    place = made()
    assert place.next_step(("o", "p")) is None
    assert place.is_ready(("o", "p"))


def test_at_another_broker_it_asks_to_leave_and_comes_when_it_was_answered() -> None:
    place = made()
    place.stream.published(1, 9)
    assert place.next_step(("q",)) == Leave("p", "me", 1, 1, "q")
    assert place.next_step(("q",)) is None  # it is not answered yet
    assert not place.is_ready(("q",))
    assert place.left(Left("p", "me", 2, 10, 1, "q"))
    assert place.stream.pubend == "q"
    assert place.next_step(("q",)) == Come("q", "me", 2, 1)
    assert place.is_ready(("q",))
    place.settled()
    assert place.next_step(("q",)) is None


def test_what_is_not_answered_is_said_again_on_the_next_connection() -> None:
    place = made()
    place.next_step(("q",))
    place.again()
    assert place.next_step(("q",)) == Leave("p", "me", 0, 1, "q")
    place.left(Left("p", "me", 2, 10, 1, "q"))
    assert isinstance(place.next_step(("q",)), Come)
    place.again()
    assert isinstance(place.next_step(("q",)), Come)


def test_a_publisher_that_turns_to_a_third_broker_on_its_way_leaves_the_second_too() -> None:
    place = made()
    place.next_step(("q",))
    place.again()
    assert place.next_step(("r",)) == Leave("p", "me", 0, 1, "r")
    assert place.left(Left("p", "me", 2, 10, 1, "q"))  # the first question had arrived
    assert place.next_step(("r",)) == Leave("q", "me", 2, 2, "r")
    assert place.left(Left("q", "me", 2, 11, 2, "r"))
    assert place.next_step(("r",)) == Come("r", "me", 2, 2)


def test_answers_to_earlier_questions_and_of_other_publishers_count_for_nothing() -> None:
    place = made()
    place.next_step(("q",))
    assert place.left(Left("p", "me", 2, 10, 1, "q"))
    assert not place.left(Left("p", "me", 2, 10, 1, "q"))
    assert not place.left(Left("q", "you", 2, 10, 2, "r"))
    assert not place.left(Left("q", "me", 2, 10, 1, "r"))
    assert place.stream.pubend == "q"


def test_a_publisher_that_is_refused_as_moved_asks_where_it_is_and_follows() -> None:
    place = made()
    place.doubt()
    assert place.next_step(("p",)) == Leave("p", "me", 0, 1, "p")
    assert not place.is_ready(("p",))
    assert place.left(Left("p", "me", 2, 10, 3, "q"))
    assert place.next_step(("p",)) == Leave("q", "me", 2, 4, "p")
    assert place.left(Left("q", "me", 5, 20, 4, "p"))
    assert place.next_step(("p",)) == Come("p", "me", 5, 4)


def test_a_pubend_that_knows_a_later_move_is_believed() -> None:
    place = made()
    assert place.next_step(("q",)) == Leave("p", "me", 0, 1, "q")
    assert place.left(Left("p", "me", 2, 10, 7, "p"))  # it is there, and came in move 7
    assert place.next_step(("q",)) == Leave("p", "me", 0, 8, "q")


def test_an_application_that_knows_better_goes_without_asking() -> None:
    place = made()
    place.next_step(("q",))
    place.go_anyway("q", 1, 1_000)
    assert place.next_step(("q",)) == Come("q", "me", 1, 1_000)
    place.settled()
    assert place.next_step(("r",)) == Leave("q", "me", 1, 1_001, "r")
