"""Rights: what one principal may do and see, worked out from the access document.

What a principal may see is a condition on events, and with the selector of a subscription it makes one
selector (`Rights.restricted`). Matching, interest, the PFS, catch-up, the archive and bulk reads all go by
that one selector, so that a rule costs no more than a condition that the subscriber wrote itself
(docs/security.md).

For one topic a role shows everything that it subscribes to, or, where it has `read` rules for the topic, what
one of them chooses. What several roles show is joined by OR. What a `restrict` rule of any role does not
choose is hidden, and so is every topic that a role denies. A rule that names a field that a topic does not
have shows nothing of that topic. Fields that a role hides are hidden whatever other roles show, from events
and from the principal's own selectors; the rules may name them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemark.access.document import AccessDocument, Rules
from tidemark.access.parameters import name_for, pattern_for, rule_for, wildcard_matches
from tidemark.access.principal import BROKER_ITSELF, Principal
from tidemark.access.quota import largest
from tidemark.errors import AccessError, SelectorError
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.render import render
from tidemark.matching.selectors.selector import paths_of
from tidemark.matching.selectors.topic_conditions import for_topic, narrowed
from tidemark.matching.selectors.tree import FALSE, TRUE, And, Node, Not, Or, TopicMatches
from tidemark.matching.topics import TopicPattern
from tidemark.message.publisher_names import is_made

#: Topic patterns with the names of the fields that are hidden there. Who have equal ones are served together.
Hidden = tuple[tuple[str, tuple[str, ...]], ...]


class Rights:
    """The rights of one principal under one document. Immutable."""

    def __init__(self, document: AccessDocument, principal: Principal) -> None:
        """A principal without a user in the document has the roles of its token only."""
        self.principal = principal
        user = document.users.get(principal.name)
        names = dict.fromkeys((*(user.roles if user is not None else ()), *principal.roles))
        self._roles = [document.roles[name] for name in names if name in document.roles]
        self.may_administer = any(role.administer for role in self._roles)
        is_itself = principal is BROKER_ITSELF
        self.may_monitor = self.may_administer or is_itself or any(role.monitor for role in self._roles)
        self.is_pipeline = any(role.pipeline for role in self._roles)
        self.quota = largest(role.quota for role in self._roles)
        self._seen = TRUE if self.is_pipeline else self._shown("subscribe", "read")
        self._written = self._shown("publish", "write")

    # Names.

    def may_own(self, name: str) -> bool:
        """Return whether the principal may have a durable subscription of this name."""
        return self._has_name((role.durable for role in self._roles), name)

    def may_publish_as(self, name: str) -> bool:
        """Return whether the principal may publish under this name; a name that a client made is for all."""
        return is_made(name) or self._has_name((role.publisher for role in self._roles), name)

    def _has_name(self, kinds: Iterable[Sequence[str]], name: str) -> bool:
        filled = (name_for(text, self.principal) for texts in kinds for text in texts)
        return any(pattern is not None and wildcard_matches(pattern, name) for pattern in filled)

    # Topics.

    def may_publish(self, topic: str) -> bool:
        """Return whether the principal may publish to a topic; rules may still refuse some events."""
        return _at(self._granted("publish"), topic) == TRUE

    def may_declare(self, topic: str) -> bool:
        """Return whether the principal may declare a topic, or add versions to it."""
        return _at(self._granted("declare"), topic) == TRUE

    def may_know(self, topic: str) -> bool:
        """Return whether the principal may see the schema of a topic: it may read, publish or declare it."""
        return self.may_monitor or self.may_publish(topic) or self.may_declare(topic) or self.may_see(topic)

    # Events.

    def may_see(self, topic: str) -> bool:
        """Return whether the principal may see some events of a topic."""
        return _at(self._seen, topic) != FALSE

    @property
    def sees_all(self) -> bool:
        """Whether no rule keeps events, or fields of them, from the principal."""
        return not self.seen(">") and not self.hidden(">")

    def restricted(self, pattern: str, selector: str) -> str | None:
        """Return `selector` with what the principal may see of the topics of `pattern`; None for nothing.

        TidemarkError if `pattern` or `selector` cannot be read, and SelectorLimitError if both together are
        too long.
        """
        seen = narrowed(self._seen, TopicPattern.parse(pattern))
        if seen == FALSE:
            return None
        if seen == TRUE:
            return selector
        text = render(_all_of([parse(selector), seen]))
        try:
            parse(text)
        except SelectorError as error:
            raise type(error)(
                f"with the rules of access for {self.principal.name!r} the selector is too long: "
                f"{error.reason}",
                position=0,
            ) from None
        return text

    def seen(self, pattern: str) -> str:
        """Return what the principal may see of the topics of `pattern`, as a selector; "" is everything."""
        tree = narrowed(self._seen, TopicPattern.parse(pattern))
        return "" if tree == TRUE else render(tree)

    def hidden(self, pattern: str) -> Hidden:
        """Return which fields of the topics of `pattern` are hidden from the principal.

        The pipeline has all fields of all events, since the archive has to give them back as they were.
        """
        if self.is_pipeline:
            return ()
        topics = TopicPattern.parse(pattern)
        names: dict[str, set[str]] = {}
        for role in self._roles:
            for text, hidden in role.hide.items():
                filled = pattern_for(text, self.principal)
                if hidden and TopicPattern.parse(filled).intersects(topics):
                    names.setdefault(filled, set()).update(hidden)
        return tuple((each, tuple(sorted(names[each]))) for each in sorted(names))

    def hidden_in(self, pattern: str, selector: str) -> str | None:
        """Return a field that `selector` names and that is hidden in topics of `pattern`; None if none is.

        TidemarkError if `pattern` or `selector` cannot be read.
        """
        tree = narrowed(parse(selector), TopicPattern.parse(pattern))
        hidden = {name for _, names in self.hidden(pattern) for name in names}
        return next((path[0] for path in sorted(paths_of(tree)) if path[0] in hidden), None)

    def chooses_by_hidden(self, pattern: str, selector: str) -> bool:
        """Return whether a selector, with the rules that were added to it, chooses by a field that is hidden.

        The conditions of the rules of today may name such fields. A condition that was a rule once, and is
        none any more, cannot be told from one of the subscriber, and counts as its own.
        """
        if not self.hidden(pattern) or self.hidden_in(pattern, selector) is None:
            return False
        rules = _operands(parse(self.seen(pattern)))
        own = [each for each in _operands(parse(selector)) if each not in rules]
        return any(self.hidden_in(pattern, render(each)) is not None for each in own)

    def shown(self, pattern: str, selector: str) -> str:
        """Return `selector` without those of its conditions that name a field that is hidden.

        TidemarkError if `pattern` or `selector` cannot be read.
        """
        if self.hidden_in(pattern, selector) is None:
            return selector
        parts = _operands(parse(selector))
        kept = [each for each in parts if self.hidden_in(pattern, render(each)) is None]
        return render(_all_of(kept)) if kept else ""

    @property
    def written(self) -> str:
        """What the principal may publish, as a selector over all topics; "" is everything."""
        return "" if self._written == TRUE else render(self._written)

    def write_rule(self, topic: str) -> str:
        """Return what the principal may publish of a topic, as a selector; "" is everything."""
        tree = _at(self._written, topic)
        return "" if tree == TRUE else render(tree)

    # The conditions.

    def _granted(self, what: str) -> Node:
        grants = [self._matches(pattern) for role in self._roles for pattern in getattr(role, what)]
        return _all_of([_any_of(grants), Not(_any_of(self._denied(what)))])

    def _denied(self, what: str) -> list[Node]:
        return [
            TopicMatches(pattern_for(pattern, self.principal))
            for role in self._roles
            for pattern in role.deny.get(what, ())
        ]

    def _shown(self, what: str, rules: str) -> Node:
        """Return the condition of the events that the principal may see, or publish."""
        shown = [self._shown_by(getattr(role, what), getattr(role, rules)) for role in self._roles]
        hidden = [Not(each) for each in self._denied(what)]
        restricted: list[Node] = []
        if what == "subscribe":
            for role in self._roles:
                for pattern, rule in role.restrict.items():
                    within = TopicMatches(pattern_for(pattern, self.principal))
                    restricted.append(_any_of([Not(within), self._rule(rule)]))
        return _all_of([_any_of(shown), *hidden, *restricted])

    def _shown_by(self, patterns: Sequence[str], rules: Rules) -> Node:
        granted = _any_of([self._matches(pattern) for pattern in patterns])
        if not rules:
            return granted
        ruled = [self._matches(pattern) for pattern in rules]
        chosen = [
            _all_of([matches, self._rule(rule)]) for matches, rule in zip(ruled, rules.values(), strict=True)
        ]
        return _all_of([granted, _any_of([*chosen, Not(_any_of(ruled))])])

    def _matches(self, pattern: str) -> Node:
        """Return the condition that a topic is of a pattern; a pattern that lacks a claim is of no topic."""
        filled = name_for(pattern, self.principal, is_topic=True)
        return FALSE if filled is None else TopicMatches(filled)

    def _rule(self, rule: str) -> Node:
        filled = rule_for(rule, self.principal)
        return FALSE if filled is None else parse(filled)


def check_rights(document: AccessDocument) -> None:
    """Raise AccessError if a user's rules, all together, cannot be written as one selector."""
    for name in document.users:
        principal = document.principal(name)
        assert principal is not None
        try:
            Rights(document, principal).restricted(">", "")
        except SelectorError as error:
            raise AccessError(
                f"users.{name}: the rules of its roles are too long together: {error}"
            ) from None


def _at(tree: Node, topic: str) -> Node:
    """Return a condition for events of a topic; FALSE for a name that no topic has."""
    return for_topic(tree, topic) if topic else FALSE


def _all_of(nodes: Sequence[Node]) -> Node:
    """Return AND of the nodes, simplified where a truth is known."""
    left = [node for node in map(_plain, nodes) if node != TRUE]
    if FALSE in left:
        return FALSE
    return TRUE if not left else left[0] if len(left) == 1 else And(tuple(_flat(left, And)))


def _any_of(nodes: Sequence[Node]) -> Node:
    """Return OR of the nodes, simplified where a truth is known; FALSE of none."""
    left = [node for node in map(_plain, nodes) if node != FALSE]
    if TRUE in left:
        return TRUE
    return FALSE if not left else left[0] if len(left) == 1 else Or(tuple(_flat(left, Or)))


def _flat(nodes: Iterable[Node], kind: type[And] | type[Or]) -> Iterable[Node]:
    for node in nodes:
        if isinstance(node, kind):
            yield from node.operands
        else:
            yield node


def _operands(tree: Node) -> tuple[Node, ...]:
    """Return the conditions that a condition joins by AND; itself, if it joins none."""
    return tree.operands if isinstance(tree, And) else (tree,)


def _plain(node: Node) -> Node:
    """Return NOT of a known truth as that truth, and NOT of a MATCHES as NOT MATCHES."""
    match node:
        case Not(operand) if operand == TRUE:
            return FALSE
        case Not(operand) if operand == FALSE:
            return TRUE
        case Not(TopicMatches(pattern, negated)):
            return TopicMatches(pattern, not negated)
        case _:
            return node
