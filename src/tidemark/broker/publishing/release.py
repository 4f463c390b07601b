"""Release: what every subscriber hosting broker has consumed, on its way to the pubend (DSN'03 3;
docs/traps.md, 8).

A host reports for itself how far its subscribers are, in a row under a sequence that grows across its lives.
The newest row of a host holds, by whichever way it came, so the way does not matter. Relays pass rows on and
remember, as soft state, from which neighbour each came. The pubend's broker keeps one row for each host, and
keeps on disk which hosts there are: a known host that has not reported holds everything, and only an
administrator can strike it off. So a host that gets its first subscriber first reports that nothing may go,
and starts the subscriber only when the pubend's broker has heard that. From then on no older row of that host
counts, also after a crash of the pubend's broker: a relay may still have one of when there was no subscriber.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from tidemark.broker.effects import SaveHosts, SendPeer
from tidemark.broker.overlay.neighbourhood import Neighbourhood
from tidemark.broker.turn import Turn
from tidemark.ticks import TICK_MAX, TICK_MIN
from tidemark.wire.answers import HostStatus
from tidemark.wire.frames import Heard, ReleaseRow

#: A row that asks to be heard is sent again after so many microseconds without an answer.
ASK_AGAIN_US = 200_000
#: The same row that asks again sooner has gone in a circle: for a while, brokers may follow each other.
ASK_SPACING_US = ASK_AGAIN_US // 2

#: What a host is told that is lost where nothing is: no event has this tick, and 0 says nothing.
TICK_TOLD = 1
#: released and delivered
Minima = tuple[int, int]
#: The minima of a host without subscribers.
NOBODY: Minima = (TICK_MAX, TICK_MAX)
#: The minima of a host that lets nothing go.
NOTHING: Minima = (TICK_MIN, TICK_MIN)


class Rows:
    """The newest row of each host behind a broker, of one pubend; soft state."""

    def __init__(self) -> None:
        self._rows: dict[str, ReleaseRow] = {}
        #: host -> the neighbour that its row came from
        self._from: dict[str, str] = {}
        #: hosts whose row asks to be heard and was not answered; each time they ask, one answer goes back
        self._asking: set[str] = set()
        #: host -> the monotonic time when its row asked last
        self._asked_at: dict[str, int] = {}
        #: host -> its row that was passed on
        self._passed: dict[str, ReleaseRow] = {}

    def learn(self, peer: str, row: ReleaseRow, now: int) -> None:
        """A row came by way of a neighbour; an older row than is known is ignored."""
        known = self._rows.get(row.host)
        if known is not None and row.sequence < known.sequence:
            return
        is_same = known is not None and row.sequence == known.sequence
        if row.asks:
            if is_same and now - self._asked_at.get(row.host, -ASK_SPACING_US) < ASK_SPACING_US:
                return
            self._asked_at[row.host] = now
            self._passed.pop(row.host, None)  # pass it on again: its host has not been answered yet
            self._asking.add(row.host)
        elif is_same:
            self._from[row.host] = peer  # another way to the host
            return
        self._rows[row.host] = row
        self._from[row.host] = peer

    def unsaid(self, to: str, *, is_due: bool = True, asking_only: bool = False) -> tuple[ReleaseRow, ...]:
        """Return the rows to pass on to a neighbour, but none that came from it, and mark them passed on.

        Rows that only raise what was passed on before wait until they are due. One that asks or that lowers
        something never waits: until the pubend's broker hears it, events may go that the host has to hold.
        """
        news = [row for row in self._rows.values() if self._is_news(row, is_due=is_due)]
        news = [row for row in news if (row.asks or not asking_only) and self._from[row.host] != to]
        self._passed.update((row.host, row) for row in news)
        return tuple(sorted(news, key=lambda row: row.host))

    def _is_news(self, row: ReleaseRow, *, is_due: bool) -> bool:
        passed = self._passed.get(row.host)
        if passed is None or passed.sequence == row.sequence:
            return passed is None
        is_lower = row.released < passed.released or row.delivered < passed.delivered
        return is_due or row.asks or is_lower

    def say_again(self) -> None:
        """Mark every row as not passed on: the stream comes from another neighbour, or upstream asks."""
        self._passed.clear()

    def way_back(self, host: str) -> str | None:
        """Return the neighbour by which a host asked to be heard; None if it has not asked since then."""
        if host not in self._asking:
            return None
        self._asking.discard(host)
        return self._from.get(host)

    def keep_only(self, hosts: Iterable[str]) -> None:
        """Forget the rows of all other hosts: they are not in the layout any more."""
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
        #: host that may have subscribers -> the sequence below which its rows do not count; on disk, or on
        #: the way there
        self._known = dict(known)
        self._rows: dict[str, ReleaseRow] = {}

    @property
    def known(self) -> tuple[str, ...]:
        """The hosts that release waits for, sorted."""
        return tuple(sorted(self._known))

    def received(self, peer: str, row: ReleaseRow, neighbourhood: Neighbourhood, lost: int) -> None:
        """A host's row came by way of a neighbour; if it asks, the host is told once that is on disk.

        `lost` is what the pubend has let go before it heard of that.
        """
        known, oldest = self._rows.get(row.host), self._known.get(row.host)
        if oldest is None and row.released == TICK_MAX:
            return  # the host has no subscribers, and never reported any
        if oldest is not None and row.sequence < oldest:
            return  # the host has been heard since
        if oldest is None or (row.asks and row.sequence > oldest):
            self._known[row.host] = row.sequence
            self.save()
        if known is None or row.sequence > known.sequence:
            self._rows[row.host] = row
        if row.asks:
            heard = SendPeer(peer, Heard(self._pubend, row.host, row.sequence, max(lost, TICK_TOLD)))
            self._turn.tables.after(lambda: self._out.add(heard) if neighbourhood.is_present(peer) else None)

    def remove(self, host: str) -> bool:
        """An administrator strikes a host off: release stops waiting for it. Returns whether it was known."""
        if host not in self._known:
            return False
        del self._known[host]
        self._rows.pop(host, None)
        self.save()
        return True

    def save(self) -> None:
        """Save which hosts there are."""
        self._out.add(SaveHosts(self._pubend, dict(sorted(self._known.items()))))
        self._turn.tables.after()

    def total(self, here: Minima | None) -> Minima | None:
        """Return the minima over all known hosts and `here`; None while those of one are not known."""
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
    """What this broker last reported of its subscribers for one pubend."""

    sequence: int = 0
    #: None if the next row is due at once
    minima: Minima | None = None
    #: the sequence that has to be heard before a subscriber may start; None while there is no subscriber
    begins_at: int | None = None
    heard: int = 0
    said_at: int = 0
    #: sequence of a hold -> nothing beyond this tick may go
    holds: dict[int, int] = field(default_factory=dict)
    #: sequence -> what to do once it has been heard
    waiting: dict[int, Callable[[], None]] = field(default_factory=dict)
    #: (sequence, released) of the rows said since the last one that is known to be heard, without those that
    #: a later one is not below of: their highest `released` is the first
    said: deque[tuple[int, int]] = field(default_factory=deque)

    @property
    def asks(self) -> bool:
        """Whether a row has been reported that has to be heard, and was not yet."""
        return max([self.begins_at or 0, *self.waiting]) > self.heard

    def say(self, sequence: int, released: int) -> None:
        """Note that the release row `sequence`, with this released tick, was sent to the pubend's broker."""
        while self.said and self.said[-1][1] <= released:
            self.said.pop()
        self.said.append((sequence, released))

    def hear(self, sequence: int) -> None:
        """The pubend's broker goes by the row of this sequence, or by a later one."""
        self.heard = max(self.heard, sequence)
        while self.said and self.said[0][0] < self.heard:
            self.said.popleft()

    def is_in_force(self, tick: int) -> bool:
        """Whether the pubend's broker surely holds everything beyond `tick` on behalf of this host.

        Whichever row it goes by was said since the last one that was heard, so it is the highest of these
        that counts, not the one that would be said now. Of a former life nothing is known.
        """
        return bool(self.heard) and bool(self.said) and self.said[0][1] <= tick

    def lowers(self, minima: Minima) -> bool:
        """Whether these minima are below what was reported last, or nothing was reported."""
        said = self.minima
        return said is None or minima[0] < said[0] or minima[1] < said[1]

    def passes(self, minima: Minima, event: int) -> bool:
        """Whether these minima, which are above what was reported last, are so where there is an event."""
        said = self.minima
        return said is None or any(
            before < after and (before < event or after == TICK_MAX)
            for before, after in zip(said, minima, strict=True)
        )


class Releases:
    """What one broker, as a host of subscribers, reports of itself, pubend by pubend."""

    def __init__(self, me: str, incarnation: int) -> None:
        self._me = me
        #: rows of this life have greater numbers
        self._first = incarnation << 32
        self._counter = self._first
        self._of: dict[str, _Standing] = {}

    def row(
        self, pubend: str, minima: Minima | None, now: int, *, last_event: int = TICK_MAX, is_due: bool = True
    ) -> ReleaseRow | None:
        """Return the row to report for these minima (None: not known yet); None if there is nothing to say.

        A row that lowers something is said at once, and so is one that asks, again after ASK_AGAIN_US without
        an answer. One that only raises something is said when rows are due (`is_due`), and only if there is
        an event beyond what was said before: `last_event` is the last one here. Silence needs no release.
        """
        standing = self._of.setdefault(pubend, _Standing())
        if minima == NOBODY:
            standing.begins_at = None
        elif standing.begins_at is None:
            standing.begins_at = self._counter + 1
            standing.minima = None
        is_sure = minima is not None and (minima == NOBODY or self.may_begin(pubend))
        said = self.bounded(pubend, minima if minima is not None and is_sure else NOTHING)
        if said != standing.minima and (
            standing.lowers(said) or (is_due and standing.passes(said, last_event))
        ):
            self._counter += 1
            standing.sequence, standing.minima = self._counter, said
            standing.say(self._counter, said[0])
        elif not standing.asks or now - standing.said_at < ASK_AGAIN_US:
            return None
        standing.said_at = now
        assert standing.minima is not None
        return ReleaseRow(self._me, standing.sequence, *standing.minima, standing.asks)

    @property
    def last(self) -> int:
        """The highest sequence that a row or a hold of this broker has so far."""
        return self._counter

    def may_begin(self, pubend: str) -> bool:
        """Return whether the pubend's broker has heard that subscribers are here, and holds for them."""
        standing = self._of.get(pubend)
        return (
            standing is not None and standing.begins_at is not None and standing.heard >= standing.begins_at
        )

    def heard(self, pubend: str, sequence: int) -> bool:
        """The pubend's broker has heard this sequence; returns whether subscribers may start now."""
        standing = self._of.setdefault(pubend, _Standing())
        before = self.may_begin(pubend)
        if sequence > self._first:
            standing.hear(sequence)
        for number in sorted(number for number in standing.waiting if number <= standing.heard):
            standing.waiting.pop(number)()
        return not before and self.may_begin(pubend)

    def hold(self, pubend: str, tick: int, done: Callable[[], None]) -> int:
        """Let nothing beyond `tick` go from now on; call `done` once the pubend's broker has heard of it.

        Returns a number for `let_go`. For pubends hosted here there is nothing to report: do not call this.
        """
        standing = self._of.setdefault(pubend, _Standing())
        self._counter += 1
        standing.holds[self._counter] = tick
        standing.waiting[self._counter] = done
        standing.minima = None
        return self._counter

    def hold_all(self, ticks: Mapping[str, int], done: Callable[[], None]) -> list[str]:
        """Hold these, pubend -> tick, until each has been heard of; then call `done`: at once if all are.

        From then on the ordinary rows have to hold them. Returns the pubends that have to be told.
        """
        ticks = {pubend: tick for pubend, tick in ticks.items() if not self.is_in_force(pubend, tick)}
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
        return list(ticks)

    def is_in_force(self, pubend: str, tick: int) -> bool:
        """Return whether the pubend's broker surely holds everything beyond `tick` for this host already."""
        standing = self._of.get(pubend)
        return standing is not None and standing.is_in_force(tick)

    def let_go(self, pubend: str, sequence: int) -> None:
        """End the hold of this number."""
        standing = self._of.setdefault(pubend, _Standing())
        standing.holds.pop(sequence, None)
        standing.waiting.pop(sequence, None)

    def bounded(self, pubend: str, minima: Minima) -> Minima:
        """Return these minima, lowered to what is held."""
        standing = self._of.get(pubend)
        holds = standing.holds.values() if standing is not None else ()
        return min([minima[0], *holds]), minima[1]

    def forget(self, pubend: str) -> None:
        """The pubend is not in the layout any more."""
        self._of.pop(pubend, None)
