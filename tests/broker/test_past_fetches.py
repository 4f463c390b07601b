"""PastFetches: pieces are asked for before the one before has come, and told in order."""

from __future__ import annotations

from tests.broker.desk import MORNING, Desk, batch, sent, told
from tidemark.broker.publishing.fetching import UNDER_WAY_BYTES_MAX
from tidemark.broker.publishing.past_fetches import PIECES_MAX
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import (
    ClientFrame,
    Credit,
    Deliver,
    Fetch,
    Fetched,
    Heard,
    Hello,
    Knowledge,
    Subscribe,
)

BASE = MORNING - 10_000
CREDIT = 1 << 20


def reaching_back(*, room: bool = True) -> tuple[Desk, list[Fetch]]:
    """A broker whose subscriber wants events of before, from upstream `u`; the first fetch."""
    at = Desk(upstream="u")
    at.declare()
    at.link("u")
    at.hear("u", Hello("u", 1))
    at.finish(at.hear("u", Knowledge("p", MORNING, MORNING + 10, 0, True, 2**33 - 1)))
    token = CheckpointToken({"p": BASE})
    effects = at.finish(at.say(1, Subscribe("s", "t", "", True, CREDIT, token)))
    at.pass_time(0.3)
    effects += at.finish(at.hear("u", Heard("p", "b", at.last_said)))
    effects += at.finish(at.hear("u", Knowledge("p", MORNING + 10, MORNING + 20, 0, True, 2**33 - 1)))
    effects += at.pass_time(0.3)
    if room:
        at.broker.fetching._ways["u"].pace.limit = UNDER_WAY_BYTES_MAX
    return at, sent(effects, "u", Fetch)


def answer(at: Desk, asked: Fetch, *ticks: int, upto: int | None = None) -> tuple[list[Fetch], list[int]]:
    """Upstream answers a fetch; what it is asked for then, and the ticks that the subscriber is told."""
    reached = asked.upto if upto is None else upto
    events = batch(*ticks) if ticks else None
    effects = at.finish(at.hear("u", Fetched(asked.ticket, "p", asked.base, reached, 0, events)))
    return sent(effects, "u", Fetch), told_ticks(told(effects, 1))


def told_ticks(frames: list[ClientFrame]) -> list[int]:
    found: list[int] = []
    for frame in frames:
        if isinstance(frame, Deliver) and frame.batch is not None:
            found += frame.batch.ticks.tolist()
    return found


def test_once_it_is_known_how_much_fits_several_pieces_are_under_way() -> None:
    at, (first,) = reaching_back()
    assert first.base == BASE
    assert MORNING <= first.upto <= MORNING + 20
    asked, ticks = answer(at, first, BASE + 5, upto=BASE + 100)
    assert ticks == [BASE + 5]
    assert [(each.base, each.upto) for each in asked] == [
        (BASE + 100 * at_, BASE + 100 * (at_ + 1)) for at_ in range(1, PIECES_MAX + 1)
    ]


def test_what_comes_before_its_turn_waits_and_is_told_in_order() -> None:
    at, (first,) = reaching_back()
    asked, _ = answer(at, first, BASE + 5, upto=BASE + 100)
    assert answer(at, asked[1], BASE + 250) == ([], [])
    assert answer(at, asked[2], BASE + 350) == ([], [])
    more, ticks = answer(at, asked[0], BASE + 150)
    assert ticks == [BASE + 150, BASE + 250, BASE + 350]
    assert len(more) == 3, "as many more are asked for as were told"


def test_a_piece_that_is_answered_in_part_is_asked_for_again_from_there_on() -> None:
    at, (first,) = reaching_back()
    asked, _ = answer(at, first, BASE + 5, upto=BASE + 100)
    assert answer(at, asked[1], BASE + 250) == ([], [])
    more, ticks = answer(at, asked[0], BASE + 110, upto=BASE + 120)
    assert ticks == [BASE + 110]
    assert (more[0].base, more[0].upto) == (BASE + 120, BASE + 200)
    _, ticks = answer(at, more[0], BASE + 190)
    assert ticks == [BASE + 190, BASE + 250]


def test_pieces_become_longer_where_there_is_little() -> None:
    at, (first,) = reaching_back()
    asked, _ = answer(at, first, BASE + 5, upto=BASE + 100)
    more, _ = answer(at, asked[0])
    (last,) = more
    assert last.upto - last.base == 200


def test_where_there_is_little_room_two_pieces_are_under_way_which_use_all_of_it() -> None:
    at, (first,) = reaching_back(room=False)
    at.broker.fetching._ways["u"].pace.limit = 1
    asked, _ = answer(at, first, BASE + 5, upto=BASE + 100)
    limit = at.broker.fetching._ways["u"].pace.limit
    assert len(asked) == 2
    assert limit <= sum(each.bytes_max for each in asked) <= limit + 1


def test_a_subscriber_that_can_take_no_more_is_asked_nothing_for() -> None:
    at, (first,) = reaching_back()
    at.broker._host.subscriptions[1].credit = 1
    events = batch(BASE + 5)
    effects = at.finish(at.hear("u", Fetched(first.ticket, "p", BASE, BASE + 100, 0, events)))
    at.broker._host.subscriptions[1].credit = 0
    pieces = sent(effects, "u", Fetch)
    for each in pieces:
        assert answer(at, each)[0] == []
    effects = at.finish(at.say(1, Credit("s", CREDIT)))
    assert sent(effects, "u", Fetch), "and goes on when it can"


def test_who_leaves_is_fetched_nothing_for() -> None:
    at, (first,) = reaching_back()
    asked, _ = answer(at, first, BASE + 5, upto=BASE + 100)
    at.gone(1)
    assert not at.broker.fetching._asked
    assert answer(at, asked[0], BASE + 150) == ([], [])
