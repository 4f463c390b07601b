"""What a schema of thousands of fields takes: a broker makes one for whoever declares it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from weakref import ref

import pytest

from tidemark.errors import SchemaError
from tidemark.lab.bench.steps.counting import CallCounter
from tidemark.message import registry as registry_module
from tidemark.message.codec.flat import NODES_MAX
from tidemark.message.parse import SCHEMA_TEXT_CHARS_MAX, defines_names
from tidemark.message.registry import Registry
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


def doubled(levels: int, last: str) -> str:
    """Named schemas, each of which has the next one twice."""
    return "; ".join(f"s{n}: [a: s{n + 1}, b: s{n + 1}]" for n in range(levels)) + f"; s{levels}: {last}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        # Each would take as many steps as there are ways to follow the references, 2 ** 60.
        (f"[x: *(s0)*]; {doubled(60, '[]')}", "must hold something"),
        (doubled(60, "[]"), f"more than {NODES_MAX} parts"),
        (f"[x: *({{a: s0 | b: int}})*]; {doubled(60, '[]')}", f"more than {NODES_MAX} parts"),
        # None of these is large itself; all together are.
        (
            doubled(8, "[a: int]") + "".join(f"; x{n}: s0" for n in range(3_000)),
            f"more than {NODES_MAX} parts",
        ),
        (
            "; ".join(f"s{n}: s{n + 1}" for n in range(4_000)) + "; s4000: [a: int]",
            "more than 100 references",
        ),
    ],
)
def test_a_text_whose_references_multiply_it_is_refused_and_nobody_waits_for_that(
    text: str, reason: str
) -> None:
    assert len(text) <= SCHEMA_TEXT_CHARS_MAX
    assert defines_names(text)
    with pytest.raises(SchemaError, match=reason):
        Schema.parse(text)


def test_a_topic_whose_schema_names_thousands_is_declared_with_few_calls_for_each() -> None:
    names = 500
    text = "[a: s0]; " + "; ".join(f"s{n}: [x: int]" for n in range(names))
    schema, registry, counter = Schema.parse(text), Registry(), CallCounter()
    counter.run(lambda: len(registry.declare("t", schema).texts))
    assert counter.counts(names, 0).python_calls <= 30 * names


def test_what_is_kept_ready_is_bounded_by_what_is_made_of_texts_and_not_by_their_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry_module, "READY_BYTES_MAX", 16 << 10)
    schemas = Registry().schemas
    for number in range(20):
        schema = schemas.add(Schema.parse(doubled(6, f"[x_{number}: int]")))
        assert schema.weight > 10 * len(schema.text)
    assert sum(each.weight for each in {**schemas._young, **schemas._old}.values()) <= 16 << 10


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("tree: [v: int, kids: *(tree?)*]", {"v": 1, "kids": [{"v": 2, "kids": [None]}, None]}),
        (
            "tree: [v: int, kids: *({leaf: int | node: tree})*]",
            {"v": 1, "kids": [{"leaf": 2}, {"node": {"v": 3, "kids": []}}]},
        ),
    ],
)
def test_a_named_schema_may_contain_itself_as_a_case_in_a_list(text: str, value: dict[str, object]) -> None:
    schema = Schema.parse(text)
    assert schema.decode(schema.encode(value)) == value


@pytest.mark.parametrize(
    ("text", "defines"),
    [
        ("[a: int, b: {c: int | d: *([e: int])*}]", False),
        ("int", False),
        ("[a: int] # x: int", False),
        ("x: [a: int]", True),
        ("[a: x] x: int", True),
        ('[a: "x y"]; "x y": int', True),
    ],
)
def test_it_is_known_before_whether_a_text_defines_names(text: str, defines: bool) -> None:
    assert defines_names(text) is defines
    assert bool(Schema.parse(text).definitions) is defines
