"""What a neighbour may say by its place in the overlay. Each attacker has proved its name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.broker.desk import MORNING, Desk
from tests.broker.test_hostile_frames import linked, refusals
from tidemark.broker.effects import RefusePeer, SendPeer
from tidemark.broker.overlay.layout import Layout
from tidemark.broker.overlay.routing import Routing
from tidemark.broker.overlay.trust import NACKS_MAX
from tidemark.broker.topics import GENERATIONS_TOLD_MAX
from tidemark.ticks import TICK_LAST, TICK_MAX
from tidemark.ticks.tick import CLOCKS_APART_MAX
from tidemark.wire.frames import (
    AckExpected,
    Claim,
    Fetch,
    Fetched,
    Heard,
    Hello,
    Interest,
    Knowledge,
    Links,
    Nack,
    PeerFrame,
    Release,
    ReleaseRow,
    Subscribe,
    Together,
    Topic,
    Unfollow,
    Ways,
)
from tidemark.wire.limits import (
    EPOCH_MAX,
    EPOCHS_AHEAD_US,
    INCARNATION_MAX,
    INCARNATIONS_MAX,
    SEQUENCE_MAX,
    STAMP_MAX,
    VERSION_MAX,
)
from tidemark.wire.moving.frames import Left

#: a tick that is further ahead than clocks may be apart
TOO_FAR = MORNING + CLOCKS_APART_MAX + 1
#: the first sequence, or version, of a second life
SECOND_LIFE = 2 << 32


def row(host: str, sequence: int) -> Release:
    """A host that has nobody, and lets everything go."""
    return Release("p", (ReleaseRow(host, sequence, TICK_MAX, TICK_MAX),))


def hosting() -> Desk:
    """A broker that hosts `p`, with two neighbours that follow it, both in their first life."""
    desk = Desk(downstream=("down", "other"))
    for peer in ("down", "other"):
        desk.link(peer)
        desk.hear(peer, Hello(peer, 1))
    return desk


def is_refused(desk: Desk, peer: str, frame: PeerFrame) -> bool:
    """Whether a frame ends the link, with nothing changed and a reason that is counted."""
    before = desk.broker.counters["neighbours_refused"]
    effects = desk.hear(peer, frame)
    ended = [each for each in refusals(effects) if isinstance(each, RefusePeer) and each.peer == peer]
    assert len(ended) == desk.broker.counters["neighbours_refused"] - before
    assert not ended or repr(peer) in ended[0].reason
    return bool(ended)


# Numbers that leap.


@pytest.mark.parametrize(
    "frame",
    [
        Hello("down", 1 + INCARNATIONS_MAX + 1),
        Hello("up", 2),
        Interest("p", SECOND_LIFE, None),
        Interest("p", VERSION_MAX, None),
        Unfollow("p", VERSION_MAX),
        Nack("p", ((0, 1),), VERSION_MAX),
        Knowledge("p", 0, 1, 0, True, SECOND_LIFE),
        Knowledge("p", 0, TOO_FAR, 0, True, 1),
        Knowledge("p", 0, TICK_LAST, 0, False, 1),
        Knowledge("p", 0, 1, TOO_FAR, True, 1),
        Knowledge("p", 0, 1, 0, True, 1, damaged=((0, TOO_FAR),)),
        AckExpected("p", TOO_FAR),
        AckExpected("p", TICK_LAST),
        Nack("p", ((0, TOO_FAR),), 1),
        Nack("p", ((0, 1), (TICK_LAST - 1, TICK_LAST)), 1),
        Left("p", "me", 1, TOO_FAR, 1, "q"),
        Fetched(1, "p", 0, TOO_FAR, 0),
        Fetched(1, "p", 0, 1, TOO_FAR),
        Heard("p", "down", 1, TOO_FAR),
        Links("up", 1, ()),
        row("down", SECOND_LIFE),
        row("down", SEQUENCE_MAX),
        row("somebody", SEQUENCE_MAX),
        Heard("p", "b", SEQUENCE_MAX),
        Heard("p", "b", (1 << 32) + 1_000_000),
        Claim("s", EPOCH_MAX, "down", settled=True),
        Claim("s", MORNING + EPOCHS_AHEAD_US + 1, "down", settled=True),
        Topic("t", False, ("[n: int]",), GENERATIONS_TOLD_MAX + 1),
        Topic("t.*", False, ("[n: int]",)),
        Topic("t..x", False, ("[n: int]",)),
    ],
    ids=repr,
)
def test_a_number_to_which_no_honest_broker_comes_ends_the_link(frame: PeerFrame) -> None:
    assert is_refused(linked(), "down", frame)


@pytest.mark.parametrize(
    "frame",
    [
        Hello("down", 1 + INCARNATIONS_MAX),
        Interest("p", SECOND_LIFE - 1, None),
        Unfollow("p", SECOND_LIFE - 1),
        Knowledge("p", 0, 1, 0, True, SECOND_LIFE - 1),
        Knowledge("p", 0, TOO_FAR - 1, TOO_FAR - 1, True, 1),
        Links("down", 1, ()),
        row("down", SECOND_LIFE - 1),
        AckExpected("p", TOO_FAR - 1),
        Nack("p", ((0, TOO_FAR - 1),), 1),
        Left("p", "me", 1, TOO_FAR - 1, 1, "q"),
        Claim("s", MORNING + EPOCHS_AHEAD_US, "down", settled=True),
        Topic("t", False, ("[n: int]",), GENERATIONS_TOLD_MAX),
        Topic("t", False, ("[n: int]",), 1),
    ],
    ids=repr,
)
def test_what_an_honest_broker_can_come_to_is_heard(frame: PeerFrame) -> None:
    assert not is_refused(linked(), "down", frame)


def test_of_what_comes_together_nothing_counts_if_a_number_in_it_leaps() -> None:
    desk = linked()
    assert is_refused(desk, "down", Together((Ways(), row("down", SEQUENCE_MAX))))
    assert desk.broker.counters["frames_refused"] == 1


def test_a_neighbour_cannot_have_itself_answered_without_end_in_one_turn() -> None:
    desk = hosting()
    nack = Nack("p", ((10, 20),), 0)
    assert not is_refused(desk, "down", Together((nack,) * NACKS_MAX))
    assert is_refused(desk, "down", Together((nack,) * (NACKS_MAX + 1)))


def test_a_restored_broker_and_one_of_which_nothing_is_known_may_be_in_a_late_life() -> None:
    desk = Desk(downstream=("down", "fresh"))
    desk.link("fresh")
    assert not is_refused(desk, "fresh", Hello("fresh", INCARNATION_MAX // 2 + 1))
    assert is_refused(desk, "fresh", Hello("fresh", INCARNATION_MAX))


def test_a_sequence_that_leaves_no_room_for_those_of_the_host_is_refused() -> None:
    desk = hosting()
    assert not is_refused(desk, "down", row("down", (1 << 32) + 5))
    assert is_refused(desk, "down", row("down", (1 << 32) + 5 + (1 << 31) + 1))


def test_an_epoch_may_follow_the_one_that_is_known_however_far_ahead_that_is() -> None:
    desk = linked()
    last = MORNING + EPOCHS_AHEAD_US
    for epoch in range(last, last + 3):
        assert not is_refused(desk, "down", Claim("s", epoch, "down", settled=True))
    assert is_refused(desk, "down", Claim("s", last + 4, "down", settled=True))


def test_the_clock_of_a_subscriber_that_is_far_ahead_makes_no_epoch_that_neighbours_refuse() -> None:
    desk = linked()
    desk.declare()
    desk.finish(desk.say(1, Subscribe("s", "t", "", True, 1_000, None, STAMP_MAX, "down")))
    mine = desk.broker._sessions.find("s")
    assert mine is not None
    assert mine.holding.made_at < MORNING + CLOCKS_APART_MAX


def test_an_epoch_is_no_further_ahead_than_the_clocks_of_a_subscriber_and_a_broker_can_make_it() -> None:
    """The clock of a subscriber counts up to a day ahead of its broker's, which may be a day ahead here."""
    assert is_refused(linked(), "down", Claim("s", MORNING + 4 * CLOCKS_APART_MAX, "down", settled=True))
    assert not is_refused(linked(), "down", Claim("s", MORNING + 2 * CLOCKS_APART_MAX, "down", settled=True))
    desk = linked()
    desk.declare()
    for name, stamp in (("in time", MORNING + CLOCKS_APART_MAX), ("later", MORNING + CLOCKS_APART_MAX * 2)):
        desk.finish(desk.say(1, Subscribe(name, "t", "", True, 1_000, None, stamp, "down")))
        mine = desk.broker._sessions.find(name)
        assert mine is not None
        assert (mine.holding.made_at == stamp) == (name == "in time")


def test_an_expected_acknowledgement_of_the_far_future_moves_no_stream() -> None:
    desk = linked()
    stream = desk.broker.stream("p")
    assert stream is not None
    desk.hear("up", Knowledge("p", 10, 20, 0, True, (1 << 33) - 1))
    position = stream.position
    assert is_refused(desk, "up", AckExpected("p", TICK_LAST))
    assert stream.position == position


# Places.


def test_a_neighbour_cannot_let_go_what_a_host_that_is_not_behind_it_holds() -> None:
    desk = hosting()
    holds = ReleaseRow("other", (1 << 32) + 1, 5, 5, asks=True)
    desk.finish(desk.hear("other", Release("p", (holds,))))
    lies = replace(holds, sequence=(1 << 32) + 9, released=TICK_MAX, delivered=TICK_MAX, asks=False)
    assert not refusals(desk.hear("down", Release("p", (lies,))))
    assert desk.broker.counters["frames_misplaced"] == 1
    (status,) = desk.broker._reports.hosts["p"].describe()
    assert (status.host, status.released) == ("other", 5)
    desk.hear("other", Release("p", (replace(lies, released=7),)))
    (status,) = desk.broker._reports.hosts["p"].describe()
    assert status.released == 7


def test_nobody_is_told_heard_from_a_side_on_which_the_pubend_is_not() -> None:
    desk = linked()
    desk.declare()
    desk.finish(desk.say(1, Subscribe("s", "t", "", True, 1_000)))
    desk.hear("up", Knowledge("p", 10, 20, 0, True, (1 << 33) - 1))
    desk.pass_time(0.3)
    sequence = desk.last_said
    assert sequence > 1 << 32
    desk.hear("down", Heard("p", "b", sequence))
    assert not desk.broker._reports._releases.may_begin("p")
    assert desk.broker.counters["frames_misplaced"] == 1
    desk.hear("up", Heard("p", "b", sequence))
    assert desk.broker._reports._releases.may_begin("p")


def test_knowledge_of_a_pubend_counts_only_from_where_it_comes() -> None:
    desk = linked()
    stream = desk.broker.stream("p")
    assert stream is not None
    desk.hear("up", Knowledge("p", 10, 20, 0, True, (1 << 33) - 1))
    position = stream.position
    desk.hear("down", Knowledge("p", 20, 90, 80, True, (1 << 33) - 1))
    assert stream.position == position
    assert stream.window.knowledge.lost < 80
    here = hosting()
    mine = here.broker.stream("p")
    assert mine is not None
    position = mine.position
    here.hear("down", Knowledge("p", position, position + 50, position + 40, True, (1 << 33) - 1))
    assert mine.position == position


def test_only_who_was_asked_answers_a_fetch() -> None:
    desk = linked()
    desk.hear("up", Knowledge("p", 10, 20, 0, True, (1 << 33) - 1))
    asked = [
        each.frame
        for each in desk.hear("down", Fetch(7, "p", 0, 10, ">", "", 1_000))
        if isinstance(each, SendPeer) and isinstance(each.frame, Fetch)
    ]
    answer = Fetched(asked[0].ticket, "p", 0, 10, 10)
    assert not [each for each in desk.hear("down", answer) if isinstance(each, SendPeer)]
    told = [each for each in desk.hear("up", answer) if isinstance(each, SendPeer)]
    assert [(each.peer, each.frame) for each in told] == [("down", replace(answer, ticket=7))]


# Which hosts are behind a neighbour.

CELLS = Layout(
    cells={"root": ("r1", "r2"), "mid": ("m1", "m2"), "left": ("l1",), "right": ("w1", "w2")},
    links=frozenset((("m1", "r1"), ("m2", "r2"), ("l1", "m1"), ("l1", "m2"), ("m1", "w1"), ("m2", "w2"))),
    pubends={"p": "r1", "q": "l1"},
    trees={"main": frozenset((("mid", "root"), ("left", "mid"), ("mid", "right")))},
)


def behind(me: str, pubend: str, peer: str) -> set[str]:
    routing = Routing(CELLS, me)
    return {host for host in (*CELLS.brokers, "gone") if routing.is_behind(pubend, host, peer)}


def test_hosts_are_behind_whoever_their_way_to_the_pubend_leads_over() -> None:
    assert behind("r1", "p", "m1") == {"m1", "m2", "l1", "w1", "w2"}
    assert behind("m1", "p", "w1") == {"w1", "w2"}
    assert behind("m1", "p", "l1") == {"l1"}
    assert behind("m1", "p", "r1") == set(), "rows go towards the pubend"
    assert behind("m1", "q", "r1") == {"r1", "r2"}
    assert behind("m1", "q", "l1") == set()
    assert behind("l1", "q", "m2") == set(CELLS.brokers) - {"l1"}


def test_a_cellmate_passes_on_what_comes_over_the_cell() -> None:
    assert behind("m1", "p", "m2") == {"m1", "m2", "l1", "w1", "w2"}
    assert behind("r1", "p", "r2") == set(CELLS.brokers)
    assert behind("w1", "p", "w2") == {"w1", "w2"}


def test_nobody_is_behind_a_stranger_or_for_a_pubend_that_is_not_there() -> None:
    assert behind("m1", "p", "gone") == set()
    assert behind("m1", "nowhere", "r1") == set()


def test_a_pubend_comes_from_the_cell_before_and_from_cellmates() -> None:
    routing = Routing(CELLS, "m1")
    assert [peer for peer in CELLS.brokers if routing.is_towards("p", peer)] == ["m1", "m2", "r1", "r2"]
    assert [peer for peer in CELLS.brokers if routing.is_towards("q", peer)] == ["l1", "m1", "m2"]
    assert not routing.is_towards("p", "gone")
    assert not routing.is_towards("nowhere", "r1")
