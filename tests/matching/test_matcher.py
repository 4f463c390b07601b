"""The batch matcher says of every event what the reference evaluator says, whatever came and went before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matching.agreement import ScatteredColumns
from tests.matching.dict_columns import DictColumns
from tests.matching.selector_strategies import TYPES as USUAL_TYPES
from tests.matching.selector_strategies import Event, SimpleFields, events, matches, trees
from tidemark.matching.index import index, match_sets, rules
from tidemark.matching.index.trie import descent, trie
from tidemark.matching.matcher import Matcher
from tidemark.matching.selectors.selector import EVERYTHING, Selector
from tidemark.matching.selectors.tree import Node
from tidemark.message.types import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    INT,
    LONG,
    STRING,
    Dynamic,
    Path,
    Type,
    decimal,
)

#: The pool of decimals has up to 21 digits after the point.
TYPES: dict[Path, Type] = {**USUAL_TYPES, ("m",): decimal(38, 21)}
FIELDS = SimpleFields(TYPES)


@contextmanager
def splitting(boxes_max: int | None) -> Iterator[None]:
    """Lists of the trie are split when they are longer than this, so that a few boxes go deep."""
    split, root = boxes_max or trie.SPLIT_BOXES_MAX, boxes_max or trie.ROOT_BOXES_MAX
    with mock.patch.object(trie, "SPLIT_BOXES_MAX", split), mock.patch.object(trie, "ROOT_BOXES_MAX", root):
        yield


def matched(matcher: Matcher, rows: Sequence[Event], types: Mapping[Path, Type] = TYPES) -> list[list[int]]:
    """The subscribers of each row; asked twice, since sets are new once and known once."""
    columns = ScatteredColumns(rows, types, seed=len(rows))
    found = [matcher.members(number).tolist() for number in matcher.match(columns).tolist()]
    again = [matcher.members(number).tolist() for number in matcher.match(DictColumns(rows, types)).tolist()]
    assert found == again
    sets = matcher.match(columns)
    which, members = matcher.members_of(sets[sets > 0])
    wanted = np.flatnonzero(sets)[which]
    assert [sorted(members[wanted == row].tolist()) for row in range(len(rows))] == found
    return found


def expected(wanted: Mapping[int, Node], rows: Sequence[Event]) -> list[list[int]]:
    return [[who for who in sorted(wanted) if matches(wanted[who], row)] for row in rows]


def of_texts(texts: Iterable[str], types: dict[Path, Type]) -> tuple[Matcher, dict[int, Node]]:
    fields = SimpleFields(types)
    matcher = Matcher(fields)
    wanted: dict[int, Node] = {}
    for subscriber, text in enumerate(texts):
        selector = Selector.parse(text, fields)
        matcher.add(subscriber, selector)
        wanted[subscriber] = selector.tree
    return matcher, wanted


def column_rows(name: str, values: Iterable[Any]) -> list[Event]:
    """Events with just this field; None is NULL."""
    return [{(name,): value} for value in values]


def assert_texts_agree(texts: Sequence[str], types: dict[Path, Type], rows: Sequence[Event]) -> None:
    """In one list, and spread over the deepest trie there can be."""
    for split in (None, 1):
        with splitting(split):
            matcher, wanted = of_texts(texts, types)
            assert matched(matcher, rows, types) == expected(wanted, rows)


# --- against the reference ---------------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    st.lists(trees(TYPES, max_leaves=5), min_size=1, max_size=14),
    st.lists(events(TYPES), min_size=1, max_size=8),
    st.sampled_from((1, 2, None)),
)
def test_any_selectors_match_what_the_reference_matches(
    selectors: list[Node], rows: list[Event], split: int | None
) -> None:
    with splitting(split):
        matcher = Matcher(FIELDS)
        for subscriber, tree in enumerate(selectors):
            matcher.add(subscriber, Selector("", tree))
        assert matched(matcher, rows) == expected(dict(enumerate(selectors)), rows)


CHANGES = st.lists(
    st.tuples(st.integers(0, 12), st.one_of(st.none(), st.integers(0, 9))), min_size=1, max_size=60
)


@settings(derandomize=True, deadline=None, max_examples=35)
@given(
    st.lists(trees(TYPES, max_leaves=3), min_size=10, max_size=10),
    CHANGES,
    st.lists(events(TYPES), min_size=1, max_size=4),
)
def test_adding_replacing_and_removing_leaves_no_trace(
    selectors: list[Node], changes: list[tuple[int, int | None]], rows: list[Event]
) -> None:
    """Each change gives a subscriber one of the selectors, or takes it away."""
    with splitting(2):
        matcher, wanted = Matcher(FIELDS), dict[int, Node]()
        for step, (subscriber, choice) in enumerate(changes):
            if choice is not None:
                matcher.add(subscriber, Selector("", selectors[choice]))
                wanted[subscriber] = selectors[choice]
            elif wanted.pop(subscriber, None) is not None:
                matcher.remove(subscriber)
            if step % 7 == 0:
                assert matched(matcher, rows) == expected(wanted, rows)
        assert len(matcher) == len(wanted)
        assert matched(matcher, rows) == expected(wanted, rows)
        for subscriber in wanted:
            matcher.remove(subscriber)
        assert matched(matcher, rows) == [[] for _ in rows]
        assert_is_empty(matcher)


def assert_is_empty(matcher: Matcher) -> None:
    """Nothing is left of what was removed: no column, no cell, no node, no condition, no rule."""
    assert len(matcher) == len(matcher._rules) == 0
    assert matcher._rules.paths() == set()
    assert matcher._keys._fields == {}
    conditions = matcher._conditions
    assert conditions._compiled == conditions._asked == conditions._field_of == {}
    assert not conditions._filter._literals
    assert not conditions._filter._tables
    assert matcher._index._boxes._conditions == {}
    assert matcher._index._condition_of == {}
    held = matcher._index._trie
    assert len(held.cells) == len(held.probes._numbers) == len(held.ladders._numbers) == 0
    assert held.node[trie.ROOT] == trie.NO_NODE
    assert len(held.common()) == 0


@settings(derandomize=True, deadline=None, max_examples=25)
@given(
    st.lists(trees(TYPES, max_leaves=4), min_size=4, max_size=9),
    st.lists(events(TYPES), min_size=3, max_size=9),
)
def test_the_memory_bounds_change_nothing(selectors: list[Node], rows: list[Event]) -> None:
    with (
        mock.patch.object(index, "CANDIDATES_AT_ONCE_MAX", 3),
        mock.patch.object(index, "ROWS_AT_ONCE_MAX", 4),
        mock.patch.object(descent, "PIECE_CANDIDATES", 2),
        mock.patch.object(rules, "MEMBERS_AT_ONCE_MAX", 2),
        mock.patch.object(match_sets, "MATCH_SETS_MAX", 1),
        splitting(1),
    ):
        matcher = Matcher(FIELDS)
        for subscriber, tree in enumerate(selectors):
            matcher.add(subscriber, Selector("", tree))
        assert matched(matcher, rows) == expected(dict(enumerate(selectors)), rows)


# --- edges -------------------------------------------------------------------------------------------------


def test_strings_with_nuls_long_strings_and_all_of_unicode() -> None:
    long = "customer-" * 8
    words = [
        "",
        "\0",
        "a",
        "a\0",
        "a\0\0",
        "ab",
        "abcdefg",
        "abcdefg\0",
        "abcdefgh",
        long,
        long + "x",
        long * 50,
    ]
    words += [
        "é",
        "éa",
        "ê",
        "\ud7ff",
        "\ue000",
        "\uffff",
        "\U00010000",
        "\U0010ffff",
        "\U0010ffff" * 3,
        "z\U0010ffff",
    ]
    texts = [f"s {op} '{word}'" for word in words for op in ("=", "<", "<=", ">", ">=", "<>")]
    texts += [f"s LIKE '{word}%'" for word in words]
    texts += [f"s BETWEEN '{low}' AND '{high}'" for low, high in zip(words, words[3:], strict=False)]
    texts = [text for text in texts if len(text) < 4096]
    rows = column_rows("s", [*words, None])
    assert_texts_agree(texts, {("s",): STRING}, rows)


def test_bytes_of_any_value() -> None:
    blobs = ["", "00", "0000", "61", "6100", "61ff", "ff", "ffff", "ff" * 8, "00" * 9]
    texts = [f"y {op} X'{blob}'" for blob in blobs for op in ("=", "<", ">=", "<>")]
    rows = column_rows("y", [*map(bytes.fromhex, (*blobs, "62", "fe" * 20)), None])
    assert_texts_agree(texts, {("y",): BYTES}, rows)


def test_the_ends_of_the_integers_and_of_the_doubles() -> None:
    whole = [-(2**63), -(2**63) + 1, -(2**63) + 2, -1, 0, 1, 2**31, 2**53 + 1, 2**63 - 2, 2**63 - 1]
    texts = [f"l {op} {value}" for value in whole for op in ("=", "<", "<=", ">", ">=", "<>")]
    texts += [f"l BETWEEN {low} AND {high}" for low in whole for high in whole]
    real = [
        "-1E308",
        "-2.0",
        "-1.0",
        "-4.9E-324",
        "-0.0",
        "0.0",
        "4.9E-324",
        "1.0",
        "2.0",
        "1.7976931348623157E308",
    ]
    texts += [f"d {op} {value}" for value in real for op in ("=", "<", "<=", ">", ">=", "<>")]
    texts += [f"d BETWEEN {low} AND {high}" for low in real for high in real]
    values = [float(value) for value in real] + [float("inf"), float("-inf"), float("nan"), 1.5]
    rows = column_rows("l", whole) + column_rows("d", [*values, None])
    assert_texts_agree(texts, {("l",): LONG, ("d",): DOUBLE}, rows)


def test_decimals_beyond_64_bits() -> None:
    numbers = ["-1E35", "-92233720368547758.09", "-92233720368547758.08", "-0.01", "0", "0.005", "0.01"]
    numbers += ["92233720368547758.06", "92233720368547758.07", "92233720368547758.08", "1E35"]
    texts = [f"m {op} {number}" for number in numbers for op in ("=", "<", "<=", ">", ">=", "<>")]
    rows = column_rows("m", [*(Decimal(number) for number in numbers if number != "0.005"), None])
    assert_texts_agree(texts, {("m",): decimal(38, 2)}, rows)


def test_lists_of_values_too_many_to_multiply_out() -> None:
    many = ", ".join(map(str, range(0, 60, 2)))
    texts = [
        f"i IN ({many}) AND j IN ({many})",
        f"i IN ({many})",
        f"i IN ({many}) AND b",
        "i IN (1, 3) OR j IN (5, 7)",
    ]
    rows: list[Event] = [
        {("i",): i, ("j",): j, ("b",): i % 3 == 0} for i in (-1, 0, 1, 3, 30, 58, 60) for j in (0, 5, 6, 61)
    ]
    assert_texts_agree(texts, {("i",): INT, ("j",): INT, ("b",): BOOLEAN}, rows)


@pytest.mark.slow
def test_a_thousand_shapes_share_one_index() -> None:
    """Every clause uses other fields than the others; an event still asks each column's few grids only."""
    generator = np.random.default_rng(11)
    types: dict[Path, Type] = {(f"f{n}",): LONG for n in range(24)}
    matcher, wanted = Matcher(SimpleFields(types)), dict[int, Node]()
    for subscriber in range(1_500):
        chosen = sorted(generator.choice(24, generator.integers(2, 6), replace=False).tolist())
        low = generator.integers(0, 1000, len(chosen)).tolist()
        parts = [
            f"f{n} BETWEEN {a} AND {a + 40 * (k % 3)}"
            for k, (n, a) in enumerate(zip(chosen, low, strict=True))
        ]
        selector = Selector.parse(" AND ".join(parts), SimpleFields(types))
        matcher.add(subscriber, selector)
        wanted[subscriber] = selector.tree
    assert len(matcher._rules._readers) > 1_000
    assert len(matcher._index._trie.probes.of_node.of(1)) <= 24 * 7
    rows: list[Event] = [{path: int(generator.integers(0, 1000)) for path in types} for _ in range(4)]
    assert matched(matcher, rows, types) == expected(wanted, rows)


def test_many_like_alike_go_deep_and_come_out_again() -> None:
    """Hundreds of boxes that share a field's value are told apart by the next field, and the next."""
    types: dict[Path, Type] = {("s",): STRING, ("u",): STRING, ("l",): LONG, ("d",): DOUBLE}
    texts = [
        f"s = 'client-0001' AND u LIKE 'stem-{n % 9}%' AND d > {n}.5 AND l BETWEEN {n % 40} AND {n % 40 + 2}"
        for n in range(700)
    ]
    matcher, wanted = of_texts(texts, types)
    rows: list[Event] = [
        {("s",): f"client-000{n % 3}", ("u",): f"stem-{n % 9}x", ("l",): n % 44, ("d",): n * 9.0}
        for n in range(60)
    ]
    assert matched(matcher, rows, types) == expected(wanted, rows)
    for subscriber in range(0, 700, 2):
        matcher.remove(subscriber)
        del wanted[subscriber]
    assert matched(matcher, rows, types) == expected(wanted, rows)


# --- match sets --------------------------------------------------------------------------------------------

PRICE: dict[Path, Type] = {("price",): DOUBLE}
PRICES = SimpleFields(PRICE)


def prices(*values: float | None) -> DictColumns:
    return DictColumns([{("price",): value} for value in values], PRICE)


def test_an_event_that_nobody_wants_has_set_zero() -> None:
    matcher = Matcher(PRICES)
    assert matcher.match(prices(1.0, 2.0)).tolist() == [0, 0]
    matcher.add(3, Selector.parse("price > 1.5", PRICES))
    assert (matcher.match(prices(1.0, 2.0, None)) == 0).tolist() == [True, False, True]
    assert matcher.members(0).tolist() == []


def test_a_batch_without_events_has_no_sets() -> None:
    matcher = Matcher(PRICES)
    matcher.add(1, EVERYTHING)
    found = matcher.match(prices())
    assert found.dtype == np.uint32
    assert found.tolist() == []


def test_equal_selectors_share_a_rule_and_a_set() -> None:
    matcher = Matcher(PRICES)
    for subscriber in range(100):
        matcher.add(subscriber, Selector.parse(f"price > {subscriber % 4}", PRICES))
    assert len(matcher) == 100
    assert len(matcher._rules) == 4
    found = matcher.match(prices(2.5, 9.0, 2.25))
    assert found[0] == found[2] != found[1]
    assert matcher.members(int(found[0])).tolist() == [n for n in range(100) if n % 4 < 3]


def test_a_set_keeps_its_members_when_subscribers_change() -> None:
    matcher = Matcher(PRICES)
    matcher.add(7, Selector.parse("price > 1", PRICES))
    before = int(matcher.match(prices(2.0))[0])
    matcher.add(5, Selector.parse("price > 1", PRICES))
    after = int(matcher.match(prices(2.0))[0])
    assert matcher.members(before).tolist() == [7]
    assert matcher.members(after).tolist() == [5, 7]
    matcher.remove(7)
    assert matcher.members(int(matcher.match(prices(2.0))[0])).tolist() == [5]
    assert matcher.members(after).tolist() == [5, 7]


def test_the_same_set_has_the_same_number_in_every_batch() -> None:
    matcher = Matcher(PRICES)
    matcher.add(2**32 - 1, Selector.parse("price > 1", PRICES))
    first = matcher.match(prices(2.0, 0.5))
    assert matcher.match(prices(0.5, 3.0)).tolist() == first.tolist()[::-1]
    assert matcher.members(int(first[0])).tolist() == [2**32 - 1]


def test_members_cannot_be_written_to() -> None:
    matcher = Matcher(PRICES)
    matcher.add(1, EVERYTHING)
    members = matcher.members(int(matcher.match(prices(1.0))[0]))
    with pytest.raises(ValueError, match="read-only"):
        members[0] = 2


def test_numbers_of_forgotten_sets_are_not_used_for_others() -> None:
    matcher = Matcher(PRICES)
    for subscriber in range(8):
        matcher.add(subscriber, Selector.parse(f"price > {subscriber}", PRICES))
    seen: set[int] = set()
    with mock.patch.object(match_sets, "MATCH_SETS_MAX", 4):
        for upto in range(1, 9):
            found = matcher.match(prices(*[value + 0.5 for value in range(upto)])).tolist()
            assert [matcher.members(number).tolist() for number in found] == [
                list(range(value + 1)) for value in range(upto)
            ]
            seen |= set(found)
        assert len(seen) > 8
        with pytest.raises(AssertionError, match="forgotten"):
            matcher.members(min(seen))


def test_a_rule_that_is_met_through_two_clauses_counts_once() -> None:
    matcher = Matcher(PRICES)
    matcher.add(1, Selector.parse("price > 5 OR price IS NOT NULL AND price < 9", PRICES))
    matcher.add(2, Selector.parse("price > 6", PRICES))
    assert matcher.members(int(matcher.match(prices(7.0))[0])).tolist() == [1, 2]


# --- what the matcher is told of types ---------------------------------------------------------------------


def test_a_field_that_gets_another_type_is_indexed_anew() -> None:
    matcher = Matcher(SimpleFields({("x",): LONG, ("y",): LONG}))
    fields = SimpleFields({("x",): LONG, ("y",): LONG})
    for subscriber, text in enumerate(("x > 5", "x < 3 AND y = 1", "y > 0")):
        matcher.add(subscriber, Selector.parse(text, fields))
    matcher.retype(SimpleFields({("x",): DOUBLE, ("y",): LONG}))
    rows: list[Event] = [{("x",): 5.5, ("y",): 1}, {("x",): 2.5, ("y",): 1}, {("y",): 0}]
    assert matched(matcher, rows, {("x",): DOUBLE, ("y",): LONG}) == [[0, 2], [1, 2], []]


def test_fields_that_change_in_place_are_noticed_too() -> None:
    fields = SimpleFields({("x",): LONG})
    matcher = Matcher(fields)
    matcher.add(1, Selector.parse("x > 5", fields))
    fields.types = {("x",): DOUBLE}
    matcher.retype(fields)
    matcher.add(2, Selector.parse("x > 5.25", fields))
    assert matched(matcher, [{("x",): 5.5}, {("x",): 5.125}], fields.types) == [[1, 2], [1]]


def test_an_open_topics_new_field_is_indexed_once_its_type_is_known() -> None:
    types: dict[Path, Type] = {("a",): LONG}
    matcher = Matcher(SimpleFields(types, is_open=True))
    matcher.add(1, Selector.parse("later = 'x' AND a > 1", SimpleFields(types, is_open=True)))
    rows: list[Event] = [{("a",): 2, ("later",): "x"}, {("a",): 2}, {("a",): 2, ("later",): "y"}]
    assert matched(matcher, rows, types) == [[1], [], []]
    wider = {**types, ("later",): STRING}
    matcher.retype(SimpleFields(wider, is_open=True))
    assert (
        matcher.explain(Selector.parse("later = 'x'", SimpleFields(wider)))["clauses"][0]["conditions"] == []
    )
    assert matched(matcher, rows, wider) == [[1], [], []]


def test_selectors_on_fields_that_nobody_knows_yet() -> None:
    types: dict[Path, Type] = {("a",): LONG}
    fields = SimpleFields(types, is_open=True)
    texts = (
        "new IS NULL",
        "new IS NOT NULL AND a > 1",
        "new > 3 OR new = 'x'",
        "new",
        "NOT new > 3",
        "a.b IS NULL",
    )
    matcher, wanted = Matcher(fields), dict[int, Node]()
    for subscriber, text in enumerate(texts):
        selector = Selector.parse(text, fields)
        matcher.add(subscriber, selector)
        wanted[subscriber] = selector.tree
    rows: list[Event] = [{}, {("new",): 5}, {("new",): "x", ("a",): 2}, {("new",): True}, {("a",): 2}]
    assert matched(matcher, rows, types) == expected(wanted, rows)


def test_a_batch_of_types_not_told_of_yet_is_matched_rule_by_rule() -> None:
    fields = SimpleFields({("x",): INT})
    matcher = Matcher(fields)
    matcher.add(1, Selector.parse("x > 5", fields))
    matcher.add(2, Selector.parse("x < 5000000000", fields))
    rows: list[Event] = [{("x",): 2**40}, {("x",): 6}, {}]
    assert matched(matcher, rows, {("x",): LONG}) == [[1], [1, 2], []]
    assert matched(matcher, [{("x",): 5.5}], {("x",): DOUBLE}) == [[1, 2]]
    assert matched(matcher, [{("x",): "6"}], {("x",): Dynamic()}) == [[]]


@pytest.mark.parametrize(("text", "found"), [("x < 5000000000", [[], [1]]), ("x > 5000000000", [[1], []])])
def test_a_type_counts_also_where_it_has_decided_the_selector(text: str, found: list[list[int]]) -> None:
    """For an int the first selector says no more than IS NOT NULL, and the second nothing at all."""
    fields = SimpleFields({("x",): INT})
    matcher = Matcher(fields)
    matcher.add(1, Selector.parse(text, fields))
    assert matched(matcher, column_rows("x", [2**40, 6]), {("x",): LONG}) == found


def test_retyping_without_a_change_touches_nothing() -> None:
    matcher = Matcher(PRICES)
    matcher.add(1, Selector.parse("price > 5", PRICES))
    with mock.patch.object(matcher, "_index_rule", side_effect=AssertionError):
        matcher.retype(SimpleFields({**PRICE, ("new",): STRING}))


# --- what it tells people ----------------------------------------------------------------------------------


def test_explain_names_the_way_the_checks_and_the_conditions() -> None:
    types: dict[Path, Type] = {("symbol",): STRING, ("price",): DOUBLE, ("qty",): LONG}
    matcher, _ = of_texts([f"symbol = 'S{n}' AND price > {n}" for n in range(100)], types)
    told = matcher.explain(
        Selector.parse(
            "symbol = 'S7' AND price > 3 AND qty * 2 > price OR symbol IN ('a', 'b')", SimpleFields(types)
        )
    )
    by_boxes = {clause["boxes"]: clause for clause in told["clauses"]}
    assert by_boxes[1]["access"] == ["symbol = 'S7'"]
    assert by_boxes[1]["checks"] == ["price > 3.0"]
    assert by_boxes[1]["conditions"] == ["qty * 2 > price"]
    assert by_boxes[2]["access"] == ["symbol IN ('a', 'b')"]
    assert len(matcher) == len(matcher._rules) == 100


def test_explain_of_a_selector_that_is_no_box_shows_the_condition() -> None:
    matcher = Matcher(PRICES)
    told = matcher.explain(Selector.parse("price * 2 > 3", PRICES))
    assert told["clauses"] == [{"access": [], "checks": [], "conditions": ["price * 2 > 3"], "boxes": 1}]
    assert_is_empty(matcher)


def test_memory_grows_with_rules_and_not_with_subscribers_of_a_rule_alone() -> None:
    few, many = Matcher(PRICES), Matcher(PRICES)
    for subscriber in range(2000):
        few.add(subscriber, Selector.parse("price > 1", PRICES))
        many.add(subscriber, Selector.parse(f"price > {subscriber}", PRICES))
    assert 0 < few.memory_bytes < many.memory_bytes < 2000 * 1000
