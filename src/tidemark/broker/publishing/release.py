"""Release: what every subscriber hosting broker has consumed, on its way to the pubend (DSN'03 3, TRAPS 8).

A host says for itself how far it is, under a sequence that grows across its lives: the newest row of a host
holds, by whichever way it came, so the way does not matter. Relays pass rows on and remember, softly, where
from. The pubend's broker keeps one row a host, and on disk which hosts there are: one that has not reported
holds everything, and only an administrator can strike it off. So a host with nobody that gets somebody says
first that nothing may go, and begins only when it has been heard. From then on no older row of it counts,
also after a crash of the pubend's broker: a relay may still have one, from when there was nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from tidemark.broker.effects import SaveHosts, SendPeer
from tidemark.broker.overlay.neighbourhood import Neighbourhood
from tidemark.broker.turn import Turn
from tidemark.ticks import TICK_MAX, TICK_MIN
from tidemark.wire.answers import HostStatus
from tidemark.wire.frames import Heard, ReleaseRow

#: What is not heard is said again after so many microseconds.
ASK_AGAIN_US = 200_000
#: The same that is asked again sooner has gone in a circle: for a while, brokers may follow each other.
ASK_SPACING_US = ASK_AGAIN_US // 2

#: released and delivered
Minima = tuple[int, int]
NOBODY: Minima = (TICK_MAX, TICK_MAX)
NOTHING: Minima = (TICK_MIN, TICK_MIN)


class Rows:
    """The newest row of each host behind a broker, of one pubend; soft state."""

    def __init__(self) -> None:
        self._rows: dict[str, ReleaseRow] = {}
        #: host -> the neighbour that its row came from
        self._from: dict[str, str] = {}
        #: hosts that wait to be told that they were heard; each time they ask, one answer goes back
        self._asking: set[str] = set()
        #: host -> when it asked last
        self._asked_at: dict[str, int] = {}
        #: host -> the sequence that was passed on
        self._passed: dict[str, int] = {}

    def learn(self, peer: str, row: ReleaseRow, now: int) -> None:
        """A row came; an older one than is known tells nothing."""
        known = self._rows.get(row.host)
        if known is not None and row.sequence < known.sequence:
            return
        is_same = known is not None and row.sequence == known.sequence
        if row.asks:
            if is_same and now - self._asked_at.get(row.host, -ASK_SPACING_US) < ASK_SPACING_US:
                return
            self._asked_at[row.host] = now
            self._passed.pop(row.host, None)  # also again: its host has not been told yet that it was heard
            self._asking.add(row.host)
        elif is_same:
            self._from[row.host] = peer  # there is another way to it now
            return
        self._rows[row.host] = row
        self._from[row.host] = peer

    def unsaid(self, to: str, *, asking_only: bool = False) -> tuple[ReleaseRow, ...]:
        """The rows that were not passed on yet, but for what came from there; they count as passed on."""
        news = [row for row in self._rows.values() if self._passed.get(row.host) != row.sequence]
        news = [row for row in news if (row.asks or not asking_only) and self._from[row.host] != to]
        self._passed.update((row.host, row.sequence) for row in news)
        return tuple(sorted(news, key=lambda row: row.host))

    def say_again(self) -> None:
        """Whoever is told now has not been told yet."""
        self._passed.clear()

    def way_back(self, host: str) -> str | None:
        """The neighbour by whom a host asked to be heard, if it did since it was told last."""
        if host not in self._asking:
            return None
        self._asking.discard(host)
        return self._from.get(host)

    def keep_only(self, hosts: Iterable[str]) -> None:
        """Others are no more."""
        for host in set(self._rows) - set(hosts):
            del self._rows[host]
            self._from.pop(host, None)
            self._asked_at.pop(host, None)
            self._passed.pop(host, None)
            self._asking.discard(host)


class Hosts:
    """The hosts of a pubend, at the pubend's own broker."""

    def __init__(self, pubend: str, known: Mapping[str, int], turn: Turn) -> None:
        self._pubend = pubend
        self._turn = turn
        self._out = turn.out
        #: on disk, or on its way there: those that may have subscribers -> no older row of it counts
        self._known = dict(known)
        self._rows: dict[str, ReleaseRow] = {}

    @property
    def known(self) -> tuple[str, ...]:
        """Those that release waits for."""
        return tuple(sorted(self._known))

    def received(self, peer: str, row: ReleaseRow, neighbourhood: Neighbourhood) -> None:
        """A host's row came by way of a neighbour; it is heard once that is on disk."""
        known, oldest = self._rows.get(row.host), self._known.get(row.host)
        if oldest is None and row.released == TICK_MAX:
            return  # it has nobody, and never said that it had somebody
        if oldest is not None and row.sequence < oldest:
            return  # it has been heard since
        if oldest is None or (row.asks and row.sequence > oldest):
            self._known[row.host] = row.sequence
            self.save()
        if known is None or row.sequence > known.sequence:
            self._rows[row.host] = row
        if row.asks:
            heard = SendPeer(peer, Heard(self._pubend, row.host, row.sequence))
            self._turn.tables.after(lambda: self._out.add(heard) if neighbourhood.is_present(peer) else None)

    def remove(self, host: str) -> bool:
        """An administrator strikes a host off: it holds nothing any more. Whether it was there."""
        if host not in self._known:
            return False
        del self._known[host]
        self._rows.pop(host, None)
        self.save()
        return True

    def save(self) -> None:
        """Put on disk which hosts there are."""
        self._out.add(SaveHosts(self._pubend, dict(sorted(self._known.items()))))
        self._turn.tables.after()

    def total(self, here: Minima | None) -> Minima | None:
        """The minima over all hosts and those here; None while one is unknown."""
        if here is None or not self._known.keys() <= self._rows.keys():
            return None
        rows = [self._rows[host] for host in self._known]
        released = min([here[0], *(row.released for row in rows)])
        delivered = min([here[1], *(row.delivered for row in rows)])
        return released, delivered

    def describe(self) -> list[HostStatus]:
        """Return every host that release waits for and how far it is, for administrators."""
        rows = {host: self._rows.get(host) for host in self.known}
        return [
            HostStatus(self._pubend, host, None if row is None else row.released, row is not None)
            for host, row in rows.items()
        ]


@dataclass(slots=True)
class _Standing:
    """What this broker's subscribers have of one pubend, as it was said last."""

    sequence: int = 0
    minima: Minima | None = None
    #: said when somebody came, and to be heard before anything begins; None while nobody is here
    begins_at: int | None = None
    heard: int = 0
    said_at: int = 0
    #: sequence of a hold -> nothing beyond this tick may go
    holds: dict[int, int] = field(default_factory=dict)
    #: sequence -> what to do once it has been heard
    waiting: dict[int, Callable[[], None]] = field(default_factory=dict)

    @property
    def asks(self) -> bool:
        """Something was said that has to be heard, and was not."""
        return max([self.begins_at or 0, *self.waiting]) > self.heard


class Releases:
    """What one broker, as a host of subscribers, says of itself, pubend by pubend."""

    def __init__(self, me: str, incarnation: int) -> None:
        self._me = me
        self._counter = incarnation << 32
        self._of: dict[str, _Standing] = {}

    def row(self, pubend: str, minima: Minima | None, now: int) -> ReleaseRow | None:
        """What to say of those here, if it is news or to be said again; `minima`: None while not known."""
        standing = self._of.setdefault(pubend, _Standing())
        if minima == NOBODY:
            standing.begins_at = None
        elif standing.begins_at is None:
            standing.begins_at = self._counter + 1
            standing.minima = None
        is_sure = minima is not None and (minima == NOBODY or self.may_begin(pubend))
        said = self.bounded(pubend, minima if minima is not None and is_sure else NOTHING)
        if said != standing.minima:
            self._counter += 1
            standing.sequence, standing.minima = self._counter, said
        elif not standing.asks or now - standing.said_at < ASK_AGAIN_US:
            return None
        standing.said_at = now
        return ReleaseRow(self._me, standing.sequence, *said, standing.asks)

    def may_begin(self, pubend: str) -> bool:
        """The pubend's broker has heard that somebody is here, and holds."""
        standing = self._of.get(pubend)
        return (
            standing is not None and standing.begins_at is not None and standing.heard >= standing.begins_at
        )

    def heard(self, pubend: str, sequence: int) -> bool:
        """The pubend's broker holds what the row of this sequence said. Whether something may begin now."""
        standing = self._of.setdefault(pubend, _Standing())
        before = self.may_begin(pubend)
        standing.heard = max(standing.heard, sequence)
        for number in sorted(number for number in standing.waiting if number <= standing.heard):
            standing.waiting.pop(number)()
        return not before and self.may_begin(pubend)

    def hold(self, pubend: str, tick: int, done: Callable[[], None]) -> int:
        """Let nothing beyond `tick` go from now on; `done` once the pubend's broker has heard of it.

        The number is for `let_go`. At the pubend's own broker call `done` at once: nothing has to be said.
        """
        standing = self._of.setdefault(pubend, _Standing())
        self._counter += 1
        standing.holds[self._counter] = tick
        standing.waiting[self._counter] = done
        standing.minima = None
        return self._counter

    def hold_all(self, ticks: Mapping[str, int], done: Callable[[], None]) -> None:
        """Hold these, pubend -> tick, until each has been heard of; then `done`.

        From then on the ordinary rows have to hold them.
        """
        waiting = set(ticks)
        numbers: dict[str, int] = {}

        def heard(pubend: str) -> None:
            waiting.discard(pubend)
            self.let_go(pubend, numbers[pubend])
            if not waiting:
                done()

        for pubend, tick in ticks.items():
            numbers[pubend] = self.hold(pubend, tick, partial(heard, pubend))
        if not ticks:
            done()

    def let_go(self, pubend: str, sequence: int) -> None:
        """What was held under this number is not any more."""
        standing = self._of.setdefault(pubend, _Standing())
        standing.holds.pop(sequence, None)
        standing.waiting.pop(sequence, None)

    def bounded(self, pubend: str, minima: Minima) -> Minima:
        """These minima, with what is held."""
        standing = self._of.get(pubend)
        holds = standing.holds.values() if standing is not None else ()
        return min([minima[0], *holds]), minima[1]

    def forget(self, pubend: str) -> None:
        """The pubend is no more."""
        self._of.pop(pubend, None)
