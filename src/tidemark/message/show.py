"""A schema shown to people (`tidemark schema show`): natural form, flat form, and the bytes of its cases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict

from tidemark.message.codec.flat import Box, Leaf, Recursive
from tidemark.message.codec.layout import CaseLayout
from tidemark.message.schema import Schema
from tidemark.message.text import indented, type_text
from tidemark.message.types import Atomic, Dynamic, Reference, path_text

#: Cases that are shown when there are no messages that say which cases are used.
CASES_SHOWN_MAX = 8


class FieldDescription(TypedDict):
    """A field of the flat form of a schema."""

    path: str
    type: str
    #: whether only some cases have it
    optional: bool


class RowDescription(TypedDict):
    """Bytes of the header of a message."""

    offset: int
    bytes: int
    holds: str


class LayoutDescription(TypedDict):
    """The header of the messages of one case."""

    code: int
    header_bytes: int
    #: how many messages have the case; None if no messages were given
    messages: int | None
    rows: list[RowDescription]


class SchemaDescription(TypedDict):
    """A schema, and the bytes of its cases."""

    text: str
    #: 16 hexadecimal digits
    fingerprint: str
    natural: str
    cases: int
    code_bytes: int
    fields: list[FieldDescription]
    layouts: list[LayoutDescription]


def describe(schema: Schema, messages: Iterable[bytes] = ()) -> SchemaDescription:
    """What `tidemark schema show --json` prints: the schema, and the bytes of its cases.

    The cases are those that the messages have; without messages, the first CASES_SHOWN_MAX.
    """
    flat = schema.flat
    width = flat.code_width
    met: dict[int, int] = {}
    for message in messages:
        code = int.from_bytes(message[:width], "little")
        met[code] = met.get(code, 0) + 1
    codes = sorted(met) or range(min(flat.count, CASES_SHOWN_MAX))
    return {
        "text": schema.text,
        "fingerprint": f"{schema.fingerprint:016x}",
        "natural": _natural(schema),
        "cases": flat.count,
        "code_bytes": width,
        "fields": [_field(leaf) for leaf in flat.leaves],
        "layouts": [_layout(flat.layout(code), width, met.get(code)) for code in codes],
    }


def render(description: SchemaDescription) -> str:
    """What `tidemark schema show` prints: the description as text."""
    fields = [
        (str(at), field["path"], field["type"], "some cases" if field["optional"] else "every case")
        for at, field in enumerate(description["fields"])
    ]
    parts = [
        "natural schema\n" + _shifted(description["natural"]),
        f"fingerprint {description['fingerprint']}",
        f"flat form: {_counted(description['cases'])} over these fields\n"
        + _table(("#", "field", "type", "in"), fields),
    ]
    parts += [_case(layout) for layout in description["layouts"]]
    hidden = description["cases"] - len(description["layouts"])
    if hidden > 0:
        parts.append(f"({hidden} more flat tuples are derived when first met)")
    return "\n\n".join(parts)


def _natural(schema: Schema) -> str:
    lines = [] if isinstance(schema.root, Reference) else [indented(schema.root)]
    return "\n".join([*lines, *(f"{name}: {indented(item)}" for name, item in schema.definitions.items())])


def _field(leaf: Leaf) -> FieldDescription:
    return {"path": path_text(leaf.path) or "(root)", "type": _leaf_type(leaf), "optional": leaf.optional}


def _leaf_type(leaf: Leaf) -> str:
    match leaf.basic:
        case Atomic() | Dynamic():
            text = type_text(leaf.basic)
        case Recursive(name):
            text = f"{name} (dynamic)"
        case Box(flat):
            text = f"box {type_text(flat.root.type)}"
    return "*(" * leaf.depth + text + ")*" * leaf.depth


def _layout(layout: CaseLayout, code_width: int, messages: int | None) -> LayoutDescription:
    rows: list[RowDescription] = []
    if code_width:
        rows.append({"offset": 0, "bytes": code_width, "holds": "multi-choice code"})
    by_offset = sorted(layout.leaves, key=lambda leaf: layout.slots[leaf.index])
    rows += [_row(leaf, layout.slots[leaf.index]) for leaf in by_offset]
    return {"code": layout.code, "header_bytes": layout.size, "messages": messages, "rows": rows}


def _row(leaf: Leaf, offset: int) -> RowDescription:
    what = f"{path_text(leaf.path) or '(root)'}: {_leaf_type(leaf)}"
    if leaf.width is not None:
        return {"offset": offset, "bytes": leaf.width, "holds": what}
    return {"offset": offset, "bytes": 8, "holds": f"{what} - start and end; its bytes follow the header"}


def _case(layout: LayoutDescription) -> str:
    met = "" if layout["messages"] is None else f", met in {layout['messages']} messages"
    title = f"flat tuple {layout['code']}{met}: header of {layout['header_bytes']} bytes"
    rows = [(str(row["offset"]), str(row["bytes"]), row["holds"]) for row in layout["rows"]]
    return f"{title}\n" + _table(("offset", "bytes", "holds"), rows)


def _counted(cases: int) -> str:
    return "one flat tuple" if cases == 1 else f"a super-variant of {cases:,} flat tuples"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[at]) for row in (titles, *rows)) for at in range(len(titles))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in (titles, *rows)
    )
    return "\n".join("  " + line.rstrip() for line in lines)


def _shifted(text: str) -> str:
    return "\n".join("  " + line for line in text.splitlines())
