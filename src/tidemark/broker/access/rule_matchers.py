"""RuleMatchers: what decides which events of a batch a rule of access chooses. Who share a rule share it."""

from __future__ import annotations

import numpy as np

from tidemark.matching.audience import Audience
from tidemark.message.batches.batch import EventBatch
from tidemark.message.batches.columns import Bools
from tidemark.message.registry import Registry

_MEMBER = 1


class RuleMatchers:
    """A matcher for each pattern and rule that was asked for, up to a number of them."""

    def __init__(self, registry: Registry, rules_max: int) -> None:
        """`registry` has the topics that the broker knows; only `Topics` adds to them."""
        self._registry = registry
        self._rules_max = rules_max
        self._made: dict[tuple[str, str], Audience] = {}

    def chosen(self, pattern: str, rule: str, batch: EventBatch) -> tuple[int | None, Bools]:
        """Return the first row whose schema is not known here, or None, and which rows the rule chooses.

        The second value has the rows before the first unknown one, or all of them.
        """
        audience = self._audience(pattern, rule)
        unknown = audience.unknown_from(batch)
        if unknown == 0:
            return 0, np.zeros(0, np.bool_)
        known = batch if unknown is None else batch.slice(0, unknown)
        return unknown, audience.chosen(_MEMBER, known)

    def _audience(self, pattern: str, rule: str) -> Audience:
        found = self._made.get((pattern, rule))
        if found is None:
            if len(self._made) >= self._rules_max:
                self._made.clear()
            found = self._made[pattern, rule] = Audience(self._registry)
            found.add(_MEMBER, pattern, rule)
        return found
