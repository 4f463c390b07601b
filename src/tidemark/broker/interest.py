"""Who wants what behind which link, and since when silence accounts for it (DESIGN 6, TRAPS 1-3).

A broker tells each neighbour the union of what it and its other neighbours want, under a version that grows
across its lives. A neighbour whose interest is not known - it never spoke, or it was born again - wants
everything: nothing is left out in doubt.

Each version said upstream remembers which versions of others went into it. Knowledge comes back tagged
with the version it accounts for, and so its tag for each neighbour, and for subscribers here, can be told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tidemark.broker.audience import Audience
from tidemark.broker.counters import Counters
from tidemark.broker.reduction import Reduction
from tidemark.errors import TopicError
from tidemark.message.registry import Registry
from tidemark.wire.frames import Interest, Wanted

#: Stands for the subscribers of this broker among its neighbours.
HERE = ""
#: Tags knowledge that accounts only for subscribers that have started already.
STARTED_ONLY = 1
#: Up to so many lines of its own, a broker tells its neighbours of each change at once.
LINES_FEW = 256
#: Versions said to a neighbour of which the making is remembered.
VERSIONS_KEPT_MAX = 64


@dataclass(slots=True)
class _Heard:
    """What a neighbour said last; `wanted` is None when it wants everything or has not said."""

    version: int = 0
    wanted: tuple[Wanted, ...] | None = None
    selection: Audience | None = None


@dataclass(slots=True)
class _Said:
    """What a neighbour was told last, and how each version of it was made."""

    version: int = 0
    wanted: tuple[Wanted, ...] | None = None
    #: version -> the versions of others that went into it
    made_of: dict[int, dict[str, int]] = field(default_factory=dict)
    reduction: Reduction = field(default_factory=Reduction)


class Interests:
    """The interests that a broker has heard and said."""

    def __init__(
        self, peers: Iterable[str], incarnation: int, registry: Registry, counters: Counters
    ) -> None:
        self._registry = registry
        self._counters = counters
        self._heard: dict[str, _Heard] = {peer: _Heard() for peer in peers}
        self._said: dict[str, _Said] = {peer: _Said() for peer in self._heard}
        self._here = _Heard(version=incarnation << 32)
        #: what the subscribers of this broker want, and how many of them
        self._lines: Counter[Wanted] = Counter()
        self._counter = incarnation << 32

    def heard(self, peer: str, frame: Interest) -> None:
        """A neighbour said what it wants; if that cannot be read, it is taken to want everything."""
        selection = None
        wanted = frame.wanted
        if wanted is not None:
            selection = Audience(self._registry)
            try:
                for number, line in enumerate(wanted, 1):
                    selection.add(number, line.pattern, line.selector)
            except TopicError:
                selection = wanted = None
        self._heard[peer] = _Heard(frame.version, wanted, selection)

    def forget(self, peer: str) -> None:
        """A neighbour was born again: what it said in its former life does not hold any more."""
        self._heard[peer] = _Heard(version=self._heard[peer].version)

    def want_here(self, line: Wanted) -> int:
        """A subscriber of this broker wants this; the version from which silence accounts for it."""
        if not self._lines[line]:
            self._here.version = self._next()
        self._lines[line] += 1
        return self._here.version

    def want_no_more(self, line: Wanted) -> None:
        """A subscriber of this broker does not want this any more."""
        self._lines[line] -= 1
        if not self._lines[line]:
            del self._lines[line]
            self._here.version = self._next()

    @property
    def is_large(self) -> bool:
        """There are so many lines that each change should not be told by itself."""
        return len(self._lines) > LINES_FEW

    def say(self, peer: str, *, again: bool = False) -> Interest | None:
        """What to tell a neighbour, if it differs from what it was told last (or `again`)."""
        others = {name: each for name, each in self._heard.items() if name != peer}
        said = self._said[peer]
        wanted = _union(self._lines, others.values(), said.reduction)
        made_of = {name: each.version for name, each in others.items()} | {HERE: self._here.version}
        if said.version and wanted == said.wanted and not again:
            # Covered already: the version in force accounts for the new ones too, from now on.
            self._counters["interest_covered"] += said.made_of[said.version] != made_of
            said.made_of[said.version] = made_of
            return None
        self._counters["interest_said"] += 1
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

    def selection(self, peer: str) -> Audience | None:
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


def _union(
    here: Iterable[Wanted], others: Iterable[_Heard], reduction: Reduction
) -> tuple[Wanted, ...] | None:
    wanted = set(here)
    for each in others:
        if each.wanted is None:
            return None
        wanted.update(each.wanted)
    return reduction.of(wanted)
