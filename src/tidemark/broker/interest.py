"""Who wants what behind which link, and since when silence accounts for it (DESIGN 6, TRAPS 1-3).

A broker tells each neighbour the union of what it and its other neighbours want, under a version that grows
across its lives. A neighbour whose interest is not known - it never spoke, or it was born again - wants
everything: nothing is left out in doubt.

Each version said upstream remembers which versions of others went into it. Knowledge comes back tagged
with the version it accounts for, and so its tag for each neighbour, and for subscribers here, can be told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from tidemark.errors import TidemarkError
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.topics import TopicPattern
from tidemark.matching.vectors.vector import Condition, compile_condition
from tidemark.message.batches.batch import EventBatch
from tidemark.message.batches.columns import Bools
from tidemark.message.registry import Registry
from tidemark.wire.frames import Interest, Wanted

#: Stands for the subscribers of this broker among its neighbours.
HERE = ""
#: Tags knowledge that accounts only for subscribers that have started already.
STARTED_ONLY = 1
#: Versions said to a neighbour of which the making is remembered.
VERSIONS_KEPT_MAX = 64


class Selection:
    """What one neighbour wants, ready to be asked of batches. Errs towards wanting."""

    def __init__(self, wanted: Iterable[Wanted], registry: Registry) -> None:
        self._registry = registry
        self._wanted = [(TopicPattern.parse(each.pattern), each.selector) for each in wanted]
        self._conditions: dict[tuple[str, str], Condition | None] = {}

    def rows(self, batch: EventBatch) -> Bools:
        """rows[row]: the neighbour wants the event, or it cannot be told that it does not."""
        chosen = np.zeros(batch.count, np.bool_)
        of_shape = batch.prelude("shape")
        for index, shape in enumerate(batch.shapes):
            chosen |= (of_shape == index) & self._of_topic(shape.topic, batch)
        return chosen

    def _of_topic(self, topic: str, batch: EventBatch) -> Bools:
        chosen = np.zeros(batch.count, np.bool_)
        known = self._registry.topics.get(topic)
        for pattern, selector in self._wanted:
            if not pattern.matches(topic):
                continue
            if known is None:
                return np.ones(batch.count, np.bool_)
            try:
                chosen |= self._condition(topic, selector).matched(known.reader.columns(batch))
            except TidemarkError:
                return np.ones(batch.count, np.bool_)
        return chosen

    def _condition(self, topic: str, selector: str) -> Condition:
        found = self._conditions.get((topic, selector))
        if found is None:
            reader = self._registry.topics[topic].reader
            found = compile_condition(Selector.parse(selector, reader).tree, reader)
            self._conditions[topic, selector] = found
        return found


@dataclass(slots=True)
class _Heard:
    """What a neighbour said last; `wanted` is None when it wants everything or has not said."""

    version: int = 0
    wanted: tuple[Wanted, ...] | None = None
    selection: Selection | None = None


@dataclass(slots=True)
class _Said:
    """What a neighbour was told last, and how each version of it was made."""

    version: int = 0
    wanted: tuple[Wanted, ...] | None = None
    #: version -> the versions of others that went into it
    made_of: dict[int, dict[str, int]] = field(default_factory=dict)


class Interests:
    """The interests that a broker has heard and said."""

    def __init__(self, peers: Iterable[str], incarnation: int, registry: Registry) -> None:
        self._registry = registry
        self._heard: dict[str, _Heard] = {peer: _Heard() for peer in peers}
        self._said: dict[str, _Said] = {peer: _Said() for peer in self._heard}
        self._here = _Heard(version=incarnation << 32, wanted=())
        self._counter = incarnation << 32

    def heard(self, peer: str, frame: Interest) -> None:
        """A neighbour said what it wants."""
        selection = None if frame.wanted is None else Selection(frame.wanted, self._registry)
        self._heard[peer] = _Heard(frame.version, frame.wanted, selection)

    def forget(self, peer: str) -> None:
        """A neighbour was born again: what it said in its former life does not hold any more."""
        self._heard[peer] = _Heard(version=self._heard[peer].version)

    def want_here(self, wanted: Iterable[Wanted]) -> int:
        """What the subscribers of this broker want; the version from which silence accounts for it."""
        chosen = tuple(sorted(set(wanted), key=lambda each: (each.pattern, each.selector)))
        if chosen != self._here.wanted:
            self._here = _Heard(self._next(), chosen)
        return self._here.version

    def say(self, peer: str, *, again: bool = False) -> Interest | None:
        """What to tell a neighbour, if it differs from what it was told last (or `again`)."""
        others = {name: each for name, each in self._heard.items() if name != peer}
        wanted = _union([self._here, *others.values()])
        said = self._said[peer]
        made_of = {name: each.version for name, each in others.items()} | {HERE: self._here.version}
        if said.version and wanted == said.wanted and not again:
            # Covered already: the version in force accounts for the new ones too, from now on.
            said.made_of[said.version] = made_of
            return None
        said.version, said.wanted = self._next(), wanted
        said.made_of[said.version] = made_of
        while len(said.made_of) > VERSIONS_KEPT_MAX:
            del said.made_of[min(said.made_of)]
        return Interest(said.version, wanted)

    def said_version(self, peer: str) -> int:
        """The version that a neighbour was told last."""
        return self._said[peer].version

    def heard_version(self, peer: str) -> int:
        """The version that a neighbour said last."""
        return self._heard[peer].version

    def selection(self, peer: str) -> Selection | None:
        """What may be left out for a neighbour; None when nothing may."""
        return self._heard[peer].selection

    def tag(self, upstream: str | None, version: int, who: str) -> int:
        """Up to which version of `who` silence accounts that came from upstream tagged `version`.

        That nothing was left out at all is no reason to say more: an older version, still on its way up, may
        yet be applied to what comes next. Only what is tagged with a version, and after it, accounts for it.
        """
        heard = self._here if who == HERE else self._heard[who]
        if upstream is None:
            return max(heard.version, STARTED_ONLY)
        made_of = self._said[upstream].made_of
        known = [each for each in made_of if each <= version]
        return made_of[max(known)].get(who, STARTED_ONLY) if known else STARTED_ONLY

    def _next(self) -> int:
        self._counter += 1
        return self._counter


def _union(interests: Iterable[_Heard]) -> tuple[Wanted, ...] | None:
    wanted: set[Wanted] = set()
    for each in interests:
        if each.wanted is None:
            return None
        wanted.update(each.wanted)
    return tuple(sorted(wanted, key=lambda each: (each.pattern, each.selector)))
