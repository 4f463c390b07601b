"""Wants against one set of ticks per asker."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.ticks import Range, RangeSet, Wants

LAST = 16
ranges = st.tuples(st.integers(0, LAST), st.integers(0, LAST)).map(lambda ends: (min(ends), max(ends)))
steps = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "take", "drop"]), st.sampled_from("abc"), st.lists(ranges, max_size=3)
    ),
    max_size=14,
)


def members(ranges: list[Range]) -> set[int]:
    return {tick for base, upto in ranges for tick in range(base + 1, upto + 1)}


def flat(ranges: list[Range]) -> set[int]:
    """The ticks of all ranges, after a check that no tick is in two of them."""
    assert RangeSet(ranges).ticks() == sum(upto - base for base, upto in ranges)
    return members(ranges)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(steps)
def test_wants_agree_with_a_set_of_ticks_per_asker(steps: list[tuple[str, str, list[Range]]]) -> None:
    actual: Wants[str] = Wants()
    model: dict[str, set[int]] = {asker: set() for asker in "abc"}
    for step, asker, some in steps:
        anyone = set().union(*model.values())
        if step == "ask":
            assert flat(actual.ask(asker, some)) == members(some) - anyone
            model[asker] |= members(some)
        elif step == "drop":
            others = set().union(*(wanted for name, wanted in model.items() if name != asker))
            assert flat(actual.drop(asker)) == model[asker] - others
            model[asker] = set()
        else:
            for base, upto in some:
                answer = {name: flat(parts) for name, parts in actual.take(base, upto).items()}
                asked = {name: wanted & members([(base, upto)]) for name, wanted in model.items()}
                assert answer == {name: wanted for name, wanted in asked.items() if wanted}
                model = {name: wanted - members([(base, upto)]) for name, wanted in model.items()}
        assert flat(actual.wanted()) == set().union(*model.values())
        assert len(actual) == sum(bool(wanted) for wanted in model.values())


def test_many_askers_of_one_range_ask_once_and_are_all_answered() -> None:
    wants: Wants[int] = Wants()
    asked = [wants.ask(link, [(100, 200)]) for link in range(50)]
    assert asked == [[(100, 200)]] + [[]] * 49
    assert wants.take(150, 300) == {link: [(150, 200)] for link in range(50)}
    assert wants.take(150, 300) == {}
    assert wants.wanted() == [(100, 150)]


def test_an_asker_whose_answer_was_lost_can_ask_again() -> None:
    wants: Wants[str] = Wants()
    wants.ask("s1", [(0, 10)])
    assert wants.ask("s1", [(0, 10)]) == [], "it is being asked for"
    wants.take(0, 10)
    assert wants.ask("s1", [(0, 10)]) == [(0, 10)]


def test_what_only_the_dropped_asker_wanted_is_named() -> None:
    wants: Wants[str] = Wants()
    wants.ask("s1", [(0, 10), (20, 30)])
    wants.ask("s2", [(5, 22)])
    assert wants.drop("s1") == [(0, 5), (22, 30)]
    assert wants.wanted() == [(5, 22)]
    assert wants.drop("nobody") == []
