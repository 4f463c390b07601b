"""RuleFits: how many rules of access do not fit topics that a broker knows, for its health.

Such a topic is closed by the rule: nobody sees it that way. Topics come at any time, so the rules are held
against them again and again, a few at a time.
"""

from __future__ import annotations

from itertools import islice

from tidemark.access.document import AccessDocument
from tidemark.access.rule_fit import PlacedRule, placed_rules
from tidemark.message.registry import Registry

#: Rules that are held against topics in one look, and patterns that are looked at for that.
CHECKED_MAX = 200
LOOKED_AT_MAX = 20_000
#: Rules and topics of which it is remembered whether they fit.
REMEMBERED_MAX = 65_536


class RuleFits:
    """Holds the rules of the document that is in force against the topics."""

    def __init__(self, registry: Registry) -> None:
        """`registry` has the topics that the broker knows; only `Topics` adds to them."""
        self._registry = registry
        self._document: AccessDocument | None = None
        self._rules: list[PlacedRule] = []
        #: number of a rule and topic -> the creation of the topic, how many versions it had, and whether the
        #: rule fitted
        self._known: dict[tuple[int, str], tuple[int, int, bool]] = {}
        #: how many topics of this pass were done, and what it has found; and what the last whole pass found
        self._done = 0
        self._found = 0
        self._last = 0

    def look(self, document: AccessDocument | None) -> int:
        """Go on for a while; return how many rules do not fit a topic, counted for each such topic."""
        if document is not self._document:
            self._document = document
            self._rules = [] if document is None else placed_rules(document)
            self._known.clear()
            self._done = self._found = self._last = 0
        checked = looked_at = 0
        for name in list(islice(self._registry.topics, self._done, None)) if self._rules else []:
            if checked >= CHECKED_MAX or looked_at >= LOOKED_AT_MAX:
                return max(self._found, self._last)
            for at, rule in enumerate(self._rules):
                looked_at += 1
                if rule.pattern.matches(name):
                    is_new, fits = self._fits(at, rule, name)
                    checked += is_new
                    self._found += not fits
            self._done += 1
        self._last, self._found, self._done = self._found, 0, 0
        return self._last

    def _fits(self, at: int, rule: PlacedRule, name: str) -> tuple[bool, bool]:
        """Return whether this had to be found out, and whether the rule fits the topic."""
        topic = self._registry.topics[name]
        creation, versions, fits = self._known.get((at, name), (-1, -1, True))
        if (creation, versions) == (topic.creation, len(topic.texts)):
            return False, fits
        if len(self._known) >= REMEMBERED_MAX:
            self._known.clear()
        fits = rule.misfit(name, topic.reader) is None
        self._known[at, name] = (topic.creation, len(topic.texts), fits)
        return True, fits
