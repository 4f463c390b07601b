"""Vectorised conditions against the reference evaluator, and how they treat their columns."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.matching.agreement import assert_agrees, truths
from tests.matching.dict_columns import DictColumns
from tests.matching.selector_strategies import TYPES as USUAL_TYPES
from tests.matching.selector_strategies import Event, SimpleFields, events, literals, trees
from tests.matching.selector_strategies import values as field_values
from tidemark.matching.index.plans import plans_of
from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.tree import (
    Arithmetic,
    Compare,
    CompareOp,
    FieldRef,
    In,
    Like,
    Negate,
    Node,
    Not,
)
from tidemark.matching.vectors import vector
from tidemark.matching.vectors.vector import compile_condition
from tidemark.message.batches.columns import Bools, Column, ColumnSource
from tidemark.message.batches.reader import EventReader
from tidemark.message.schema import Schema
from tidemark.message.types import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    Atomic,
    Dynamic,
    Kind,
    List,
    Path,
    Type,
    decimal,
)

TYPES: dict[Path, Type] = {
    **USUAL_TYPES,
    ("m",): decimal(38, 21),
    ("n",): decimal(38, 2),
    ("o",): decimal(38, 30),
    ("y", "2"): BYTES,
    ("t", "2"): TIMESTAMP,
    ("b", "2"): BOOLEAN,
}
FIELDS = SimpleFields(TYPES)
NAN = float("nan")
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
OPERATORS: tuple[CompareOp, ...] = ("=", "<>", "<", "<=", ">", ">=")


def fitted(event: Event) -> Event:
    """The event with its decimals cut to the digits their fields have."""

    def fit(path: Path, value: Any) -> Any:
        item = TYPES[path]
        if not isinstance(item, Atomic) or item.kind is not Kind.DECIMAL or value is None:
            return value
        cut = value.quantize(Decimal(1).scaleb(-item.scale), context=Context(prec=80))
        return cut if abs(cut.scaleb(item.scale, Context(prec=80))) < 10**38 else Decimal(0)

    return {path: fit(path, value) for path, value in event.items()}


def batches() -> SearchStrategy[list[Event]]:
    return st.lists(events(TYPES).map(fitted), min_size=1, max_size=6)


def values_nodes() -> SearchStrategy[Node]:
    """Any field, whatever its type, any literal, and calculations with them: mostly nonsense."""
    fields = st.sampled_from(list(TYPES)).map(FieldRef)
    constants = st.sampled_from(list(Kind)).flatmap(literals)
    return st.recursive(
        st.one_of(fields, fields, constants),
        lambda inner: st.one_of(
            st.builds(Negate, inner), st.builds(Arithmetic, st.sampled_from("+-*/"), inner, inner)
        ),
        max_leaves=2,
    )


def odd_leaves() -> SearchStrategy[Node]:
    """Comparisons between any two things; a checker would refuse many of them."""
    constants = st.sampled_from(list(Kind)).flatmap(literals)
    patterns = st.text("ab%_\0é", max_size=6)
    return st.one_of(
        st.builds(Compare, st.sampled_from(OPERATORS), values_nodes(), values_nodes()),
        st.builds(In, values_nodes(), st.lists(constants, min_size=1, max_size=5).map(tuple), st.booleans()),
        st.builds(Like, values_nodes(), patterns, st.just(""), st.booleans()),
        st.sampled_from(list(TYPES)).map(FieldRef),
    )


@given(tree=trees(TYPES), rows=batches())
@settings(derandomize=True, deadline=None, max_examples=150)
def test_any_condition_is_as_true_as_the_reference_says(tree: Node, rows: list[Event]) -> None:
    assert_agrees(tree, rows, TYPES)


@given(tree=odd_leaves(), rows=batches())
@settings(derandomize=True, deadline=None, max_examples=250)
def test_values_of_unlike_types_compare_as_the_reference_says(tree: Node, rows: list[Event]) -> None:
    assert_agrees(tree, rows, TYPES)


@given(
    op=st.sampled_from(OPERATORS),
    kinds=st.sampled_from([path for path in TYPES if TYPES[path] != List(INT)]).flatmap(
        lambda left: st.tuples(
            st.just(left),
            st.sampled_from(
                [p for p in TYPES if getattr(TYPES[p], "kind", 0) == getattr(TYPES[left], "kind", 0)]
            ),
        )
    ),
    rows=batches(),
)
@settings(derandomize=True, deadline=None, max_examples=120)
def test_fields_of_one_kind_compare_with_each_other(
    op: Any, kinds: tuple[Path, Path], rows: list[Event]
) -> None:
    assert_agrees(Compare(op, FieldRef(kinds[0]), FieldRef(kinds[1])), rows, TYPES)


@given(data=st.data(), path=st.sampled_from([(name,) for name in "bildmnsyt"]))
@settings(derandomize=True, deadline=None, max_examples=100)
def test_in_over_many_constants_finds_each(data: st.DataObject, path: Path) -> None:
    item = TYPES[path]
    assert isinstance(item, Atomic)
    constants = data.draw(st.lists(literals(item.kind), min_size=5, max_size=20))
    values = data.draw(st.lists(field_values(item.kind), min_size=5, max_size=9))
    rows: list[Event] = [fitted({path: value}) for value in values]
    for negated in (False, True):
        assert_agrees(In(FieldRef(path), tuple(constants), negated), rows, TYPES)


def test_headers_are_fields() -> None:
    types: dict[Path, Type] = {("_topic",): STRING, ("_tick",): LONG, ("_priority",): INT}
    rows: list[Event] = [{("_topic",): "trades.us", ("_tick",): 5, ("_priority",): 4}]
    assert_agrees(parse("_topic LIKE 'trades.%' AND _tick > 4 AND _priority = 4"), rows, types)


def test_dynamic_fields_compare_by_each_events_own_type() -> None:
    values = [1, 1.5, "a", b"a", True, NOON, Decimal("1.5"), [1], {"a": 1}, None, NAN]
    for text in (
        "x = 1",
        "x > 1.2",
        "x = 'a'",
        "x LIKE 'a%'",
        "x",
        "x IN (1, 'a')",
        "x + 1 > 2",
        "x IS NULL",
    ):
        truths(text, Dynamic(), values)
        truths(f"NOT ({text})", Dynamic(), values)


def test_dynamic_fields_compare_with_fields_of_every_type() -> None:
    values = [7, 1.5, "é", b"\xff", True, NOON, Decimal("1.5"), None]
    items = [LONG, DOUBLE, STRING, BYTES, BOOLEAN, TIMESTAMP, decimal(20, 5)]
    for item, own in zip(items, values, strict=False):
        rows: list[Event] = [{("z",): value, ("x",): own} for value in values]
        assert_agrees(parse("z = x OR z > x"), rows, {("z",): Dynamic(), ("x",): item})


def test_an_instant_beyond_datetime_is_null_to_the_slow_path() -> None:
    class Far(DictColumns):
        def column(self, path: Path) -> Column:
            if path == ("t",):
                return Column(TIMESTAMP, np.array([2**63 - 1, 0]))
            return super().column(path)

    columns = Far([{("z",): NOON}, {("z",): NOON}], {})
    condition = compile_condition(parse("z > t"), SimpleFields({("z",): Dynamic(), ("t",): TIMESTAMP}))
    assert [side.tolist() for side in condition.truth(columns)] == [[False, True], [False, False]]
    fast = compile_condition(parse("t > TIMESTAMP '9999-01-01'"), SimpleFields({("t",): TIMESTAMP}))
    assert fast.matched(columns).tolist() == [True, False]


def test_only_the_rows_left_to_decide_are_asked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def spy(node: Node, lookup: Any) -> bool | None:
        asked.append(lookup(("i",)))
        return evaluate(node, lookup)

    monkeypatch.setattr("tidemark.matching.vectors.rowwise.evaluate", spy)
    rows: list[Event] = [{("i",): i, ("z",): i if i % 2 else None} for i in range(10)]
    columns = DictColumns(rows, TYPES)
    tree = parse("z + i > 4 AND (i < 4 OR z + i > 16) AND i <> 1")
    assert compile_condition(tree, FIELDS).matched(columns).tolist() == [i in (3, 9) for i in range(10)]
    assert asked == [3, 5, 7, 9, 5, 7, 9]


def test_columns_of_other_types_than_expected_are_believed() -> None:
    condition = compile_condition(parse("x > 1.5"), SimpleFields({("x",): LONG}))
    assert condition.matched(DictColumns([{("x",): 2}], {("x",): LONG})).tolist() == [True]
    assert condition.matched(DictColumns([{("x",): 1.75}], {("x",): DOUBLE})).tolist() == [True]
    assert condition.matched(DictColumns([{("x",): Decimal("1.75")}], {("x",): decimal(9, 2)})).tolist() == [
        True
    ]
    assert condition.matched(DictColumns([{("x",): "2"}], {("x",): STRING})).tolist() == [False]
    assert condition.matched(DictColumns([{("x",): 2}, {("x",): "2"}], {})).tolist() == [True, False]
    assert condition.matched(DictColumns([{}, {}], {("x",): STRING})).tolist() == [False, False]


def test_programs_for_many_types_are_kept_within_their_bound() -> None:
    condition = compile_condition(parse("x > 1"), SimpleFields({}, is_open=True))
    for scale in range(2 * vector.PROGRAMS_MAX):
        types: dict[Path, Type] = {("x",): decimal(38, scale)}
        assert condition.matched(DictColumns([{("x",): Decimal(2)}], types)).tolist() == [True]
        assert len(condition._programs) <= vector.PROGRAMS_MAX


@pytest.mark.parametrize("text", ["x", "NOT x", "x IS NOT NULL", "x IS NULL", "x = TRUE", "TRUE"])
def test_answers_are_arrays_of_their_own(text: str) -> None:
    rows: list[Event] = [{("x",): True}, {("x",): None}]
    held = DictColumns(rows, {("x",): BOOLEAN}).column(("x",))

    class Kept:
        count = 2

        def column(self, path: Path) -> Column:
            assert path == ("x",)
            return held

    columns: ColumnSource = Kept()
    condition = compile_condition(parse(text), SimpleFields({("x",): BOOLEAN}))
    answer: Bools = condition.matched(columns)
    expected = answer.tolist()
    answer[:] = ~answer
    assert condition.matched(columns).tolist() == expected


def test_a_condition_is_pickled_without_its_programs() -> None:
    condition = compile_condition(parse("i > 1 AND s LIKE '%a%'"), FIELDS)
    copied = pickle.loads(pickle.dumps(condition))
    columns = DictColumns([{("i",): 2, ("s",): "bab"}, {("i",): 0}], TYPES)
    assert copied.matched(columns).tolist() == condition.matched(columns).tolist() == [True, False]


def test_an_empty_batch_has_no_answers() -> None:
    for text in (
        "l > 1",
        "s LIKE '%a%'",
        "s = 'a'",
        "s < 'b'",
        "m > 1.5",
        "z = 1",
        "l + 1 > d",
        's = "odd name".u',
    ):
        tree = Not(parse(text))
        assert_agrees(tree, [], TYPES)


def test_a_long_or_of_values_of_one_field_is_compiled_to_one_predicate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[object] = []
    leaf = vector._leaf

    def counted(node: Any, truth: bool, types: Any) -> Any:
        compiled.append(node)
        return leaf(node, truth, types)

    monkeypatch.setattr(vector, "_leaf", counted)
    fields = EventReader(Schema.parse("[n: int]"), {})
    plans = plans_of(parse(" OR ".join(f"n = {number * 3}" for number in range(49))), fields)
    conditions = {each for plan in plans for each in plan.conditions}
    for each in conditions:
        compile_condition(each, fields)
    assert len(conditions) == len(compiled) == 1
