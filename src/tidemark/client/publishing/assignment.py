"""PubendChoice: which of a broker's pubends an event goes to, by the broker's rule (docs/configuration.md).

Publishers of every version have to come to the same choice, so it goes by `wire.rendezvous`. A named
publisher numbers its events in one row, so its events always go by the publisher's name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from tidemark.client.publishing.options import EventOptions
from tidemark.errors import RefusedError
from tidemark.wire import rendezvous
from tidemark.wire.frames import Welcome

#: Keys whose pubends are remembered.
KEYS_MAX = 10_000


class AssignmentRule(NamedTuple):
    """The answer to the question `assignment`: see `wire.answers.Assignment`, which takes long to import."""

    by: str = "publisher"
    priorities: tuple[str, ...] = ()


def read_rule(found: object) -> AssignmentRule:
    """The rule in an answer of a broker; what is not understood counts as going by the publisher."""
    if not isinstance(found, dict) or not isinstance(found.get("priorities"), list):
        return AssignmentRule()
    return AssignmentRule(str(found.get("by")), tuple(map(str, found["priorities"])))


class PubendChoice:
    """The choice of one publisher at the broker that it is connected to."""

    def __init__(self, publisher: str, pinned: str | None, *, is_named: bool) -> None:
        """`pinned` is the pubend that the application wants, if it named one."""
        self._publisher = publisher
        self._pinned = pinned
        self._is_named = is_named
        self._welcome: Welcome | None = None
        #: the broker's rule; None while it is not known, and nothing can be published
        self._rule: AssignmentRule | None = None
        self._of_key: Callable[[bytes], str] = self._hashed

    def up(self, welcome: Welcome) -> bool:
        """A new connection; returns whether the broker has to be asked for its rule."""
        self._welcome = welcome
        self._of_key = lru_cache(KEYS_MAX)(self._hashed)
        has_choice = len(welcome.pubends) > 1 and self._pinned is None and not self._is_named
        self._rule = None if has_choice else AssignmentRule()
        return has_choice

    def learn(self, rule: AssignmentRule) -> None:
        """The broker has said its rule."""
        self._rule = rule

    @property
    def is_known(self) -> bool:
        """Whether the rule is known."""
        return self._rule is not None

    def pubend(self, options: EventOptions) -> str | None:
        """The pubend of an event; None if it goes by the publisher."""
        assert self._rule is not None
        if self._rule.by == "key" and options.key:
            return self._of_key(options.key)
        if self._rule.by == "priority" and options.priority < len(self._rule.priorities):
            return self._rule.priorities[options.priority]
        return None

    def of_publisher(self) -> str:
        """The pubend that the publisher's name leads to; RefusedError if the broker has none for it."""
        assert self._welcome is not None
        hosted, broker = self._welcome.pubends, self._welcome.broker
        if self._pinned is not None and self._pinned not in hosted:
            reason = f"the broker {broker!r} does not host it: connect to the one that does"
            raise RefusedError(reason, what="publish", name=self._pinned, code="pubend")
        if not hosted:
            reason = "it hosts no pubend, so nothing can be published there: connect to another broker"
            raise RefusedError(reason, what="publish", name=broker, code="pubend")
        # The hash spreads publishers over the pubends, and leads each publisher to the same one every time.
        return self._pinned or rendezvous.chosen(self._publisher, hosted)

    def _hashed(self, key: bytes) -> str:
        assert self._welcome is not None
        return rendezvous.chosen(key.hex(), self._welcome.pubends)
