"""Topic names and topic patterns.

A topic's name is levels joined by dots: `trades.equity.us`. In a pattern `*` stands for exactly one level,
and `>`, as the last level only, for one or more levels: `trades.>` matches `trades.equity` and all below it,
but not `trades` itself. A pattern stands for the set of topics it matches; `covers` and `intersects` are
exact about those sets, except that they ignore the bound on the length of a name.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from unicodedata import category

from tidemark.errors import TopicError

TOPIC_BYTES_MAX = 255
#: Patterns that are kept parsed: many subscribers have the same one, and each is asked for several times.
PATTERNS_KEPT_MAX = 1 << 10

ONE = "*"
REST = ">"
#: The character after the dot: texts that begin with `a.` lie between `a.` and `a/`.
_AFTER_DOT = chr(ord(".") + 1)


def parse_topic(name: str) -> tuple[str, ...]:
    """The levels of a topic's name; TopicError if it is not one."""
    levels = _levels(name)
    if any(wildcard in name for wildcard in (ONE, REST)):
        raise TopicError("a topic's name has no wildcards; `*` and `>` are for patterns", topic=name)
    return levels


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """A pattern, which stands for the set of topics that match it."""

    #: the name, or `*`, of each level but a final `>`
    levels: tuple[str, ...]
    #: The pattern ends in `>`: one or more further levels follow.
    rest: bool = False

    @classmethod
    def parse(cls, text: str) -> TopicPattern:
        """The pattern of a text, which may also be a topic's plain name; TopicError if it is neither."""
        return _parsed(text)

    @property
    def is_exact(self) -> bool:
        """True if the pattern has no wildcards, and so matches a single topic."""
        return not self.rest and ONE not in self.levels

    def matches(self, topic: str) -> bool:
        """Does the topic match? `topic` must be a valid name."""
        levels = topic.split(".")
        fits = len(levels) > len(self.levels) if self.rest else len(levels) == len(self.levels)
        return fits and all(mine in (ONE, level) for mine, level in zip(self.levels, levels, strict=False))

    def found_in(self, names: Sequence[str], most: int) -> Iterator[str | None]:
        """Yield those of the sorted `names` that match, in order, and pass over ranges in which none can.

        At most so many names are looked at: where others would follow, None is the last that is yielded.
        """
        if self.is_exact:
            name = str(self)
            at = bisect_left(names, name)
            if at < len(names) and names[at] == name:
                yield name
            return
        fixed = self._fixed
        at = bisect_left(names, fixed)
        end = bisect_left(names, fixed[:-1] + _AFTER_DOT, at) if fixed else len(names)
        while at < end:
            if not most:
                yield None
                return
            most -= 1
            name = names[at]
            following = self._following(name)
            if following is None:
                yield name
            at = at + 1 if following is None else bisect_left(names, following, at + 1, end)

    @property
    def _fixed(self) -> str:
        """The levels before the first wildcard, each with its dot."""
        return "".join(f"{level}." for level in takewhile(ONE.__ne__, self.levels))

    def _following(self, name: str) -> str | None:
        """Return None if a name matches, else a text: no name after this one and before the text matches."""
        levels = name.split(".")
        before = ""
        for at, mine in enumerate(self.levels):
            if at == len(levels):
                return name
            if mine not in (ONE, levels[at]):
                if name < before + mine:
                    return before + mine
                is_last = at == len(self.levels) - 1 and not self.rest
                below = f"{before}{mine}."
                return below if name < below and not is_last else before[:-1] + _AFTER_DOT
            before += f"{levels[at]}."
        if self.rest:
            return None if len(levels) > len(self.levels) else name
        return None if len(levels) == len(self.levels) else before[:-1] + _AFTER_DOT

    def covers(self, other: TopicPattern) -> bool:
        """Does every topic that matches `other` match this pattern?"""
        if self.rest:
            # The shortest topic of `other` must reach into the rest.
            fits = len(other.levels) + other.rest > len(self.levels)
        else:
            fits = not other.rest and len(other.levels) == len(self.levels)
        return fits and all(
            mine in (ONE, theirs) for mine, theirs in zip(self.levels, other.levels, strict=False)
        )

    def intersects(self, other: TopicPattern) -> bool:
        """Is there a topic that matches both?"""
        fits = self._reaches(other) and other._reaches(self)
        return fits and all(
            mine == theirs or ONE in (mine, theirs)
            for mine, theirs in zip(self.levels, other.levels, strict=False)
        )

    def _reaches(self, other: TopicPattern) -> bool:
        """Does this pattern match a topic with at least as many levels as the shortest topic of `other`?"""
        return self.rest or len(self.levels) >= len(other.levels) + other.rest

    def __str__(self) -> str:
        return ".".join((*self.levels, REST) if self.rest else self.levels)


@lru_cache(PATTERNS_KEPT_MAX)
def _parsed(text: str) -> TopicPattern:
    levels = _levels(text)
    rest = levels[-1] == REST
    named = levels[:-1] if rest else levels
    for level in named:
        if REST in level:
            raise TopicError("`>` stands for the rest: it can only be the whole last level", topic=text)
        if ONE in level and level != ONE:
            raise TopicError(f"`*` stands for a whole level; `{level}` has more in it", topic=text)
    return TopicPattern(named, rest)


def _levels(text: str) -> tuple[str, ...]:
    if len(text.encode(errors="surrogatepass")) > TOPIC_BYTES_MAX:
        raise TopicError(f"a topic has at most {TOPIC_BYTES_MAX} bytes", topic=text[:TOPIC_BYTES_MAX])
    for character in text:
        if character.isspace() or category(character) in ("Cc", "Cs"):
            raise TopicError(f"a topic cannot have the character {character!r} in it", topic=text)
    levels = tuple(text.split("."))
    if not all(levels):
        raise TopicError("a topic is names joined by single dots, none of them empty", topic=text)
    return levels
