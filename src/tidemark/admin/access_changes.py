"""Access documents for administrators: what a change of one means, and what somebody would see under one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark.access.document import AccessDocument
from tidemark.access.principal import Principal, check_claims
from tidemark.access.rights import Rights, check_rights
from tidemark.access.rule_fit import rule_misfits
from tidemark.errors import AccessError
from tidemark.wire.answers import TopicStatus
from tidemark.wire.json_objects import JsonObject


@dataclass(frozen=True, slots=True)
class AccessChange(JsonObject):
    """One thing that differs between two documents."""

    #: user or role
    kind: str
    name: str
    #: added, removed or changed
    change: str
    #: what of it differs; never a secret
    detail: str = ""


@dataclass(frozen=True, slots=True)
class AccessAnswer(JsonObject):
    """What a principal may do with a topic or pattern."""

    user: str
    pattern: str
    subscribe: bool
    #: the selector by which it would be served; "" is everything
    sees: str
    publish: bool
    #: what its events have to fulfil; "" is everything
    writes: str
    declare: bool
    monitor: bool
    administer: bool
    pipeline: bool
    #: fields that it does not see in topics of the pattern, and may not name
    hidden: tuple[str, ...] = ()
    #: a hidden field that the selector names, for which it would be refused; "" if it names none
    named: str = ""


@dataclass(frozen=True, slots=True)
class Misfit(JsonObject):
    """A rule that is true for no event of a topic: nobody sees or publishes anything there by it."""

    rule: str
    topic: str
    reason: str


def misfits(text: str, topics: Iterable[TopicStatus]) -> list[Misfit]:
    """Return which rules of a document do not fit which topics. AccessError if it has a mistake."""
    described = ((each.topic, each.open, each.schemas) for each in topics if not each.is_removed)
    found = rule_misfits(AccessDocument.parse(text), described)
    return [Misfit(each.rule, each.topic, each.reason) for each in found]


def plan_access(before: str, after: str) -> list[AccessChange]:
    """Return what a document changes. AccessError if it has a mistake."""
    old, new = AccessDocument.parse(before), AccessDocument.parse(after)
    check_rights(new)
    found: list[AccessChange] = []
    for kind, was, now in (("user", old.users, new.users), ("role", old.roles, new.roles)):
        for name in sorted({*was, *now}):
            if name not in now:
                found.append(AccessChange(kind, name, "removed"))
            elif name not in was:
                found.append(AccessChange(kind, name, "added"))
            elif was[name] != now[name]:
                found.append(AccessChange(kind, name, "changed", _difference(was[name], now[name])))
    return found


def _difference(before: object, after: object) -> str:
    names = [name for name in before.__class__.__slots__ if getattr(before, name) != getattr(after, name)]  # type: ignore[attr-defined]
    return ", ".join(names)


def try_access(
    text: str, user: str, pattern: str, selector: str = "", claims: dict[str, object] | None = None
) -> AccessAnswer:
    """Return what `user` may do with the topics of `pattern`, and what it would see, under a document.

    `claims` are those of a bearer token, beside those that the document has. AccessError if there is no such
    user and no claims are given; TidemarkError if the pattern or the selector cannot be read.
    """
    document = AccessDocument.parse(text)
    principal = document.principal(user)
    if principal is None and claims is None:
        known = ", ".join(sorted(document.users)[:20])
        raise AccessError(f"the document has no user {user!r}: there are {known}")
    own = dict(principal.claims) if principal is not None else {}
    rights = Rights(document, Principal(user, {**own, **check_claims(claims or {})}))
    sees = rights.restricted(pattern, selector)
    named = rights.hidden_in(pattern, selector)
    hidden = {name for _, names in rights.hidden(pattern) for name in names}
    return AccessAnswer(
        user=user,
        pattern=pattern,
        subscribe=sees is not None and named is None,
        sees=sees or "" if named is None else "",
        publish=rights.may_publish(pattern),
        writes=rights.write_rule(pattern) if rights.may_publish(pattern) else "",
        declare=rights.may_declare(pattern),
        monitor=rights.may_monitor,
        administer=rights.may_administer,
        pipeline=rights.is_pipeline,
        hidden=tuple(sorted(hidden)) if sees is not None else (),
        named=named or "",
    )
