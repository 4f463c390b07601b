"""The overlay of one broker: who is introduced, whom it follows when, and whose interest it keeps."""

from __future__ import annotations

from dataclasses import replace

from tests.broker.parts import registry
from tidemark.broker.config import BrokerConfig
from tidemark.broker.effects import DropAnswers, Effect, LinkMeasured, SendPeer
from tidemark.broker.overlay.layout import MAIN_TREE, Layout
from tidemark.broker.overlay.overlay import CUT_US, OverlayRole
from tidemark.broker.overlay.routing import Routing
from tidemark.broker.streams.interest import Interests
from tidemark.broker.streams.stream import Stream
from tidemark.broker.turn import Turn
from tidemark.message.topic_selector import TopicSelector
from tidemark.ticks import Thresholds
from tidemark.wire.frames import Hello, Interest, Knowledge, LinkGrade, Links, Unfollow, Ways
from tidemark.wire.limits import LINK_NEWEST

SECOND = 1_000_000
#: What a broker says that has no way to the pubend.
CUT = Ways(("p",))
#: `b` is below `a`, which hosts the pubend, and above `c`.
LINE = Layout.of_tree({"a": None, "b": "a", "c": "b"}, {"p": "a"})
#: `b` is linked to both brokers of the cell above it, either of which has the pubend.
CELL = Layout(
    {"x": ("h", "u1", "u2"), "y": ("b",)},
    frozenset({("b", "u1"), ("b", "u2")}),
    {"p": "h"},
    {MAIN_TREE: frozenset({("x", "y")})},
)
#: Of the two, the one that `b` would rather follow, and the other.
BEST, OTHER = Routing(CELL, "b").ways("p", {"b": frozenset({"u1", "u2"})})


class At:
    """The overlay of the broker `b`, which listens to its own routes."""

    def __init__(
        self, layout: Layout = LINE, me: str = "b", incarnation: int = 1, link_version: int = LINK_NEWEST
    ) -> None:
        self.turn = Turn()
        self.streams: dict[str, Stream] = {}
        self.interests = Interests(incarnation, registry(), self.turn)
        for pubend in layout.pubends:
            self.open(pubend)
        config = BrokerConfig(
            me,
            incarnation,
            layout,
            return_delay=2 * SECOND,
            linger=10 * SECOND,
            link_version=link_version,
        )
        self.overlay = OverlayRole(config, self.streams, self.interests, self.turn)
        self.reattached: list[str] = []
        self.overlay.listeners.append(self)

    def open(self, pubend: str) -> None:
        self.streams[pubend] = Stream(
            pubend, self.interests, self.turn, 1 << 20, Thresholds(), is_hosted=False
        )

    def attached(self, pubend: str) -> None:
        self.reattached.append(pubend)

    def take(self) -> list[Effect]:
        return self.turn.out.take()

    def greet(self, *peers: str) -> list[Effect]:
        """The links to these neighbours come up, and they introduce themselves."""
        for peer in peers:
            self.overlay.link_up(peer)
            assert self.overlay.hello(peer, Hello(peer, 1))
        self.overlay.settle()
        return self.take()

    def settle(self) -> list[Effect]:
        self.overlay.settle()
        return self.take()


# Introductions.


def test_a_neighbour_is_greeted_and_present_once_it_has_introduced_itself() -> None:
    at = At()
    at.overlay.link_up("c")
    assert at.take() == [SendPeer("c", Hello("b", 1))]
    assert not at.overlay.is_present("c")
    assert at.overlay.hello("c", Hello("c", 1))
    assert at.overlay.present() == ["c"]
    at.overlay.link_down("c")
    assert at.overlay.present() == []


def test_a_former_life_of_a_neighbour_is_ignored() -> None:
    at = At()
    assert at.overlay.hello("c", Hello("c", 5))
    at.overlay.link_down("c")
    assert not at.overlay.hello("c", Hello("c", 4))
    assert at.overlay.present() == []
    assert at.turn.counters["former_lives"] == 1
    assert at.overlay.hello("c", Hello("c", 5))


def test_a_stranger_is_greeted_once_the_layout_has_it() -> None:
    at = At()
    at.overlay.link_up("d")
    assert not at.overlay.hello("d", Hello("d", 3))
    assert at.take() == []
    assert not at.overlay.is_member("d")
    layout = Layout.of_tree({"a": None, "b": "a", "c": "b", "d": "b"}, {"p": "a"})
    assert at.overlay.change(layout) == ["d"]
    assert at.take() == [SendPeer("d", Hello("b", 1))]
    assert at.overlay.is_member("d")
    assert at.overlay.present() == ["d"]


def test_cellmates_are_told_which_links_are_up() -> None:
    at = At(CELL, me="u1")
    at.greet("u2")
    at.overlay.link_up("b")
    at.take()
    at.overlay.hello("b", Hello("b", 1))
    assert at.take() == [SendPeer("u2", Links("u1", 2, ("b", "u2")))]
    at.overlay.link_down("b")
    assert at.take() == [SendPeer("u2", Links("u1", 3, ("u2",)))]


def test_a_neighbour_of_an_older_version_is_not_told_what_it_would_not_understand() -> None:
    at = At()
    at.overlay.link_up("c")
    assert at.overlay.hello("c", Hello("c", 1, 2, 2))
    assert not [effect for effect in at.settle() if isinstance(effect, SendPeer) and effect.frame == CUT]
    at.overlay.link_up("c")
    assert at.overlay.hello("c", Hello("c", 2, 2, 3))
    assert SendPeer("c", CUT) in at.settle()


def test_a_broker_that_speaks_an_older_version_itself_does_not_say_what_that_version_lacks() -> None:
    at = At(link_version=2)
    at.overlay.link_up("c")
    assert at.overlay.hello("c", Hello("c", 1))
    assert not [effect for effect in at.settle() if isinstance(effect, SendPeer) and effect.frame == CUT]


def test_followers_are_told_that_there_is_no_way_and_that_there_is_one_again() -> None:
    at = At()
    assert SendPeer("c", CUT) in at.greet("c")
    assert SendPeer("c", Ways()) in at.greet("a")
    assert at.settle() == []
    at.overlay.ways_said("a", CUT)
    assert SendPeer("c", CUT) in at.settle()  # it is passed on, and `a` is followed on
    assert at.streams["p"].upstream == "a"


def test_cellmates_are_told_of_what_no_own_link_leads_to_and_how_well_all_links_work() -> None:
    at = At(CELL, me="u1")
    assert SendPeer("u2", CUT) in at.greet("u2", "b")
    assert SendPeer("u2", Ways()) in at.greet("h")
    at.overlay.measured(LinkMeasured("h", 1_000, 16_000))
    at.overlay.measured(LinkMeasured("b", 300_000, None))
    slow, far = LinkGrade("h", 3), LinkGrade("b", 1)
    assert at.settle() == [
        SendPeer("u2", Ways((), (far, slow))),
        SendPeer("b", Ways((), (far,))),
        SendPeer("h", Ways((), (far, slow))),
    ]


def test_a_neighbour_without_a_way_is_left_soon_and_for_one_that_has_a_way_only() -> None:
    at = At(CELL)
    at.greet(BEST, OTHER)
    at.overlay.ways_said(BEST, CUT)
    assert at.settle() == []
    at.turn.now += CUT_US
    effects = at.settle()
    assert at.streams["p"].upstream == OTHER
    assert SendPeer(BEST, Unfollow("p", at.interests.said_version("p") - 1)) in effects
    at.overlay.ways_said(OTHER, CUT)
    at.settle()
    at.turn.now += CUT_US
    at.settle()
    assert at.streams["p"].upstream == OTHER  # both are as good, and there is no hurry to return


# Routes.


def test_the_stream_is_followed_as_soon_as_there_is_a_way() -> None:
    at = At()
    at.interests.want_here(TopicSelector("t", "n > 1"))
    effects = at.greet("a")
    version = at.interests.said_version("p")
    wanted = (TopicSelector("t", "n > 1"),)
    assert effects == [SendPeer("a", Hello("b", 1)), SendPeer("a", Interest("p", version, wanted))]
    assert (at.streams["p"].upstream, at.streams["p"].attached) == ("a", version)
    assert at.reattached == ["p"]
    assert at.settle() == []


def test_a_route_that_fails_is_left_at_once_for_the_next_best() -> None:
    at = At(CELL)
    at.greet(BEST, OTHER)
    assert at.streams["p"].upstream == BEST
    at.overlay.link_down(BEST)
    (followed,) = at.settle()
    assert followed == SendPeer(OTHER, Interest("p", at.interests.said_version("p"), ()))
    assert at.turn.counters["reroutes"] == 1
    at.overlay.link_down(OTHER)
    assert at.settle() == []
    assert at.streams["p"].upstream is None


def changing() -> tuple[At, int]:
    """A broker that has begun to follow a better neighbour, and the version that neighbour was told."""
    at = At(CELL)
    at.greet(OTHER)
    at.greet(BEST)
    assert at.streams["p"].upstream == OTHER
    due = at.overlay.next_wake()
    assert due is not None
    assert SECOND <= due <= 2 * SECOND
    at.turn.now = due - 1
    assert at.settle() == []
    at.turn.now = due
    version = at.interests.said_version("p")
    learn(at, OTHER, 0, 10, version)
    assert at.settle() == [SendPeer(BEST, Interest("p", version + 1, ()))]
    assert at.turn.counters["returns"] == 1
    return at, version + 1


def learn(at: At, peer: str, base: int, upto: int, version: int) -> None:
    """First-time knowledge comes from a neighbour, as the broker would pass it on."""
    stream = at.streams["p"]
    if peer == stream.upstream:
        stream.first(base, upto, 0, version, None)
        at.overlay.reached("p")
    else:
        at.overlay.passed_on(peer, Knowledge("p", base, upto, 0, True, version))


def test_a_better_route_is_taken_after_a_delay_and_the_other_left_when_the_streams_have_met() -> None:
    at, version = changing()
    learn(at, BEST, 12, 12, 1)  # where its stream stands, for no interest
    learn(at, BEST, 14, 14, version)
    learn(at, BEST, 14, 16, version)
    learn(at, OTHER, 10, 13, version - 1)
    assert (at.streams["p"].upstream, at.take()) == (OTHER, [])
    learn(at, OTHER, 13, 14, version - 1)
    assert at.streams["p"].upstream == BEST
    assert at.take() == [SendPeer(OTHER, Unfollow("p", version))]
    assert at.streams["p"].known_upto == 16
    assert list(at.streams["p"].window.knowledge.known) == [(0, 16)]
    assert at.overlay.next_wake() is None


def test_an_old_route_that_does_not_get_as_far_is_left_anyway() -> None:
    at, version = changing()
    learn(at, BEST, 14, 16, version)
    due = at.overlay.next_wake()
    assert due is not None
    at.turn.now = due
    assert at.settle() == [SendPeer(OTHER, Unfollow("p", version))]
    assert list(at.streams["p"].window.knowledge.known) == [(0, 10), (14, 16)]


def test_an_old_route_that_fails_meanwhile_is_left_at_once_without_another_interest() -> None:
    at, version = changing()
    learn(at, BEST, 14, 16, version)
    at.overlay.link_down(OTHER)
    assert at.settle() == []
    assert at.streams["p"].upstream == BEST


def test_a_better_route_that_is_none_any_more_is_told_so_and_the_old_one_has_the_interest_again() -> None:
    at, version = changing()
    at.overlay.followed(BEST, Interest("p", 1, ()))
    at.take()
    assert at.settle() == [
        SendPeer(BEST, Unfollow("p", version)),
        SendPeer(OTHER, Interest("p", version + 1, ())),
    ]
    learn(at, BEST, 10, 16, version)
    assert (at.streams["p"].upstream, at.streams["p"].known_upto) == (OTHER, 10)


def test_an_interest_that_changes_meanwhile_is_told_to_the_better_route_alone() -> None:
    at, version = changing()
    at.interests.want_here(TopicSelector("t", "n > 1"))
    at.overlay.say_interest()
    assert at.take() == [
        SendPeer(OTHER, Unfollow("p", version)),
        SendPeer(BEST, Interest("p", version + 2, (TopicSelector("t", "n > 1"),))),
    ]


def test_a_better_route_that_goes_down_is_forgotten_and_the_old_one_has_the_interest_again() -> None:
    # Nacks may be on behalf of the version that only the better route was told: nobody else answers those.
    at, version = changing()
    at.overlay.link_down(BEST)
    assert at.settle() == [SendPeer(OTHER, Interest("p", version + 1, ()))]
    assert (at.streams["p"].upstream, at.overlay.next_wake()) == (OTHER, None)


def test_a_better_route_that_leaves_the_layout_together_with_its_pubend_is_forgotten() -> None:
    at, _ = changing()
    del at.streams["p"]
    at.overlay.change(replace(CELL, links=frozenset({("b", OTHER)}), pubends={}))
    assert (at.settle(), at.overlay.next_wake()) == ([], None)


def test_a_better_route_that_fails_meanwhile_is_not_taken() -> None:
    at = At(CELL)
    at.greet(OTHER)
    at.greet(BEST)
    at.overlay.link_down(BEST)
    assert at.settle() == []
    assert at.overlay.next_wake() is None


def test_a_neighbour_that_follows_this_broker_is_followed_only_if_there_is_no_other() -> None:
    at = At(CELL)
    at.greet(BEST, OTHER)
    at.overlay.followed(BEST, Interest("p", 1, ()))
    at.take()
    at.settle()
    assert at.streams["p"].upstream == OTHER


def test_interest_is_told_again_only_where_it_has_changed() -> None:
    at = At()
    at.greet("a")
    at.overlay.say_interest()
    assert at.take() == []
    at.interests.want_here(TopicSelector("t", "n > 1"))
    at.overlay.say_interest()
    version = at.interests.said_version("p")
    assert at.take() == [SendPeer("a", Interest("p", version, (TopicSelector("t", "n > 1"),)))]


# Followers.


def test_a_follower_is_told_where_the_stream_stands_and_its_interest_is_noted() -> None:
    at = At()
    at.greet("c")
    at.streams["p"].position = 30
    at.overlay.followed("c", Interest("p", 4, ()))
    (told,) = at.take()
    assert isinstance(told, SendPeer)
    assert isinstance(told.frame, Knowledge)
    assert (told.peer, told.frame.base, told.frame.upto) == ("c", 30, 30)
    assert at.interests.heard_version("p", "c") == 4
    assert at.interests.is_unsaid


def test_the_interest_of_a_neighbour_whose_link_is_gone_is_kept_for_a_while() -> None:
    at = At()
    at.greet("c")
    at.overlay.followed("c", Interest("p", 4, ()))
    at.overlay.link_down("c")
    assert "c" not in at.streams["p"].followers
    at.turn.now = 10 * SECOND - 1
    at.overlay.wake()
    assert at.interests.heard_version("p", "c") == 4
    at.turn.now = 10 * SECOND
    at.overlay.wake()
    assert at.interests.heard_version("p", "c") == 0


def test_an_unfollow_that_is_older_than_the_interest_is_ignored() -> None:
    at = At()
    at.greet("c")
    at.overlay.followed("c", Interest("p", 4, ()))
    at.overlay.unfollowed("c", Unfollow("p", 3))
    assert "c" in at.streams["p"].followers
    at.take()
    at.overlay.unfollowed("c", Unfollow("p", 4))
    assert at.take() == [DropAnswers("c", "p")]
    assert "c" not in at.streams["p"].followers
    assert at.interests.heard_version("p", "c") == 0


def test_an_unfollow_of_a_neighbour_that_does_not_follow_changes_nothing() -> None:
    at = At()
    at.greet("c")
    at.interests.is_unsaid = False
    at.overlay.unfollowed("c", Unfollow("p", 4))
    at.overlay.unfollowed("c", Unfollow("q", 4))
    assert (at.settle(), at.interests.is_unsaid) == ([], False)


def test_interest_in_a_pubend_that_is_not_in_the_layout_yet_waits_for_it() -> None:
    at = At()
    at.greet("c")
    at.overlay.followed("c", Interest("q", 4, ()))
    assert at.take() == []
    at.open("q")
    at.overlay.change(Layout.of_tree({"a": None, "b": "a", "c": "b"}, {"p": "a", "q": "a"}))
    assert at.interests.heard_version("q", "c") == 4
    assert "c" in at.streams["q"].followers


def test_a_broker_that_is_no_neighbour_any_more_is_forgotten_with_all_it_wanted() -> None:
    at = At()
    at.greet("c")
    at.overlay.followed("c", Interest("p", 4, ()))
    at.overlay.change(Layout.of_tree({"a": None, "b": "a"}, {"p": "a"}))
    assert at.overlay.present() == []
    assert at.interests.heard_version("p", "c") == 0
    assert at.overlay.hello("c", Hello("c", 1)) is False
