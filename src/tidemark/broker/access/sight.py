"""Sight: which events of an earlier selector a subscriber may still see.

The selector that a subscription has now holds its rules of access, and what that selector chose needs no
second look. Events that an earlier one chose, perhaps under looser rules, are held against the rules of
today.
"""

from __future__ import annotations

import numpy as np

from tidemark.broker.hosting.subscription import HostedSubscription
from tidemark.matching.audience import Audience
from tidemark.message.batches.batch import EventBatch
from tidemark.message.registry import Registry
from tidemark.ticks import TICK_MAX

#: Rules for which a matcher is kept.
RULES_MAX = 64
_MEMBER = 1


class Sight:
    """Holds events against rules, for all subscribers of a host: who share a rule share its matcher."""

    def __init__(self, registry: Registry) -> None:
        """`registry` has the topics that the broker knows; only `Topics` adds to them."""
        self._registry = registry
        self._rules: dict[tuple[str, str], Audience] = {}

    def of(
        self, subscription: HostedSubscription, pubend: str, base: int, batch: EventBatch
    ) -> EventBatch | None:
        """Return those events of `batch`, all beyond `base`, that the subscriber may see; None for none.

        An event whose schema is not known here cannot be judged, and is not seen.
        """
        if subscription.current.since.get(pubend, TICK_MAX) <= base:
            return batch
        rule = self._rule(subscription.current.wanted.pattern, subscription.seen)
        unknown = rule.unknown_from(batch)
        known = batch if unknown is None else batch.slice(0, unknown)
        if not known.count:
            return None
        rows = np.flatnonzero(rule.chosen(_MEMBER, known))
        if not len(rows):
            return None
        return batch if len(rows) == batch.count else batch.take(rows)

    def _rule(self, pattern: str, seen: str) -> Audience:
        found = self._rules.get((pattern, seen))
        if found is None:
            if len(self._rules) >= RULES_MAX:
                self._rules.clear()
            found = self._rules[pattern, seen] = Audience(self._registry)
            found.add(_MEMBER, pattern, seen)
        return found
