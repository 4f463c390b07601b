"""Handover: a subscription goes from broker to broker, and at every moment at least one of them holds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidemark.broker.effects import SendPeer
from tidemark.broker.hosting.handover import NOBODY, Handover
from tidemark.broker.hosting.subscription import HostedSubscription
from tidemark.broker.turn import Turn
from tidemark.wire.frames import Claim


@dataclass
class Place:
    """A broker as its Handover sees it: two neighbours, and a disk and pubends that answer when told to."""

    name: str
    subscriptions: dict[str, HostedSubscription] = field(default_factory=dict)
    held: list[Callable[[], None]] = field(default_factory=list)
    fenced: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        turn = Turn()
        self.out = turn.out
        self.counters = turn.counters
        self.handover = Handover(self.name, turn, self, self, self)

    def present(self) -> list[str]:
        return ["l", "r"]

    def is_present(self, peer: str) -> bool:
        return peer in self.present()

    def is_member(self, broker: str) -> bool:
        return broker != ""

    def find(self, name: str) -> HostedSubscription | None:
        return self.subscriptions.get(name)

    def save(self, subscription: HostedSubscription, done: Callable[[], None]) -> None:
        del subscription
        done()

    def fence(self, subscription: HostedSubscription, broker: str) -> None:
        self.fenced.append((subscription.name, broker))
        subscription.client = None

    def remove(self, subscription: HostedSubscription) -> None:
        del self.subscriptions[subscription.name]

    def hold(self, subscription: HostedSubscription, done: Callable[[], None]) -> None:
        del subscription
        self.held.append(done)

    def has(
        self, *, epoch: int, client: int | None = None, made_at: int = 0, at: int = 0
    ) -> HostedSubscription:
        made = HostedSubscription(
            1, "s", True, [], made_at=made_at, epoch=epoch, client=client, connected_at=at
        )
        self.subscriptions["s"] = made
        return made

    def said(self) -> list[tuple[str, Claim]]:
        """What it told its neighbours."""
        frames = [each for each in self.out.take() if isinstance(each, SendPeer)]
        return [(each.peer, each.frame) for each in frames if isinstance(each.frame, Claim)]


def test_a_claim_is_spread_at_once_and_settled_when_every_pubend_holds() -> None:
    at = Place("new")
    at.handover.claim(at.has(epoch=7))
    assert at.said() == [(peer, Claim("s", 7, "new", False)) for peer in "lr"]
    at.held.pop()()
    assert at.said() == [(peer, Claim("s", 7, "new", True)) for peer in "lr"]


def test_the_old_host_ends_the_connection_at_once_and_lets_go_only_when_it_is_settled() -> None:
    at = Place("old")
    mine = at.has(epoch=0, made_at=3, client=1, at=3)
    at.handover.heard("l", Claim("s", 7, "new", False))
    assert at.fenced == [("s", "new")]
    assert at.subscriptions == {"s": mine}
    assert mine.moved_to == "new"
    at.handover.heard("l", Claim("s", 7, "new", True))
    assert at.subscriptions == {}


def test_word_of_a_claim_is_passed_on_once_and_not_back() -> None:
    at = Place("between")
    at.handover.heard("l", Claim("s", 7, "new", False))
    assert at.said() == [("r", Claim("s", 7, "new", False))]
    at.handover.heard("r", Claim("s", 7, "new", False))
    assert at.said() == []
    at.handover.heard("l", Claim("s", 7, "new", True))
    assert at.said() == [("r", Claim("s", 7, "new", True))]


def test_a_claim_that_comes_late_is_answered_with_the_newer_one() -> None:
    at = Place("between")
    at.handover.heard("l", Claim("s", 7, "new", True))
    at.said()
    at.handover.heard("r", Claim("s", 5, "older", True))
    assert at.said() == [("r", Claim("s", 7, "new", True))]


def test_a_late_claim_does_not_take_a_subscription_from_who_has_it_since() -> None:
    at = Place("here")
    at.has(epoch=9)  # away, but hosted here since
    at.handover.heard("l", Claim("s", 7, "older", True))
    assert "s" in at.subscriptions
    assert at.said() == [("l", Claim("s", 9, "here", True))]


def test_one_that_was_never_claimed_counts_from_when_it_was_made() -> None:
    at = Place("here")
    at.has(epoch=0, made_at=9)
    at.handover.heard("l", Claim("s", 7, "older", True))
    assert "s" in at.subscriptions
    assert at.said() == [("l", Claim("s", 9, "here", True))]


def test_a_subscriber_that_came_here_later_is_claimed_back() -> None:
    """Two brokers that could not hear of each other both had it: the later connection wins."""
    at = Place("here")
    mine = at.has(epoch=0, made_at=1, client=1, at=20)
    at.handover.heard("l", Claim("s", 10, "other", False))
    assert mine.moved_to is None
    assert mine.epoch == 11
    assert Claim("s", 11, "here", False) in [claim for _, claim in at.said()]
    assert at.fenced == []


def test_a_claim_that_is_too_low_gives_way_and_who_comes_again_after_that_is_above() -> None:
    at = Place("slow")
    mine = at.has(epoch=5, client=1, at=5)
    at.handover.claim(mine)
    at.handover.heard("l", Claim("s", 1_000, "fast", True))  # the answer of who has it, by a clock ahead
    assert at.fenced == [("s", "fast")]
    assert at.subscriptions == {}
    assert at.handover.next_epoch("s", wall=6) == 1_001
    at.said()
    at.held[0]()  # what was asked for under the former epoch settles nothing
    assert at.said() == []


def test_of_two_that_claim_at_once_one_wins_at_both() -> None:
    a, b = Place("a"), Place("b")
    for place in (a, b):
        place.handover.claim(place.has(epoch=7, client=1, at=7))
        place.said()
    a.handover.heard("l", Claim("s", 7, "b", False))
    b.handover.heard("l", Claim("s", 7, "a", False))
    assert a.fenced == [("s", "b")]
    assert b.fenced == []
    assert b.said() == [("l", Claim("s", 7, "b", False))]  # and who did not know is told


def test_a_subscriber_that_returns_before_it_is_settled_is_claimed_above() -> None:
    at = Place("old")
    mine = at.has(epoch=0, made_at=3)
    at.handover.heard("l", Claim("s", 7, "new", False))
    assert at.handover.next_epoch("s", wall=5) == 8
    mine.epoch = 8
    at.handover.claim(mine)
    assert mine.moved_to is None
    at.handover.heard("l", Claim("s", 7, "new", True))
    assert "s" in at.subscriptions


def test_a_broker_that_was_away_is_told_what_it_missed() -> None:
    at = Place("between")
    at.handover.heard("l", Claim("s", 7, "new", True))
    at.said()
    at.handover.tell_all("r")
    assert at.said() == [("r", Claim("s", 7, "new", True))]


def test_an_end_reaches_who_still_has_it_from_before() -> None:
    new, old = Place("new"), Place("old")
    mine = new.has(epoch=7)
    new.handover.claim(mine)
    new.said()
    new.handover.ended(mine)
    ((_, end), _) = new.said()
    assert end == Claim("s", 8, NOBODY, True)
    old.has(epoch=0, made_at=1)
    old.handover.heard("l", end)
    assert old.subscriptions == {}


def test_one_that_never_moved_ends_without_a_word() -> None:
    at = Place("here")
    at.handover.ended(at.has(epoch=0, made_at=1))
    assert at.said() == []
