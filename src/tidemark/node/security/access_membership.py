"""AccessMembership: the access document that a broker goes by, and how a newer one reaches it.

It spreads as topologies do (`node.topology.membership`): an administrator changes the document at any broker,
each broker tells its neighbours, the highest version wins everywhere, and a broker has a document on disk
before it acts on it. The document of a file is older than any that was spread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, MutableMapping
from typing import Protocol

from tidemark.access.document import AccessDocument
from tidemark.access.rights import check_rights
from tidemark.access.rule_fit import DescribedTopic, check_fit_of_rules
from tidemark.errors import StaleAccessError, TidemarkError
from tidemark.node.frame_tasks import FrameTasks
from tidemark.node.logs import Log
from tidemark.node.topology.membership import Refuse
from tidemark.node.topology.text_reading import TextReading
from tidemark.wire.limits import OVERLAY_VERSION_MAX
from tidemark.wire.security.frames import Access

#: The version of the document that a file has.
OF_FILE = 0
log = Log("access")


class SaveDocument(Protocol):
    """Puts a document on disk: a method of the node."""

    def __call__(self, document: AccessDocument, /) -> Awaitable[None]:
        """Raises StorageError."""


class AdoptDocument(Protocol):
    """Has the rest of the broker go by a document: a method of the node."""

    def __call__(self, before: AccessDocument, document: AccessDocument, /) -> None:
        """`document` is on disk."""


class KnownTopics(Protocol):
    """The topics that the broker knows: a method of its core."""

    def __call__(self) -> list[DescribedTopic]:
        """Return the topics that exist."""


class SendAccess(Protocol):
    """Sends a frame about the document to the broker that is being talked to."""

    def __call__(self, frame: Access, /) -> None:
        """Send `frame`."""


class AccessMembership:
    """The access document of one broker. Belongs to the node; the server and its connections read it."""

    def __init__(
        self,
        document: AccessDocument,
        save: SaveDocument,
        adopt: AdoptDocument,
        known_topics: KnownTopics,
        *,
        has_role_tokens: bool = False,
        counters: MutableMapping[str, int] | None = None,
    ) -> None:
        """`adopt` is called with each newer document once `save` has put it on disk.

        An administrator's document is held against `known_topics`; one that another broker has taken is not.
        `has_role_tokens`: bearer tokens bring roles. `counters`: those of the broker, where refused frames
        are counted.
        """
        #: replaced as a whole, by `take`; everyone else only reads it
        self.document = document
        self._has_role_tokens = has_role_tokens
        self._save = save
        self._adopt = adopt
        self._known_topics = known_topics
        self._texts = TextReading(AccessDocument.parse)
        self._one_at_a_time = asyncio.Lock()
        #: documents from other brokers that are being taken
        self._tasks = FrameTasks(counters)

    def greeting(self) -> Access:
        """Returns the frame that is sent on every new link: version and digest, without the text."""
        return Access(*self._key)

    def whole(self) -> Access:
        """Returns the frame for brokers that have an older document: with the text."""
        return Access(*self._key, self.document.text)

    def heard(self, frame: Access, answer: SendAccess, refuse: Refuse) -> None:
        """A neighbour says which document it has: take it if it is newer, answer with ours if it is older.

        `refuse` is called if an error follows.
        """
        theirs = (frame.version, frame.digest)
        if frame.version > OF_FILE and theirs > self._key:
            if frame.text:
                self._tasks.begin(self._take_text(frame), lambda reason: refuse("frame", reason))
        elif self.document.version > OF_FILE and theirs != self._key:
            answer(self.whole())

    async def propose(self, text: str, base: int, *, is_forced: bool = False) -> AccessDocument:
        """An administrator changes the document of version `base` to `text`. Returns the one that holds.

        Raises StaleAccessError if another version holds, AccessError if the document has a mistake, and
        RuleMisfitError if a rule that is new in it fits no event of a known topic, unless `is_forced`.
        Proposing the same again changes nothing: an administrator may propose it to several brokers.
        """
        if not 0 <= base < OVERLAY_VERSION_MAX:
            raise StaleAccessError(expected=base, actual=self.document.version)
        proposed = await self._texts.read(text, base + 1)
        check_rights(proposed)
        proposed.check_administered(by_tokens=self._has_role_tokens)
        async with self._one_at_a_time:
            # Another one may have been taken since this one came, or this one, from another broker.
            if (proposed.version, proposed.digest) == self._key:
                return self.document
            if base != self.document.version:
                raise StaleAccessError(expected=base, actual=self.document.version)
            if not is_forced:
                # On a thread, since there may be many rules and topics.
                await asyncio.to_thread(check_fit_of_rules, proposed, self.document, self._known_topics())
            await self._take(proposed)
            return self.document

    async def take(self, document: AccessDocument) -> None:
        """Save and adopt `document`, if it is newer than the one that holds. Raises StorageError."""
        async with self._one_at_a_time:
            if document.supersedes(self.document):
                await self._take(document)

    async def _take(self, document: AccessDocument) -> None:
        await self._save(document)
        before, self.document = self.document, document
        log.info("the rules of access have changed", version=document.version, users=len(document.users))
        self._adopt(before, document)

    def stop(self) -> None:
        """Take no document any more."""
        self._tasks.stop()

    @property
    def _key(self) -> tuple[int, str]:
        return self.document.version, self.document.digest

    async def _take_text(self, frame: Access) -> None:
        try:
            await self.take(await self._texts.read(frame.text, frame.version))
        except TidemarkError as error:
            # The next link that comes up, or the next change, brings the document again.
            log.error("a newer access document cannot be taken", version=frame.version, reason=str(error))
