"""JSON lines read by a schema."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from tidemark.errors import EncodeError
from tidemark.message.foreign.json.values import value_of_json, values_of_lines
from tidemark.message.schema import Schema

SCHEMA = Schema.parse(
    "[at: timestamp, fee: decimal(9, 2), raw: bytes, price: double, n: int?, any: dynamic, "
    "rows: *([k: decimal(4, 1)])*, c: {a: timestamp | b: int}]"
)
LINE = (
    '{"at": "2026-11-15T20:00:00+01:00", "fee": 12.30, "raw": "AP8=", "price": 10, "any": {"x": 1.5}, '
    '"rows": [{"k": "1.5"}], "c": {"a": "2026-01-01"}}'
)


def test_the_schema_decides_what_json_means() -> None:
    assert value_of_json(LINE, SCHEMA) == {
        "at": datetime(2026, 11, 15, 19, tzinfo=UTC),
        "fee": Decimal("12.30"),
        "raw": b"\x00\xff",
        "price": 10,
        "any": {"x": 1.5},
        "rows": [{"k": Decimal("1.5")}],
        "c": {"a": datetime(2026, 1, 1, tzinfo=UTC)},
    }


@pytest.mark.parametrize(
    ("old", "new", "path", "reason"),
    [
        ("12.30", "12.345", "fee", "more than 2 digits"),
        ("12.30", '"x"', "fee", "not a decimal"),
        ('"AP8="', '"?"', "raw", "base64"),
        ('"2026-11-15T20:00:00+01:00"', '"yesterday"', "at", "ISO 8601"),
        ('"2026-11-15T20:00:00+01:00"', '"0001-01-01T00:00:00+14:00"', "at", "years 1 to 9999"),
        ('"1.5"', "1.55", "rows.k", "more than 1 digits"),
        ('"price"', '"prize"', "", "did you mean 'price'"),
        ("{", "[", "", "not JSON"),
    ],
)
def test_what_does_not_fit_is_refused_with_line_and_path(old: str, new: str, path: str, reason: str) -> None:
    with pytest.raises(EncodeError) as caught:
        values_of_lines(f"\n{LINE}\n{LINE.replace(old, new, 1)}\n", SCHEMA)
    assert caught.value.path == path
    assert "line 3" in caught.value.reason
    assert reason in caught.value.reason
