"""Several fields straight from the bytes of a message, with a single read of the header.

For each multi-choice code the offsets of the fields are constants. So one struct with the right padding reads
every number that is needed: the values of fixed-width fields, and where the bytes of variable ones start and
end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from struct import Struct, error, pack
from typing import Any

from tidemark.errors import DecodeError
from tidemark.message.codec.access import CODES_KEPT_MAX, PLAIN_KINDS
from tidemark.message.codec.flat import Flat, Leaf
from tidemark.message.codec.layout import FORMAT, CaseLayout
from tidemark.message.codec.scalars import load_string
from tidemark.message.types import Atomic, Kind, path_text

Values = tuple[Any, ...]
Load = Callable[[Any], Any]


def many_accessor(flat: Flat, leaves: Sequence[Leaf], loads: Sequence[Load]) -> Callable[[bytes], Values]:
    """A function from a message to the values of these leaves, None for a leaf that its case does not have.

    `loads[n]` turns the stored form of `leaves[n]` into its value.
    """
    width = flat.code_width
    plans: dict[bytes, Callable[[bytes], Values]] = {}

    def get(message: bytes) -> Values:
        code = message[:width]
        plan = plans.get(code)
        if plan is None:
            if len(plans) == CODES_KEPT_MAX:
                plans.clear()
            plan = plans[code] = _plan(flat.layout_of(message), leaves, loads)
        return plan(message)

    return get


def _plan(layout: CaseLayout, leaves: Sequence[Leaf], loads: Sequence[Load]) -> Callable[[bytes], Values]:
    letters: dict[int, str] = {}
    for leaf in leaves:
        slot = layout.slots.get(leaf.index)
        if slot is not None and leaf.width is not None:
            assert isinstance(leaf.basic, Atomic)
            letters[slot] = FORMAT[leaf.basic.kind]
        elif slot is not None:
            letters[slot] = letters[slot + 4] = "I"
    read, place = _struct(letters), {slot: at for at, slot in enumerate(sorted(letters))}
    slots = [layout.slots.get(leaf.index) for leaf in leaves]
    present = [leaf for leaf, slot in zip(leaves, slots, strict=True) if slot is not None]
    if all(_is_plain(leaf) for leaf in present) and len(leaves) > 1:
        absent = len(place)  # one None is put behind the values that are read
        pick = itemgetter(*(absent if slot is None else place[slot] for slot in slots))
        if len(present) == len(leaves):
            return lambda message: pick(_unpack(read, message))
        return lambda message: pick((*_unpack(read, message), None))
    if all(_is_string(leaf) for leaf in present):
        return _strings(read, [None if slot is None else (place[slot], place[slot + 4]) for slot in slots])
    makers = [
        _maker(leaf, layout.slots.get(leaf.index), place, load)
        for leaf, load in zip(leaves, loads, strict=True)
    ]

    def get(message: bytes) -> Values:
        numbers = _unpack(read, message)
        return tuple([make(message, numbers) for make in makers])

    return get


def _strings(read: Struct, ends: Sequence[tuple[int, int] | None]) -> Callable[[bytes], Values]:
    """A function that reads strings only, None for an absent one, without a call for each of them."""

    def get(message: bytes) -> Values:
        numbers, size = _unpack(read, message), len(message)
        found: list[str | None] = []
        try:
            for pair in ends:
                if pair is None:
                    found.append(None)
                    continue
                start, end = numbers[pair[0]], numbers[pair[1]]
                if not start <= end <= size:
                    raise DecodeError("the message is truncated or damaged")
                found.append(message[start:end].decode())
        except UnicodeDecodeError as problem:
            raise DecodeError(f"not UTF-8 at byte {problem.start} of a string") from None
        return tuple(found)

    return get


def _struct(letters: dict[int, str]) -> Struct:
    """A struct that reads the numbers at these offsets and skips the bytes between them."""
    parts, at = ["<"], 0
    for slot in sorted(letters):
        parts.append(f"{slot - at}x{letters[slot]}")
        at = slot + len(pack("<" + letters[slot], *([b""] if letters[slot] == "16s" else [0])))
    return Struct("".join(parts))


def _unpack(read: Struct, message: bytes) -> Values:
    try:
        return read.unpack_from(message)
    except error:
        raise DecodeError(f"truncated: {len(message)} bytes, its fields need {read.size}") from None


def _maker(leaf: Leaf, slot: int | None, place: dict[int, int], load: Load) -> Callable[[bytes, Values], Any]:
    if slot is None:
        return lambda _, __: None
    first = place[slot]
    if _is_plain(leaf):
        return lambda _, numbers: numbers[first]
    if leaf.width is not None:
        return lambda _, numbers: load(numbers[first])
    last, path = place[slot + 4], path_text(leaf.path)
    if _is_string(leaf):
        load = load_string

    def make(message: bytes, numbers: Values) -> Any:
        start, end = numbers[first], numbers[last]
        if not start <= end <= len(message):
            raise DecodeError("the message is truncated or damaged here", path=path)
        try:
            return load(message[start:end])
        except DecodeError as problem:
            raise DecodeError(problem.reason, path=problem.path or path) from None

    return make


def _is_string(leaf: Leaf) -> bool:
    return leaf.depth == 0 and isinstance(leaf.basic, Atomic) and leaf.basic.kind is Kind.STRING


def _is_plain(leaf: Leaf) -> bool:
    return leaf.width is not None and isinstance(leaf.basic, Atomic) and leaf.basic.kind in PLAIN_KINDS
