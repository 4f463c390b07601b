"""SimAccess: the access documents of a simulated world, and which of them each broker goes by.

A document is proposed at one broker. Each broker tells its neighbours what it has, whenever it takes another
document and whenever a link comes up; a document may overtake another on the way. A broker goes by a document
once that is on its disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemark.access.document import AccessDocument
from tidemark.access.rights import Rights
from tidemark.sim.judging.ground_truth import ViolationError
from tidemark.sim.judging.rulebook import Rulebook

if TYPE_CHECKING:
    from tidemark.sim.judging.ground_truth import GroundTruth


class SimAccess:
    """All documents of a world."""

    def __init__(self, first: Rulebook, truth: GroundTruth) -> None:
        self._truth = truth
        self._rulebooks: dict[str, Rulebook] = {}
        #: what a broker has on its first start
        self.first = self.document(first, 0)
        #: machine -> the document that its broker goes by, or has on disk while it is down
        self._in_force: dict[str, AccessDocument] = {}
        #: every document that a broker began to go by, in this order
        self._history: list[AccessDocument] = []
        self._shown: dict[tuple[str, str, str], bool] = {}

    def document(self, rulebook: Rulebook, version: int) -> AccessDocument:
        """Returns the document of a rulebook."""
        document = AccessDocument.parse(rulebook.text(), version)
        self._rulebooks[document.digest] = rulebook
        return document

    def latest(self) -> AccessDocument:
        """Returns the document that wins in the end."""
        latest = self.first
        for each in self._history:
            latest = each if _key(each) > _key(latest) else latest
        return latest

    # What brokers do.

    def goes_by(self, machine: str, document: AccessDocument) -> None:
        """A broker goes by a document from now on; ViolationError if it has gone by a newer one before."""
        before = self._in_force.get(machine)
        if before is not None and _key(document) < _key(before):
            raise ViolationError(
                f"{machine} goes by the access document {_key(document)} after the document {_key(before)}"
            )
        self._in_force[machine] = document
        self._history.append(document)

    def forget(self, machine: str) -> None:
        """A machine has left the overlay."""
        self._in_force.pop(machine, None)

    # What users may see.

    def now(self) -> tuple[AccessDocument, ...]:
        """Returns all documents that some broker goes by."""
        return tuple({each.digest: each for each in self._in_force.values()}.values())

    @property
    def count(self) -> int:
        """How often a broker began to go by a document so far."""
        return len(self._history)

    def is_shown(self, machine: str, user: str, key: str) -> bool:
        """Whether a user may see an event, by the document in force at a machine."""
        return self._shows(self._in_force[machine], user, key)

    def sees_all(self, machine: str, user: str) -> bool:
        """Whether no rule of the document in force at a machine keeps anything from a user."""
        document = self._in_force[machine]
        principal = document.principal(user)
        return principal is not None and Rights(document, principal).sees_all

    def hidden(self, machine: str, user: str, key: str) -> frozenset[str]:
        """Returns the fields of an event that are hidden from a user, by the document in force there."""
        return self._rulebooks[self._in_force[machine].digest].hides(user, key, self._truth)

    def quota(self, machine: str, user: str) -> Mapping[str, int]:
        """Returns what a user may publish a second at a machine, by the document in force there."""
        rulebook = self._rulebooks[self._in_force[machine].digest]
        return rulebook.quota if user in rulebook.publishers else {}

    def is_reader(self, machine: str, user: str) -> bool:
        """Whether a user may connect and subscribe, by the document in force at a machine."""
        return user in self._rulebooks[self._in_force[machine].digest].readers

    def number(self, machine: str) -> tuple[int, str]:
        """Returns version and digest of the document in force at a machine."""
        return _key(self._in_force[machine])

    def is_shown_throughout(self, user: str, key: str, first: tuple[AccessDocument, ...], since: int) -> bool:
        """Whether a user may see an event by all documents of `first` and all in force after `since`."""
        documents = {each.digest: each for each in (*first, *self._history[since:])}
        return all(self._shows(each, user, key) for each in documents.values())

    def _shows(self, document: AccessDocument, user: str, key: str) -> bool:
        case = document.digest, user, key
        if case not in self._shown:
            self._shown[case] = self._rulebooks[document.digest].shows(user, key, self._truth)
        return self._shown[case]


def _key(document: AccessDocument) -> tuple[int, str]:
    """Returns by what the newer of two documents is found, without the code that brokers use for that."""
    return document.version, document.digest
