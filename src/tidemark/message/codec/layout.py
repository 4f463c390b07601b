"""The bytes of one flat-tuple case.

    code | fixed | ends | optional fixed | optional ends | bytes

Everything before `bytes` is the header, whose size is constant for the code. Fields that every case has
come before fields that only some cases have, so a field outside variants lies at the same offset whatever
the code. A variable-width field has no bytes in the header but a slot of two numbers, its start and its end
in the message. Neighbours share a number, so n such fields take n + 1 numbers. Any field is reached with one
read, or two for a variable one. All numbers are little-endian.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from struct import Struct, error
from typing import TYPE_CHECKING, Any

from tidemark.errors import DecodeError
from tidemark.message.types import Atomic, Kind

if TYPE_CHECKING:
    from tidemark.message.codec.flat import Leaf

#: struct's letter for each fixed kind. A decimal is a 128-bit two's complement integer.
FORMAT: dict[Kind, str] = {
    Kind.BOOLEAN: "B",
    Kind.INT: "i",
    Kind.LONG: "q",
    Kind.FLOAT: "f",
    Kind.DOUBLE: "d",
    Kind.DECIMAL: "16s",
    Kind.TIMESTAMP: "q",
}


class CaseLayout:
    """Where each leaf of one case lies, and how messages of that case are packed and unpacked."""

    def __init__(self, code: int, code_width: int, leaves: Sequence[Leaf]) -> None:
        """`leaves` are the leaves that the case has, in natural order."""
        self.code = code
        self.leaves = tuple(leaves)
        #: index of a leaf -> byte offset of its value, or of its (start, end) pair when its width is variable
        self.slots: dict[int, int] = {}
        self._prefix = (code.to_bytes(code_width, "little"),) if code_width else ()
        self._groups = groups = _Groups(self.leaves)
        self._header = Struct("<" + f"{code_width}s" * (code_width > 0) + self._assign(code_width))
        #: bytes of the header, which is where the first variable field starts
        self.size = self._header.size
        #: offsets of the numbers of the variable fields: the first and last of those that every case has, and
        #: the first and last of the others; -1 where there are none
        self.marks = (
            *_marks(self.slots, groups.ends),
            *_marks(self.slots, groups.optional_ends),
        )
        place = {leaf.index: at for at, leaf in enumerate(self.leaves)}
        self._pick_fixed = _picker([place[leaf.index] for leaf in groups.fixed])
        self._pick_optional = _picker([place[leaf.index] for leaf in groups.optional_fixed])
        self._pick_variable = _picker([place[leaf.index] for leaf in groups.ends + groups.optional_ends])
        stored = groups.fixed + groups.ends + groups.optional_fixed + groups.optional_ends
        order = {leaf.index: at for at, leaf in enumerate(stored)}
        self._pick_natural = _picker([order[leaf.index] for leaf in self.leaves])
        #: where fixed values, marks and optional fixed values end among the values of the header
        fixed_end = len(self._prefix) + len(groups.fixed)
        marks_end = fixed_end + (len(groups.ends) + 1 if groups.ends else 0)
        self._ends = fixed_end, marks_end, marks_end + len(groups.optional_fixed)

    def pack(self, values: Sequence[Any]) -> bytes:
        """The message of stored leaf values in natural order: arguments of struct, or bytes if variable."""
        variable = self._pick_variable(values)
        marks = list(accumulate(map(len, variable), initial=self.size))
        groups = self._groups
        ends = len(groups.ends)
        header = self._header.pack(
            *self._prefix,
            *self._pick_fixed(values),
            *(marks[: ends + 1] if ends else ()),
            *self._pick_optional(values),
            *(marks[ends:] if groups.optional_ends else ()),
        )
        return header + b"".join(variable) if variable else header

    def unpack(self, data: bytes) -> Sequence[Any]:
        """The stored leaf values of a message, as `pack` takes them.

        DecodeError unless the header fits the bytes exactly.
        """
        header, marks = self.checked(data)
        fixed_end, marks_end, optional_end = self._ends
        fixed, optional_fixed = header[len(self._prefix) : fixed_end], header[marks_end:optional_end]
        pieces = [data[a:b] for a, b in pairwise(marks)]
        ends = len(self._groups.ends)
        return self._pick_natural([*fixed, *pieces[:ends], *optional_fixed, *pieces[ends:]])

    def checked(self, data: bytes) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """The values of a message's header, and where its variable fields start and the last one ends.

        DecodeError unless the header fits the bytes exactly.
        """
        try:
            header = self._header.unpack_from(data)
        except error:
            raise DecodeError(f"truncated: {len(data)} bytes, the header alone has {self.size}") from None
        fixed_end, marks_end, optional_end = self._ends
        marks = header[fixed_end:marks_end] or (self.size,)
        optional_marks = header[optional_end:]
        if optional_marks:
            if optional_marks[0] != marks[-1]:
                raise DecodeError("damaged: its variable fields do not meet")
            marks += optional_marks[1:]
        is_tiled = marks[0] == self.size and marks[-1] == len(data)
        # Two marks are in order if they are these two: the header was within the bytes.
        if not is_tiled or (len(marks) > 2 and list(marks) != sorted(marks)):
            raise DecodeError("damaged: its variable fields do not tile the message")
        return header, marks

    def _assign(self, at: int) -> str:
        """Give every leaf its slot from offset `at` on, and return the letters of the header's struct."""
        letters: list[str] = []
        groups = self._groups
        for fixed, ends in ((groups.fixed, groups.ends), (groups.optional_fixed, groups.optional_ends)):
            for leaf in fixed:
                assert isinstance(leaf.basic, Atomic)
                assert leaf.width is not None
                self.slots[leaf.index] = at
                letters.append(FORMAT[leaf.basic.kind])
                at += leaf.width
            for leaf in ends:
                self.slots[leaf.index] = at
                at += 4
            if ends:
                letters.append(f"{len(ends) + 1}I")
                at += 4
        return "".join(letters)


def _marks(slots: dict[int, int], leaves: list[Leaf]) -> tuple[int, int]:
    return (slots[leaves[0].index], slots[leaves[-1].index] + 4) if leaves else (-1, -1)


class _Groups:
    """The leaves of a case in the four groups that the header has, in its order."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self.fixed = [leaf for leaf in leaves if leaf.width is not None and not leaf.optional]
        self.ends = [leaf for leaf in leaves if leaf.width is None and not leaf.optional]
        self.optional_fixed = [leaf for leaf in leaves if leaf.width is not None and leaf.optional]
        self.optional_ends = [leaf for leaf in leaves if leaf.width is None and leaf.optional]


def _picker(places: list[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function that returns the items at these places of a sequence, in this order, in one call."""
    if not places:
        return lambda _: ()
    if len(places) == 1:
        only = places[0]
        return lambda values: (values[only],)
    return itemgetter(*places)
