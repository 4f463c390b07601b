"""Admission: whether a subscriber may have the subscription that it asks for, and if not, why.

A subscription belongs to its owner; clients, addresses and owners have so many at the most; a token cannot be
of what was never told; a pattern and a selector have to fit the topics that there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tidemark.broker.access.access_control import AccessControl
from tidemark.broker.config import ClientLimits
from tidemark.broker.hosting.subscription import SELECTORS_MAX, DurableTotals, HostedSubscription, bytes_of
from tidemark.broker.publishing.consumed_limit import ConsumedLimit
from tidemark.broker.selector_fit import check_fit, has_topic
from tidemark.broker.turn import Turn
from tidemark.errors import SelectorError, TidemarkError
from tidemark.matching.forms.scanning import is_scanned
from tidemark.matching.selectors.parser import parse
from tidemark.message.registry import Registry
from tidemark.message.topic_selector import TopicSelector
from tidemark.wire.frames import Subscribe


class Admission:
    """Counts the subscriptions that clients and owners have, and refuses what they may not have."""

    def __init__(
        self,
        registry: Registry,
        consumed: ConsumedLimit,
        limits: ClientLimits,
        access: AccessControl,
        turn: Turn,
    ) -> None:
        #: the topics that the broker knows; only `Topics` adds to them
        self._registry = registry
        self.consumed = consumed
        self._limits = limits
        self._access = access
        self._counters = turn.counters
        #: what the durable subscriptions here are together; only `Host` changes it
        self.durables = DurableTotals()
        #: client -> ids of its subscriptions; only `Sessions` changes it
        self.by_client: dict[int, set[int]] = {}
        #: owner -> how many subscriptions it has, durable ones that are away included
        self._owned: Counter[str] = Counter()
        #: client -> ids of those of its subscriptions that no index can find, and of some that it had
        self._scans: dict[int, set[int]] = {}

    def has_topic(self, pattern: str) -> bool:
        """Return whether a topic of the pattern is found among those names that are looked at."""
        return has_topic(self._registry, pattern)

    def own(self, owner: str) -> None:
        """Count one more subscription of an owner."""
        self._owned[owner] += 1

    def disown(self, owner: str) -> None:
        """Count one subscription less of an owner."""
        self._owned[owner] -= 1
        if not self._owned[owner]:
            del self._owned[owner]

    def note_scan(self, client: int, frame: Subscribe, number: int) -> None:
        """Remember that a client has a subscription which no index can find, if this is one."""
        if is_scan(frame):
            scans = self._scans.setdefault(client, set())
            scans.add(number)
            scans &= self.by_client[client]

    def forget_scans(self, client: int) -> None:
        """The client is gone."""
        self._scans.pop(client, None)

    def refusal(
        self, client: int, frame: Subscribe, known: HostedSubscription | None
    ) -> tuple[str, str] | None:
        """Return the code and the reason for which a client cannot have this subscription; None if it can.

        `known` is the subscription that has this name already, if there is one.
        """
        return (
            self._of_another(client, known)
            or self._over_limit(client, frame, known)
            or self.misfit(frame, known)
        )

    def _of_another(self, client: int, known: HostedSubscription | None) -> tuple[str, str] | None:
        """Return the code and the reason if the subscription belongs to another principal; else None."""
        if known is None or self._access.may_touch(client, known):
            return None
        return "denied", f"{known.name!r} belongs to another user: choose another name"

    def _over_limit(
        self, client: int, frame: Subscribe, known: HostedSubscription | None
    ) -> tuple[str, str] | None:
        """Return the code and the reason if the client may not have one more subscription; else None."""
        mine, most = self.by_client.get(client, set()), self._limits.subscriptions
        owner = self._access.owner(client)
        if owner and (known is None or known.owner != owner):
            problem = self._access.quotas.too_many_subscriptions(client, self._owned[owner])
            if problem is not None:
                self._counters["limits_refused"] += 1
                return "limit", problem
        is_mine = known is not None and known.id in mine
        if is_mine:
            return None
        who = self._who_has(client, self._has, most)
        if who:
            self._counters["limits_refused"] += 1
            return "limit", f"{who} subscriptions, as many as limits.subscriptions allows"
        who = self._who_has(client, self._has_scans, self._limits.scans) if is_scan(frame) else ""
        if not who:
            return None
        self._counters["limits_refused"] += 1
        return "limit", (
            f"{who} subscriptions whose selectors no index can find, as many as "
            "limits.scans allows: begin LIKE patterns with text, or add a condition on a range or a value"
        )

    def _has(self, client: int) -> int:
        """How many subscriptions a client has."""
        return len(self.by_client.get(client, ()))

    def _has_scans(self, client: int) -> int:
        """How many of its subscriptions no index can find."""
        return len(self._scans.get(client, set()) & self.by_client.get(client, set()))

    def _who_has(self, client: int, has: Callable[[int], int], most: int) -> str:
        """Return who has as many as it may, the client or its address, and how many; "" if none has."""
        if has(client) >= most:
            return f"this client has {most}"
        times = self._limits.address_times
        if self._access.origins.is_full(client, has, most, times):
            return f"this address has {times * most}, which is {times} times what one client may have,"
        return ""

    def misfit(self, frame: Subscribe, known: HostedSubscription | None) -> tuple[str, str] | None:
        """Return the code and the reason for which a subscriber cannot be taken; None if it can."""
        if known is not None and not (known.durable and frame.durable):
            return "taken", f"{frame.name!r} is taken by another subscription: choose another name"
        if known is not None and len(known.periods) >= SELECTORS_MAX and is_change(frame, known):
            return "limit", f"{frame.name!r} changes its selector faster than it acknowledges events"
        problem = self._too_much_durable(frame, known) if frame.durable else None
        if problem is not None:
            self._counters["limits_refused"] += 1
            return "limit", problem
        proved = known.released if known is not None else {}
        problem = self.consumed.problem(frame.token, proved) if frame.token is not None else None
        if problem is not None:
            return "token", problem
        return self.problem(frame.pattern, frame.selector, is_ruled=not self._access.is_open)

    def _too_much_durable(self, frame: Subscribe, known: HostedSubscription | None) -> str | None:
        """Return why this broker cannot keep a durable subscription, or another selector of one; else None.

        One that is there already is never refused.
        """
        most, bytes_max = self._limits.durable, self._limits.durable_selector_bytes
        if known is None and self.durables.subscriptions >= most:
            return (
                f"this broker has {most} durable subscriptions, as many as limits.durable_subscriptions "
                "allows: remove those that nobody needs (`tidemark subs`), or subscribe at another broker"
            )
        if known is not None and not is_change(frame, known):
            return None
        if self.durables.selector_bytes + bytes_of(wanted_by(frame)) > bytes_max:
            return (
                f"the selectors of this broker's durable subscriptions have {self.durables.selector_bytes} "
                f"bytes, and limits.durable_selectors allows {bytes_max}: write a shorter selector, remove "
                "subscriptions that nobody needs (`tidemark subs`), or subscribe at another broker"
            )
        return None

    def problem(self, pattern: str, selector: str, *, is_ruled: bool) -> tuple[str, str] | None:
        """Return the code and the reason if a pattern and a selector make no subscription; else None.

        `is_ruled`: the selector has rules of access in it, and the client is not told of their fields.
        """
        try:
            check_fit(self._registry, pattern, selector)
        except SelectorError as error:
            # What the client wrote fits, as `AccessControl` has found: it is a rule that does not.
            rule = f"the rules of access fit no topic of {pattern!r}, so that you may see nothing of it"
            return "selector", rule if is_ruled else str(error)
        except TidemarkError as error:
            return "topic", str(error)
        return None


def is_change(frame: Subscribe, known: HostedSubscription) -> bool:
    """Return whether the subscriber wants something else than what is known of it."""
    return known.current.wanted != wanted_by(frame)


def is_scan(frame: Subscribe) -> bool:
    """Return whether no index can find the selector; one that cannot be read is refused for that."""
    try:
        return is_scanned(parse(frame.selector))
    except TidemarkError:
        return False


def wanted_by(frame: Subscribe) -> TopicSelector:
    """Return the pattern and the selector of a subscriber."""
    return TopicSelector(frame.pattern, frame.selector)
