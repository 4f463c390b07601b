"""Which rules of a document do not fit which topics.

A rule that names a field that a topic does not have, or compares it with what it can never equal, is true for
no event of the topic: nobody sees or publishes anything by that rule. That is safe, and seldom what its
author meant. A parameter may have any type, since claims differ from one principal to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from tidemark.access.document import AccessDocument, rules_of
from tidemark.access.parameters import pattern_for, rule_with_fields
from tidemark.access.principal import BROKER_ITSELF
from tidemark.errors import RuleMisfitError, SelectorError
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.columns import FieldTypes
from tidemark.message.registry import Registry
from tidemark.message.schema import Schema
from tidemark.message.types import Dynamic, Path, Type

#: A topic: its name, whether it is open, and the texts of its schemas, the oldest first.
DescribedTopic = tuple[str, bool, Sequence[str]]
#: Misfits that a refusal tells; `tidemark access plan` tells all.
TOLD_MAX = 10


@dataclass(frozen=True, slots=True)
class RuleMisfit:
    """A rule that is true for no event of a topic, and why."""

    #: where the rule stands in the document: roles.NAME.read."PATTERN"
    rule: str
    topic: str
    reason: str

    @property
    def text(self) -> str:
        """What administrators are told, on the command line and by a broker."""
        return f"{self.rule} does not fit the topic {self.topic}, which is closed by it: {self.reason}"


@dataclass(frozen=True, slots=True)
class PlacedRule:
    """A rule of a document, ready to be held against topics."""

    where: str
    pattern: TopicPattern
    #: the rule as it is written
    rule: str
    #: the same, with its parameters as fields of any type
    selector: str

    def misfit(self, topic: str, fields: FieldTypes) -> RuleMisfit | None:
        """Return why the rule fits no event of a topic with these fields; None if it is not so."""
        if not self.pattern.matches(topic):
            return None
        try:
            Selector.parse(self.selector, _WithParameters(fields), topic)
        except SelectorError as error:
            return RuleMisfit(self.where, topic, error.reason)
        return None


def placed_rules(document: AccessDocument) -> list[PlacedRule]:
    """Return all rules of a document. A parameter in a pattern stands for every value."""
    return [
        PlacedRule(
            where, TopicPattern.parse(pattern_for(pattern, BROKER_ITSELF)), rule, rule_with_fields(rule)
        )
        for where, pattern, rule in rules_of(document)
    ]


def rule_misfits(document: AccessDocument, topics: Iterable[DescribedTopic]) -> Iterator[RuleMisfit]:
    """Yield each rule with each topic that it does not fit."""
    return _misfits(placed_rules(document), topics)


def check_fit_of_rules(
    document: AccessDocument, before: AccessDocument, topics: Iterable[DescribedTopic]
) -> None:
    """Raise RuleMisfitError if a rule fits no event of a topic, and is not in the document before it.

    A rule that is in force closes the topic already: other changes do not have to wait for its author.
    """
    known = {(where, rule) for where, _, rule in rules_of(before)}
    new = [each for each in placed_rules(document) if (each.where, each.rule) not in known]
    found = list(islice(_misfits(new, topics), TOLD_MAX + 1))
    if found:
        more = [] if len(found) <= TOLD_MAX else ["and more: `tidemark access plan` says which"]
        raise RuleMisfitError("; ".join([each.text for each in found[:TOLD_MAX]] + more))


def _misfits(rules: list[PlacedRule], topics: Iterable[DescribedTopic]) -> Iterator[RuleMisfit]:
    registry = Registry()
    for topic, is_open, texts in topics:
        concerned = [each for each in rules if each.pattern.matches(topic)]
        if not concerned or not texts:
            continue
        for text in texts:
            (registry.open if is_open else registry.declare)(topic, Schema.parse(text))
        fields = registry.topics[topic].reader
        yield from (found for rule in concerned if (found := rule.misfit(topic, fields)) is not None)


class _WithParameters:
    """The fields of a topic, and the parameters of rules."""

    def __init__(self, fields: FieldTypes) -> None:
        self._fields = fields

    @property
    def open(self) -> bool:
        """Whether other fields may come."""
        return self._fields.open

    def type_of(self, path: Path) -> Type | None:
        """The type at `path`; None if there is no such field."""
        return Dynamic() if path[:1] and path[0].startswith(":") else self._fields.type_of(path)

    def paths(self) -> Sequence[Path]:
        """Every path that can be named."""
        return self._fields.paths()
