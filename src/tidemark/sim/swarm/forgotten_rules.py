"""Planted bugs of brokers with accounts: a rule about who may see what is forgotten somewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidemark.access.document import AccessDocument
from tidemark.access.rights import Rights
from tidemark.broker.access.access_control import AccessControl
from tidemark.broker.access.held_quota import HeldQuota
from tidemark.broker.access.quotas import Quotas
from tidemark.broker.access.sight import Sight
from tidemark.broker.hosting.catchup_streams import CatchupStreams
from tidemark.broker.hosting.delivery import Delivery
from tidemark.broker.hosting.subscription import HostedSubscription
from tidemark.message.batches.batch import EventBatch
from tidemark.sim.swarm.bug import Bug, Patch


def _see_all_in_catchup() -> list[Patch]:
    tell_ready = CatchupStreams._tell_ready

    def careless(self: CatchupStreams, pubend: str, subscription: HostedSubscription, *what: Any) -> None:
        view, subscription.view = subscription.view, replace(subscription.view, seen="")
        tell_ready(self, pubend, subscription, *what)
        subscription.view = view

    return [(CatchupStreams, "_tell_ready", careless)]


def _see_all_in_deep_catchup() -> list[Patch]:
    recalled, of = CatchupStreams.recalled, Sight.of
    #: the ticks of the events that came from the archive
    old: set[int] = set()

    def remember(self: CatchupStreams, *arguments: Any) -> None:
        batch = arguments[4]
        old.update(batch.ticks.tolist() if batch is not None else ())
        recalled(self, *arguments)

    def careless(self: Sight, subscription: HostedSubscription, batch: EventBatch) -> EventBatch | None:
        return batch if old.issuperset(batch.ticks.tolist()) else of(self, subscription, batch)

    return [(CatchupStreams, "recalled", remember), (Sight, "of", careless)]


def _see_all_after_a_move() -> list[Patch]:
    restricted = AccessControl._restricted

    def careless(self: AccessControl, rights: Any, frame: Any) -> Any:
        return frame if getattr(frame, "last", "") else restricted(self, rights, frame)

    return [(AccessControl, "_restricted", careless)]


def _first_document_after_a_restart() -> list[Patch]:
    made = AccessControl.__init__
    first: list[AccessDocument] = []

    def forgetful(self: AccessControl, document: AccessDocument | None, *others: Any) -> None:
        if document is not None:
            first.append(document)
        made(self, first[0] if first else None, *others)

    return [(AccessControl, "__init__", forgetful)]


def _any_document_supersedes() -> list[Patch]:
    return [(AccessDocument, "supersedes", lambda self, other: self.digest != other.digest)]


def _whole_events_in_catchup() -> list[Patch]:
    tell = Delivery.tell

    def careless(self: Delivery, subscription: HostedSubscription, *what: Any, is_late: bool = False) -> None:
        view = subscription.view
        if is_late:
            subscription.view = replace(view, hidden=())
        tell(self, subscription, *what, is_late=is_late)
        subscription.view = view

    return [(Delivery, "tell", careless)]


def _any_field_in_selectors() -> list[Patch]:
    return [(Rights, "hidden_in", lambda *_: None)]


def _names_of_others() -> list[Patch]:
    return [(Delivery, "_with_used_names", lambda _, batch: batch)]


def _no_quota() -> list[Patch]:
    return [(Quotas, "published", lambda *_: None)]


def _hold_for_ever() -> list[Patch]:
    return [(HeldQuota, "wake", lambda _: None)]


HIDDEN = ("hides",)

FORGOTTEN_RULES = {
    "catchup-unruled": Bug(
        "what matched before a rule was tightened is caught up on without it",
        _see_all_in_catchup,
        HIDDEN,
        "access",
    ),
    "archive-unruled": Bug(
        "what comes from the archive is told without the rules of today",
        _see_all_in_deep_catchup,
        HIDDEN,
        "access",
    ),
    "move-unruled": Bug(
        "a subscriber that comes from another broker is taken without its rules",
        _see_all_after_a_move,
        HIDDEN,
        "access",
    ),
    "restart-unruled": Bug(
        "a broker that restarts goes by the access document of its first start",
        _first_document_after_a_restart,
        (*HIDDEN, "are hidden fields", "is missing"),
        "access",
    ),
    "old-rules-overtake": Bug(
        "an older access document takes the place of a newer one",
        _any_document_supersedes,
        ("after the document",),
        "access",
    ),
    "hidden-in-catchup": Bug(
        "a field that is hidden is shown to a subscriber that catches up",
        _whole_events_in_catchup,
        ("are hidden fields",),
        "access",
    ),
    "hidden-in-selectors": Bug(
        "a subscriber whose selector names a field that has become hidden goes on by it",
        _any_field_in_selectors,
        ("from its selectors",),
        "access",
    ),
    "names-of-others": Bug(
        "a batch names topics and publishers of events that its subscriber may not see",
        _names_of_others,
        ("not all its own",),
        "access",
    ),
    "quota-forgotten": Bug(
        "what a user publishes is not counted against its quota",
        _no_quota,
        ("faster than its quota",),
        "access",
    ),
    "held-for-ever": Bug(
        "pubends hold whatever a durable subscription is owed, whatever its owner's quota is",
        _hold_for_ever,
        ("its quota of held_bytes",),
        "access",
    ),
}
