"""Interests: what is told upstream, since when silence accounts for whom, and what is left out for whom."""

from __future__ import annotations

from tests.broker.desk import SCHEMA, batch
from tidemark.broker.streams.interest import (
    HEARD_LINES_MAX,
    HERE,
    LINES_FEW,
    STARTED_ONLY,
    VERSIONS_KEPT_MAX,
    Interests,
)
from tidemark.broker.turn import Turn
from tidemark.message.registry import Registry
from tidemark.message.topic_selector import TopicSelector
from tidemark.wire.frames import Interest

A, B = TopicSelector("t", "n > 1"), TopicSelector("t", "n > 2")
C = TopicSelector("t", "n = 0")


def interests(incarnation: int = 1) -> Interests:
    registry = Registry()
    registry.declare("t", SCHEMA)
    return Interests(incarnation, registry, Turn())


def said(each: Interests, *, again: bool = False) -> Interest:
    found = each.say("p", "up", again=again)
    assert found is not None
    return found


def tag(each: Interests, version: int | None, who: str) -> int:
    return each.tags("p", version).get(who, STARTED_ONLY)


def test_a_follower_whose_interest_cannot_be_read_wants_everything() -> None:
    each = interests()
    each.heard("down", Interest("p", 1, (TopicSelector("t..", ""),)))
    assert said(each).wanted is None
    assert each.selection("p", "down") is None
    each.heard("down", Interest("p", 2, (A,)))
    assert said(each).wanted == (A,)


def test_a_follower_that_tells_more_lines_than_any_broker_does_wants_everything() -> None:
    each = interests()
    lines = [TopicSelector("t", f"n = {number}") for number in range(HEARD_LINES_MAX + 1)]
    each.heard("down", Interest("p", 1, tuple(lines[1:])))
    assert each.selection("p", "down") is not None
    each.heard("down", Interest("p", 2, tuple(lines)))
    assert each.selection("p", "down") is None


def test_who_has_stopped_following_wants_nothing() -> None:
    each = interests()
    each.heard("down", Interest("p", 1, (A,)))
    assert said(each).wanted == (A,)
    each.forget("p", "down")
    assert said(each).wanted == ()


def test_interests_of_different_pubends_are_apart() -> None:
    each = interests()
    each.heard("down", Interest("p", 1, (A,)))
    each.heard("down", Interest("q", 2, (C,)))
    each.want_here(TopicSelector("u", ""))
    assert said(each).wanted == (A, TopicSelector("u", "TRUE"))
    other = each.say("q", "up")
    assert other is not None
    assert other.wanted == (C, TopicSelector("u", "TRUE"))


def test_a_neighbour_that_follows_and_is_followed_is_not_told_of_itself() -> None:
    each = interests()
    each.heard("up", Interest("p", 1, (A,)))
    assert said(each).wanted == ()


def test_equal_interests_share_their_matcher() -> None:
    each = interests()
    for number in range(100):
        each.heard("down", Interest(f"p{number}", 1, (TopicSelector("t", "n > 1"), TopicSelector("u", ""))))
    assert len({id(each.selection(f"p{number}", "down")) for number in range(100)}) == 1


def test_versions_grow_across_lives() -> None:
    former, present = interests(incarnation=1), interests(incarnation=2)
    for n in range(1_000):
        former.want_here(TopicSelector("t", f"n = {n}"))
    assert said(present).version > said(former).version


def test_silence_accounts_for_an_interest_only_from_the_version_that_includes_it() -> None:
    each = interests()
    first = said(each)
    mine = each.want_here(A)
    second = said(each)
    assert tag(each, first.version, HERE) < mine
    assert tag(each, second.version, HERE) == mine
    assert tag(each, second.version + 10, HERE) == mine
    assert tag(each, 0, HERE) == STARTED_ONLY
    assert tag(each, None, HERE) == mine  # at the pubend itself there is nobody to wait for


def test_a_followers_tag_is_its_own_version() -> None:
    each = interests()
    each.heard("down", Interest("p", 77, (A,)))
    first = said(each)
    each.heard("down", Interest("p", 78, (C,)))
    second = said(each)
    assert tag(each, first.version, "down") == 77
    assert tag(each, second.version, "down") == 78
    assert tag(each, None, "down") == 78


def test_what_accounts_for_an_interest_accounts_for_it_when_it_is_said_again() -> None:
    each = interests()
    each.heard("down", Interest("p", 77, (A,)))
    first = said(each)
    each.heard("down", Interest("p", 90, (A,)))  # its link was down for a moment
    assert tag(each, first.version, "down") == 90
    each.forget("p", "down")
    each.heard("down", Interest("p", 95, (A,)))
    assert tag(each, first.version, "down") < 95  # meanwhile nobody asked for it


def test_the_version_that_accounts_for_a_follower_is_the_first_that_does() -> None:
    each = interests()
    said(each)
    assert each.accounting("p", "down", 77) is None
    each.heard("down", Interest("p", 77, (A,)))
    assert each.accounting("p", "down", 77) is None
    second = said(each)
    each.want_here(C)
    said(each)
    assert each.accounting("p", "down", 77) == second.version
    assert each.accounting("p", "down", 78) is None


def test_a_follower_that_was_followed_meanwhile_is_accounted_for_by_no_version_of_before() -> None:
    each = interests()
    each.heard("d", Interest("p", 5, (A,)))
    before = said(each).version
    assert each.accounting("p", "d", 5) == before
    # For a while this broker has the pubend from `d`, and asks for nothing on its behalf.
    assert each.say("p", "d", again=True) is not None
    each.heard("d", Interest("p", 6, (A,)))
    assert each.accounting("p", "d", 6) is None
    assert each.accounting("p", "d", 5) is None
    after = said(each, again=True).version
    assert each.accounting("p", "d", 6) == after > before


def test_a_change_that_is_covered_is_not_told_and_holds_at_once() -> None:
    each = interests()
    each.heard("down", Interest("p", 1, (A,)))
    told = said(each)
    mine = each.want_here(B)  # n > 2, of n > 1
    assert each.say("p", "up") is None
    assert tag(each, told.version, HERE) == mine
    assert each._counters["interest_covered"] == 1


def test_what_several_want_is_wanted_until_the_last_of_them_leaves() -> None:
    each = interests()
    first = each.want_here(A)
    assert each.want_here(A) == first
    assert said(each).wanted == (A,)
    each.want_no_more(A)
    assert each.say("p", "up") is None
    each.want_no_more(A)
    assert said(each).wanted == ()


def test_it_is_said_again_to_a_neighbour_that_was_born_again() -> None:
    each = interests()
    each.want_here(A)
    first = said(each)
    assert each.say("p", "up") is None
    again = said(each, again=True)
    assert again.wanted == first.wanted
    assert again.version > first.version


def test_versions_that_are_long_past_are_forgotten_which_accounts_for_less() -> None:
    each = interests()
    versions = []
    for n in range(VERSIONS_KEPT_MAX + 10):
        each.want_here(TopicSelector(f"t{n}", ""))
        versions.append(said(each).version)
    assert tag(each, versions[0], HERE) == STARTED_ONLY
    assert tag(each, versions[-1], HERE) == versions[-1] - 1


def test_what_a_neighbour_does_not_want_is_left_out() -> None:
    each = interests()
    each.heard("down", Interest("p", 1, (A,)))
    selection = each.selection("p", "down")
    assert selection is not None
    assert selection.wanted(batch(1, 2, 3)).tolist() == [False, True, True]


def test_many_lines_are_not_told_one_by_one() -> None:
    each = interests()
    for n in range(LINES_FEW):
        each.want_here(TopicSelector("t", f"n = {n}"))
    assert not each.is_large
    each.want_here(TopicSelector("t", "n = -1"))
    assert each.is_large
