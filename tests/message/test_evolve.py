"""Old readers and new messages, new readers and old messages, and changes that are refused."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.message.value_strategies import records, values
from tidemark.errors import IncompatibleSchemaError
from tidemark.message.evolve import Resolution, SchemaHistory, UnknownCase, check_compatible
from tidemark.message.schema import Schema
from tidemark.message.types import Field, Tuple

OLD = Schema.parse("[id: long, name: string, status: {new: [] | done: []}, body: {text: string}]")
NEW = Schema.parse(
    "[body: {text: string | image: [url: string, size: int]}, status: {new: [] | done: [] | failed: []}, "
    "name: string?, added: double]"
)


def test_old_readers_read_new_messages_and_new_readers_old_ones() -> None:
    check_compatible(OLD, NEW)
    old = OLD.encode({"id": 1, "name": "n", "status": "done", "body": {"text": "t"}})
    new = NEW.encode({"body": {"text": "t"}, "status": "new", "name": "m", "added": 1.5})
    assert Resolution(OLD, NEW).decode(old) == {
        "body": {"text": "t"},
        "status": "done",
        "name": "n",
        "added": None,
    }
    assert Resolution(NEW, OLD).decode(new) == {
        "id": None,
        "name": "m",
        "status": "new",
        "body": {"text": "t"},
    }


def test_a_case_that_the_reader_does_not_know_reads_as_unknown_case() -> None:
    image = {"image": {"url": "u", "size": 3}}
    message = NEW.encode({"body": image, "status": "failed", "name": None, "added": 0.0})
    value = Resolution(NEW, OLD).decode(message)
    assert value["body"] == UnknownCase("image")
    assert value["status"] == UnknownCase("failed")


def test_absence_is_detectable_field_by_field() -> None:
    message = OLD.encode({"id": 1, "name": "n", "status": "new", "body": {"text": "t"}})
    resolution = Resolution(OLD, NEW)
    assert resolution.accessor("added")(message) is None
    assert resolution.accessor("name")(message) == "n"
    assert resolution.accessor("body.image.url")(message) is None
    assert resolution.accessor("body.text")(message) == "t"


def test_cases_added_under_a_list_and_in_recursion_are_resolved_too() -> None:
    old = Schema.parse("node: [value: {i: int}, children: *(node)*, marks: *({a: int})*]")
    new = Schema.parse(
        "node: [value: {i: int | s: string}, extra: int?, children: *(node)*, marks: *({a: int | b: int})*]"
    )
    check_compatible(old, new)
    child = {"value": {"s": "x"}, "extra": 5, "children": [], "marks": [{"b": 1}, {"a": 2}]}
    message = new.encode({"value": {"i": 1}, "extra": None, "children": [child], "marks": []})
    assert Resolution(new, old).decode(message) == {
        "value": {"i": 1},
        "children": [{"value": UnknownCase("s"), "children": [], "marks": [UnknownCase("b"), {"a": 2}]}],
        "marks": [],
    }


def test_numbers_widen_where_shapes_of_an_open_topic_meet() -> None:
    narrow, wide = Schema.parse("[n: long, i: int]"), Schema.parse("[n: double, i: long]")
    value = Resolution(narrow, wide).decode(narrow.encode({"n": 5, "i": 6}))
    assert value == {"n": 5.0, "i": 6}
    assert isinstance(value["n"], float)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.data(), records(), st.randoms(use_true_random=False))
def test_fields_may_move_come_and_go_without_disturbing_the_rest(
    data: st.DataObject, old: Tuple, order: Random
) -> None:
    kept = [field for field in old.fields if data.draw(st.booleans())]
    fields = [*kept, Field("brand_new", Schema.parse("[x: int, y: string?]").root)]
    order.shuffle(fields)
    writer, reader = Schema(old), Schema(Tuple(tuple(fields)))
    check_compatible(writer, reader)
    value = data.draw(values(old))
    read = Resolution(writer, reader).decode(writer.encode(value))
    assert read.pop("brand_new") is None
    assert read == {field.name: value[field.name] for field in kept}


@pytest.mark.parametrize(
    ("old", "new", "path", "reason"),
    [
        ("[a: int]", "[a: string]", "a", "was int, would be string"),
        ("[a: int]", "[a: long]", "a", "was int, would be long"),
        ("[a: [b: [c: int]]]", "[a: [b: [c: *(int)*]]]", "a.b.c", "was int"),
        ("[a: {x: int | y: int}]", "[a: {x: int}]", "a", "its case 'y' is gone"),
        ("[a: *([b: int])*]", "[a: *([b: string])*]", "a.b", "was int"),
        ("[a: *({x: int})*]", "[a: *({x: string})*]", "a.x", "was int"),
        ("n: [v: int, next: n?]", "n: [v: string, next: n?]", "v", "was int"),
        ("[a: decimal(10, 2)]", "[a: decimal(12, 4)]", "a", "would be decimal(12, 4)"),
        ("[a: int]", "*(int)*", "", "the whole schema"),
    ],
)
def test_a_change_that_someone_would_misread_is_refused_with_its_path(
    old: str, new: str, path: str, reason: str
) -> None:
    with pytest.raises(IncompatibleSchemaError) as caught:
        check_compatible(Schema.parse(old), Schema.parse(new))
    assert caught.value.path == path
    assert reason in str(caught.value)


def test_of_the_leaves_of_a_topic_only_what_they_hold_is_remembered() -> None:
    # A topic may have thousands of fields, and each version is checked and added while everybody waits.
    history = SchemaHistory()
    for version in range(3):
        fields = ", ".join(f"field_{at}: int?" for at in range(100 + version))
        schema = Schema.parse(f"[{fields}]")
        history.check(schema)
        history.add(schema)
    assert history._root is not None
    assert len(history._root.members) == 102
    assert not any(isinstance(each, type(history._root)) for each in history._root.members.values())
    with pytest.raises(IncompatibleSchemaError, match="was int, would be long"):
        history.check(Schema.parse("[field_7: long]"))
