"""LIKE conditions that a batch cannot meet are not evaluated, and those that it can are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.matching.dict_columns import DictColumns
from tests.matching.selector_strategies import Event, SimpleFields, matches
from tidemark.matching.index.gram_filter import literal_of
from tidemark.matching.matcher import Matcher
from tidemark.matching.selectors.selector import Selector
from tidemark.message.types import INT, STRING, Dynamic, Path, Type

TYPES: dict[Path, Type] = {("s",): STRING, ("t",): STRING, ("a",): INT, ("d",): Dynamic()}
FIELDS = SimpleFields(TYPES)


def tree_of(text: str) -> Selector:
    return Selector.parse(text, FIELDS)


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("s LIKE '%overdue%'", b"overdue"),
        ("s LIKE '%ab%overdue%x'", b"overdue"),
        ("s LIKE '%ab_cdefg%'", b"cdefg"),
        ("s LIKE '%10!%off%' ESCAPE '!'", b"10%off"),
        ("s LIKE '%\u00e9\u00e9%'", "\u00e9\u00e9".encode()),
        ("s LIKE '%abc%' AND t LIKE '%other%'", b"other"),
        ("s LIKE '%abc%'", None),
        ("s NOT LIKE '%overdue%'", None),
        ("s LIKE '%overdue%' OR a = 1", None),
        ("a + 1 > 2", None),
    ],
)
def test_every_match_has_the_longest_literal_of_a_pattern(text: str, literal: bytes | None) -> None:
    found = literal_of(tree_of(text).tree)
    assert (None if found is None else found[1]) == literal


def matched(matcher: Matcher, rows: list[Event]) -> list[list[int]]:
    sets = matcher.match(DictColumns(rows, TYPES)).tolist()
    return [matcher.members(number).tolist() for number in sets]


def event(s: str | None, **more: object) -> Event:
    return {("s",): s, ("t",): None, ("a",): None, ("d",): None, **{(key,): more[key] for key in more}}


words = st.text("abc\u00e9", max_size=9)


@given(
    st.lists(st.tuples(words, words), min_size=1, max_size=12),
    st.lists(st.one_of(st.none(), words, st.tuples(words, words).map("".join)), min_size=1, max_size=8),
    st.data(),
)
def test_the_filter_changes_nothing_that_matches(
    pieces: list[tuple[str, str]], values: list[str | None], data: st.DataObject
) -> None:
    matcher = Matcher(FIELDS)
    selectors = {}
    for who, (one, two) in enumerate(pieces):
        selectors[who] = tree_of(f"s LIKE '%{one}%{two}%'")
        matcher.add(who, selectors[who])
    rows = [event(value) for value in values]
    for _ in range(2):
        expected = [[who for who, each in selectors.items() if matches(each.tree, row)] for row in rows]
        assert matched(matcher, rows) == expected
        gone = data.draw(st.sampled_from(sorted(selectors)))
        matcher.remove(gone)
        del selectors[gone]
        if not selectors:
            break


def test_only_the_patterns_whose_bytes_occur_are_evaluated() -> None:
    matcher = Matcher(FIELDS)
    for who in range(500):
        matcher.add(who, tree_of(f"s LIKE '%word{who:04}%'"))
    evaluated: list[int] = []
    evaluate = matcher._conditions.evaluate

    def counted(number: int, columns: object) -> object:
        evaluated.append(number)
        return evaluate(number, columns)  # type: ignore[arg-type]

    matcher._conditions.evaluate = counted  # type: ignore[assignment,method-assign]
    rows = [event("a word0007 and"), event("nothing"), event(None), event("word0123word0007")]
    assert matched(matcher, rows) == [[7], [], [], [7, 123]]
    assert len(evaluated) == 2


def test_fields_whose_values_are_no_strings_in_a_batch_are_not_filtered() -> None:
    matcher = Matcher(FIELDS)
    matcher.add(1, tree_of("d LIKE '%overdue%'"))
    matcher.add(2, tree_of("s LIKE '%overdue%'"))
    rows = [event(None, d="is overdue now"), event("overdue", d=7), event("over", d="due")]
    assert matched(matcher, rows) == [[1], [2], []]


def test_a_match_may_lie_at_the_very_end_of_a_batch_or_be_all_of_it() -> None:
    matcher = Matcher(FIELDS)
    matcher.add(1, tree_of("s LIKE '%cdef%'"))
    assert matched(matcher, [event("cdef")]) == [[1]]
    assert matched(matcher, [event("def")]) == [[]]
    assert matched(matcher, [event("")]) == [[]]
