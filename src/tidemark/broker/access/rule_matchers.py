"""RuleMatchers: what decides which events of a batch a rule of access chooses. Who share a rule share it.

A batch of one topic, which is what publishers send, is held against the rule itself, over whole columns: that
takes a fraction of what the index of an `Audience` takes for one rule. All other batches, and those with
damaged events, are matched as subscriptions are; the answers are the same.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar
from weakref import ReferenceType, ref

import numpy as np

from tidemark.errors import DecodeError, TidemarkError
from tidemark.matching.audience import Audience
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.single import SingleMatcher, matcher_of_rules
from tidemark.matching.vectors.vector import Condition, compile_condition
from tidemark.message.batches.batch import EventBatch
from tidemark.message.batches.columns import Bools
from tidemark.message.batches.reader import BatchColumns, EventReader, is_header
from tidemark.message.registry import Registry, TopicSchemas

_MEMBER = 1
_MEMBERS = np.array([_MEMBER], np.uint32)
#: Compiled rules that are kept; each is a few closures.
CONDITIONS_MAX = 4_096
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class RuleMatchers:
    """A matcher for each pattern and rule that was asked for, up to a number of them."""

    def __init__(self, registry: Registry, rules_max: int) -> None:
        """`registry` has the topics that the broker knows; only `Topics` adds to them."""
        self._registry = registry
        self._rules_max = rules_max
        self._made: dict[tuple[str, str], Audience] = {}
        #: topic and rule -> the rule for the schemas that a reader knows; None if it fits no event of them
        self._conditions: dict[tuple[str, str], tuple[ReferenceType[EventReader], Condition | None]] = {}
        #: topic, rule and schema -> the rule for single events of that schema, if it has such a form
        self._single: dict[tuple[str, str, int], tuple[ReferenceType[EventReader], SingleMatcher | None]] = {}
        #: what was read of the last batch: its reader finds it again when the batch is matched, but only as
        #: long as somebody holds it
        self._columns: BatchColumns | None = None

    def allows(self, topic: str, rule: str, batch: EventBatch) -> bool | None:
        """Return whether a rule chooses the only event of a batch; None if that takes a closer look.

        What is published alone passes here, so it is done in few steps.
        """
        (shape,) = batch.shapes
        schemas = self._registry.topics.get(topic)
        if schemas is None or shape.fingerprint not in schemas.texts or topic in self._registry.removed:
            return None
        key, reader = (topic, rule, shape.fingerprint), schemas.reader
        found = self._single.get(key)
        if found is None or found[0]() is not reader:
            found = ref(reader), self._make_single(topic, rule, reader, shape.fingerprint)
            _keep(self._single, key, found, CONDITIONS_MAX)
        single = found[1]
        try:
            return None if single is None else single.is_wanted(batch.message(0))
        except DecodeError:
            return None

    def _make_single(
        self, topic: str, rule: str, reader: EventReader, fingerprint: int
    ) -> SingleMatcher | None:
        try:
            selector = Selector.fitting(rule, reader, topic)
        except TidemarkError:
            selector = None
        return (
            None if selector is None else matcher_of_rules([(selector.tree, _MEMBERS)], reader, fingerprint)
        )

    def chosen(self, pattern: str, rule: str, batch: EventBatch) -> tuple[int | None, Bools]:
        """Return the first row whose schema is not known here, or None, and which rows the rule chooses.

        The second value has the rows before the first unknown one, or all of them.
        """
        at_once = self._at_once(pattern, rule, batch) if batch.count > 1 else None
        if at_once is not None:
            return None, at_once
        audience = self._audience(pattern, rule)
        unknown = audience.unknown_from(batch)
        if unknown == 0:
            return 0, np.zeros(0, np.bool_)
        known = batch if unknown is None else batch.slice(0, unknown)
        return unknown, audience.chosen(_MEMBER, known)

    def _at_once(self, topic: str, rule: str, batch: EventBatch) -> Bools | None:
        """chosen[row]; None if not all events are of the topic as it is now, or if one is damaged."""
        schemas = self._registry.topics.get(topic)
        if schemas is None or topic in self._registry.removed:
            return None
        if any(shape.topic != topic or shape.fingerprint not in schemas.texts for shape in batch.shapes):
            return None
        condition = self._condition(schemas, rule)
        if condition is None:
            return np.zeros(batch.count, np.bool_)
        try:
            columns = schemas.reader.columns(batch)
            columns.find_alike()
            chosen = condition.matched(columns)
        except DecodeError:
            return None
        # Headers are not kept: a batch has no ticks before it is logged.
        self._columns = None if any(map(is_header, condition.paths)) else columns
        return chosen

    def _condition(self, schemas: TopicSchemas, rule: str) -> Condition | None:
        key, reader = (schemas.topic, rule), schemas.reader
        found = self._conditions.get(key)
        if found is None or found[0]() is not reader:
            try:
                selector = Selector.fitting(rule, reader, schemas.topic)
            except TidemarkError:
                selector = None
            compiled = None if selector is None else compile_condition(selector.tree, reader)
            _keep(self._conditions, key, found := (ref(reader), compiled), CONDITIONS_MAX)
        return found[1]

    def _audience(self, pattern: str, rule: str) -> Audience:
        found = self._made.get((pattern, rule))
        if found is None:
            found = Audience(self._registry)
            found.add(_MEMBER, pattern, rule)
            _keep(self._made, (pattern, rule), found, self._rules_max)
        return found


def _keep(kept: dict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    """Keep a value, and let the one go that was made longest ago if there are too many."""
    kept.pop(key, None)
    if len(kept) >= most:
        del kept[next(iter(kept))]
    kept[key] = value
