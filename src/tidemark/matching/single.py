"""One event against few rules: the batch matcher's answer, without arrays.

An array operation costs about the same for one row as for a hundred, and matching a batch takes dozens of
them. A single event is matched faster by reading its fields from its bytes and asking the reference
evaluator. The answers are those of `Matcher.match`, also for malformed messages: every field that some rule
reads is read, and DecodeError is raised if one of them, or the header of the message, is damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from sys import maxsize
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.errors import DecodeError
from tidemark.matching.matcher import Matcher
from tidemark.matching.selectors.evaluate import PLAIN, evaluate
from tidemark.matching.selectors.selector import paths_of
from tidemark.matching.selectors.tree import MIRRORED, OPERATORS, And, Compare, FieldRef, Literal, Node
from tidemark.message.batches.reader import EventReader
from tidemark.message.codec.flat import Flat, LeafNode, held
from tidemark.message.types import Atomic, Kind, Path

Members = NDArray[np.uint32]

#: With more rules than this the index is faster.
RULES_MAX = 16
#: Combinations of rules whose members are remembered.
SETS_MAX = 1_024
#: Members in all of those sets together.
SETS_MEMBERS_MAX = 1 << 18
#: Kinds for which an accessor and a column return the same value, bit for bit.
_PLAIN = (Kind.BOOLEAN, Kind.INT, Kind.LONG, Kind.FLOAT, Kind.DOUBLE, Kind.STRING, Kind.BYTES)

_NOBODY: Members = np.zeros(0, np.uint32)


class _Rule:
    """A rule, taken apart into conditions of which all have to be true."""

    def __init__(self, tree: Node) -> None:
        #: comparisons of a field with a literal: the field, the literal's type, what compares the two, the
        #: literal, and the whole comparison for values of other types
        self._plain: list[tuple[Path, type, Callable[[Any, Any], bool], Any, Node]] = []
        #: all other conditions
        self._others: list[Node] = []
        for each in _joined(tree):
            match each:
                case Compare(op, FieldRef(path), Literal(value)) if type(value) in PLAIN:
                    self._plain.append((path, type(value), OPERATORS[op], value, each))
                case Compare(op, Literal(value), FieldRef(path)) if type(value) in PLAIN:
                    self._plain.append((path, type(value), OPERATORS[MIRRORED[op]], value, each))
                case _:
                    self._others.append(each)

    def holds(self, values: Mapping[Path, Any]) -> bool:
        """Return whether the rule is true for an event with these values; unknown is not true."""
        for path, kind, compare, constant, tree in self._plain:
            value = values[path]
            if type(value) is kind:
                if not compare(value, constant):
                    return False
            elif evaluate(tree, values.__getitem__) is not True:
                return False
        return not self._others or all(evaluate(tree, values.__getitem__) is True for tree in self._others)


class SingleMatcher:
    """The rules that a matcher had when this was made, for messages of one schema."""

    def __init__(
        self,
        rules: list[tuple[Node, Members]],
        fields: list[tuple[Path, Callable[[bytes], Any]]],
        flat: Flat | None,
    ) -> None:
        """`single_matcher` makes one. `flat` is None if no rule reads a field: then no header is checked."""
        self._rules = [_Rule(tree) for tree, _ in rules]
        self._members_of = [members for _, members in rules]
        self._fields = fields
        self._flat = flat
        #: messages of so many bytes or more have a whole header, if there is one case only
        self._header_bytes = flat.layout(0).size if flat is not None and flat.count == 1 else maxsize
        #: indices of the rules that are true -> all their members, not writable since callers keep them
        self._sets: dict[tuple[int, ...], Members] = {(): _NOBODY}
        self._sets_members = 0

    def members(self, message: bytes) -> Members:
        """The subscribers that want this event, ascending; DecodeError if the message is damaged."""
        if self._flat is not None and len(message) < self._header_bytes:
            self._flat.check_header(message)
        values = {path: access(message) for path, access in self._fields}
        holding = tuple([at for at, rule in enumerate(self._rules) if rule.holds(values)])
        found = self._sets.get(holding)
        return self._learn(holding) if found is None else found

    def is_wanted(self, message: bytes) -> bool:
        """Whether a rule is true, of a matcher with one rule; DecodeError if the message is damaged."""
        if self._flat is not None and len(message) < self._header_bytes:
            self._flat.check_header(message)
        values = {}
        for path, access in self._fields:  # a comprehension is one call more
            values[path] = access(message)
        return self._rules[0].holds(values)

    def _learn(self, holding: tuple[int, ...]) -> Members:
        if len(self._sets) >= SETS_MAX or self._sets_members > SETS_MEMBERS_MAX:
            self._sets = {(): _NOBODY}
            self._sets_members = 0
        members = np.sort(np.concatenate([self._members_of[at] for at in holding]))
        members.flags.writeable = False
        self._sets[holding] = members
        self._sets_members += len(members)
        return members


def single_matcher(matcher: Matcher, reader: EventReader, fingerprint: int) -> SingleMatcher | None:
    """The matcher for single messages of one schema.

    None if it has too many rules or a field is not plain.
    """
    rules = matcher.rules(RULES_MAX)
    return None if rules is None else matcher_of_rules(rules, reader, fingerprint)


def matcher_of_rules(
    rules: list[tuple[Node, Members]], reader: EventReader, fingerprint: int
) -> SingleMatcher | None:
    """The same of rules and their members, each of which fits the reader; None if a field is not plain."""
    fields: list[tuple[Path, Callable[[bytes], Any]]] = []
    flat: Flat | None = None
    for path in sorted(frozenset().union(*(paths_of(tree) for tree, _ in rules))):
        item = reader.type_of(path)
        if path[0].startswith("_"):
            return None  # the rule reads a header, which is not in the message
        if item is None:
            fields.append((path, _absent))  # a field of an open topic that no event has had yet
            continue
        access = _plain_accessor(reader, fingerprint, path, item)
        if access is None:
            return None
        fields.append((path, access))
        flat = reader.writer(fingerprint).flat
    return SingleMatcher(rules, fields, flat)


def _plain_accessor(
    reader: EventReader, fingerprint: int, path: Path, item: object
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


def _joined(tree: Node) -> Iterator[Node]:
    """Yield the conditions that AND joins."""
    if isinstance(tree, And):
        for each in tree.operands:
            yield from _joined(each)
    else:
        yield tree


def _absent(_: bytes) -> None:
    return None
