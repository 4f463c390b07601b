"""Events whose keys were met before have the match sets they had, for as long as nothing has changed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.matching.dict_columns import DictColumns
from tests.matching.selector_strategies import Event, SimpleFields
from tidemark.matching.index import key_memo
from tidemark.matching.index.arrays import FEW, FEW_ROWS, few_looked_up
from tidemark.matching.index.key_memo import MEMO_COLUMNS_MAX, PAUSED_ROWS, TRIED_ROWS, KeyMemo
from tidemark.matching.matcher import Matcher
from tidemark.matching.selectors.selector import Selector
from tidemark.message.types import INT, STRING, Path, Type

TYPES: dict[Path, Type] = {("a",): INT, ("s",): STRING}
FIELDS = SimpleFields(TYPES)


def event(a: int | None, s: str = "x") -> Event:
    return {("a",): a, ("s",): s}


def matcher_of(*texts: str) -> Matcher:
    matcher = Matcher(FIELDS)
    for subscriber, text in enumerate(texts):
        matcher.add(subscriber, Selector.parse(text, FIELDS))
    return matcher


def members(matcher: Matcher, *rows: Event) -> list[list[int]]:
    sets = matcher.match(DictColumns(rows, TYPES)).tolist()
    return [matcher.members(number).tolist() for number in sets]


def test_what_was_met_before_is_not_looked_for_again() -> None:
    matcher = matcher_of("a > 1", "a > 2")
    assert members(matcher, event(2), event(3), event(2)) == [[0], [0, 1], [0]]
    assert len(matcher._memo) == 2, "one entry for equal keys"
    asked = matcher._index.match
    matcher._index.match = lambda *_: pytest.fail("looked for again")  # type: ignore[method-assign]
    assert members(matcher, event(3), event(2)) == [[0, 1], [0]]
    matcher._index.match = asked  # type: ignore[method-assign]
    assert members(matcher, event(3), event(7)) == [[0, 1], [0, 1]]
    assert members(matcher, event(None), event(2)) == [[], [0]]


def test_every_change_of_the_rules_is_noticed() -> None:
    matcher = matcher_of("a > 1")
    assert members(matcher, event(2)) == [[0]]
    matcher.add(1, Selector.parse("a > 1", FIELDS))
    assert members(matcher, event(2)) == [[0, 1]], "another subscriber of the same rule"
    matcher.add(2, Selector.parse("s = 'x'", FIELDS))
    assert members(matcher, event(2)) == [[0, 1, 2]]
    matcher.remove(0)
    assert members(matcher, event(2)) == [[1, 2]]
    matcher.explain(Selector.parse("a = 9", FIELDS))
    assert members(matcher, event(2), event(0, "y")) == [[1, 2], []]


def test_a_condition_that_is_no_box_is_asked_for_every_event() -> None:
    matcher = matcher_of("a > 1", "s LIKE '%b%'")
    assert members(matcher, event(2, "abc"), event(2, "x")) == [[0, 1], [0]]
    assert len(matcher._memo) == 0
    matcher.remove(1)
    assert members(matcher, event(2, "abc"), event(2, "x")) == [[0], [0]]
    assert len(matcher._memo) == 1, "the string is no key of any box"


def keys(*values: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    return np.array([values, values], np.uint64)


def test_the_memo_pauses_while_events_are_new_and_tries_again() -> None:
    memo = KeyMemo()
    number = tried = 0
    while memo.is_worth(keys(*range(number, number + 256))):
        rows, found = memo.look_up(keys(*range(number, number + 256)))
        assert found == [None] * 256
        memo.learn(rows, list(range(256)))
        number += 256
        tried += 1
    assert tried * 256 == TRIED_ROWS
    assert len(memo) == 0
    paused = 1
    while not memo.is_worth(keys(*range(256))):
        paused += 1
    assert paused * 256 == PAUSED_ROWS + 256


def test_the_memo_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_memo, "MEMO_ROWS_MAX", 3)
    memo = KeyMemo()
    for first in (0, 2):
        rows, _ = memo.look_up(keys(first, first + 1))
        memo.learn(rows, [1, 2])
    assert memo.look_up(keys(0, 2, 3))[1] == [None, 1, 2], "what was held before is forgotten"
    rows, _ = memo.look_up(keys(5, 6, 7, 8))
    memo.learn(rows, [1, 2, 3, 4])
    assert len(memo) == 0
    assert not memo.is_worth(np.zeros((MEMO_COLUMNS_MAX + 1, 1), np.uint64))


@pytest.mark.parametrize("kinds", [1, 3, FEW, FEW + 1, 3 * FEW])
def test_few_and_many_different_keys_have_the_sets_that_each_has_alone(kinds: int) -> None:
    matcher = matcher_of("a > 1", "a > 4", "a < 3 OR a = 8")
    rows = [event(at * 7 % kinds) for at in range(4 * FEW_ROWS)]
    alone = {a: members(matcher_of("a > 1", "a > 4", "a < 3 OR a = 8"), event(a))[0] for a in range(kinds)}
    expected = [alone[at * 7 % kinds] for at in range(4 * FEW_ROWS)]
    for _ in range(3):
        assert members(matcher, *rows) == expected
    matcher.remove(0)
    assert members(matcher, *rows) == [[each for each in found if each] for found in expected]


def test_few_different_words_are_looked_up_only_if_all_are_known() -> None:
    words = np.array([[1, 2, 1, 3] * FEW_ROWS, [7, 7, 7, 8] * FEW_ROWS], np.uint64)
    known = {words[:, at].tobytes(): number for at, number in ((0, 5), (1, 6), (3, 9))}
    found = few_looked_up(words, known)
    assert found is not None
    assert found.tolist() == [5, 6, 5, 9] * FEW_ROWS
    del known[words[:, 3].tobytes()]
    assert few_looked_up(words, known) is None
    assert few_looked_up(words[:, : FEW_ROWS - 1], {}) is None
    nothing = few_looked_up(np.zeros((0, FEW_ROWS), np.uint64), {b"": 4})
    assert nothing is not None
    assert nothing.tolist() == [4] * FEW_ROWS
