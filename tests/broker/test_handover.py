"""Handover: a subscription goes from broker to broker, and at every moment at least one of them holds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidemark.broker.access.owner_digest import digest_of
from tidemark.broker.effects import SendPeer
from tidemark.broker.hosting.handover import ANSWER_US, NOBODY, Handover
from tidemark.broker.hosting.subscription import Holding, HostedSubscription
from tidemark.broker.turn import Turn
from tidemark.wire.frames import Claim, Yielded


@dataclass
class Place:
    """A broker as its Handover sees it: two neighbours, and a disk and pubends that answer when told to."""

    name: str
    subscriptions: dict[str, HostedSubscription] = field(default_factory=dict)
    held: list[Callable[[], None]] = field(default_factory=list)
    fenced: list[tuple[str, str]] = field(default_factory=list)
    #: what waits for the disk while it is busy
    saving: list[Callable[[], None]] = field(default_factory=list)
    is_saving: bool = False

    def __post_init__(self) -> None:
        self.turn = turn = Turn()
        self.out = turn.out
        self.counters = turn.counters
        self.handover = Handover(self.name, turn, self, self, self)

    def present(self) -> list[str]:
        return ["l", "r"]

    def is_present(self, peer: str) -> bool:
        return peer in self.present()

    def is_member(self, broker: str) -> bool:
        return broker != ""

    def way_to(self, broker: str) -> str | None:
        return {"old": "l", "new": "r", "other": "r"}.get(broker) if broker != self.name else None

    def find(self, name: str) -> HostedSubscription | None:
        return self.subscriptions.get(name)

    def save(self, subscription: HostedSubscription, done: Callable[[], None]) -> None:
        del subscription
        done()

    def after_save(self, action: Callable[[], None]) -> None:
        if self.is_saving:
            self.saving.append(action)
        else:
            action()

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
        holding = Holding(made_at=made_at, epoch=epoch, connected_at=at)
        made = HostedSubscription(1, "s", True, [], holding=holding, client=client)
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
    assert mine.holding.moved_to == "new"
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
    assert at.said() == [(peer, Claim("s", 9, "here", False)) for peer in "lr"]
    at.held.pop()()
    assert at.said() == [(peer, Claim("s", 9, "here", True)) for peer in "lr"]


def test_one_that_was_never_claimed_counts_from_when_it_was_made() -> None:
    at = Place("here")
    at.has(epoch=0, made_at=9)
    at.handover.heard("l", Claim("s", 7, "older", True))
    assert "s" in at.subscriptions
    assert at.said() == [(peer, Claim("s", 9, "here", True)) for peer in "lr"]


def test_a_subscriber_that_came_here_later_is_claimed_back() -> None:
    """Two brokers that could not hear of each other both had it: the later connection wins."""
    at = Place("here")
    mine = at.has(epoch=0, made_at=1, client=1, at=20)
    at.handover.heard("l", Claim("s", 10, "other", False))
    assert mine.holding.moved_to is None
    assert mine.holding.epoch == 11
    assert Claim("s", 11, "here", False, "other") in [claim for _, claim in at.said()]
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
    mine.holding.epoch = 8
    at.handover.claim(mine)
    assert mine.holding.moved_to is None
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


# Claims for the broker that the subscriber names.


def answers(at: Place) -> list[tuple[str, Yielded]]:
    """The answers to claims that a broker has sent since, and by way of whom."""
    frames = [each for each in at.out.take() if isinstance(each, SendPeer)]
    return [(each.peer, each.frame) for each in frames if isinstance(each.frame, Yielded)]


def test_a_claim_goes_to_the_broker_that_the_subscriber_names_and_to_no_other() -> None:
    at = Place("new")
    at.handover.claim(at.has(epoch=7), "old")
    assert at.said() == [("l", Claim("s", 7, "new", False, "old"))]
    at.held.pop()()
    assert at.said() == [("l", Claim("s", 7, "new", True, "old"))]
    at.handover.yielded(Yielded("s", 7, "new"))
    at.turn.now = 2 * ANSWER_US
    at.handover.wake()
    assert at.said() == []
    at.handover.tell_all("l")
    assert at.said() == []  # nobody else has to know


def test_a_claim_that_nobody_answers_is_told_to_all() -> None:
    at = Place("new")
    at.handover.claim(at.has(epoch=7), "old")
    at.held.pop()()
    at.said()
    at.handover.yielded(Yielded("s", 6, "new"))  # the answer to an earlier claim
    at.turn.now = ANSWER_US - 1
    at.handover.wake()
    assert at.said() == []
    at.turn.now = ANSWER_US
    at.handover.wake()
    assert at.said() == [(peer, Claim("s", 7, "new", True)) for peer in "lr"]
    at.handover.tell_all("l")
    assert at.said() == [("l", Claim("s", 7, "new", True))]


def test_a_claim_for_a_broker_to_which_there_is_no_way_is_told_to_all() -> None:
    at = Place("new")
    at.handover.claim(at.has(epoch=7), "unknown")
    assert at.said() == [(peer, Claim("s", 7, "new", False)) for peer in "lr"]
    at = Place("between")
    at.handover.heard("l", Claim("s", 7, "new", True, "unknown"))
    assert at.said() == [("r", Claim("s", 7, "new", True))]


def test_a_claim_for_another_broker_is_passed_on_and_forgotten_and_so_is_the_answer() -> None:
    at = Place("between")
    at.handover.heard("r", Claim("s", 7, "new", True, "old"))
    assert at.said() == [("l", Claim("s", 7, "new", True, "old"))]
    at.handover.yielded(Yielded("s", 7, "new"))
    assert answers(at) == [("r", Yielded("s", 7, "new"))]
    at.handover.tell_all("l")
    assert at.said() == []


def test_the_broker_that_had_it_lets_go_and_answers_only_a_settled_claim() -> None:
    at = Place("old")
    at.has(epoch=0, made_at=3)
    at.handover.heard("l", Claim("s", 7, "new", False, "old"))
    assert answers(at) == []
    at.handover.heard("l", Claim("s", 7, "new", True, "old"))
    assert answers(at) == [("r", Yielded("s", 7, "new"))]
    assert at.subscriptions == {}


def test_a_broker_that_never_had_it_tells_all() -> None:
    at = Place("old")
    at.handover.heard("l", Claim("s", 7, "new", True, "old"))
    effects = at.out.effects.copy()
    assert at.said() == [(peer, Claim("s", 7, "new", True)) for peer in "lr"]
    assert Yielded("s", 7, "new") in [each.frame for each in effects if isinstance(each, SendPeer)]


def test_a_broker_that_has_let_it_go_passes_a_later_claim_on_to_who_had_it_from_there() -> None:
    at = Place("old")
    at.has(epoch=0, made_at=3)
    at.handover.heard("l", Claim("s", 7, "other", True, "old"))
    at.out.take()
    at.handover.heard("l", Claim("s", 8, "new", True, "old"))
    assert at.said() == [("r", Claim("s", 8, "new", True, "other"))]


def test_a_broker_whose_own_claim_is_not_answered_yet_tells_all_of_a_later_one() -> None:
    """An earlier broker may still have the subscription, and nobody else would tell it."""
    at = Place("old")
    at.handover.claim(at.has(epoch=7), "other")
    at.said()
    at.handover.heard("l", Claim("s", 9, "new", True, "old"))
    assert at.said() == [(peer, Claim("s", 9, "new", True)) for peer in "lr"]
    assert at.subscriptions == {}


def test_a_broker_whose_own_claim_for_all_is_not_settled_yet_tells_all_of_a_later_one() -> None:
    """Who had the subscription before goes on holding until a claim is settled, and knows of that one."""
    at = Place("old")
    at.handover.claim(at.has(epoch=7))
    at.said()
    at.handover.heard("l", Claim("s", 9, "new", False, "old"))
    assert at.said() == [(peer, Claim("s", 9, "new", False)) for peer in "lr"]
    at.handover.heard("l", Claim("s", 9, "new", True, "old"))
    assert at.said() == [(peer, Claim("s", 9, "new", True)) for peer in "lr"]


def test_who_answers_a_late_claim_with_its_own_for_one_broker_tells_all_of_it() -> None:
    at = Place("new")
    at.handover.claim(at.has(epoch=9), "old")
    assert at.said() == [("l", Claim("s", 9, "new", False, "old"))]
    # A claim of before, for a broker to which there is no way: it may be behind either neighbour.
    at.handover.heard("l", Claim("s", 7, "other", True, "lost"))
    assert at.said() == [(peer, Claim("s", 9, "new", False)) for peer in "lr"]
    at.handover.heard("l", Claim("s", 7, "other", True, "lost"))
    assert at.said() == [("l", Claim("s", 9, "new", False))]  # all others know
    at.held.pop()()
    assert at.said() == [(peer, Claim("s", 9, "new", True)) for peer in "lr"]


def test_a_late_claim_waits_for_an_answer_until_the_subscription_here_is_on_disk() -> None:
    at = Place("new")
    at.has(epoch=7).is_kept = False
    at.handover.heard("l", Claim("s", 4, "old", True))
    assert at.said() == [], "who has it must not let go for one that may never be on disk"
    # The client has gone before, and the subscription with it: the claim is the only one there is.
    at.subscriptions.clear()
    at.turn.tables.flush()
    at.out.take()
    at.turn.tables.synced(1)
    assert at.said() == [("r", Claim("s", 4, "old", True))]


def test_a_broker_where_a_subscription_is_not_on_disk_yet_tells_all_of_a_later_claim() -> None:
    at = Place("new")
    at.has(epoch=7).is_kept = False
    at.handover.heard("r", Claim("s", 9, "other", False, "new"))
    # Whoever had it before was not told of any claim, and may be anywhere.
    assert at.said() == [(peer, Claim("s", 9, "other", False)) for peer in "lr"]


def test_a_hold_that_is_in_force_settles_the_claim_at_once() -> None:
    at = Place("new")
    at.hold = lambda _subscription, done: done()  # type: ignore[method-assign,assignment]
    at.handover.claim(at.has(epoch=7), "old")
    assert at.said() == [("l", Claim("s", 7, "new", True, "old"))]


def test_who_was_told_of_a_claim_is_told_that_it_is_settled() -> None:
    at = Place("new")
    at.handover.claim(at.has(epoch=7), "unknown")  # there is no way to it, and then there is
    at.said()
    at.handover.heard("l", Claim("s", 6, "old", True))
    at.said()
    at.way_to = lambda _broker: "l"  # type: ignore[method-assign,assignment]
    at.held.pop()()
    assert at.said() == [(peer, Claim("s", 7, "new", True)) for peer in "lr"]
    at = Place("old")
    at.handover.claim(at.has(epoch=7), "other")
    at.handover.heard("l", Claim("s", 9, "new", False, "old"))  # its own claim is not answered
    at.said()
    at.handover.heard("l", Claim("s", 9, "new", True, "old"))
    assert at.said() == [(peer, Claim("s", 9, "new", True)) for peer in "lr"]


def test_a_neighbour_that_was_away_is_told_the_newest_claim_if_all_were_told_an_earlier_one() -> None:
    """It may have the subscription from before the earlier one, and the newest is for one broker only."""
    at = Place("new")
    at.handover.heard("l", Claim("s", 5, "old", True))
    at.said()
    at.handover.claim(at.has(epoch=7), "old")
    assert at.said() == [("l", Claim("s", 7, "new", False, "old"))]
    at.handover.tell_all("r")
    assert at.said() == [("r", Claim("s", 7, "new", False))]
    at.held.pop()()
    assert at.said() == [(peer, Claim("s", 7, "new", True)) for peer in "lr"]
    at = Place("old")
    at.has(epoch=0, made_at=3)
    at.handover.heard("l", Claim("s", 7, "new", True, "old"))
    at.said()
    at.handover.tell_all("r")
    assert at.said() == []


def test_a_neighbour_that_comes_back_before_a_claim_of_another_broker_is_settled_hears_of_both() -> None:
    at = Place("old")
    at.handover.claim(at.has(epoch=5))
    at.held.pop()()
    at.handover.heard("l", Claim("s", 7, "new", False, "old"))
    at.said()
    at.handover.tell_all("r")
    assert at.said() == [("r", Claim("s", 7, "new", False))]
    at.handover.heard("l", Claim("s", 7, "new", True, "old"))
    assert ("r", Claim("s", 7, "new", True)) in at.said()


def test_a_broker_answers_that_it_has_let_go_only_when_that_is_on_disk() -> None:
    """Nobody tells it again after that, so it must not find the subscription after a crash."""
    at = Place("old", is_saving=True)
    at.has(epoch=0, made_at=3)
    at.handover.heard("l", Claim("s", 7, "new", True, "old"))
    assert at.subscriptions == {}
    assert answers(at) == []
    at.saving.pop()()
    assert answers(at) == [("r", Yielded("s", 7, "new"))]


# Owners.


def owned(epoch: int, broker: str, owner: str, *, settled: bool = True, to: str = "") -> Claim:
    return Claim("s", epoch, broker, settled, to, digest_of(owner))


def test_a_claim_of_another_user_takes_nothing_from_who_has_a_subscription_of_that_name() -> None:
    at = Place("old")
    mine = at.has(epoch=3, client=1, at=3)
    mine.owner = "alice"
    for claim in (owned(9, "new", "bob"), owned(10, "new", "bob", to="old")):
        at.handover.heard("l", claim)
    assert at.subscriptions == {"s": mine}
    assert mine.holding.moved_to is None
    assert not at.fenced
    assert at.counters["claims_of_others"] > 0
    # Everybody is told all the same: somebody else may have the one of that user.
    assert at.said()[0] == ("r", owned(9, "new", "bob"))
    at.handover.heard("l", owned(11, "new", "alice"))
    assert at.subscriptions == {}


def test_claims_of_two_users_of_one_name_are_remembered_apart() -> None:
    at = Place("other")
    at.handover.heard("l", owned(9, "new", "bob"))
    at.handover.heard("l", owned(7, "old", "alice"))
    assert at.counters["claims_late"] == 0
    at.said()
    at.handover.tell_all("r")
    assert at.said() == [("r", owned(9, "new", "bob")), ("r", owned(7, "old", "alice"))]
    assert at.handover.next_epoch("s", 5, "alice") == 8
    assert at.handover.next_epoch("s", 5) == 5


def test_a_claim_says_whose_the_subscription_is_and_an_answer_is_for_that_one() -> None:
    at = Place("new")
    at.has(epoch=7).owner = "alice"
    at.handover.claim(at.subscriptions["s"], "old")
    assert at.said() == [("l", owned(7, "new", "alice", settled=False, to="old"))]
    at.handover.yielded(Yielded("s", 7, "new"))
    at.turn.now += 2 * ANSWER_US
    at.handover.wake()
    assert at.said() == []
    at.handover.ended(at.subscriptions["s"])
    assert at.said() == [(peer, owned(8, NOBODY, "alice")) for peer in "lr"]


def test_what_was_made_while_brokers_were_open_and_what_older_brokers_claim_is_anybodys() -> None:
    at = Place("old")
    at.has(epoch=3)
    at.handover.heard("l", owned(9, "new", "alice"))
    assert at.subscriptions == {}
    at.has(epoch=3).owner = "alice"
    at.handover.heard("l", Claim("s", 11, "new", True))
    assert at.subscriptions == {}
