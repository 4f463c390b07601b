"""Dataclasses as schemas, and instances to values and back."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, Optional, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import DecodeError, EncodeError, SchemaError
from tidemark.message.foreign.dataclasses import Float32, Int32, from_dataclass, from_value, to_value
from tidemark.message.schema import Schema
from tidemark.message.text import schema_text


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


class Mixed(enum.Enum):
    SMALL = 1
    LARGE = "large"


@dataclass(frozen=True)
class Line:
    sku: str
    qty: Int32
    price: Annotated[Decimal, "decimal(10,2)"]


@dataclass(frozen=True)
class Card:
    number: bytes


@dataclass(frozen=True)
class Cash:
    pass


@dataclass(frozen=True)
class Order:
    id: int
    side: Side
    lines: list[Line]
    paid: Card | Cash
    at: datetime
    ratio: float = 1.0
    weight: Float32 = 0.5
    express: bool = False
    color: Literal["red", "green"] | None = None
    coupon: Optional[str] = None  # noqa: UP045  # the older spelling is an annotation too
    tags: tuple[str, ...] = ()
    span: tuple[Line, int] | None = None
    extra: Any = None
    total: Annotated[int, object()] = 0
    seen: ClassVar[int] = 0
    cached: int = field(default=7, init=False)


@dataclass
class Node:
    name: str
    left: Node | None = None
    others: list[Node] = field(default_factory=list)


@dataclass
class Even:
    odd: Odd | None = None


@dataclass
class Odd:
    even: Even | None = None


@dataclass
class Parity:
    even: Even
    odd: Odd


@dataclass
class Endless:
    again: Endless


@dataclass
class Percent:
    value: int

    def __post_init__(self) -> None:
        if not 0 <= self.value <= 100:
            raise ValueError("a percentage lies between 0 and 100")


@dataclass
class Report:
    parts: list[Percent]


def type_of(cls: type) -> str:
    return schema_text(*from_dataclass(cls))


def order(**changes: Any) -> Order:
    fields: dict[str, Any] = {
        "id": 1,
        "side": Side.BUY,
        "lines": [Line("a", 2, Decimal("9.50"))],
        "paid": Card(b"\x01"),
        "at": datetime(2024, 5, 1, tzinfo=UTC),
    }
    return Order(**fields | changes)


def test_every_kind_of_annotation_has_its_type() -> None:
    line = "[sku: string, qty: int, price: decimal(10, 2)]"
    assert type_of(Order) == (
        f"[id: long, side: {{buy: [] | sell: []}}, lines: *({line})*, "
        "paid: {Card: [number: bytes] | Cash: []}, at: timestamp, ratio: double, weight: float, "
        "express: boolean, color: {red: [] | green: []}?, coupon: string?, tags: *(string)*, "
        f"span: [_0: {line}, _1: long]?, extra: dynamic, total: long]"
    )


def test_a_class_that_contains_itself_becomes_a_named_schema() -> None:
    assert type_of(Node) == "Node: [name: string, left: Node?, others: *(Node)*]"


def test_classes_that_contain_each_other_are_written_out_until_one_recurs() -> None:
    assert type_of(Parity) == "[even: Even, odd: [even: Even?]]; Even: [odd: [even: Even?]?]"


def test_an_instance_survives_the_message() -> None:
    whole = order(
        paid=Cash(),
        color="green",
        tags=("x", "y"),
        span=(Line("b", 1, Decimal("1.25")), 3),
        extra={"any": [1, "two"]},
    )
    schema = Schema.of(Order)
    assert from_value(Order, schema.decode(schema.encode(whole))) == whole


def test_values_are_those_of_the_table() -> None:
    value = to_value(order(span=(Line("b", 1, Decimal("1")), 3), extra=Cash()))
    assert value["side"] == "buy"
    assert value["paid"] == {"Card": {"number": b"\x01"}}
    assert value["span"] == {"_0": {"sku": "b", "qty": 1, "price": Decimal("1")}, "_1": 3}
    assert value["extra"] == {}
    assert "cached" not in value
    assert "seen" not in value


def test_instances_inside_dicts_and_lists_become_values_too() -> None:
    assert to_value({"lines": [Line("a", 1, Decimal(2))], "n": 1}) == {
        "lines": [{"sku": "a", "qty": 1, "price": Decimal(2)}],
        "n": 1,
    }


def test_a_missing_field_takes_its_default_and_an_unknown_key_is_ignored() -> None:
    value = to_value(order(coupon="X"))
    del value["ratio"], value["coupon"]
    assert from_value(Order, value | {"new": 1}) == order()
    assert from_value(Order, value | {"express": None}).express is False
    assert from_value(Node, {"name": "a"}) == Node("a")


nodes = st.recursive(
    st.builds(Node, st.text(max_size=3)),
    lambda inner: st.builds(Node, st.text(max_size=3), st.none() | inner, st.lists(inner, max_size=2)),
    max_leaves=6,
)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(nodes)
def test_trees_survive_the_message(node: Node) -> None:
    schema = Schema.of(Node)
    assert from_value(Node, schema.decode(schema.encode(node))) == node


@pytest.mark.parametrize(
    ("changes", "path", "reason"),
    [
        ({"id": "1"}, "id", "expected int, found str"),
        ({"id": True}, "id", "expected int, found bool"),
        ({"side": "up"}, "side", "expected one of buy, sell"),
        (
            {"lines": [Line("a", 1, Decimal(1)), Line("b", cast(Any, 1.5), Decimal(1))]},
            "lines[1].qty",
            "expected int",
        ),
        ({"lines": [None]}, "lines[0]", "expected Line, found nothing"),
        ({"lines": None}, "lines", "expected a list, found nothing"),
        ({"paid": Line("a", 1, Decimal(1))}, "paid", "expected one of Card, Cash, found Line"),
        ({"paid": Card(cast(Any, "x"))}, "paid.Card.number", "expected bytes, found str"),
        ({"at": datetime(2024, 1, 1)}, "at", "use datetime.now(timezone.utc)"),
        ({"color": "blue"}, "color", "expected one of red, green"),
        ({"span": (1, 2, 3)}, "span", "expected a tuple of 2"),
        ({"span": (Line("a", 1, Decimal(1)), "x")}, "span._1", "expected int"),
    ],
)
def test_an_instance_that_does_not_fit_is_an_error_at_its_path(
    changes: dict[str, Any], path: str, reason: str
) -> None:
    with pytest.raises(EncodeError) as caught:
        to_value(order(**changes))
    assert caught.value.path == path
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("changes", "path", "reason"),
    [
        ({"id": None}, "id", "expected int, found nothing"),
        ({"side": "up"}, "side", "expected one of buy, sell"),
        ({"side": ["buy"]}, "side", "expected one of buy, sell"),
        ({"lines": [{"sku": "a", "qty": 1}]}, "lines[0].price", "expected Decimal, found nothing"),
        ({"lines": [7]}, "lines[0]", "expected a dict, found int"),
        ({"paid": {"Cheque": {}}}, "paid", "expected one of Card, Cash"),
        ({"paid": {"Card": {}}}, "paid.Card.number", "expected bytes"),
        ({"span": {"_0": None}}, "span._0", "expected a dict, found nothing"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_at_its_path(
    changes: dict[str, Any], path: str, reason: str
) -> None:
    with pytest.raises(DecodeError) as caught:
        from_value(Order, to_value(order()) | changes)
    assert caught.value.path == path
    assert reason in caught.value.reason


def test_what_a_class_itself_refuses_is_an_error_at_its_path() -> None:
    with pytest.raises(DecodeError, match="Percent refused its fields") as caught:
        from_value(Report, {"parts": [{"value": 1}, {"value": 101}]})
    assert caught.value.path == "parts[1]"


def test_what_contains_itself_is_an_error() -> None:
    node = Node("a")
    node.left = node
    with pytest.raises(EncodeError, match="contains itself"):
        to_value(node)
    value: dict[str, Any] = {"name": "a"}
    value["left"] = value
    with pytest.raises(DecodeError, match="contains itself"):
        from_value(Node, value)


def bad(annotation: Any) -> type:
    return dataclass(type("Bad", (), {"__annotations__": {"field": annotation}, "__module__": __name__}))


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        (complex, "has no type"),
        (dict[int, int], "the keys of a dict are str"),
        (int | str, "only dataclasses can be joined"),
        (Mixed, "the member 1 of an enumeration: a name is a string, not int"),
        (Literal["absent", "there"], "what the missing case is called"),
        (Literal[""], "a name has 1 to 255 bytes"),
        (Annotated[int, "in"], "int cannot be 'in'"),
        (Annotated[int, "string"], "int cannot be 'string'"),
        (Annotated[Decimal, "decimal(50,2)"], "is not a type"),
        ("Missing", "annotations must be resolvable"),
    ],
)
def test_an_annotation_without_a_type_is_an_error_that_names_the_attribute(
    annotation: Any, reason: str
) -> None:
    with pytest.raises(SchemaError, match=r"^Bad(\.field)?: ") as caught:
        from_dataclass(bad(annotation))
    assert reason in str(caught.value)


def test_only_dataclasses_with_finite_values_are_schemas() -> None:
    with pytest.raises(SchemaError, match="is not a dataclass"):
        from_dataclass(int)
    with pytest.raises(SchemaError, match="no finite value"):
        from_dataclass(Endless)


def test_two_classes_of_one_name_that_both_recur_are_refused() -> None:
    twin: Any = dataclass(
        type("Node", (), {"__annotations__": {"node": Node | None}, "__module__": __name__})
    )
    twin.__annotations__["self"] = twin | None  # what the decorator saw is enough to start with
    twin = dataclass(twin)
    with pytest.raises(SchemaError, match="two different schemas that recur have this name"):
        from_dataclass(twin)
