"""HiddenFields: events without some of their fields, for readers who may not see these (docs/security.md).

A hidden field is not blanked out but left out: the messages are written anew in the schema that is left when
the field is taken out, so that nothing of it, and not even that it was there, can be read from them. Readers
resolve that schema as they resolve any other version of the topic (`message.evolve`), by which the field
reads as absent.

Only fields of the whole event can be hidden, not fields inside them. Messages are written anew a batch at a
time: the multi-choice code of each distinct case is translated once, and the values that stay are copied in
whole columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from tidemark.errors import DecodeError, EncodeError
from tidemark.message.batches.batch import EventBatch, Shape
from tidemark.message.batches.building import from_rows
from tidemark.message.batches.columns import Column, Ints, Spans
from tidemark.message.batches.gather import Messages
from tidemark.message.batches.scatter import write_cases
from tidemark.message.codec.flat import Leaf, Node, TupleNode, VariantNode, case_codes
from tidemark.message.schema import Schema
from tidemark.message.types import (
    EMPTY,
    STRING,
    Atomic,
    Field,
    List,
    Reference,
    Tuple,
    Type,
    Variant,
    absent_case,
    is_enumeration,
    is_spliced,
)


class HiddenFields:
    """What is left of the messages of one schema when fields of these names are taken out."""

    def __init__(self, schema: Schema, names: Collection[str]) -> None:
        root = schema.root
        while isinstance(root, Reference):
            root = schema.definitions[root.name]
        assert isinstance(root, Tuple)
        self._source = schema
        self._names = frozenset(names)
        left, self._plan = _without(root, self._names)
        #: the schema that is left; `schema` itself if it has none of the fields
        self.schema = schema if self._plan is None else Schema(left, _reachable(left, schema.definitions))
        #: each leaf that is left, and the one that it was; None if values have to be written one by one
        self._leaves = _matched(self.schema, schema) if self._plan is not None else []

    @property
    def is_needed(self) -> bool:
        """Whether the schema has any of the fields."""
        return self._plan is not None

    def written(self, batch: EventBatch, rows: Ints) -> Spans:
        """The messages of these rows, which are of the schema, without the fields, in a body of their own.

        DecodeError if one of them is damaged.
        """
        if self._leaves is None:
            return self._written_singly(batch, rows)
        starts, ends = batch.message_starts[rows], batch.message_ends[rows]
        messages = Messages(self._source, batch.body, starts, ends)
        cases: dict[int, int] = {}
        source, target = self._source.flat.root, self.schema.flat.root
        of_row = messages.per_code(
            lambda code: cases.setdefault(_code(self._plan, source, target, code), len(cases))
        )
        groups = [(code, np.flatnonzero(of_row == at)) for code, at in cases.items()]
        columns: dict[int, Column] = {}
        for left, was in self._leaves:
            if was.width is not None:
                assert isinstance(was.basic, Atomic)
                columns[left.index] = messages.atomic(was, was.basic)
            else:
                columns[left.index] = Column(STRING, messages.variable(was)[0])
        return write_cases(self.schema.flat, groups, columns, len(rows))

    def _written_singly(self, batch: EventBatch, rows: Ints) -> Spans:
        messages: list[bytes] = []
        for row in rows.tolist():
            value = self._source.decode(batch.message(row))
            left = {name: each for name, each in value.items() if name not in self._names}
            try:
                messages.append(self.schema.encode(left))
            except EncodeError as error:
                raise DecodeError(f"a message cannot be written without its hidden fields: {error}") from None
        ends = np.cumsum([len(message) for message in messages])
        body = np.frombuffer(b"".join(messages), np.uint8)
        return Spans(body, np.concatenate(([0], ends[:-1])).astype(np.int64), ends.astype(np.int64))


def without_fields(batch: EventBatch, hidden: Mapping[int, HiddenFields]) -> EventBatch | None:
    """The events without their hidden fields; None if there are none. A damaged event is left out.

    `hidden` is by the number of the shape; events of other shapes stay as they are.
    """
    try:
        return _rewritten(batch, hidden)
    except DecodeError:
        sound = [row for row in range(batch.count) if _is_sound(batch.slice(row, row + 1), hidden)]
        return _rewritten(batch.take(np.array(sound, np.int64)), hidden) if sound else None


def _is_sound(event: EventBatch, hidden: Mapping[int, HiddenFields]) -> bool:
    try:
        _rewritten(event, hidden)
    except DecodeError:
        return False
    return True


def _rewritten(batch: EventBatch, hidden: Mapping[int, HiddenFields]) -> EventBatch:
    of_row = batch.prelude("shape")
    starts, ends = batch.message_starts.copy(), batch.message_ends.copy()
    bodies, size = [batch.body], len(batch.body)
    shapes = list(batch.shapes)
    for at, fields in hidden.items():
        rows = np.flatnonzero(of_row == at)
        if not len(rows):
            continue
        messages = fields.written(batch, rows)
        starts[rows], ends[rows] = messages.starts + size, messages.ends + size
        bodies.append(messages.body)
        size += len(messages.body)
        shapes[at] = Shape(shapes[at].topic, fields.schema.fingerprint)
    # Two versions of a topic may have one schema when the fields are taken out.
    places = {shape: place for place, shape in enumerate(dict.fromkeys(shapes))}
    return from_rows(
        tuple(places),
        batch.publishers,
        Spans(np.concatenate(bodies), starts, ends),
        Spans(batch.body, batch.message_ends, batch.ends.astype(np.int64)),
        shape=np.array([places[shape] for shape in shapes])[of_row],
        publisher=batch.prelude("publisher"),
        priority=batch.prelude("priority"),
        validity_ms=batch.prelude("validity_ms"),
        ticks=batch.ticks,
    )


def _matched(left: Schema, source: Schema) -> list[tuple[Leaf, Leaf]] | None:
    """Each leaf that is left, and the one that it was.

    None if one is stored in another way: a schema that contains itself is written out where it stands first.
    """
    places = {leaf.path: leaf for leaf in source.flat.leaves}
    found: list[tuple[Leaf, Leaf]] = []
    for leaf in left.flat.leaves:
        was = places.get(leaf.path)
        if was is None or was.depth != leaf.depth or type(was.basic) is not type(leaf.basic):
            return None
        found.append((leaf, was))
    return found


# From the codes of a schema to those of what is left of it. A plan of None is for a part that stays as it is.


@dataclass(frozen=True, slots=True)
class _TupleLeft:
    """What is left of a tuple: which field each one was, and its plan; -1 for one that holds a place."""

    fields: tuple[tuple[int, _Plan], ...]


@dataclass(frozen=True, slots=True)
class _VariantLeft:
    """What is left of a variant: which case each case becomes, and its plan; a hidden one becomes absent."""

    cases: tuple[tuple[int, _Plan], ...]
    hidden: frozenset[int]


_Plan = _TupleLeft | _VariantLeft | None


def _code(plan: _Plan, source: Node, target: Node, code: int) -> int:
    """The code of `target` for what the code of `source` says."""
    match plan:
        case None:
            return code
        case _TupleLeft(left):
            assert isinstance(source, TupleNode)
            assert isinstance(target, TupleNode)
            digits = list(case_codes(source, code))
            found, weight = 0, 1
            for (was, inner), node in zip(left, target.nodes, strict=True):
                if was >= 0:
                    found += weight * _code(inner, source.nodes[was], node, digits[was])
                weight *= node.count
            return found
        case _VariantLeft(cases, hidden):
            assert isinstance(source, VariantNode)
            assert isinstance(target, VariantNode)
            was = source.case_of(code)
            case, inner = cases[was]
            if was in hidden:
                return target.starts[case]
            rest = code - source.starts[was]
            return target.starts[case] + _code(inner, source.nodes[was], target.nodes[case], rest)


def _without(item: Tuple, names: frozenset[str]) -> tuple[Tuple, _Plan]:
    """A tuple without the fields of these names, spliced ones included, and how its codes follow."""
    kept: list[tuple[Field, int, _Plan]] = []
    for at, field in enumerate(item.fields):
        if field.name in names and field.name:
            continue
        left: Type | None = field.type
        plan: _Plan = None
        if is_spliced(field) and isinstance(field.type, Tuple):
            left, plan = _without(field.type, names)
        elif is_spliced(field) and isinstance(field.type, Variant):
            left, plan = _without_cases(field.type, names)
        if left is not None:
            kept.append((Field(field.name, left), at, plan))
    if len(kept) == len(item.fields) and all(plan is None for _, _, plan in kept):
        return item, None
    placed = _in_place(item, kept)
    return Tuple(tuple(field for field, _, _ in placed)), _TupleLeft(tuple(each[1:] for each in placed))


def _in_place(item: Tuple, kept: list[tuple[Field, int, _Plan]]) -> list[tuple[Field, int, _Plan]]:
    """The fields that are left, with an empty one before each whose name is its place in the tuple."""
    named_by_place = [at for field, at, _ in kept if not field.name and not is_spliced(item.fields[at])]
    last = max(named_by_place, default=-1)
    placed: list[tuple[Field, int, _Plan]] = []
    for each in kept:
        while each[1] <= last and len(placed) < each[1]:
            placed.append((Field("", EMPTY), -1, None))
        placed.append(each)
    return placed


def _without_cases(item: Variant, names: frozenset[str]) -> tuple[Variant | None, _Plan]:
    """A spliced variant without the cases of these names; None if nothing is left that could be read."""
    gone = frozenset(at for at, case in enumerate(item.cases) if case.name in names)
    if not gone:
        return item, None
    absent = absent_case(item)
    left = [case for at, case in enumerate(item.cases) if at not in gone]
    if absent is None or absent in gone:
        left.append(Field("", EMPTY))
    found = Variant(tuple(left))
    nothing = absent_case(found)
    assert nothing is not None
    if len(left) < 2 or is_enumeration(found):
        return None, None
    places = {case: at for at, case in enumerate(left)}
    cases = [(nothing if at in gone else places[case], None) for at, case in enumerate(item.cases)]
    return found, _VariantLeft(tuple(cases), gone)


def _reachable(root: Type, definitions: Mapping[str, Type]) -> dict[str, Type]:
    """The named schemas that a type still refers to."""
    found: dict[str, Type] = {}
    waiting: list[Type] = [root]
    while waiting:
        match waiting.pop():
            case Reference(name) if name not in found:
                found[name] = definitions[name]
                waiting.append(definitions[name])
            case Tuple(fields) | Variant(fields):
                waiting.extend(field.type for field in fields)
            case List(item):
                waiting.append(item)
            case _:
                pass
    return {name: item for name, item in definitions.items() if name in found}
