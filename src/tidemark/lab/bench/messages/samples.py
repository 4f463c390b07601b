"""The six schemas of gryphon-scalability V-D, and random messages of them.

Sixteen fields, numbers or strings: flat; each at the bottom of four levels of tuples; and the same with every
fourth field optional. A seed decides everything, so that every run and every format gets the same messages
and the same choices of fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from string import ascii_letters
from typing import Any

from tidemark.message.types import Path

FIELDS = tuple(f"field{digit:X}" for digit in range(16))
STRING_LENGTHS = (4, 16)
#: Distinct sets of nine fields. Formats that compile a type for what is asked need one for each set.
NINE_FIELD_SETS = 32


@dataclass(frozen=True, slots=True)
class Sample:
    """One of the six schemas."""

    name: str
    #: "int" or "string"
    kind: str
    #: the sixteen fields, in order
    paths: tuple[Path, ...]
    optional: bool

    @property
    def text(self) -> str:
        """In the schema language."""
        return _tuple_text(tree_of(self.paths), self.kind, self.optional_pieces)

    @property
    def optional_pieces(self) -> frozenset[str]:
        """The names of the tuples that may be absent."""
        return frozenset(path[-2] for path in self.paths[3::4]) if self.optional else frozenset()

    def may_lack(self, path: Path) -> bool:
        """Whether the field is in an optional piece."""
        return len(path) > 1 and path[-2] in self.optional_pieces

    def message(self, random: Random) -> dict[str, Any]:
        """A random message; an optional field is there half of the time."""
        value: dict[str, Any] = {}
        for path in self.paths:
            depth = len(path) - 1
            missing = self.may_lack(path) and random.random() < 0.5
            inner = value
            for part in path[: depth - missing]:
                inner = inner.setdefault(part, {})
            if not missing:
                inner[path[-1]] = self._value(random)
        return value

    def _value(self, random: Random) -> int | str:
        if self.kind == "int":
            return random.randrange(-(2**31), 2**31)
        return "".join(random.choices(ascii_letters, k=random.randint(*STRING_LENGTHS)))


def samples() -> list[Sample]:
    """flatInt, flatString, nestedInt, nestedString, optNestInt, optNestString."""
    flat = tuple((name,) for name in FIELDS)
    nested = tuple(_nested_path(number) for number in range(16))
    shapes = (("flat", flat, False), ("nested", nested, False), ("optNest", nested, True))
    return [
        Sample(shape + kind.title(), kind, paths, optional)
        for shape, paths, optional in shapes
        for kind in ("int", "string")
    ]


def field_sets(sample: Sample, random: Random, size: int, count: int) -> list[tuple[Path, ...]]:
    """`count` random sets of `size` different fields."""
    return [tuple(random.sample(sample.paths, size)) for _ in range(count)]


def at(value: Any, path: Sequence[str]) -> Any:
    """Returns the value at a path of a message, or None if it is absent."""
    for part in path:
        value = value.get(part) if value is not None else None
    return value


def _nested_path(number: int) -> Path:
    """Two parts of two sections of two areas of two pieces of one field each, lettered through."""
    places = (("part", 8), ("section", 4), ("area", 2), ("piece", 1))
    return (*(name + ascii_letters[26 + number // each] for name, each in places), FIELDS[number])


def tree_of(paths: Sequence[Path]) -> dict[str, Any]:
    """Returns the fields as nested dicts, in which None stands for a field."""
    tree: dict[str, Any] = {}
    for path in paths:
        inner = tree
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = None
    return tree


def _tuple_text(tree: dict[str, Any], kind: str, optional: frozenset[str]) -> str:
    parts = []
    for name, inner in tree.items():
        text = f"{name}: {kind if inner is None else _tuple_text(inner, kind, optional)}"
        parts.append(f"{{ [] | {text} }}" if name in optional else text)
    return f"[ {', '.join(parts)} ]"
