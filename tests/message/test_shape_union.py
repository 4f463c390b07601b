"""The union of an open topic's shapes: as merging all of them, at the cost of each new one alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.type_strategies import NAMES, types
from tidemark.errors import EncodeError, SchemaError
from tidemark.message.codec.flat import LEAVES_MAX
from tidemark.message.foreign import infer as module
from tidemark.message.foreign.infer import ShapeUnion, infer, merge_shapes
from tidemark.message.types import INT, Field, Tuple, Type

quickly = settings(derandomize=True, deadline=None, max_examples=200)
rows = st.dictionaries(st.sampled_from(NAMES), types(), max_size=4).map(
    lambda fields: Tuple(tuple(Field(name, item) for name, item in fields.items()))
)


@quickly
@given(st.lists(st.one_of(rows, rows, types()), min_size=1, max_size=5))
def test_the_union_is_what_merging_all_shapes_gives_and_says_when_it_changes(shapes: list[Type]) -> None:
    union, before = ShapeUnion(), None
    for at, shape in enumerate(shapes):
        try:
            expected = merge_shapes(shapes[: at + 1])
        except EncodeError:
            with pytest.raises(SchemaError):
                union.add(shape)
            return
        changed = union.add(shape)
        assert union.type() == expected
        assert changed or expected == before
        before = expected


def test_a_shape_that_brings_nothing_new_does_not_change_the_union() -> None:
    union = ShapeUnion()
    assert union.add(infer({"a": 1, "b": "x", "c": {"d": 1}}))
    assert union.add(infer({"a": None, "e": 1}))
    assert not union.add(infer({"a": 2}))
    assert not union.add(infer({"c": {"d": 3}, "b": "y"}))


def test_a_shape_costs_its_own_fields_and_not_those_of_the_union(monkeypatch: pytest.MonkeyPatch) -> None:
    union = ShapeUnion()
    for at in range(1_000):
        union.add(infer({f"field_{at}": at, "id": 1, "inner": {f"inner_{at}": at}}))
    calls = 0
    merge = module._MergedField.add

    def counted(self: Any, item: Type) -> bool:
        nonlocal calls
        calls += 1
        return merge(self, item)

    monkeypatch.setattr(module._MergedField, "add", counted)
    union.add(infer({"field_7": 1, "id": 2, "inner": {"inner_8": 1, "inner_new": 2}}))
    assert calls == 6  # the shape, its three fields and the two inside


def test_a_union_of_too_many_fields_is_refused_and_stays_as_it_was() -> None:
    union = ShapeUnion()
    for at in range(LEAVES_MAX):
        union.add(infer({f"field_{at}": at}))
    before = union.type()
    with pytest.raises(SchemaError, match="at most 4096"):
        union.add(infer({"one more": 1}))
    assert union.type() == before
    assert not union.add(infer({"field_1": 1}))


def test_a_union_that_would_be_too_deep_is_refused_and_stays_as_it_was() -> None:
    def nested(levels: int, name: str) -> Type:
        item: Type = INT
        for _ in range(levels):
            item = Tuple((Field(name, item),))
        return item

    union = ShapeUnion()
    union.add(nested(16, "a"))
    with pytest.raises(SchemaError, match="too deep"):
        union.add(nested(16, "b"))
    assert union.type() == nested(16, "a")
