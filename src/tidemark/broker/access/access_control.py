"""AccessControl: what each client of a broker may do, and which events it may see (docs/security.md).

Every frame of a client passes `checked` before any other part of the broker hears it. A frame that is not
allowed is refused there. A Subscribe or Fetch that is allowed goes on with one selector: what the client asks
for and what it may see. So whatever finds, keeps, reads or counts events for the client goes by its rules
without knowing of them.

Without a document the broker is open: everybody may do everything. With one, a client that has not proved who
it is may do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from tidemark.access.document import AccessDocument
from tidemark.access.principal import Principal
from tidemark.access.rights import Hidden, Rights
from tidemark.access.rule_fit import DescribedTopic
from tidemark.broker.access.hiding import Hiding
from tidemark.broker.access.origins import Origins
from tidemark.broker.access.quotas import Quotas
from tidemark.broker.access.rule_fits import RuleFits
from tidemark.broker.access.rule_matchers import RuleMatchers
from tidemark.broker.effects import RefuseClient
from tidemark.broker.hosting.subscription import HostedSubscription
from tidemark.broker.publishing.fetching import FETCH_BYTES_MAX
from tidemark.broker.selector_fit import check_fit
from tidemark.broker.turn import Turn
from tidemark.errors import AccessError, SelectorError, TidemarkError
from tidemark.message.batches.batch import EventBatch, Shape
from tidemark.message.batches.trace_context import publisher_of
from tidemark.message.publisher_names import may_show
from tidemark.message.registry import Registry
from tidemark.wire.answers import RIGHTS
from tidemark.wire.frames import (
    Ack,
    Ask,
    ClientFrame,
    Credit,
    Describe,
    Fetch,
    Fetched,
    Offer,
    Publish,
    Recalled,
    Refused,
    Subscribe,
    Topic,
    Unsubscribe,
)
from tidemark.wire.moving.frames import Come, Leave

#: Principals whose rights are kept, topics whose write rule is kept of all of them, and rules with a matcher.
RIGHTS_MAX = 4_096
WRITES_MAX = 16_384
RULES_MAX = 256
_OF_SUBSCRIPTIONS = frozenset((Ack, Credit))
CHANGED = "the rules of access have changed: connect again"


class AccessControl:
    """Who the clients are and what they may do. `Broker`, `Sessions` and `Admin` ask it."""

    def __init__(self, document: AccessDocument | None, registry: Registry, turn: Turn) -> None:
        """`registry` has the topics that the broker knows; only `Topics` adds to them."""
        self._document = document
        #: everybody may do everything
        self.is_open = document is None
        self._registry = registry
        self._turn = turn
        self._principals: dict[int, Principal] = {}
        #: where clients come from; `Sessions` and `Topics` count by it
        self.origins = Origins()
        #: worked out when they are first asked for; emptied when the document changes
        self._rights: dict[Principal, Rights] = {}
        #: client -> its entry of `_rights`, since every frame of a client asks for it
        self._rights_here: dict[int, Rights] = {}
        #: rights and topic -> the rule for what may be published there; None if nothing may
        self._writes: dict[tuple[Rights, str], str | None] = {}
        #: rights, publisher and shapes of an event that came alone, where that publisher may publish to that
        #: topic -> the rule that the event is held against
        self._alone: dict[tuple[Rights, str, tuple[Shape, ...]], str] = {}
        self._rules = RuleMatchers(registry, RULES_MAX)
        self._hiding = Hiding(registry)
        self._fits = RuleFits(registry)
        #: how much each principal uses of what it may; `Broker` and `Sessions` ask it too
        self.quotas = Quotas(self.rights, self._rights_of)
        self.quotas.changed(document)

    # Who is there.

    def came(self, client: int, principal: Principal | None, origin: str = "") -> None:
        """A client has come; it has proved who it is, or proved it anew, unless `principal` is None.

        It is turned away if that is one too many. One that has other claims or roles than before has to come
        again: it subscribed under the old ones.
        """
        self.origins.came(client, origin)
        if principal is None:
            return
        before = self._principals.get(client)
        self._principals[client] = principal
        self._rights_here.pop(client, None)
        if before is not None and before != principal:
            self._come_again(client)
        elif before is None:
            problem = self.quotas.came(client, principal.name)
            if problem is not None:
                self._turn.counters["limits_refused"] += 1
                self._turn.out.add(RefuseClient(client, problem, AccessError(problem), "limit"))

    def gone(self, client: int) -> None:
        """A client's connection is gone."""
        self.origins.gone(client)
        principal = self._principals.pop(client, None)
        self._rights_here.pop(client, None)
        if principal is not None:
            self.quotas.gone(principal.name)

    def change(self, document: AccessDocument | None) -> None:
        """Go by another document from now on. Clients for whom it says something else have to come again.

        Nothing that is not yet on their connection reaches them under the old rules.
        """
        if document == self._document:
            return
        before, self._document = self._document, document
        self.is_open = document is None
        stale = [client for client, who in self._principals.items() if _differs(before, document, who)]
        self._rights.clear()
        self._rights_here.clear()
        self._writes.clear()
        self._alone.clear()
        self.quotas.changed(document)
        for client in stale:
            self._come_again(client)

    def _come_again(self, client: int) -> None:
        """End a client's connection, so that it comes again under what holds now."""
        self._turn.counters["access_renewed"] += 1
        self._turn.out.add(RefuseClient(client, CHANGED, AccessError(CHANGED), "access"))

    def rights(self, client: int) -> Rights | None:
        """Return what a client may do; None if it is not known who it is."""
        found = self._rights_here.get(client)
        if found is None and (principal := self._principals.get(client)) is not None:
            found = self._rights_for(principal)
            if found is not None:
                self._rights_here[client] = found
        return found

    def _rights_of(self, user: str) -> Rights | None:
        """Return what a user of the document may do; None if it has none of that name."""
        principal = None if self._document is None else self._document.principal(user)
        return None if principal is None else self._rights_for(principal)

    def _rights_for(self, principal: Principal) -> Rights | None:
        if self._document is None:
            return None
        found = self._rights.get(principal)
        if found is None:
            if len(self._rights) >= RIGHTS_MAX:
                self._rights.clear()
            found = self._rights[principal] = Rights(self._document, principal)
        return found

    def owner(self, client: int) -> str:
        """Return the name under which a client owns what it makes; "" while the broker is open."""
        principal = self._principals.get(client)
        return principal.name if principal is not None and self._document is not None else ""

    def may_touch(self, client: int, subscription: HostedSubscription) -> bool:
        """Return whether a client may take, end or look at a subscription.

        One that belongs to nobody, from before there were accounts, is for those who may have its name.
        """
        if self._document is None:
            return True
        rights, owner = self.rights(client), subscription.owner
        if rights is None or rights.may_administer:
            return rights is not None
        return rights.principal.name == owner if owner else rights.may_own(subscription.name)

    def publisher_owner(self, client: int, publisher: str, owner: str) -> str | None:
        """Return whose a publisher's name is once this client has published under it; None if it may not.

        `owner` is whose it has been, "" for nobody's. An administrator takes a name from nobody by using it.
        """
        if self._document is None:
            return owner
        principal = self._principals.get(client)
        mine = "" if principal is None else principal.name
        if mine == owner or not owner or not self.keeps_name(owner, publisher):
            return mine
        rights = self.rights(client)
        return owner if rights is not None and rights.may_administer else None

    def keeps_name(self, owner: str, publisher: str) -> bool:
        """Return whether a publisher's name stays with its owner: not if the document denies it to the owner.

        A user that is not in the document may have its rights from a bearer token, and keeps its names.
        """
        rights = self._rights_of(owner)
        return self._document is not None and (rights is None or rights.may_publish_as(publisher))

    def seen(self, client: int, pattern: str) -> str:
        """Return what a client may see of the topics of a pattern, as a selector; "" is everything."""
        if self._document is None:
            return ""
        rights = self.rights(client)
        return "FALSE" if rights is None else rights.seen(pattern)

    def shown(self, client: int, pattern: str, selector: str) -> str:
        """Return what a client is shown of the selector of its own subscription: its rules are part of it."""
        rights = self.rights(client)
        return selector if rights is None else rights.shown(pattern, selector)

    def chooses_by_hidden(self, client: int, subscription: HostedSubscription) -> bool:
        """Return whether a selector that a subscription has had chose by what is hidden from a client now."""
        rights = self.rights(client)
        return rights is not None and any(
            rights.chooses_by_hidden(each.wanted.pattern, each.wanted.selector)
            for each in subscription.periods
        )

    def sees_all(self, client: int) -> bool:
        """Return whether no rule keeps events, or fields of them, from a client."""
        if self._document is None:
            return True
        rights = self.rights(client)
        return rights is not None and rights.sees_all

    def hidden(self, client: int, pattern: str) -> Hidden:
        """Return which fields of the topics of a pattern are hidden from a client."""
        rights = self.rights(client)
        return () if rights is None else rights.hidden(pattern)

    def versions(self, client: int, topic: str, texts: Mapping[int, str]) -> Mapping[int, str]:
        """Return the schemas of a topic, by fingerprint, in which a client may know it."""
        rights = self.rights(client)
        hidden = () if rights is None else rights.hidden(topic)
        if rights is None or not hidden:
            return texts
        whole = rights.may_publish(topic) or rights.may_declare(topic)
        return self._hiding.texts(hidden, topic, texts, whole=whole)

    def fetched(self, client: int, asked: Fetch, answer: Fetched) -> Fetched | Refused:
        """Return an answer to a client's fetch without what is hidden from it, or why it cannot be given.

        Who does not see everything is told no names of topics and publishers but those of the events. Where
        fields are hidden, the answer ends before the first event of a schema that is not known here: nothing
        can be taken out of that.
        """
        if answer.batch is None or self.sees_all(client):
            return answer
        hidden = self.hidden(client, asked.pattern)
        if not hidden:
            return replace(answer, batch=answer.batch.with_used_names())
        unknown = self._hiding.unknown_from(hidden, answer.batch)
        if unknown is not None:
            upto = int(answer.batch.ticks[unknown]) - 1
            if upto <= answer.base:
                reason = "the schema of the next event is not known here yet: ask again later"
                return Refused("fetch", str(asked.ticket), "schema", reason)
            known = answer.batch.slice(0, unknown) if unknown else None
            damaged = tuple((base, min(end, upto)) for base, end in answer.damaged if base < upto)
            answer = replace(answer, upto=upto, batch=known, damaged=damaged)
        batch = self._hiding.stripped(hidden, answer.batch) if answer.batch is not None else None
        return replace(answer, batch=batch.with_used_names() if batch is not None else None)

    def may_monitor(self, client: int) -> bool:
        """Return whether a client may see how the broker stands."""
        if self._document is None:
            return True
        rights = self.rights(client)
        return rights is not None and (rights.may_monitor or rights.is_pipeline)

    def may_know(self, client: int, topic: str) -> bool:
        """Return whether a client may see the schema of a topic."""
        if self._document is None:
            return True
        rights = self.rights(client)
        return rights is not None and rights.may_know(topic)

    def refusal(self, client: int, ask: Ask) -> Refused | None:
        """Return why a client may not ask a question that the process answers; None if it may."""
        return checked if isinstance(checked := self.checked(client, ask), Refused) else None

    def misfits(self) -> int:
        """Return how many rules do not fit a topic that is known, as far as that was found out."""
        return self._fits.look(self._document)

    def known_topics(self) -> list[DescribedTopic]:
        """Return the topics that exist, for rules that are to be held against them."""
        return [(each.topic, each.is_open, [*each.texts.values()]) for each in self._registry.topics.values()]

    # What may be done.

    def checked(self, client: int, frame: ClientFrame) -> ClientFrame | Refused:
        """Return the frame as the broker may handle it, or why it may not."""
        if self._document is None or (type(frame) in _OF_SUBSCRIPTIONS and client in self._principals):
            return frame  # Ack and Credit are of subscriptions that this connection was given
        rights = self._rights_here.get(client) or self.rights(client)
        if rights is None:
            return _denied(frame, "it is not known who you are: log in first")
        match frame:
            case Unsubscribe():
                return frame  # `Sessions` knows whose it is
            case Publish():
                return self._publish(rights, frame)
            case Leave(publisher=name) | Come(publisher=name):
                may, what = rights.may_publish_as(name), f"publish under the name {name!r}"
            case Subscribe():
                return self._subscribe(rights, frame)
            case Fetch():
                return self._in_whole_pieces(rights, self._restricted(rights, frame))
            case Describe(topic):
                may, what = rights.may_know(topic), f"see the topic {topic!r}"
            case Topic(topic):
                may, what = rights.may_declare(topic), f"declare or remove the topic {topic!r}"
            case Offer() | Recalled():
                may, what = rights.is_pipeline, "keep the archive"
            case Ask(_, what):
                return frame if may_ask(rights, what) else _denied(frame, _may_not(rights, f"ask {what!r}"))
            case _:
                may, what = False, f"say {type(frame).__name__}"
        return frame if may else _denied(frame, _may_not(rights, what))

    def _subscribe(self, rights: Rights, frame: Subscribe) -> Subscribe | Refused:
        if frame.durable and not rights.may_own(frame.name):
            what = f"have a durable subscription named {frame.name!r}"
            return _denied(frame, f"{_may_not(rights, what)}: see `durable` of its roles")
        restricted = self._restricted(rights, frame)
        assert isinstance(restricted, Subscribe | Refused)
        return restricted

    def as_owner(self, owner: str, frame: Subscribe) -> Subscribe | Refused:
        """Return what a subscriber may get that owns a subscription, or why it may not; "" is nobody."""
        if self._document is None or not owner:
            return frame
        rights = self._rights_of(owner)
        if rights is None:
            return _denied(frame, f"it is not known here what {owner!r} may see, who owns it")
        restricted = self._restricted(rights, frame)
        assert isinstance(restricted, Subscribe | Refused)
        return restricted

    def _restricted(self, rights: Rights, frame: Subscribe | Fetch) -> ClientFrame | Refused:
        try:
            named = rights.hidden_in(frame.pattern, frame.selector)
            if named is not None:
                what = f"name the field {named!r} in a selector of {frame.pattern!r}"
                return _denied(frame, _may_not(rights, what))
            selector = rights.restricted(frame.pattern, frame.selector)
            if selector is not None:
                self._check_own(rights, frame)
        except SelectorError as error:
            return Refused(_what(frame), _name(frame), "selector", str(error))
        except TidemarkError as error:
            return Refused(_what(frame), _name(frame), "topic", str(error))
        if selector is None:
            return _denied(frame, _may_not(rights, f"read any topic of {frame.pattern!r}"))
        return frame if selector == frame.selector else replace(frame, selector=selector)

    def _in_whole_pieces(self, rights: Rights, frame: ClientFrame | Refused) -> ClientFrame | Refused:
        """Return a fetch as it is read for somebody: whoever does not see everything chooses no size.

        An answer says up to which event the log was read for it. With small answers one would be told of each
        batch when it was published, and how large it is, also of those that one may not see.
        """
        if not isinstance(frame, Fetch) or frame.bytes_max == FETCH_BYTES_MAX or rights.sees_all:
            return frame
        return replace(frame, bytes_max=FETCH_BYTES_MAX)

    def _check_own(self, rights: Rights, frame: Subscribe | Fetch) -> None:
        """Raise SelectorError, of fields that it may see, if a subscriber's selector fits no topic."""
        if isinstance(frame, Subscribe):
            names = partial(self._hiding.names, rights.hidden(frame.pattern))
            check_fit(self._registry, frame.pattern, frame.selector, names, rights.may_see)

    def _publish(self, rights: Rights, frame: Publish) -> ClientFrame | Refused:
        batch = frame.batch
        if batch.count != 1:
            return self._looked_through(rights, frame)
        key = (rights, frame.publisher, batch.shapes)
        rule, names = self._alone.get(key), batch.publishers
        if len(names) > 1 or names[0] not in ("", frame.publisher):
            rule = None  # a trace is part of a name: that takes a closer look, as does a wrong name
        if rule is not None and (not rule or self._rules.allows(batch.shapes[0].topic, rule, batch)):
            return frame  # most events that are published alone end here
        answer = self._looked_through(rights, frame)
        if rule is None and answer is frame and len(batch.shapes) == 1:
            if len(self._alone) >= WRITES_MAX:
                self._alone.clear()
            self._alone[key] = self._write_rule(rights, batch.shapes[0].topic) or ""
        return answer

    def _looked_through(self, rights: Rights, frame: Publish) -> ClientFrame | Refused:
        if not rights.may_publish_as(frame.publisher):
            what = f"publish under the name {frame.publisher!r}"
            return _denied(frame, f"{_may_not(rights, what)}: see `publisher` of its roles")
        for shown in frame.batch.publishers:
            if not may_show(frame.publisher, publisher_of(shown)):
                what = f"publish events that name {shown!r} as their publisher under {frame.publisher!r}"
                return _denied(frame, _may_not(rights, what))
        for topic in sorted({each.topic for each in frame.batch.shapes}):
            rule = self._write_rule(rights, topic)
            if rule is None:
                return _denied(frame, _may_not(rights, f"publish to the topic {topic!r}"))
            row = self._first_refused(topic, rule, frame.batch) if rule else None
            if row is not None:
                return _denied(frame, f"{_may_not(rights, f'publish event {row} of the batch')}: {rule}")
        return frame

    def _write_rule(self, rights: Rights, topic: str) -> str | None:
        key = (rights, topic)
        if key not in self._writes:
            if len(self._writes) >= WRITES_MAX:
                self._writes.clear()
            self._writes[key] = rights.write_rule(topic) if rights.may_publish(topic) else None
        return self._writes[key]

    def _first_refused(self, topic: str, rule: str, batch: EventBatch) -> int | None:
        """Return the first event of a topic that a rule does not choose; None if it chooses all of them.

        An event whose schema is not known here cannot be judged, and counts as refused.
        """
        if batch.count == 1 and len(batch.shapes) == 1 and self._rules.allows(topic, rule, batch):
            return None
        unknown, chosen = self._rules.chosen(topic, rule, batch)
        if unknown is not None:
            return unknown
        if chosen.all():
            return None  # most batches end here: where the others begin takes several times as long to find
        shapes = [at for at, shape in enumerate(batch.shapes) if shape.topic == topic]
        if len(shapes) < len(batch.shapes):
            chosen |= ~np.isin(batch.prelude("shape"), shapes)
        wrong = np.flatnonzero(~chosen)
        return int(wrong[0]) if len(wrong) else None


def may_ask(rights: Rights, what: str) -> bool:
    """Return whether somebody with these rights may ask a question; an unknown one needs an administrator."""
    match RIGHTS.get(what, "administer"):
        case "everyone":
            return True
        case "monitor":
            return rights.may_monitor or rights.is_pipeline
        case "pipeline":
            return rights.is_pipeline or rights.may_administer
        case _:
            return rights.may_administer


def _differs(before: AccessDocument | None, after: AccessDocument | None, principal: Principal) -> bool:
    """Return whether two documents say different things of a principal."""
    if before is None or after is None:
        return True
    names = {*principal.roles}
    for document in (before, after):
        user = document.users.get(principal.name)
        names.update(user.roles if user is not None else ())
    name = principal.name
    return (
        before.users.get(name) != after.users.get(name)
        or before.principal(name) != after.principal(name)  # also tells claims of different types apart
        or any(before.roles.get(role) != after.roles.get(role) for role in names)
    )


def _may_not(rights: Rights, what: str) -> str:
    return f"{rights.principal.name!r} may not {what}"


_WHAT: Mapping[type[ClientFrame], str] = {
    Publish: "publish",
    Leave: "publish",
    Come: "publish",
    Subscribe: "subscribe",
    Fetch: "fetch",
    Describe: "describe",
    Topic: "topic",
    Ask: "ask",
}


def _what(frame: ClientFrame) -> str:
    """Return what kind of request a frame is, as refusals of other parts name it."""
    return _WHAT.get(type(frame), type(frame).__name__)


def _name(frame: ClientFrame) -> str:
    """Return which request of its kind a frame is, as refusals of other parts name it."""
    match frame:
        case Publish(publisher=name) | Leave(publisher=name) | Come(publisher=name):
            return name
        case Subscribe(name=name) | Describe(topic=name) | Topic(topic=name):
            return name
        case Fetch(ticket=ticket) | Ask(ticket=ticket):
            return str(ticket)
        case _:
            return ""


def _denied(frame: ClientFrame, reason: str) -> Refused:
    return Refused(_what(frame), _name(frame), "denied", reason)
