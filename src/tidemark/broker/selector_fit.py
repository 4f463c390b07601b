"""Whether a subscription's selector fits the topics of its pattern, found out when someone subscribes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.reader import EventReader
from tidemark.message.registry import Registry
from tidemark.message.types import Path, Type

#: Topics of a pattern on which a selector is tried that fits none of them.
MISFITS_MAX = 64
#: Topics of a pattern that whoever asks may not know of, after which no more are looked at.
UNKNOWN_MAX = 1_024
#: Names that are looked at in search of topics of a pattern.
NAMES_MAX = 1_024
#: Bytes of the schemas that are read for that.
LOOKED_AT_BYTES_MAX = 16 << 10

#: topic -> the names of its fields that whoever asks may not see
HiddenNames = Callable[[str], Sequence[str]]


def nothing_hidden(_: str) -> Sequence[str]:
    """Return that nothing is hidden in a topic."""
    return ()


#: topic -> whether whoever asks may know that it exists, and its fields
Knows = Callable[[str], bool]


def all_known(_: str) -> bool:
    """Return that everybody may know of a topic."""
    return True


def check_fit(
    registry: Registry,
    topics: str,
    selector: str,
    hidden: HiddenNames = nothing_hidden,
    knows: Knows = all_known,
) -> None:
    """Raise TidemarkError if the pattern or the selector cannot be read.

    Also if there are topics of the pattern, and the selector fits the schema of none of them. Only topics
    that whoever asks `knows` count, and the error speaks of no field that is hidden. A pattern whose topics
    are not found among few names, or are too many to try, is taken to fit.
    """
    pattern = TopicPattern.parse(topics)
    parse(selector)
    misfits: list[tuple[EventReader, str]] = []
    size = unknown = 0
    for name in pattern.found_in(registry.names, NAMES_MAX):
        if name is None:
            return
        if not knows(name):
            unknown += 1
            if unknown > UNKNOWN_MAX:
                return
            continue
        topic = registry.topics[name]
        size += topic.weight if topic.is_reader_due else 0
        if size > LOOKED_AT_BYTES_MAX and not pattern.is_exact:
            return
        reader = topic.reader
        if Selector.fitting(selector, reader, name) is not None:
            return
        misfits.append((reader, name))
        if len(misfits) >= MISFITS_MAX:
            return  # trying a selector on every topic would take too long
    if misfits:
        reader, name = misfits[0]
        # Raises, and says what may have been meant.
        Selector.parse(selector, _ShownFields(reader, hidden(name)), name)


def has_topic(registry: Registry, topics: str) -> bool:
    """Return whether a topic of the pattern is found among those names that are looked at."""
    pattern = TopicPattern.parse(topics)
    return next(pattern.found_in(registry.names, NAMES_MAX), None) is not None


class _ShownFields:
    """The fields of a topic that somebody may see."""

    def __init__(self, fields: EventReader, hidden: Sequence[str]) -> None:
        self._fields = fields
        self._hidden = frozenset(hidden)

    @property
    def open(self) -> bool:
        """Whether other fields may come."""
        return self._fields.open

    def type_of(self, path: Path) -> Type | None:
        """The type at `path`; None if there is no such field to be seen."""
        return None if path and path[0] in self._hidden else self._fields.type_of(path)

    def paths(self) -> Sequence[Path]:
        """Every path that can be named."""
        return [path for path in self._fields.paths() if path[0] not in self._hidden]
