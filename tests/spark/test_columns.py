from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tidemark.errors import TranslationError
from tidemark.message.foreign.arrow.types import arrow_schema
from tidemark.message.schema import Schema
from tidemark.message.types import Path
from tidemark.spark.columns import EventColumns

SCHEMA = Schema.parse(
    "[a: int?, in: [b: string], deep: [c: [d: long?]]?, colour: {red: [] | green: []},"
    " choice: {x: int | y: int? | z: [w: int?]?}, {p: int? | q: [r: int]}]"
)
COLUMNS = EventColumns(SCHEMA.root)


def test_the_column_of_every_field_is_in_the_arrow_schema_and_leads_back_to_it() -> None:
    fields = [path for path in SCHEMA.paths() if path[:-1] != ("colour",)]
    assert len(fields) > 12
    for field in fields:
        inside: Any = arrow_schema(SCHEMA.root)
        for name in COLUMNS.column(field):
            inside = inside.field(name) if not hasattr(inside, "type") else inside.type.field(name)
        assert COLUMNS.field(COLUMNS.column(field)) == field


@pytest.mark.parametrize(
    ("field", "column"),
    [
        (("a",), ("a",)),
        (("deep", "c", "d"), ("deep", "c", "d")),
        (("colour",), ("colour",)),
        (("choice", "x"), ("choice", "x")),
        (("choice", "y"), ("choice", "y", "value")),
        (("choice", "z", "w"), ("choice", "z", "value", "w")),
        (("p",), ("p", "value")),
        (("q", "r"), ("q", "r")),
        (("_topic",), ("_topic",)),
    ],
)
def test_a_chosen_value_that_may_be_none_lies_in_a_struct_of_its_own(field: Path, column: Path) -> None:
    assert COLUMNS.column(field) == column
    assert COLUMNS.field(column) == field


def test_the_text_of_a_column_is_quoted() -> None:
    assert COLUMNS.text(("choice", "y")) == "`choice`.`y`.`value`"


@pytest.mark.parametrize("field", [("colour", "red"), ("nothing",), ("a", "b")])
def test_what_has_no_column_of_its_own_is_refused_by_name(field: Path) -> None:
    with pytest.raises(TranslationError, match=field[-1]):
        COLUMNS.column(field)


@pytest.mark.parametrize(
    "column", [("choice", "y"), ("p",), ("choice", "x", "value"), ("_pubend",), ("a", "b")]
)
def test_a_column_that_holds_no_field_leads_nowhere(column: Path) -> None:
    assert COLUMNS.field(column) is None


def test_a_worker_that_reads_events_does_not_import_pandas() -> None:
    # Importing it takes half a second of CPU, and Spark starts workers again and again.
    script = """
import sys
from datetime import UTC, datetime
from decimal import Decimal
from tidemark.message.batches.batch import BatchBuilder, Shape
from tidemark.message.schema import Schema
from tidemark.spark.topic_columns import TopicColumnReader, make_topic_columns
from tidemark.wire.answers import TopicStatus
schema = Schema.parse("[a: string, n: int, x: double?, at: timestamp, ok: boolean, price: decimal(9, 2)]")
topics = [TopicStatus(name, False, (schema.text,)) for name in ("t.a", "t.b")]
builder = BatchBuilder()
for number, topic in enumerate(("t.a", "t.b", "t.a")):
    at, price = datetime(2026, 1, 1, tzinfo=UTC), Decimal("1.25")
    value = {"a": "x" * number, "n": number, "x": None, "at": at, "ok": True, "price": price}
    builder.add(Shape(topic, schema.fingerprint), schema.encode(value), publisher=topic)
reader = TopicColumnReader(make_topic_columns(topics, "t.*", "", None, gaps=False), lambda: topics)
sound, _ = reader.sound(builder.build())
rows = reader.records("p", sound)
assert "pandas" not in sys.modules
print(rows.to_pylist()[1])
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "'a': 'x', 'n': 1, 'x': None" in said.stdout
    assert "'_pubend': 'p', '_tick': 0, '_topic': 't.b', '_publisher': 't.b'" in said.stdout
