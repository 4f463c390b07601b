"""LIKE patterns, matched in linear time.

`%` cuts a pattern into segments of fixed length. The first segment is anchored at the start of the value, the
last at its end, and each one between is taken at its leftmost place after the one before: if any placing
works, the leftmost does, so no place is tried twice. A segment without `_` is found by str.find, one with `_`
by the shift-and algorithm: bit i of the state says that the last i + 1 characters match the segment's first i
+ 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from tidemark.errors import SelectorSyntaxError

#: Compiled patterns that are kept: one selector is checked, indexed and evaluated, and each compiles it.
PATTERNS_KEPT_MAX = 16


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of a pattern between two `%`; whatever it matches has as many characters as `text`."""

    #: the characters to match; "_" at the places that match any character
    text: str
    #: the places in `text` that match any one character, ascending
    wild: tuple[int, ...] = ()
    #: `wild` as bits; and by character the places at which it may stand, as bits, where other characters may
    #: stand at `wild` only. None without `wild`: a pattern may have thousands of such segments.
    _bits: tuple[int, dict[str, int]] | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if not self.wild:
            return
        anywhere = sum(1 << hole for hole in self.wild)
        places: dict[str, int] = {}
        for index, character in enumerate(self.text):
            if not anywhere >> index & 1:
                places[character] = places.get(character, anywhere) | 1 << index
        object.__setattr__(self, "_bits", (anywhere, places))

    def matches_at(self, value: str, start: int) -> bool:
        """Does value[start : start + length] match? False also when fewer characters follow `start`."""
        if not self.wild:
            return value.startswith(self.text, start)
        begin = start
        for hole in (*self.wild, len(self.text)):
            if not value.startswith(self.text[begin - start : hole], begin):
                return False
            begin = start + hole + 1
        return begin - 1 <= len(value)

    def find(self, value: str, start: int, stop: int) -> int:
        """The start of the leftmost match within value[start:stop]; -1 if there is none."""
        if self._bits is None:
            return value.find(self.text, start, stop)
        anywhere, places = self._bits
        full, state = 1 << len(self.text) - 1, 0
        for index in range(start, stop):
            state = (state << 1 | 1) & places.get(value[index], anywhere)
            if state & full:
                return index + 1 - len(self.text)
        return -1


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled LIKE pattern: its segments, one more than it has `%` (several `%` in a row count once).

    The first segment is empty when the pattern starts with `%`, the last when it ends with one; the others
    never are. A single segment has to match the whole value.
    """

    segments: tuple[Segment, ...]

    @classmethod
    def compile(cls, pattern: str, escape: str = "", *, position: int = 0, text: str = "") -> Pattern:
        """The compiled pattern; `escape` is one character, or "" for none.

        SelectorSyntaxError, with `position` and `text`, for a wrong escape.
        """
        if len(escape) > 1:
            raise SelectorSyntaxError("ESCAPE takes exactly one character", position=position, text=text)
        if not escape or escape not in pattern:
            return _plain_pattern(pattern)
        pieces: list[list[tuple[str, bool]]] = [[]]
        for character, special in _characters(pattern, escape):
            if not character:
                reason = (
                    f"the pattern ends in a lone escape character; write `{escape * 2}` for the character"
                )
                raise SelectorSyntaxError(reason, position=position, text=text)
            if special and character == "%":
                pieces.append([])
            else:
                pieces[-1].append((character, special))
        return cls._of([_segment(piece) for piece in pieces])

    @classmethod
    def _of(cls, segments: list[Segment]) -> Pattern:
        """The pattern of what stands between each two `%`."""
        first, *rest = segments
        return cls((first, *(segment for segment in rest[:-1] if segment.text), *rest[-1:]))

    @property
    def prefix(self) -> str:
        """The characters before the first wildcard, with which every match starts."""
        first = self.segments[0]
        return first.text[: first.wild[0]] if first.wild else first.text

    @property
    def is_exact(self) -> bool:
        """True if the pattern has no wildcards, so that only `prefix` itself matches."""
        return len(self.segments) == 1 and not self.segments[0].wild

    @property
    def is_prefix(self) -> bool:
        """True if the pattern is `prefix` and then `%`, so that whatever starts with `prefix` matches."""
        return len(self.segments) == 2 and not self.segments[0].wild and not self.segments[1].text

    def matches(self, value: str) -> bool:
        """Does the whole of `value` match? Looks at each of its characters a bounded number of times."""
        first, last = self.segments[0], self.segments[-1]
        if len(self.segments) == 1:
            return len(value) == len(first.text) and first.matches_at(value, 0)
        start, stop = len(first.text), len(value) - len(last.text)
        if start > stop or not first.matches_at(value, 0) or not last.matches_at(value, stop):
            return False
        for segment in self.segments[1:-1]:
            place = segment.find(value, start, stop)
            if place < 0:
                return False
            start = place + len(segment.text)
        return True


def _characters(pattern: str, escape: str) -> Iterator[tuple[str, bool]]:
    """Yields each character of the pattern and whether it is a wildcard.

    ("", False) for a lone last escape.
    """
    rest = iter(pattern)
    for character in rest:
        if character == escape:
            yield next(rest, ""), False
        else:
            yield character, character in "%_"


@lru_cache(PATTERNS_KEPT_MAX)
def _plain_pattern(pattern: str) -> Pattern:
    """The compiled pattern of a text without escapes. Pieces that are equal share a segment."""
    pieces = pattern.split("%")
    segments = {piece: _plain_segment(piece) for piece in dict.fromkeys(pieces)}
    return Pattern._of([segments[piece] for piece in pieces])


def _plain_segment(text: str) -> Segment:
    """The segment of a text in which every `_` matches any character."""
    return Segment(
        text, tuple(index for index, each in enumerate(text) if each == "_") if "_" in text else ()
    )


def _segment(piece: list[tuple[str, bool]]) -> Segment:
    wild = tuple(index for index, (_, special) in enumerate(piece) if special)
    return Segment("".join(character for character, _ in piece), wild)
