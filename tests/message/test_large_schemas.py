"""What a schema of thousands of fields takes: a broker makes one for whoever declares it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from weakref import ref

import pytest

from tidemark.lab.bench.steps.counting import CallCounter
from tidemark.message.schema import Schema

FIELDS = 1_000


def wide(item: str, fields: int = FIELDS) -> str:
    """The text of a schema with so many fields of one type."""
    return "[" + ", ".join(f"field_{at}: {item}" for at in range(fields)) + "]"


@pytest.fixture
def _without_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    ("item", "calls_max"), [("int", 16), ("int?", 24), ("string", 16), ("[a: int?]", 60)]
)
def test_a_large_schema_is_parsed_checked_and_made_ready_with_few_calls_for_each_field(
    item: str, calls_max: int
) -> None:
    counter = CallCounter()

    def make() -> int:
        schema = Schema.parse(wide(item))
        schema.make_ready()
        return len(schema.flat.leaves)

    assert counter.run(make) == FIELDS
    assert counter.counts(FIELDS, 0).python_calls <= calls_max * FIELDS


def test_of_a_large_schema_only_the_fields_that_a_message_has_are_made_ready_to_be_read() -> None:
    schema = Schema.parse(wide("int?"))
    schema.make_ready()
    message = schema.encode({"field_7": 7, "field_70": 70})
    schema.decode(message)
    assert [at for at, load in enumerate(schema._decoder._loads) if load is not None] == [7, 70]


@pytest.mark.usefixtures("_without_collector")
@pytest.mark.parametrize("text", [wide("int?", 50), "[a: string, b: {red: [] | green: []}]"])
def test_a_schema_that_nobody_uses_any_more_is_freed_without_the_collector_of_garbage(text: str) -> None:
    schema = Schema.parse(text)
    schema.make_ready()
    for path in schema.paths():
        schema.accessor(path)
    freed = ref(schema), ref(schema.flat)
    del schema
    assert [each() for each in freed] == [None, None]
