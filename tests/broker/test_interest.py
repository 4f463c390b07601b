"""Interests: what is told upstream, since when silence accounts for whom, and what is left out for whom."""

from __future__ import annotations

from desk import SCHEMA, batch

from tidemark.broker.counters import Counters
from tidemark.broker.interest import HERE, LINES_FEW, STARTED_ONLY, VERSIONS_KEPT_MAX, Interests
from tidemark.broker.release import Minima
from tidemark.message.registry import Registry
from tidemark.ticks import TICK_MAX
from tidemark.wire.frames import Interest, Wanted

A, B = Wanted("t", "n > 1"), Wanted("t", "n > 2")
C = Wanted("t", "n = 0")


def interests(*peers: str, incarnation: int = 1) -> Interests:
    registry = Registry()
    registry.declare("t", SCHEMA)
    return Interests(peers or ("up", "down"), incarnation, registry, Counters())


def said(each: Interests, peer: str = "up", *, again: bool = False) -> Interest:
    found = each.say(peer, again=again)
    assert found is not None
    return found


def test_a_neighbour_that_has_not_spoken_wants_everything() -> None:
    each = interests()
    first = said(each)
    assert first.wanted is None
    assert each.selection("down") is None
    each.heard("down", Interest(1, (A,)))
    assert each.say("up") == Interest(first.version + 1, (A,))
    each.forget("down")
    assert said(each).wanted is None
    assert each.selection("down") is None


def test_a_neighbour_is_told_of_all_but_itself() -> None:
    each = interests("left", "right")
    each.heard("left", Interest(1, (A,)))
    each.heard("right", Interest(1, (C,)))
    each.want_here(Wanted("u", ""))
    told = said(each, "left").wanted
    assert told is not None
    assert {line.pattern for line in told} == {"t", "u"}
    assert Wanted("t", "n > 1") not in told


def test_versions_grow_across_lives() -> None:
    former, present = interests(incarnation=1), interests(incarnation=2)
    for n in range(1_000):
        former.want_here(Wanted("t", f"n = {n}"))
    assert said(present).version > said(former).version


def test_silence_accounts_for_an_interest_only_from_the_version_that_includes_it() -> None:
    each = interests()
    each.heard("down", Interest(1, ()))
    first = said(each)
    mine = each.want_here(A)
    second = said(each)
    assert each.tag("up", first.version, HERE) < mine
    assert each.tag("up", second.version, HERE) == mine
    assert each.tag("up", second.version + 10, HERE) == mine
    assert each.tag("up", 0, HERE) == STARTED_ONLY
    assert each.tag(None, 0, HERE) == mine  # at the pubend itself there is nobody to wait for


def test_a_neighbours_tag_is_its_own_version() -> None:
    each = interests()
    each.heard("down", Interest(77, (A,)))
    first = said(each)
    each.heard("down", Interest(78, (C,)))
    second = said(each)
    assert each.tag("up", first.version, "down") == 77
    assert each.tag("up", second.version, "down") == 78
    assert each.tag(None, 0, "down") == 78


def test_a_change_that_is_covered_is_not_told_and_holds_at_once() -> None:
    each = interests()
    each.heard("down", Interest(1, (A,)))
    told = said(each)
    mine = each.want_here(B)  # n > 2, of n > 1
    assert each.say("up") is None
    assert each.tag("up", told.version, HERE) == mine
    assert each._counters["interest_covered"] == 1


def test_what_several_want_is_wanted_until_the_last_of_them_leaves() -> None:
    each = interests("up")
    first = each.want_here(A)
    assert each.want_here(A) == first
    assert said(each).wanted == (A,)
    each.want_no_more(A)
    assert each.say("up") is None
    each.want_no_more(A)
    assert said(each).wanted == ()


def test_it_is_said_again_to_a_neighbour_that_was_born_again() -> None:
    each = interests("up")
    each.want_here(A)
    first = said(each)
    assert each.say("up") is None
    again = said(each, again=True)
    assert again.wanted == first.wanted
    assert again.version > first.version


def test_a_neighbour_born_again_keeps_the_version_it_had_until_it_speaks() -> None:
    each = interests()
    each.heard("down", Interest(5, (A,)))
    each.forget("down")
    assert each.heard_version("down") == 5


def test_versions_that_are_long_past_are_forgotten_which_accounts_for_less() -> None:
    each = interests("up")
    versions = []
    for n in range(VERSIONS_KEPT_MAX + 10):
        each.want_here(Wanted(f"t{n}", ""))
        versions.append(said(each).version)
    assert each.tag("up", versions[0], HERE) == STARTED_ONLY
    assert each.tag("up", versions[-1], HERE) == versions[-1] - 1


def test_what_a_neighbour_does_not_want_is_left_out() -> None:
    each = interests()
    each.heard("down", Interest(1, (A,)))
    selection = each.selection("down")
    assert selection is not None
    assert selection.wanted(batch(1, 2, 3)).tolist() == [False, True, True]


def test_many_lines_are_not_told_one_by_one() -> None:
    each = interests("up")
    for n in range(LINES_FEW):
        each.want_here(Wanted("t", f"n = {n}"))
    assert not each.is_large
    each.want_here(Wanted("t", "n = -1"))
    assert each.is_large


def test_an_unknown_source_holds_release_and_nobody_does_not() -> None:
    minima = Minima(["a", "b"])
    minima.report("a", 5, 9)
    assert minima.total() is None
    minima.report("b", TICK_MAX, TICK_MAX)
    assert minima.total() == (5, 9)
    minima.doubt("b")
    assert minima.total() is None
    minima.report("b", 3, 4)
    assert minima.total() == (5, 9)  # never back


def test_doubt_changes_nothing_about_who_has_reported() -> None:
    minima = Minima(["a"])
    minima.report("a", 5, 9)
    minima.doubt("a")
    assert minima.total() == (5, 9)


def test_nobody_at_all_is_not_a_minimum_to_hold_to() -> None:
    minima = Minima(["a"])
    minima.report("a", TICK_MAX, TICK_MAX)
    assert minima.total() == (TICK_MAX, TICK_MAX)
    minima.report("a", 5, 9)
    assert minima.total() == (5, 9)
