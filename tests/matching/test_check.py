"""Selectors against the fields of a topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings

from tests.matching.any_trees import trees
from tidemark.errors import SelectorError, SelectorSyntaxError, SelectorTypeError
from tidemark.matching.selectors.check import check
from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.selector import EVERYTHING, Selector, nodes_of, paths_of
from tidemark.matching.selectors.tree import TRUE, FieldRef, Like, Node
from tidemark.message.types import (
    BOOLEAN,
    BYTES,
    DECIMAL,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    Dynamic,
    Field,
    List,
    Path,
    Reference,
    Tuple,
    Type,
    Variant,
)


class Fields:
    """FieldTypes written out."""

    def __init__(self, types: dict[Path, Type], *, is_open: bool = False) -> None:
        self.types = types
        self.open = is_open

    def type_of(self, path: Path) -> Type | None:
        return self.types.get(path)

    def paths(self) -> Sequence[Path]:
        return tuple(self.types)


TYPES: dict[Path, Type] = {
    ("symbol",): STRING,
    ("price",): DOUBLE,
    ("qty",): INT,
    ("total",): DECIMAL,
    ("count",): LONG,
    ("urgent",): BOOLEAN,
    ("data",): BYTES,
    ("at",): TIMESTAMP,
    ("tags",): List(STRING),
    ("order",): Tuple((Field("id", LONG),)),
    ("order", "id"): LONG,
    ("body",): Variant((Field("text", STRING), Field("blob", BYTES))),
    ("body", "text"): STRING,
    ("extra",): Dynamic(),
    ("parent",): Reference("node"),
}
TRADES = Fields(TYPES)
OPEN = Fields({("price",): DOUBLE}, is_open=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "symbol = 'A' AND price > 10 AND qty <= 5.5 AND total BETWEEN 1 AND 2.50 AND count IN (1, -2.5)",
        "symbol < 'M' OR symbol BETWEEN 'A' AND 'B' OR symbol LIKE 'A%' OR symbol NOT IN ('A', 'B')",
        "urgent AND NOT urgent OR urgent = TRUE OR urgent <> FALSE OR urgent IN (TRUE)",
        "data = X'00' OR data > X'00'",
        "at > TIMESTAMP '2024-01-01' AND at BETWEEN TIMESTAMP '2024-01-01' AND at",
        "price * qty + total / -count > 1000",
        "tags IS NULL AND order IS NOT NULL AND body IS NULL AND extra IS NULL",
        "order.id = 5 AND body.text LIKE 'x%'",
        "extra = 5 AND extra = 'x' AND extra LIKE 'x' AND extra + 1 > 2 AND extra AND extra = extra",
        "parent = 'x' AND parent > 5",
        "_topic LIKE 'trades.%' AND _tick > 5 AND _priority = 4 AND _publisher = 'p' AND _key > 'k'",
        "_time BETWEEN TIMESTAMP '2026-01-01' AND TIMESTAMP '2026-01-02' OR _key IS NULL",
        "1 = 1 AND 'a' = 'a' AND TRUE",
    ],
)
def test_what_can_compare_is_accepted(text: str) -> None:
    check(parse(text), TRADES, text)


@pytest.mark.parametrize(
    ("text", "position", "advice"),
    [
        ("prise > 1", 0, "did you mean `price`?"),
        ("PRICE > 1", 0, "did you mean `price`?"),
        ("id > 1", 0, "did you mean `order.id`?"),
        ("order.idd > 1", 0, "did you mean `order.id`?"),
        ("zzz IS NULL", 0, "there is no field `zzz`"),
        ("_tik > 1", 0, "there is no header `_tik`; did you mean `_tick`?"),
        ('symbol = "ACME"', 9, "text goes in single quotes"),
        ("symbol = 5", 9, "write '5'"),
        ("5 < symbol", 0, "write '5'"),
        ("price = '10.5'", 8, "write 10.5"),
        ("price = 'x'", 8, "`price` (number) never compares with `'x'` (string)"),
        ("price = symbol", 8, "never compares"),
        ("at > '2024-01-01'", 5, "write TIMESTAMP '2024-01-01'"),
        ("data = 'AB'", 7, "write X'4142'"),
        ("urgent = 'true'", 9, "write TRUE"),
        ("urgent = 1", 9, "never compares"),
        ("urgent < TRUE", 0, "no order"),
        ("extra > TRUE", 8, "no order"),
        ("urgent BETWEEN FALSE AND TRUE", 0, "no order"),
        ("price LIKE '1%'", 0, "LIKE takes a string"),
        ("symbol + 1 > 2", 0, "`+` takes numbers"),
        ("-symbol = 2", 1, "`-` takes a number"),
        ("TRUE + 1 = 2", 0, "`+` takes numbers"),
        ("at - 1 > 2", 0, "`-` takes numbers"),
        ("1 * (price > 2) = 3", 5, "a value is due here"),
        ("(price > 1) = TRUE", 1, "a value is due here"),
        ("price AND qty > 1", 0, "a condition is due here"),
        ("qty > 1 OR 'x'", 11, "a condition is due here"),
        ("NOT price + 1", 4, "a condition is due here"),
        ("5", 0, "a condition is due here"),
        ("price BETWEEN 1 AND 'z'", 20, "never compares"),
        ("extra BETWEEN 1 AND 'z'", 20, "never compares"),
        ("price IN (1, 'x')", 13, "never compares"),
        ("extra IN (1, 'x')", 13, "never compares"),
        ("1 = 'x'", 4, "never compares"),
        ("tags = 'x'", 0, "only ask if it IS NULL"),
        ("tags LIKE 'x'", 0, "only ask if it IS NULL"),
        ("order = 5", 0, "such as `order.id`"),
        ("body = 'x'", 0, "such as `body.text`"),
        ("extra = tags", 8, "only ask if it IS NULL"),
        ("extra.deep = 5", 0, "`extra` is dynamic and a selector cannot look inside"),
        ("_tick > TIMESTAMP '2024-01-01'", 8, "never compares"),
        ("_topic.x = 1", 0, "there is no field"),
    ],
)
def test_what_can_never_be_is_refused_with_position_and_advice(text: str, position: int, advice: str) -> None:
    with pytest.raises(SelectorTypeError) as caught:
        check(parse(text), TRADES, text)
    assert advice in caught.value.reason
    assert caught.value.position == position
    assert caught.value.text == text


def test_a_field_an_open_topic_has_not_seen_compares_with_anything() -> None:
    text = "new = 5 OR new = 'x' OR new.er LIKE 'x' OR new"
    check(parse(text), OPEN, text)


@pytest.mark.parametrize("text", ["price = 'x'", "_tik > 1", "new + 'x' = 1"])
def test_an_open_topic_still_has_the_types_and_headers_it_knows(text: str) -> None:
    with pytest.raises(SelectorTypeError):
        check(parse(text), OPEN, text)


def test_a_pattern_that_no_parser_saw_is_checked_too() -> None:
    with pytest.raises(SelectorSyntaxError):
        check(Like(FieldRef(("symbol",)), "a!", "!"), TRADES)


def test_long_things_are_cut_short_in_messages() -> None:
    for text in (f"price = '{'x' * 1000}'", f"{'x' * 1000} = 1"):
        with pytest.raises(SelectorTypeError) as caught:
            Selector.parse(text, TRADES)
        assert len(caught.value.reason) < 200


@given(trees)
@settings(derandomize=True, deadline=None, max_examples=500)
def test_every_tree_is_refused_or_has_a_truth(tree: Node) -> None:
    fields = Fields({("a",): Dynamic(), ("price",): DOUBLE, ("in",): BOOLEAN}, is_open=True)
    event: dict[Path, Any] = {("a",): "x", ("price",): 1.5, ("in",): True}
    try:
        check(tree, fields)
    except SelectorError:
        return
    assert evaluate(tree, event.get) in (True, False, None)


def test_a_selector_keeps_its_text_and_tree() -> None:
    selector = Selector.parse("price>1", TRADES)
    assert (selector.text, str(selector), selector.tree) == ("price>1", "price>1", parse("price > 1"))
    assert (EVERYTHING.tree, str(EVERYTHING)) == (TRUE, "TRUE")
    assert Selector.parse("", TRADES) == EVERYTHING


def test_a_selector_knows_the_fields_it_reads() -> None:
    tree = parse(
        "a.b > 1 AND (c IN (1) OR NOT _topic LIKE 'x') AND d BETWEEN -e AND f + a.b AND g IS NULL AND h"
    )
    names = [("a", "b"), *((name,) for name in ("c", "_topic", "d", "e", "f", "g", "h"))]
    assert paths_of(tree) == frozenset(names)
    assert paths_of(TRUE) == frozenset()
    assert len(list(nodes_of(parse("a = 1 AND b")))) == 5
