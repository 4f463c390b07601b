"""What is said to a neighbour in one turn leaves in one frame, which is handled as a whole."""

from __future__ import annotations

from tests.broker.desk import Desk, batch, sent
from tidemark.broker.departures import LARGE_BYTES, Departures
from tidemark.broker.effects import CommitTables, Effect, LinkDown, RefusePeer, SendPeer
from tidemark.broker.outgoing import undroppable
from tidemark.errors import FrameError
from tidemark.message.topic_selector import TopicSelector
from tidemark.wire.frames import (
    AckExpected,
    Claim,
    Fetch,
    Hello,
    Interest,
    Knowledge,
    Nack,
    PeerFrame,
    Release,
    Together,
    Topic,
)

SECOND = 1_000_000
ACK, NACK, CLAIM = AckExpected("p", 9), Nack("p", ((1, 2),), 5), Claim("s", 1, "b", True)


def to(peer: str, *frames: PeerFrame) -> list[Effect]:
    return [SendPeer(peer, each) for each in frames]


def test_frames_to_one_neighbour_leave_as_one_and_in_order() -> None:
    departures = Departures(SECOND)
    commit = CommitTables(1)
    assert departures.take([*to("a", ACK), commit, *to("b", NACK), *to("a", NACK)], 0) == [commit]
    departures.take(to("a", CLAIM), 0)
    assert departures.leave(0) == [SendPeer("a", Together((ACK, NACK, CLAIM))), SendPeer("b", NACK)]
    assert departures.leave(0) == []


def test_answers_introductions_topics_and_large_frames_leave_by_themselves() -> None:
    departures = Departures(SECOND)
    answer, topic = Knowledge("p", 1, 9, 0, False, 5), Topic("t", True, ("[n: int]",))
    large = Interest(
        "p", 1, tuple(TopicSelector("t", "n = 1 OR " * 400) for _ in range(LARGE_BYTES // 3_000))
    )
    departures.take(to("a", Hello("b", 1), ACK, answer, NACK, topic, CLAIM, large, ACK, NACK), 0)
    assert [effect.frame for effect in departures.leave(0) if isinstance(effect, SendPeer)] == [
        Hello("b", 1),
        answer,
        Together((ACK, NACK)),
        topic,
        CLAIM,
        large,
        Together((ACK, NACK)),
    ]


def test_a_patient_frame_waits_for_company_or_for_its_time() -> None:
    departures = Departures(SECOND)
    departures.take([SendPeer("a", CLAIM, 100), SendPeer("b", CLAIM, 100)], 0)
    assert departures.leave(0) == []
    assert departures.next_wake() == 100
    departures.take(to("a", ACK), 50)
    assert departures.leave(50) == [SendPeer("a", Together((CLAIM, ACK)))]
    assert departures.leave(100) == [SendPeer("b", CLAIM)]
    assert departures.next_wake() is None
    departures.take([SendPeer("a", CLAIM, 100)], 0)
    departures.link_down("a")
    assert departures.leave(100) == []


def silence(base: int, upto: int, version: int = 5) -> Knowledge:
    return Knowledge("p", base, upto, 0, True, version)


def test_silence_waits_and_grows_and_leaves_with_the_event_that_follows_it() -> None:
    departures = Departures(SECOND)
    departures.take(to("a", silence(1, 4)), 0)
    departures.take(to("a", silence(4, 9)), SECOND // 2)
    assert departures.leave(SECOND // 2) == []
    assert departures.next_wake() == SECOND
    assert departures.leave(SECOND) == [SendPeer("a", silence(1, 9))]
    departures.take(to("a", silence(9, 12)), SECOND)
    departures.take(to("a", Knowledge("p", 12, 14, 2, True, 5, batch(14))), SECOND)
    assert departures.leave(SECOND) == [SendPeer("a", Knowledge("p", 9, 14, 2, True, 5, batch(14)))]
    assert departures.leave(9 * SECOND) == []


def test_silence_that_was_told_for_another_interest_or_range_keeps_its_own_frame_and_its_place() -> None:
    departures = Departures(SECOND)
    later, elsewhere = silence(4, 9, version=6), Knowledge("q", 1, 4, 0, True, 5)
    departures.take(to("a", silence(1, 4), later, elsewhere, silence(20, 30, version=6)), 0)
    departures.take(to("a", ACK), 1)
    waited = silence(1, 4), later, elsewhere, silence(20, 30, version=6)
    assert departures.leave(1) == [SendPeer("a", Together((*waited, ACK)))]


def test_a_promise_and_an_answer_do_not_wait() -> None:
    departures = Departures(SECOND)
    promise, answer = silence(9, 9), Knowledge("p", 1, 9, 0, False, 5)
    departures.take(to("a", silence(4, 9), promise, answer), 0)
    assert departures.leave(0) == [
        SendPeer("a", answer),
        SendPeer("a", Together((silence(4, 9), promise))),
    ]


def test_a_neighbour_that_does_not_keep_up_gets_what_it_would_not_ask_for_again() -> None:
    release = Release("p", ())
    assert undroppable(Together((ACK, CLAIM, NACK, release))) == Together((CLAIM, release))
    assert undroppable(Together((ACK, NACK))) is None
    whole = Together((CLAIM, release))
    assert undroppable(whole) is whole, "a link counts what it drops by that"
    assert (undroppable(CLAIM), undroppable(NACK)) == (CLAIM, None)


# Receiving.


def relay() -> Desk:
    at = Desk(upstream="u", downstream=("d",))
    for peer in ("u", "d"):
        at.link(peer)
        at.hear(peer, Hello(peer, 1))
    return at


def test_what_came_together_is_handled_in_order_in_one_turn() -> None:
    at = relay()
    interest = Interest("p", 7, (TopicSelector("t", "n > 1"),))
    effects = at.hear("d", Together((interest, Fetch(3, "p", 1, 9, "t", "", 100))))
    (said,) = sent(effects, "u", Interest)
    assert said.wanted == interest.wanted
    assert [each.base for each in sent(effects, "u", Fetch)] == [1]
    assert [each.peer for each in effects if isinstance(each, SendPeer)] == ["d", "u"]  # one frame each


def test_of_what_came_together_nothing_counts_if_a_part_is_refused() -> None:
    at = relay()
    before = at.broker.stream("p")
    assert before is not None
    odd = Fetch(3, "p", 1, 9, "t", "n = " + "(" * 2_000 + "1" + ")" * 2_000, 100)
    interest = Interest("p", 7, None)
    at.broker.fetching.look = _unforeseen  # type: ignore[method-assign]  # what cannot be foreseen
    effects = at.hear("d", Together((interest, odd)))
    assert [type(each) for each in effects] == [RefusePeer]
    assert list(before.followers) == []
    at.give(LinkDown("d"))  # the broker goes on


def _unforeseen(frame: Fetch) -> bool:
    del frame
    raise FrameError("not foreseen")


def test_events_of_several_pubends_reach_a_follower_in_one_frame() -> None:
    departures = Departures(SECOND)
    events = [Knowledge(name, 1, 9, 0, True, 5, batch(4)) for name in "pq"]
    departures.take(to("a", *events), 0)
    assert departures.leave(0) == [SendPeer("a", Together(tuple(events)))]
