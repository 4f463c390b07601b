"""Interests: what this broker and its followers want of each pubend, and for which of it silence is complete
(docs/architecture.md; docs/traps.md, 1-3).

For each pubend a broker follows one neighbour, and tells it the union of what its own subscribers and its
followers want, under an interest version that grows across its lives. A follower whose interest cannot be
read wants everything: in doubt nothing is left out.

For each version that this broker has told upstream it remembers which versions of its followers went into it.
Knowledge comes back tagged with the version that it is complete for; from that follow its tags for each
follower and for the subscribers here.

Interests are kept by pubend, so that two brokers that follow each other, for different pubends, do not want
things only because the other does. What many pubends share is kept once: the lines wanted here, the unions,
and the matchers of equal interests.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from tidemark.broker.streams.reduction import LINES_MAX, Reduction
from tidemark.broker.turn import Turn
from tidemark.errors import TopicError
from tidemark.matching.audience import Audience
from tidemark.message.registry import Registry
from tidemark.message.topic_selector import TopicSelector
from tidemark.wire.frames import Interest

#: Stands for the subscribers of this broker among its followers.
HERE = ""
#: The tag of knowledge that is complete for no interest: it tells only how far a stream reaches.
STARTED_ONLY = 1
#: Lines of an interest that are read: a broker tells a quarter of it at the most (`reduction.LINES_MAX`).
HEARD_LINES_MAX = 4 * LINES_MAX
#: With up to so many lines of its own, a broker tells its neighbours of each change at once.
LINES_FEW = 256
#: Interest versions of a pubend for which it is remembered what went into them.
VERSIONS_KEPT_MAX = 64
#: Unions that are remembered, for pubends that have the same.
UNIONS_KEPT_MAX = 64
#: What the matchers of one interest may take in memory, about.
SELECTION_BYTES_MAX = 64 << 20

Lines = tuple[TopicSelector, ...]


class _Selection(Audience):
    """A matcher for the interest of followers; followers with equal interests, of any pubends, share one."""

    def __init__(self, registry: Registry, lines: Lines) -> None:
        super().__init__(registry, held_bytes_max=SELECTION_BYTES_MAX)
        self.lines = lines


@dataclass(slots=True)
class _Heard:
    """The last interest of a follower; `wanted` is None if it wants everything or cannot be read."""

    version: int
    #: the first version of exactly this interest; this broker has asked upstream for it ever since
    since: int
    wanted: Lines | None
    selection: Audience | None


@dataclass(slots=True)
class _Said:
    """The interest in a pubend that was last told upstream, and what went into each version."""

    version: int = 0
    wanted: Lines | None = None
    #: version -> follower or HERE -> its version that went into this one; ascending
    made_of: dict[int, dict[str, int]] = field(default_factory=dict)


class Interests:
    """The interests that a broker has heard from followers and told upstream."""

    def __init__(self, incarnation: int, registry: Registry, turn: Turn) -> None:
        #: the topics that the broker knows; only `Topics` adds to them
        self._registry = registry
        self._looking = turn.looking
        self._counters = turn.counters
        #: what is wanted has changed since upstream neighbours were told; the broker resets it
        self.is_unsaid = False
        #: pubend -> follower -> its last interest
        self._heard: dict[str, dict[str, _Heard]] = {}
        self._said: dict[str, _Said] = {}
        self._here = self._counter = incarnation << 32
        #: what subscribers of this broker want -> how many of them want it
        self._lines: Counter[TopicSelector] = Counter()
        self._summed = Reduction()
        self._summary: Lines = ()
        self._summary_of = self._here
        #: followers -> the reduction of their interests, shared by pubends that have the same followers
        self._reductions: dict[frozenset[str], Reduction] = {}
        self._unions: OrderedDict[frozenset[TopicSelector], Lines] = OrderedDict()
        self._audiences: WeakValueDictionary[Lines, _Selection] = WeakValueDictionary()

    def note_change(self) -> None:
        """A subscriber here or behind a neighbour wants something else than before, and waits for it."""
        self.is_unsaid = True

    # What others want.

    def look(self, frame: Interest) -> tuple[Lines | None, _Selection | None]:
        """Return what a follower wants and the matcher of that, both None if that is everything.

        A follower that tells more lines than brokers tell is taken to want everything: nobody waits while
        all of them are read.
        """
        if frame.wanted is None or len(frame.wanted) > HEARD_LINES_MAX:
            return None, None
        with self._looking:
            try:
                selection = self._audience(frame.wanted)
            except TopicError:
                return None, None
        return selection.lines, selection

    def heard(self, peer: str, frame: Interest) -> None:
        """A follower tells its interest; if that cannot be read, the follower is taken to want everything."""
        wanted, selection = self.look(frame)
        of_pubend = self._heard.setdefault(frame.pubend, {})
        known = of_pubend.get(peer)
        if known is not None and frame.version < known.version:
            return
        is_same = known is not None and known.wanted == wanted
        since = known.since if known is not None and is_same else frame.version
        of_pubend[peer] = _Heard(frame.version, since, wanted, selection)

    def forget(self, pubend: str, peer: str) -> None:
        """A neighbour does not follow the pubend any more: drop its interest."""
        self._heard.get(pubend, {}).pop(peer, None)

    def forget_pubend(self, pubend: str) -> None:
        """The pubend is not in the layout any more."""
        self._heard.pop(pubend, None)
        self._said.pop(pubend, None)

    def heard_version(self, pubend: str, peer: str) -> int:
        """Return the interest version that a follower told last; 0 if it does not follow."""
        found = self._heard.get(pubend, {}).get(peer)
        return found.version if found is not None else 0

    def selection(self, pubend: str, peer: str) -> Audience | None:
        """Return the matcher of a follower's interest; None if nothing may be left out for that follower."""
        found = self._heard.get(pubend, {}).get(peer)
        return found.selection if found is not None else None

    def selections(self, pubend: str) -> list[Audience]:
        """Return the matchers of all interests of followers in a pubend, each once."""
        heard = self._heard.get(pubend)
        if not heard:
            return []
        found = (each.selection for each in heard.values())
        return list({id(each): each for each in found if each is not None}.values())

    def _audience(self, wanted: Lines) -> _Selection:
        found = self._audiences.get(wanted)
        if found is None:
            found = _Selection(self._registry, wanted)
            for number, line in enumerate(wanted, 1):
                found.add(number, line.pattern, line.selector)
            self._audiences[wanted] = found
        return found

    # What is wanted here.

    def want_here(self, line: TopicSelector) -> int:
        """A subscriber of this broker wants `line`; return the first interest version that includes it."""
        if not self._lines[line]:
            self._here = self._next()
        self._lines[line] += 1
        return self._here

    def want_no_more(self, line: TopicSelector) -> None:
        """A subscriber of this broker does not want `line` any more."""
        self._lines[line] -= 1
        if not self._lines[line]:
            del self._lines[line]
            self._here = self._next()

    @property
    def is_large(self) -> bool:
        """Whether there are so many lines that changes should be told upstream together."""
        return len(self._lines) > LINES_FEW

    # What is told upstream.

    def say(self, pubend: str, upstream: str, *, again: bool = False) -> Interest | None:
        """Return the interest to tell the followed neighbour; None if it was told the same already.

        With `again` there is always one. What that neighbour itself wants, should it follow this broker for a
        moment as well, is not included.
        """
        others = {name: each for name, each in self._heard.get(pubend, {}).items() if name != upstream}
        said = self._said.setdefault(pubend, _Said())
        if upstream in self._heard.get(pubend, {}):
            # From now on nothing is asked for on its behalf, so that no version accounts for it any more:
            # what comes under later ones lacks what it wants, should it only follow this broker again.
            for before in said.made_of.values():
                before.pop(upstream, None)
        wanted = self._union(others)
        made_of = {name: each.version for name, each in others.items()} | {HERE: self._here}
        if said.version and wanted == said.wanted and not again:
            # The version that upstream has is complete for the followers' new versions too.
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
        """Return the interest version that was told upstream last; 0 if none was."""
        found = self._said.get(pubend)
        return found.version if found is not None else 0

    def tags(self, pubend: str, version: int | None) -> Mapping[str, int]:
        """Return the newest version of each follower that knowledge tagged `version` is complete for.

        HERE stands for the subscribers of this broker. A `version` of None means knowledge of a pubend hosted
        here, which is complete for everything. Upstream leaving nothing out is no reason to claim more than
        the tag: an older version, still on its way up, may yet be applied to what comes next. Followers for
        which the knowledge is not complete at all are left out.
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
        """Return the first version told upstream that is complete for `version` of `who`; None if none is."""
        said = self._said.get(pubend)
        for mine in said.made_of if said is not None else ():
            if self.tags(pubend, mine).get(who, 0) >= version:
                return mine
        return None

    def _union(self, others: Mapping[str, _Heard]) -> Lines | None:
        """Return lines that cover what subscribers here and these followers want; None for everything."""
        lines: set[TopicSelector] = set(self._wanted_here())
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
    """Return what went into the newest version at or below `version`; None if that is not remembered."""
    if version >= said.version > 0:
        return said.made_of[said.version]
    versions = list(said.made_of)
    at = bisect_right(versions, version)
    return said.made_of[versions[at - 1]] if at else None


def _present(heard: _Heard, version: int) -> int:
    """Return the follower's present version if its interest has been the same since `version`."""
    return heard.version if version >= heard.since else version
