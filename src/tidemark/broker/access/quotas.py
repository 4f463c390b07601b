"""Quotas: what each principal uses of a broker, held against what its roles allow (docs/security.md).

Connections and subscriptions beyond a quota are refused. Publishing beyond a rate is not: the client is not
read until it has waited for what it published, so that its publishers feel back-pressure and lose nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tidemark.access.document import AccessDocument
from tidemark.access.quota import PublishAllowance, Quota, largest
from tidemark.access.rights import Rights

#: Principals that are not connected, and of whom it is remembered what they have published lately.
AWAY_MAX = 4_096


class Quotas:
    """Counts by the names of principals. Without accounts nobody has a quota."""

    def __init__(
        self, rights: Callable[[int], Rights | None], rights_of: Callable[[str], Rights | None]
    ) -> None:
        """`rights` are those of a client, `rights_of` those of a user of the access document."""
        self._rights = rights
        self._rights_of = rights_of
        #: name -> how many connections it has
        self._connections: Counter[str] = Counter()
        #: name and quota -> what it may publish, of those that have a rate; tokens of one name may bring
        #: roles with different quotas
        self._publishing: dict[tuple[str, Quota], PublishAllowance] = {}
        #: some role has a rate for publishing; nobody is counted otherwise
        self.bound_publishing = False

    def came(self, client: int, name: str) -> str | None:
        """A client of this name has come; return why it has to go again, None if it may stay."""
        self._connections[name] += 1
        rights = self._rights(client)
        most = None if rights is None else rights.quota.connections
        if most is None or self._connections[name] <= most:
            return None
        return f"{name!r} has {most} connections, as many as quota.connections of its roles allows"

    def gone(self, name: str) -> None:
        """A client of this name has gone."""
        self._connections[name] -= 1
        if self._connections[name] <= 0:
            del self._connections[name]

    def changed(self, document: AccessDocument | None) -> None:
        """There is this document now, or none."""
        self._publishing.clear()
        roles = () if document is None else document.roles.values()
        self.bound_publishing = any(largest([role.quota]).bounds_publishing for role in roles)

    def too_many_subscriptions(self, client: int, owned: int) -> str | None:
        """Return why a client whose principal owns so many subscriptions may not have another; or None."""
        rights = self._rights(client)
        most = None if rights is None else rights.quota.subscriptions
        if rights is None or most is None or owned < most:
            return None
        who = rights.principal.name
        return f"{who!r} has {owned} subscriptions, as many as quota.subscriptions of its roles allows"

    def held_bytes(self, owner: str) -> int | None:
        """Return how many bytes pubends may keep for a durable subscription of this owner; None if any."""
        rights = self._rights_of(owner)
        return None if rights is None else rights.quota.held_bytes

    def published(self, client: int, size: int, events: int, now: int) -> None:
        """A client publishes events of this size."""
        allowance = self._allowance(client, now)
        if allowance is not None:
            allowance.spend(size, events, now)

    def wait(self, client: int, now: int) -> int:
        """Return for how many microseconds a client has to wait before it may publish; 0 if it may now."""
        if not self.bound_publishing:
            return 0
        allowance = self._allowance(client, now)
        return 0 if allowance is None else allowance.wait(now)

    def _allowance(self, client: int, now: int) -> PublishAllowance | None:
        rights = self._rights(client)
        if rights is None or not rights.quota.bounds_publishing:
            return None
        key = (rights.principal.name, rights.quota)
        found = self._publishing.get(key)
        if found is None:
            self._forget_idle(now)
            found = self._publishing[key] = PublishAllowance(rights.quota, now)
        return found

    def _forget_idle(self, now: int) -> None:
        """Forget who is away and would begin anew no better, and all who are away if there are too many."""
        away = [key for key in self._publishing if key[0] not in self._connections]
        for key in away:
            if len(away) > AWAY_MAX or self._publishing[key].is_full(now):
                del self._publishing[key]
