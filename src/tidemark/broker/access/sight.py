"""Sight: which events of an earlier selector a subscriber may still see.

The selector that a subscription has now holds its rules of access, and what that selector chose needs no
second look. Events that an earlier one chose, perhaps under looser rules, are held against the rules of
today.
"""

from __future__ import annotations

import numpy as np

from tidemark.broker.access.rule_matchers import RuleMatchers
from tidemark.broker.hosting.subscription import HostedSubscription
from tidemark.message.batches.batch import EventBatch
from tidemark.message.registry import Registry

#: Rules for which a matcher is kept.
RULES_MAX = 64


class Sight:
    """Holds events against rules, for all subscribers of a host: who share a rule share its matcher."""

    def __init__(self, registry: Registry) -> None:
        """`registry` has the topics that the broker knows; only `Topics` adds to them."""
        self._rules = RuleMatchers(registry, RULES_MAX)

    def of(self, subscription: HostedSubscription, batch: EventBatch) -> EventBatch | None:
        """Return those events of `batch` that the subscriber may see; None for none.

        An event whose schema is not known here cannot be judged, and is not seen.
        """
        _, chosen = self._rules.chosen(subscription.current.wanted.pattern, subscription.view.seen, batch)
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return None
        return batch if len(rows) == batch.count else batch.take(rows)
