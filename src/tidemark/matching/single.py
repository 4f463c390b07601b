"""One event against few rules: what the batch matcher answers, without arrays.

An array operation costs about the same for one row as for a hundred, and matching takes dozens of them. An
event that comes alone is faster matched by reading its fields from its bytes and asking the reference.
The answers are those of `Matcher.match`, also for what is malformed: every field that some rule reads is
read, and if one of them, or the header of the message, cannot be, nothing is said of the event at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.errors import DecodeError
from tidemark.matching.matcher import Matcher
from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.selector import paths_of
from tidemark.matching.selectors.tree import Node
from tidemark.message.batches.reader import TopicReader
from tidemark.message.codec.flat import Flat, LeafNode, held
from tidemark.message.types import Atomic, Kind, Path

Members = NDArray[np.uint32]

#: With more rules than this the index wins.
RULES_MAX = 16
#: Sets of rules whose members are remembered.
SETS_MAX = 1_024
#: Kinds of which an accessor and a column tell the same, bit for bit.
_PLAIN = (Kind.BOOLEAN, Kind.INT, Kind.LONG, Kind.FLOAT, Kind.DOUBLE, Kind.STRING, Kind.BYTES)

_NOBODY: Members = np.zeros(0, np.uint32)


class SingleMatcher:
    """The rules of a matcher as of now, for messages of one schema."""

    def __init__(
        self,
        rules: list[tuple[Node, Members]],
        fields: list[tuple[Path, Callable[[bytes], Any]]],
        flat: Flat | None,
    ) -> None:
        """Use `single_matcher`. Without `flat` no field is read, and so no header looked at."""
        self._rules = [tree for tree, _ in rules]
        self._members_of = [members for _, members in rules]
        self._fields = fields
        self._flat = flat
        #: which rules hold -> all their members
        self._sets: dict[tuple[int, ...], Members] = {(): _NOBODY}

    def members(self, message: bytes) -> Members:
        """The subscribers that want this event, ascending; DecodeError if it cannot be read."""
        if self._flat is not None:
            _check_header(self._flat, message)
        values = {path: access(message) for path, access in self._fields}
        holding = tuple(
            [at for at, tree in enumerate(self._rules) if evaluate(tree, values.__getitem__) is True]
        )
        found = self._sets.get(holding)
        return self._learn(holding) if found is None else found

    def _learn(self, holding: tuple[int, ...]) -> Members:
        if len(self._sets) >= SETS_MAX:
            self._sets = {(): _NOBODY}
        members = np.sort(np.concatenate([self._members_of[at] for at in holding]))
        members.flags.writeable = False
        self._sets[holding] = members
        return members


def single_matcher(matcher: Matcher, reader: TopicReader, fingerprint: int) -> SingleMatcher | None:
    """The matcher for single messages of one schema; None if the rules are too many, or a field not plain."""
    rules = matcher.rules(RULES_MAX)
    if rules is None:
        return None
    fields: list[tuple[Path, Callable[[bytes], Any]]] = []
    flat: Flat | None = None
    for path in sorted(frozenset().union(*(paths_of(tree) for tree, _ in rules))):
        item = reader.type_of(path)
        if path[0].startswith("_"):
            return None  # a header
        if item is None:
            fields.append((path, _absent))  # of an open topic: no event has it yet
            continue
        access = _plain_accessor(reader, fingerprint, path, item)
        if access is None:
            return None
        fields.append((path, access))
        flat = reader.writer(fingerprint).flat
    return SingleMatcher(rules, fields, flat)


def _plain_accessor(
    reader: TopicReader, fingerprint: int, path: Path, item: object
) -> Callable[[bytes], Any] | None:
    if not isinstance(item, Atomic) or item.kind not in _PLAIN or reader.schema.holder(path) != path:
        return None
    try:
        writer = reader.writer(fingerprint)
    except DecodeError:
        return None
    holder = writer.holder(path)
    if holder is None:
        return _absent
    node = held(writer.flat.nodes[holder])
    is_leaf = holder == path and isinstance(node, LeafNode) and node.leaf.depth == 0
    if not is_leaf or not isinstance(held(reader.schema.flat.nodes[path]), LeafNode):
        return None
    assert isinstance(node, LeafNode)
    if not isinstance(node.leaf.basic, Atomic) or node.leaf.basic.kind not in _PLAIN:
        return None
    return reader.resolution(fingerprint).accessor(path)


def _check_header(flat: Flat, message: bytes) -> None:
    """As a batch's messages are checked before any field of them is read."""
    width = flat.code_width
    code = int.from_bytes(message[:width], "little")
    if len(message) < width or code >= flat.count or len(message) < flat.layout(code).size:
        raise DecodeError("a message has no case's code, or is shorter than the header of its case")


def _absent(_: bytes) -> None:
    return None
