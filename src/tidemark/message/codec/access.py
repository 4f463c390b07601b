"""One field straight from the bytes of a message, without decoding the rest (gryphon-scalability IV.C.2).

An accessor is a function made once for a path. It reads a field outside variants at a constant offset. For a
field inside variants the message's multi-choice code first chooses the offset, or says that the field is
absent. Nesting, optionality and the size of other fields do not matter. Each list, dynamic value or box
around a field costs one more step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct, error
from typing import Any

from tidemark.errors import DecodeError
from tidemark.message.codec.flat import Flat, Leaf, VariantNode, code_finder
from tidemark.message.codec.layout import FORMAT
from tidemark.message.codec.scalars import loader
from tidemark.message.types import Atomic, Kind, path_text

#: message -> the value of one field, None where it is absent; DecodeError if its bytes are damaged
Accessor = Callable[[bytes], Any]

#: message -> the byte offset of a leaf's slot, None when the message's case does not have the leaf
SlotOf = Callable[[bytes], int | None]

_SPAN = Struct("<II")
#: Codes that one accessor remembers at a time; a schema of many optional fields can have any number of them.
CODES_KEPT_MAX = 4_096
#: Stands for the slot of a code that was not met yet: offset 0 is the code itself, never a field.
_UNMET = 0
#: Kinds whose stored form already is the Python value.
PLAIN_KINDS = (Kind.INT, Kind.LONG, Kind.FLOAT, Kind.DOUBLE)


def leaf_accessor(flat: Flat, leaf: Leaf, load: Callable[[Any], Any]) -> Accessor:
    """The accessor of one leaf; `load` turns its stored form into its value."""
    if leaf.optional:
        return _optional(flat, leaf, load)
    offset = flat.layout(0).slots[leaf.index]
    if leaf.width is None:
        return _variable_at(offset, leaf, load)
    return _fixed_at(offset, leaf)


def slot_finder(flat: Flat, leaf: Leaf) -> SlotOf:
    """A function that finds a leaf's slot in a message, by the message's multi-choice code."""
    if not leaf.optional:
        constant = flat.layout(0).slots[leaf.index]
        return lambda _: constant
    return lambda message: flat.layout_of(message).slots.get(leaf.index)


def enumeration_accessor(flat: Flat, node: VariantNode) -> Accessor:
    """The accessor of a variant whose cases are only names: it returns the name that the code chooses."""
    find = code_finder(flat.root, node)
    width = flat.code_width

    def get(message: bytes) -> str | None:
        code = int.from_bytes(message[:width], "little")
        if len(message) < width or code >= flat.count:
            raise DecodeError(f"no case has the multi-choice code {code}", path=path_text(node.path))
        return node.name_of(find(code))

    return get


def _fixed_at(offset: int, leaf: Leaf) -> Accessor:
    assert isinstance(leaf.basic, Atomic)
    path = path_text(leaf.path)
    unpack = Struct("<" + FORMAT[leaf.basic.kind]).unpack_from
    if leaf.basic.kind in PLAIN_KINDS:

        def get(message: bytes) -> Any:
            try:
                return unpack(message, offset)[0]
            except error:
                raise _truncated(path) from None

        return get
    load = loader(leaf.basic)

    def get_loaded(message: bytes) -> Any:
        try:
            return load(unpack(message, offset)[0])
        except error:
            raise _truncated(path) from None
        except DecodeError as problem:
            raise DecodeError(problem.reason, path=path) from None

    return get_loaded


def _variable_at(offset: int, leaf: Leaf, load: Callable[[Any], Any]) -> Accessor:
    path = path_text(leaf.path)
    span = _SPAN.unpack_from
    if isinstance(leaf.basic, Atomic) and leaf.basic.kind is Kind.STRING and leaf.depth == 0:

        def get_string(message: bytes) -> str:
            try:
                start, end = span(message, offset)
                if start <= end <= len(message):
                    return message[start:end].decode()
            except error:
                pass
            except UnicodeDecodeError as problem:
                raise DecodeError(f"not UTF-8 at byte {problem.start}", path=path) from None
            raise _truncated(path)

        return get_string

    def get(message: bytes) -> Any:
        try:
            start, end = span(message, offset)
        except error:
            raise _truncated(path) from None
        if not start <= end <= len(message):
            raise _truncated(path)
        return load(message[start:end])

    return get


def _optional(flat: Flat, leaf: Leaf, load: Callable[[Any], Any]) -> Accessor:
    """The accessor of a leaf that only some cases have; it keeps the offset for each code it has met."""
    slot_of = slot_finder(flat, leaf)
    if flat.code_width == 1 and leaf.depth == 0 and isinstance(leaf.basic, Atomic):
        if leaf.basic.kind in PLAIN_KINDS:
            return _plain_by_code(slot_of, leaf)
        if leaf.basic.kind is Kind.STRING:
            return _string_by_code(slot_of, leaf)
    make = _fixed_at if leaf.width is not None else lambda offset, leaf: _variable_at(offset, leaf, load)
    return _by_code(slot_of, flat.code_width, cache(lambda offset: make(offset, leaf)))


def _by_code(slot_of: SlotOf, width: int, make: Callable[[int], Accessor]) -> Accessor:
    """An accessor that chooses by the bytes of the code among accessors at constant offsets.

    `make(offset)` returns the accessor at an offset; codes with the same offset share it.
    """
    accessors: dict[bytes, Accessor] = {}

    def get(message: bytes) -> Any:
        found = accessors.get(message[:width])
        return found(message) if found is not None else learn(message)

    def learn(message: bytes) -> Any:
        slot = slot_of(message)
        if len(accessors) == CODES_KEPT_MAX:
            accessors.clear()
        accessors[message[:width]] = found = _absent if slot is None else make(slot)
        return found(message)

    return get


# With a code of one byte the offsets are a list indexed by the code, and the accessor itself does the read:
# an optional number or string then costs what a mandatory one costs, plus one list index.


def _plain_by_code(slot_of: SlotOf, leaf: Leaf) -> Accessor:
    assert isinstance(leaf.basic, Atomic)
    path = path_text(leaf.path)
    unpack = Struct("<" + FORMAT[leaf.basic.kind]).unpack_from
    slots: list[int | None] = [_UNMET] * 256

    def get(message: bytes) -> Any:
        try:
            slot = slots[message[0]]
            if slot:
                return unpack(message, slot)[0]
        except IndexError:
            slot = _UNMET
        except error:
            raise _truncated(path) from None
        return None if slot is None else learn(message)

    def learn(message: bytes) -> Any:
        slot = slot_of(message)
        slots[message[0]] = slot
        return get(message)

    return get


def _string_by_code(slot_of: SlotOf, leaf: Leaf) -> Accessor:
    path = path_text(leaf.path)
    span = _SPAN.unpack_from
    slots: list[int | None] = [_UNMET] * 256

    def get(message: bytes) -> str | None:
        try:
            slot = slots[message[0]]
            if slot:
                start, end = span(message, slot)
                if start <= end <= len(message):
                    return message[start:end].decode()
                raise _truncated(path)
        except IndexError:
            slot = _UNMET
        except error:
            raise _truncated(path) from None
        except UnicodeDecodeError as problem:
            raise DecodeError(f"not UTF-8 at byte {problem.start}", path=path) from None
        return None if slot is None else learn(message)

    def learn(message: bytes) -> str | None:
        slot = slot_of(message)
        slots[message[0]] = slot
        return get(message)

    return get


def _absent(_: bytes) -> None:
    return None


def _truncated(path: str) -> DecodeError:
    return DecodeError("the message is truncated or damaged here", path=path)
