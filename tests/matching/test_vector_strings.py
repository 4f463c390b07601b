"""Vectorised conditions on strings and bytes: NULs, long rows, junk between them, against the reference."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matching.agreement import assert_agrees
from tests.matching.dict_columns import DictColumns
from tests.matching.selector_strategies import Event, SimpleFields
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.tree import Compare, CompareOp, FieldRef, In, Like, Literal
from tidemark.matching.vectors import span_patterns
from tidemark.matching.vectors.vector import compile_condition
from tidemark.message.batches.columns import Column, Spans
from tidemark.message.types import BYTES, STRING, Dynamic, Path, Type

OPERATORS: tuple[CompareOp, ...] = ("=", "<>", "<", "<=", ">", ">=")
X: dict[Path, Type] = {("x",): STRING}
texts = st.text("ab\0é", max_size=12)


@given(
    pattern=st.text("abé\0%%_", max_size=7),
    values=st.lists(texts, min_size=1, max_size=8),
    negated=st.booleans(),
    holes=st.booleans(),
)
@settings(derandomize=True, deadline=None, max_examples=300)
def test_like_finds_what_the_reference_finds(
    pattern: str, values: list[str], negated: bool, holes: bool
) -> None:
    tree = Like(FieldRef(("x",)), pattern if holes else pattern.replace("_", "b"), "", negated)
    assert_agrees(tree, [{("x",): value} for value in values], X)


@given(
    pieces=st.lists(st.text("abé\0", min_size=1, max_size=2), min_size=3, max_size=9),
    values=st.lists(st.text("abé\0", max_size=40), min_size=1, max_size=6),
    ends=st.tuples(st.booleans(), st.booleans()),
)
@settings(derandomize=True, deadline=None, max_examples=150)
def test_like_with_many_pieces_finds_what_the_reference_finds(
    pieces: list[str], values: list[str], ends: tuple[bool, bool]
) -> None:
    pattern = "%" * ends[0] + "%".join(pieces) + "%" * ends[1]
    made = ["x".join(pieces), "".join(pieces), "".join(pieces)[:-1]]
    assert_agrees(
        Like(FieldRef(("x",)), pattern, "", negated=False), [{("x",): value} for value in values + made], X
    )


def test_the_work_of_like_is_linear_in_the_bytes_however_many_pieces_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[int] = []
    candidates = span_patterns._candidates

    def counted(body: Any, piece: bytes) -> Any:
        looked_at.append(len(body))
        return candidates(body, piece)

    monkeypatch.setattr(span_patterns, "_candidates", counted)
    found: list[tuple[int, int]] = []

    class Searched(bytes):
        def find(self, piece: Any, at: Any = 0, end: Any = None) -> int:
            place = bytes.find(self, piece, at, end)
            found.append((at, len(self) if place < 0 else place + len(piece)))
            return place

    value = b"a" * 50_000 + b"b" * 50_000
    column = Spans(np.frombuffer(value * 2, np.uint8), np.array([0, 100_000]), np.array([100_000, 200_000]))
    pattern = span_patterns.SpanPattern("%" + "a%" * 1_000 + "b%" * 1_000)
    assert pattern.matches(column).all()
    assert sum(looked_at) <= span_patterns.DENSE_PIECES_MAX * len(column.body)
    pieces = [b"a"] * 1_000 + [b"b"] * 1_000 + [b"c"]
    begin, stop = np.array([0]), np.array([len(value)])
    assert not any(span_patterns.have_in_turn(Searched(value), begin, stop, pieces))
    assert all(before[1] == after[0] for before, after in pairwise(found))  # no byte is looked at twice


@given(constant=texts, op=st.sampled_from(OPERATORS), data=st.data())
@settings(derandomize=True, deadline=None, max_examples=200)
def test_strings_and_bytes_order_as_the_reference_orders(constant: str, op: Any, data: st.DataObject) -> None:
    near = st.sampled_from([constant, constant + "\0", constant[:-1], constant + "a", constant + "\0" * 9])
    values = data.draw(st.lists(st.one_of(texts, near, st.none()), min_size=1, max_size=8))
    rows: list[Event] = [{("x",): value} for value in values]
    assert_agrees(Compare(op, FieldRef(("x",)), Literal(constant)), rows, X)
    raw: list[Event] = [{("x",): None if value is None else value.encode()} for value in values]
    assert_agrees(Compare(op, Literal(constant.encode()), FieldRef(("x",))), raw, {("x",): BYTES})


def test_strings_with_nuls_are_told_apart() -> None:
    values = ["a", "a\0", "a\0\0", "", "\0", "a\0b"]
    for constant in values:
        for op in OPERATORS:
            rows: list[Event] = [{("x",): value} for value in values]
            assert_agrees(Compare(op, FieldRef(("x",)), Literal(constant)), rows, X)
    chosen = tuple(map(Literal, ("a\0", "\0", "zz\0")))
    assert_agrees(In(FieldRef(("x",)), chosen), [{("x",): value} for value in values], X)


def test_very_long_rows_are_compared_without_an_array_as_wide() -> None:
    long, longer = "a" * 1_000_000, "a" * 1_000_000 + "b"
    values = [long, longer, "a", "", None, "b" * 70, "a" * 4000]
    rows: list[Event] = [{("x",): value, ("u",): other} for value in values for other in values]
    types: dict[Path, Type] = {("x",): STRING, ("u",): STRING}
    for op in ("=", "<", ">="):
        assert_agrees(parse(f"x {op} u"), rows, types)
    constant = Literal("a" * 4000)
    once = rows[:: len(values)]
    for tree in (
        Compare("=", FieldRef(("x",)), constant),
        Compare(">", FieldRef(("x",)), constant),
        In(FieldRef(("x",)), (constant, Literal("b" * 70), Literal(""))),
        Like(FieldRef(("x",)), "%" + "a" * 3000 + "b"),
        Like(FieldRef(("x",)), "%" + "a" * 3000 + "b%"),
        Like(FieldRef(("x",)), "a" * 100 + "%b"),
        Like(FieldRef(("x",)), "a_%b"),
    ):
        assert_agrees(tree, once, types)


@pytest.mark.parametrize(
    "text",
    [
        "x = 'aaaa'",
        "x < 'b'",
        "x = u",
        "x < u",
        "x IN ('a', 'bb')",
        "x LIKE '%ab%a'",
        "x LIKE 'a_%'",
        "z = x",
    ],
)
def test_one_long_row_among_many_short_ones_takes_no_more_memory_than_it_has(text: str) -> None:
    rows: list[Event] = [{("x",): "a", ("u",): "a", ("z",): 1}] * 2000
    rows.append({("x",): "a" * 1_000_000, ("u",): "a" * 1_000_000, ("z",): "b"})
    types: dict[Path, Type] = {("x",): STRING, ("u",): STRING, ("z",): Dynamic()}
    made = {path: DictColumns(rows, types).column(path) for path in types}

    class Made(DictColumns):
        def column(self, path: Path) -> Column:
            return made[path]

    condition = compile_condition(parse(text), SimpleFields(types))
    tracemalloc.start()
    condition.truth(Made(rows, types))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 16_000_000  # a padded matrix would take 2,000,000,000


def test_a_search_with_too_many_beginnings_is_done_row_by_row() -> None:
    rows: list[Event] = [{("x",): "a" * 40_000 + end} for end in ("", "b", "ab", "ba")]
    for middle in ("a" * 2000 + "b", "b"):
        assert_agrees(Like(FieldRef(("x",)), f"%{middle}%"), rows, X)
        assert_agrees(Like(FieldRef(("x",)), f"a%{middle}%a%"), rows, X)


def test_few_strings_far_apart_in_a_large_body_are_found() -> None:
    rows: list[Event] = [{("x",): value} for value in ("abc", "xbx", "", "b", None, "aéb")]
    for pattern in ("%b%", "%b", "a%", "%é%", "%bc%", "_b_", "%_b"):
        assert_agrees(Like(FieldRef(("x",)), pattern), rows, X, junk=b"abc" * 500)


def test_a_constant_that_no_event_can_hold_still_has_its_place() -> None:
    rows: list[Event] = [{("x",): value} for value in ("\ud7ff", "\ue000", "a", "\U0010ffff")]
    for op in ("=", "<>", "<", ">"):
        assert_agrees(Compare(op, FieldRef(("x",)), Literal("\ud800")), rows, X)
    assert_agrees(Like(FieldRef(("x",)), "%\ud800%"), rows, X)
