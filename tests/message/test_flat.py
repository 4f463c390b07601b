"""The flat-tuple transformation, on the paper's examples and on schemas too large to enumerate."""

from __future__ import annotations

from tidemark.message.codec.flat import Box, Flat, Recursive
from tidemark.message.codec.layout import CaseLayout
from tidemark.message.schema import Schema

ENVELOPE = (
    "[priority: int, properties: *([name: string, value: string])*, "
    "payload: {absent: [] | request: [topic: string, selector: string] | reply: int | other: dynamic}]"
)


def cases(flat: Flat) -> list[list[str]]:
    return [
        [".".join(leaf.path) + "*" * leaf.depth for leaf in flat.active(code)] for code in range(flat.count)
    ]


def test_the_papers_envelope_becomes_four_flat_tuples() -> None:
    common = ["priority", "properties.name*", "properties.value*"]
    assert cases(Schema.parse(ENVELOPE).flat) == [
        common,
        [*common, "payload.request.topic", "payload.request.selector"],
        [*common, "payload.reply"],
        [*common, "payload.other"],
    ]


def test_independent_variants_multiply() -> None:
    assert cases(Schema.parse("[{w: int | x: int}, {y: int | z: int}]").flat) == [
        ["w", "y"],
        ["x", "y"],
        ["w", "z"],
        ["x", "z"],
    ]


def test_variants_associate() -> None:
    flat = Schema.parse("{ a: {[] | b: string} | c: *(string)* }").flat
    assert cases(flat) == [[], ["a.b"], ["c*"]]


def test_lists_come_before_distribution_so_that_only_the_variant_is_boxed() -> None:
    flat = Schema.parse("rows: *([name: string, value: {i: int | b: boolean}])*").flat
    name, value = flat.leaves
    assert flat.count == 1
    assert name.depth == 1
    assert not isinstance(name.basic, Box)
    assert isinstance(value.basic, Box)
    assert cases(value.basic.flat) == [["i"], ["b"]]


def test_recursion_becomes_a_leaf() -> None:
    flat = Schema.parse("tree: [value: int, left: tree?, right: tree?]").flat
    assert flat.count == 4
    assert [leaf.basic for leaf in flat.leaves if isinstance(leaf.basic, Recursive)] == [
        Recursive("tree")
    ] * 2


def test_a_super_variant_of_astronomic_size_loads_at_once_and_derives_only_what_is_met() -> None:
    fields = ", ".join(f"f{n}: {{a: int | b: string | c: [] | d: double}}" for n in range(100))
    schema = Schema.parse(f"[{fields}]")
    assert schema.flat.count == 4**100
    value = {f"f{n}": {"b": "x"} if n % 2 else {"a": n} for n in range(100)}
    assert schema.decode(schema.encode(value)) == value
    assert schema.flat.layout.cache_info().currsize == 1


def test_fields_outside_variants_lie_at_the_same_offset_in_every_case() -> None:
    flat = Schema.parse("[a: int?, b: string?, c: long, d: string, e: boolean?]").flat
    mandatory = [leaf for leaf in flat.leaves if not leaf.optional]
    offsets = {tuple(flat.layout(code).slots[leaf.index] for leaf in mandatory) for code in range(flat.count)}
    assert len(offsets) == 1


def test_a_layout_is_code_fixed_ends_then_optional_ones_then_bytes() -> None:
    schema = Schema.parse("[a: int, b: string, c: short?, d: string?]; short: [x: boolean]")
    layout: CaseLayout = schema.flat.layout(3)
    by_path = {".".join(leaf.path): layout.slots[leaf.index] for leaf in layout.leaves}
    assert by_path == {"a": 1, "b": 5, "c.x": 13, "d": 14}
    assert layout.size == 22


def test_layouts_are_kept_up_to_a_bound() -> None:
    schema = Schema.parse("[" + ", ".join(f"f{n}: int?" for n in range(20)) + "]")
    for code in range(5_000):
        schema.flat.layout(code)
    assert schema.flat.layout.cache_info().currsize == 4_096
