"""Keys keep exactly what constraints ask of values, or a superset that says so."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.matching.dict_columns import DictColumns
from tests.matching.selector_strategies import values
from tidemark.matching.forms.clauses import Absent, Constraint, Interval, OneOf, Present
from tidemark.matching.forms.constraints import admits, interval, one_of
from tidemark.matching.forms.domains import domain_value
from tidemark.matching.index.keys import EVERY_ROW, Keys
from tidemark.matching.index.ranges import WORD_BYTES, WORDS_MAX, ranges_of
from tidemark.matching.index.trie.grid import grid_for
from tidemark.message.batches.columns import Column
from tidemark.message.types import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    Atomic,
    Kind,
    List,
    Path,
    Type,
    decimal,
)

MONEY = decimal(38, 9)
TYPES = (BOOLEAN, INT, LONG, FLOAT, DOUBLE, MONEY, STRING, BYTES, TIMESTAMP)
FIELD = ("f",)
LONGEST = WORD_BYTES * WORDS_MAX


def watching(item: Type) -> Keys:
    keys = Keys()
    keys.watch(FIELD, item)
    return keys


def held(constraint: Constraint, item: Type, column: Sequence[Any]) -> tuple[list[bool], bool]:
    """Which values lie in the ranges of the constraint, and whether the ranges claim to be exact."""
    ranges = ranges_of(constraint, item)
    keys = watching(item)
    alternatives = [
        [(keys.acquire(FIELD, part), low, high) for part, low, high in alternative]
        for alternative in ranges.alternatives
    ]
    table = keys.read(DictColumns([{FIELD: value} for value in column], {FIELD: item}))
    assert table is not None
    found = [
        any(
            all(low <= int(table[key_column, row]) <= high for key_column, low, high in alternative)
            for alternative in alternatives
        )
        for row in range(len(column))
    ]
    return found, ranges.exact


def check(constraint: Constraint, item: Type, column: Sequence[Any]) -> bool:
    found, exact = held(constraint, item, column)
    expected = [admits(constraint, domain_value(value)) for value in column]
    if exact:
        assert found == expected
    else:
        assert all(f or not e for f, e in zip(found, expected, strict=True))
    return exact


def texts() -> st.SearchStrategy[str]:
    """Strings that share long beginnings, with NULs, and of every length around a word's."""
    tails = st.text(st.sampled_from("ab\0\x01é\U0010ffff"), max_size=9)
    stems = st.sampled_from(("", "a", "customer-", "x" * 13, "x" * 14, "x" * LONGEST, "\0" * 8))
    return st.builds(str.__add__, stems, tails)


def field_values(item: Atomic) -> st.SearchStrategy[Any]:
    if item.kind is Kind.STRING:
        return texts()
    if item.kind is Kind.BYTES:
        return texts().map(str.encode) | st.binary(max_size=9)
    if item.kind is Kind.DECIMAL:
        units = st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-(2**63) - 3, -(2**63) + 3)
        units |= st.integers(2**63 - 3, 2**63 + 3) | st.integers(-20, 20)
        return units.map(lambda unit: Decimal(f"{unit}E-9"))
    if item.kind is Kind.LONG:
        return st.sampled_from((-(2**63), -(2**63) + 1, -(2**63) + 2, 2**63 - 1, 2**63 - 2, 0)) | values(
            Kind.LONG
        )
    return values(item.kind)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Atomic, Constraint, list[Any]]:
    item = draw(st.sampled_from(TYPES))
    some = field_values(item)
    constants = some.map(domain_value).filter(lambda constant: constant == constant)
    if item.kind in (Kind.FLOAT, Kind.DOUBLE):
        constants = constants.map(lambda constant: constant + 0.0)
    if item.kind is Kind.BOOLEAN or draw(st.booleans()):
        constraint = one_of(draw(st.frozensets(constants, min_size=1, max_size=4)))
    else:
        low, high = sorted((draw(constants), draw(constants)))
        low, high = draw(st.sampled_from(((low, high), (low, None), (None, high))))
        constraint = interval(low, high, draw(st.booleans()), draw(st.booleans()))
    column = draw(st.lists(some | st.none(), max_size=6))
    return item, constraint or Absent(), [*column, *edges_of(constraint, item)]


def edges_of(constraint: Constraint | None, item: Atomic) -> list[Any]:
    """The constants themselves, as values of events."""
    match constraint:
        case OneOf(constants):
            edges: list[Any] = list(constants)
        case Interval(low, high):
            edges = [low, high]
        case _:
            edges = []
    return edges if item != TIMESTAMP else []


@settings(derandomize=True, deadline=None, max_examples=600)
@given(cases())
def test_ranges_hold_what_the_constraint_admits(case: tuple[Atomic, Constraint, list[Any]]) -> None:
    item, constraint, column = case
    check(constraint, item, column)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(texts(), texts())
@example("ab", "ab\0")
@example("ab\0\0\0\0\0c", "ab")
def test_words_keep_the_order_of_strings(left: str, right: str) -> None:
    keys = watching(STRING)
    columns = [keys.acquire(FIELD, word) for word in range(WORDS_MAX + 3)]
    table = keys.read(DictColumns([{FIELD: left}, {FIELD: right}], {FIELD: STRING}))
    assert table is not None
    first, second = (tuple(int(table[column, row]) for column in columns) for row in (0, 1))
    assert (first < second, first == second) == (left.encode() < right.encode(), left == right)


@pytest.mark.parametrize(
    ("constraint", "item"),
    [
        (OneOf(frozenset(("550e8400-e29b-41d4-a716-446655440000",))), STRING),
        (Interval("customer-00", "customer-01", high_open=True), STRING),
        (Interval("é", "ê", high_open=True), STRING),
        (OneOf(frozenset((b"\0\0",))), BYTES),
        (Interval(-(2**63) + 2, None), LONG),
        (Interval(None, 2**63 - 2), LONG),
        (Interval(float("-inf"), 1.0, low_open=True), DOUBLE),
        (Interval(Decimal("1.0000000005"), Decimal(2)), MONEY),
        (Present(), List(INT)),
        (Absent(), STRING),
    ],
)
def test_usual_constraints_need_no_condition(constraint: Constraint, item: Type) -> None:
    assert ranges_of(constraint, item).exact


@pytest.mark.parametrize(
    ("constraint", "item"),
    [
        (OneOf(frozenset(("x" * (LONGEST + 1),))), STRING),
        (Interval("abcdefgh", None), STRING),
        (OneOf(frozenset((-(2**63),))), LONG),
        (Interval(Decimal(10) ** 12, None), MONEY),
    ],
)
def test_what_keys_cannot_tell_is_said_to_be_inexact(constraint: Constraint, item: Type) -> None:
    assert not ranges_of(constraint, item).exact


@pytest.mark.parametrize("prefix", ["a", "ab", "abcdef", "é", "a\0b"])
def test_a_prefix_fills_a_cell_of_the_grid(prefix: str) -> None:
    high = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    ((part, low_key, high_key),) = ranges_of(Interval(prefix, high, high_open=True), STRING).alternatives[0]
    grid = grid_for(low_key, high_key)
    assert part == 0
    assert grid is not None
    assert grid.level == 8 * (8 - len(prefix.encode()))
    assert grid.fills(low_key, high_key)


def test_equality_is_one_key_in_every_word() -> None:
    (ranges,) = ranges_of(OneOf(frozenset(("customer-000123",))), STRING).alternatives
    assert [part for part, low, high in ranges if low == high] == [0, 1, 2]


def test_a_value_between_the_decimals_of_a_type_is_never_met() -> None:
    assert ranges_of(OneOf(frozenset((Decimal("0.0000000001"),))), MONEY).alternatives == ()


def test_no_value_has_key_zero_and_nothing_else_has() -> None:
    keys = watching(DOUBLE)
    column = keys.acquire(FIELD, 0)
    rows = [None, float("nan"), float("-inf"), -0.0, 0.0, float("inf")]
    table = keys.read(DictColumns([{FIELD: value} for value in rows], {FIELD: DOUBLE}))
    assert table is not None
    found = table[column].tolist()
    assert found[:2] == [0, 0]
    assert 0 < found[2] < found[3] == found[4] < found[5]


def test_signalling_nans_are_read_in_peace() -> None:
    class OneColumn(DictColumns):
        def column(self, path: Path) -> Column:
            read = super().column(path)
            assert isinstance(read.values, np.ndarray)
            read.values.view(np.uint64)[1] = 0x7FF0000000000001
            return read

    keys = watching(DOUBLE)
    column = keys.acquire(FIELD, 0)
    with np.errstate(all="raise"):
        table = keys.read(OneColumn([{FIELD: 1.0}] * 2, {FIELD: DOUBLE}))
    assert table is not None
    assert table[column].tolist()[1] == 0


def test_columns_are_given_back_and_used_again() -> None:
    keys = watching(LONG)
    first, again = keys.acquire(FIELD, 0), keys.acquire(FIELD, 0)
    assert first == again != EVERY_ROW
    keys.watch(("g",), STRING)
    keys.release(first)
    assert keys.acquire(("g",), 0) not in (first, EVERY_ROW)
    keys.release(first)
    assert keys.acquire(("g",), 1) == first
    assert keys.path(first) == ("g",)


def test_a_batch_of_another_type_is_refused_unless_it_is_all_null() -> None:
    keys = watching(LONG)
    assert keys.read(DictColumns([{FIELD: "text"}], {FIELD: STRING})) is None
    assert keys.read(DictColumns([{}], {FIELD: STRING})) is not None
    assert keys.read(DictColumns([{FIELD: 1}], {FIELD: INT})) is not None
    assert keys.read(DictColumns([{FIELD: datetime.now(UTC)}], {FIELD: TIMESTAMP})) is None
    keys.unwatch(FIELD)
    assert keys.read(DictColumns([{FIELD: "text"}], {FIELD: STRING})) is not None


def test_a_field_that_no_event_has_may_come_without_arrays() -> None:
    class NoArrays(DictColumns):
        def column(self, path: Path) -> Column:  # noqa: ARG002
            return Column(STRING, [None] * self.count, np.zeros(self.count, np.bool_))

    keys = watching(STRING)
    column = keys.acquire(FIELD, 0)
    table = keys.read(NoArrays([{}, {}], {}))
    assert table is not None
    assert table[column].tolist() == [0, 0]


def test_decimals_of_another_precision_have_the_same_keys_and_of_another_scale_not() -> None:
    keys = watching(MONEY)
    column = keys.acquire(FIELD, 0)
    for item, is_same in ((decimal(10, 9), True), (decimal(38, 2), False)):
        table = keys.read(DictColumns([{FIELD: Decimal(1)}], {FIELD: item}))
        assert (table is not None) == is_same
        assert table is None or table[column].tolist() == [10**9 + 2**63]
