"""Who wants what of which pubend, and since when silence accounts for it (DESIGN 6, TRAPS 1-3).

For each pubend a broker follows one neighbour, and tells it the union of what it and its own followers want,
under a version that grows across its lives. A follower whose interest cannot be read wants everything:
nothing is left out in doubt.

Each version that was said remembers which versions of others went into it. Knowledge comes back tagged with
the version it accounts for, and so its tag for each follower, and for subscribers here, can be told.

Interests are by pubend, so that two brokers that follow each other, for different pubends, do not want things
only because the other does. What many pubends share is kept once: the lines wanted here, the unions, and the
matchers of equal interests.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakValueDictionary

from tidemark.broker.streams.reduction import Reduction
from tidemark.broker.turn import Turn
from tidemark.errors import TopicError
from tidemark.matching.audience import Audience
from tidemark.message.registry import Registry
from tidemark.wire.frames import Interest, Wanted

#: Stands for the subscribers of this broker among its followers.
HERE = ""
#: Tags knowledge that tells nothing but where a stream stands.
STARTED_ONLY = 1
#: Up to so many lines of its own, a broker tells its neighbours of each change at once.
LINES_FEW = 256
#: Versions said of a pubend of which the making is remembered.
VERSIONS_KEPT_MAX = 64
#: Unions that are remembered, for pubends that have the same.
UNIONS_KEPT_MAX = 64

Lines = tuple[Wanted, ...]


class _Selection(Audience):
    """What some followers want, of whatever pubends: there is one for all that want the same."""

    def __init__(self, registry: Registry, lines: Lines) -> None:
        super().__init__(registry)
        self.lines = lines


@dataclass(slots=True)
class _Heard:
    """What a follower said last; `wanted` is None when it wants everything or cannot be understood."""

    version: int
    #: it has wanted just this since that version, and this broker has always asked for it
    since: int
    wanted: Lines | None
    selection: Audience | None


@dataclass(slots=True)
class _Said:
    """What was said of a pubend last, and how each version of it was made."""

    version: int = 0
    wanted: Lines | None = None
    #: version -> the versions of others that went into it; in order
    made_of: dict[int, dict[str, int]] = field(default_factory=dict)


class Paced(Protocol):
    """A pubend that is hosted here, as what is wanted of it sees it."""

    def hasten(self) -> None:
        """Make silence explicit sooner: somebody waits for the stream to move."""


class Interests:
    """The interests that a broker has heard and said."""

    def __init__(
        self, incarnation: int, registry: Registry, turn: Turn, pubends: Mapping[str, Paced]
    ) -> None:
        #: the topics that the broker knows; only `Topics` adds to them
        self._registry = registry
        self._counters = turn.counters
        #: pubend hosted here -> itself; the broker's own, which only the broker changes
        self._pubends = pubends
        #: what is wanted has changed since upstream neighbours were told; the broker resets it
        self.is_unsaid = False
        #: pubend -> follower -> what it said
        self._heard: dict[str, dict[str, _Heard]] = {}
        self._said: dict[str, _Said] = {}
        self._here = self._counter = incarnation << 32
        #: what the subscribers of this broker want, and how many of them
        self._lines: Counter[Wanted] = Counter()
        self._summed = Reduction()
        self._summary: Lines = ()
        self._summary_of = self._here
        #: the same for pubends with the same followers
        self._reductions: dict[frozenset[str], Reduction] = {}
        self._unions: OrderedDict[frozenset[Wanted], Lines] = OrderedDict()
        self._audiences: WeakValueDictionary[Lines, _Selection] = WeakValueDictionary()

    def note_change(self) -> None:
        """A subscriber here or behind a neighbour wants something else than before, and waits for it."""
        self.is_unsaid = True
        for pubend in self._pubends.values():
            pubend.hasten()

    # What others want.

    def heard(self, peer: str, frame: Interest) -> None:
        """A follower said what it wants; if that cannot be read, it is taken to want everything."""
        selection, wanted = None, frame.wanted
        if wanted is not None:
            try:
                selection = self._audience(wanted)
                wanted = selection.lines
            except TopicError:
                wanted = None
        of_pubend = self._heard.setdefault(frame.pubend, {})
        known = of_pubend.get(peer)
        if known is not None and frame.version < known.version:
            return
        is_same = known is not None and known.wanted == wanted
        since = known.since if known is not None and is_same else frame.version
        of_pubend[peer] = _Heard(frame.version, since, wanted, selection)

    def forget(self, pubend: str, peer: str) -> None:
        """A neighbour does not follow any more, and nothing is asked for on its behalf."""
        self._heard.get(pubend, {}).pop(peer, None)

    def forget_pubend(self, pubend: str) -> None:
        """The pubend is no more."""
        self._heard.pop(pubend, None)
        self._said.pop(pubend, None)

    def heard_version(self, pubend: str, peer: str) -> int:
        """The version that a follower said last; 0 if it is none."""
        found = self._heard.get(pubend, {}).get(peer)
        return found.version if found is not None else 0

    def selection(self, pubend: str, peer: str) -> Audience | None:
        """What may be left out for a follower; None when nothing may."""
        found = self._heard.get(pubend, {}).get(peer)
        return found.selection if found is not None else None

    def _audience(self, wanted: Lines) -> _Selection:
        found = self._audiences.get(wanted)
        if found is None:
            found = _Selection(self._registry, wanted)
            for number, line in enumerate(wanted, 1):
                found.add(number, line.pattern, line.selector)
            self._audiences[wanted] = found
        return found

    # What is wanted here.

    def want_here(self, line: Wanted) -> int:
        """A subscriber of this broker wants this; the version from which silence accounts for it."""
        if not self._lines[line]:
            self._here = self._next()
        self._lines[line] += 1
        return self._here

    def want_no_more(self, line: Wanted) -> None:
        """A subscriber of this broker does not want this any more."""
        self._lines[line] -= 1
        if not self._lines[line]:
            del self._lines[line]
            self._here = self._next()

    @property
    def is_large(self) -> bool:
        """There are so many lines that each change should not be told by itself."""
        return len(self._lines) > LINES_FEW

    # What is said.

    def say(self, pubend: str, upstream: str, *, again: bool = False) -> Interest | None:
        """What to tell the neighbour that is followed, if it differs from what was said last (or `again`).

        What that neighbour itself wants, should it follow as well for a moment, is none of it.
        """
        others = {name: each for name, each in self._heard.get(pubend, {}).items() if name != upstream}
        said = self._said.setdefault(pubend, _Said())
        wanted = self._union(others)
        made_of = {name: each.version for name, each in others.items()} | {HERE: self._here}
        if said.version and wanted == said.wanted and not again:
            # Covered already: the version in force accounts for the new ones too.
            self._counters["interest_covered"] += said.made_of[said.version] != made_of
            said.made_of[said.version] = made_of
            return None
        self._counters["interest_said"] += 1
        said.version, said.wanted = self._next(), wanted
        said.made_of[said.version] = made_of
        while len(said.made_of) > VERSIONS_KEPT_MAX:
            del said.made_of[next(iter(said.made_of))]
        return Interest(pubend, said.version, wanted)

    def said_version(self, pubend: str) -> int:
        """The version that was said last; 0 if none was."""
        found = self._said.get(pubend)
        return found.version if found is not None else 0

    def tags(self, pubend: str, version: int | None) -> Mapping[str, int]:
        """Up to which version of each follower, and of HERE, silence accounts that is tagged `version`.

        None is the pubend's own. That nothing was left out at all is no reason to say more: an older version,
        still on its way up, may yet be applied to what comes next. Only what is tagged with a version, and
        after it, accounts for it. Whom it does not account for is not there.
        """
        heard = self._heard.get(pubend, {})
        if version is None:
            return {name: each.version for name, each in heard.items()} | {HERE: self._here}
        said = self._said.get(pubend)
        made_of = _at_or_before(said, version) if said is not None else None
        if made_of is None:
            return {}
        tags = {name: _present(each, made_of.get(name, 0)) for name, each in heard.items()}
        return tags | {HERE: made_of[HERE]}

    def accounting(self, pubend: str, who: str, version: int) -> int | None:
        """The first version said that accounts for this one of `who`; None while there is none."""
        said = self._said.get(pubend)
        for mine in said.made_of if said is not None else ():
            if self.tags(pubend, mine).get(who, 0) >= version:
                return mine
        return None

    def _union(self, others: Mapping[str, _Heard]) -> Lines | None:
        """Lines that cover what is wanted here and by these."""
        lines: set[Wanted] = set(self._wanted_here())
        for each in others.values():
            if each.wanted is None:
                return None
            lines.update(each.wanted)
        if not others:
            return self._summary
        key = frozenset(lines)
        found = self._unions.get(key)
        if found is None:
            if len(self._reductions) > UNIONS_KEPT_MAX:
                self._reductions.clear()
            found = self._reductions.setdefault(frozenset(others), Reduction()).of(key)
            self._unions[key] = found
            if len(self._unions) > UNIONS_KEPT_MAX:
                self._unions.popitem(last=False)
        return found

    def _wanted_here(self) -> Lines:
        if self._summary_of != self._here:
            self._summary, self._summary_of = self._summed.of(self._lines), self._here
        return self._summary

    def _next(self) -> int:
        self._counter += 1
        return self._counter


def _at_or_before(said: _Said, version: int) -> dict[str, int] | None:
    """What went into the newest version that is not beyond this one."""
    if version >= said.version > 0:
        return said.made_of[said.version]
    versions = list(said.made_of)
    at = bisect_right(versions, version)
    return said.made_of[versions[at - 1]] if at else None


def _present(heard: _Heard, version: int) -> int:
    """What accounts for a version of just the same interest accounts for the present one."""
    return heard.version if version >= heard.since else version
