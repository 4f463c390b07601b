"""ReleaseReports: what this broker says, hears and passes on about release (DSN'03 3).

Puts the parts of `release` together for every pubend of the layout: this broker's own row (`Releases`), the
rows of hosts behind it (`Rows`), and, for the pubends hosted here, the rows of all hosts (`Hosts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from tidemark.broker.effects import RecoveredPubend, SendPeer
from tidemark.broker.hosting.subscription import HostedSubscription
from tidemark.broker.overlay.layout import Layout
from tidemark.broker.overlay.neighbourhood import Neighbourhood
from tidemark.broker.publishing.pubend import Pubend
from tidemark.broker.publishing.release import TICK_TOLD, Hosts, Minima, Releases, Rows
from tidemark.broker.streams.interest import HERE, STARTED_ONLY
from tidemark.broker.streams.stream import Stream
from tidemark.broker.turn import Turn
from tidemark.ticks import TICK_MIN
from tidemark.wire.frames import Heard, Release, ReleaseRow
from tidemark.wire.limits import ROWS_MAX


class Consumption(Protocol):
    """How far the subscribers of this broker are; `Acknowledgements` is the implementation."""

    def minima(self, pubend: str) -> Minima | None:
        """Return the least that is released and delivered here; None while that is not known."""

    def last_event(self, pubend: str) -> int:
        """Return the tick of the last event that was delivered here; TICK_MIN before the first."""


class ReleaseReports:
    """The release side of one broker, for all its pubends."""

    def __init__(
        self,
        me: str,
        incarnation: int,
        streams: Mapping[str, Stream],
        pubends: Mapping[str, Pubend],
        neighbourhood: Neighbourhood,
        turn: Turn,
        period: int,
    ) -> None:
        """`period`: rows that only raise something are sent no more often than once in this time."""
        self._me = me
        self._period = period
        #: the monotonic time from which on such rows may be sent again
        self._due_at = 0
        #: pubend -> the last event that its broker has announced, to hear that it was released
        self._expected: dict[str, int] = {}
        #: pubend of the layout -> its stream; the broker's own, which only the broker changes
        self._streams = streams
        #: pubend hosted here -> itself; the broker's own, which only the broker changes
        self._pubends = pubends
        self._neighbourhood = neighbourhood
        self._turn = turn
        self._out = turn.out
        self._releases = Releases(me, incarnation)
        #: pubend of the layout -> the rows of the hosts behind this broker
        self._rows: dict[str, Rows] = {}
        #: pubend hosted here -> the rows of all its hosts; `Admin` holds it too, and may remove hosts from it
        self.hosts: dict[str, Hosts] = {}
        #: the subscribers of this broker; the broker sets it before the first stimulus
        self.consumption: Consumption | None = None

    # Pubends come and go.

    def open(self, name: str) -> None:
        """A pubend is in the layout."""
        self._rows[name] = Rows()

    def open_hosted(
        self, name: str, state: RecoveredPubend, known: Mapping[str, int] | None, layout: Layout
    ) -> None:
        """A pubend is hosted here; `known` is what the tables say of its hosts, None if they say nothing.

        Where there is history and the tables say nothing, every other broker may host subscribers.
        """
        has_history = max(state.last, state.lost) > TICK_MIN
        others = [each for each in layout.brokers if each != self._me] if has_history else []
        self.hosts[name] = Hosts(name, dict.fromkeys(others, 0) if known is None else known, self._turn)
        if known is None:
            self.hosts[name].save()

    def close(self, name: str) -> None:
        """A pubend is not in the layout any more."""
        self._releases.forget(name)
        self._expected.pop(name, None)
        del self._rows[name]
        self.hosts.pop(name, None)

    def keep_only(self, brokers: Iterable[str]) -> None:
        """The layout has only these brokers now: forget the rows of others."""
        for rows in self._rows.values():
            rows.keep_only(brokers)

    def remove_host(self, host: str) -> None:
        """An administrator has struck a broker off: its subscribers hold nothing any more."""
        for hosts in self.hosts.values():
            hosts.remove(host)

    # Reports to the pubends.

    def wake(self) -> None:
        """Say what is due of all pubends; what is said to one neighbour in one turn travels together."""
        is_due = self._turn.now >= self._due_at
        for name in self._streams:
            if self.report(name, is_due=is_due) and is_due:
                self._due_at = self._turn.now + self._period

    def report(self, name: str, *, is_due: bool = False) -> bool:
        """Say what subscribers here and behind have consumed: to the pubend if it is here, else upstream.

        Rows that only raise something are said if they are due. Returns whether any row was said.
        """
        assert self.consumption is not None
        here = self.consumption.minima(name)
        if name in self._pubends:
            self._release(name, here)
            return False
        event = max(self.consumption.last_event(name), self._expected.get(name, TICK_MIN))
        row = self._releases.row(name, here, self._turn.now, last_event=event, is_due=is_due)
        if row is not None:
            self._rows[name].learn(HERE, row, self._turn.now)
        return self._pass_rows(name, is_due=is_due)

    def attached(self, pubend: str) -> None:
        """The stream comes from another neighbour, which knows nothing of the hosts behind this broker."""
        self._rows[pubend].say_again()
        self.report(pubend)

    def ack_expected(self, pubend: str, tick: int) -> None:
        """The pubend's broker waits for the release of an event: say every row of the pubend again."""
        self._expected[pubend] = tick
        self._rows[pubend].say_again()

    def _pass_rows(self, name: str, *, is_due: bool = False, asking_only: bool = False) -> bool:
        upstream = self._streams[name].upstream
        if upstream is None:
            return False
        rows = self._rows[name].unsaid(upstream, is_due=is_due, asking_only=asking_only)
        for at in range(0, len(rows), ROWS_MAX):
            self._out.add(SendPeer(upstream, Release(name, rows[at : at + ROWS_MAX])))
        return bool(rows)

    def _release(self, name: str, here: Minima | None) -> None:
        pubend = self._pubends[name]
        total = self.hosts[name].total(None if here is None else self._releases.bounded(name, here))
        if total is None:
            pubend.hold()
        else:
            released, delivered = (min(each, pubend.position) for each in total)
            pubend.released(released, delivered)
            self._streams[name].lose(pubend.lost)

    @property
    def last_said(self) -> int:
        """The highest sequence under which this broker can have reported in this life."""
        return self._releases.last

    # Reports of other hosts.

    def released(self, peer: str, name: str, rows: Iterable[ReleaseRow]) -> None:
        """Hosts behind a neighbour say how far they are; rows that ask to be heard are passed on at once."""
        for row in rows:
            if row.host == self._me or not self._neighbourhood.is_member(row.host):
                continue  # struck off, or not known yet: then it will say it again
            if name in self._pubends:
                self.hosts[name].received(peer, row, self._neighbourhood, self._pubends[name].lost)
            else:
                self._rows[name].learn(peer, row, self._turn.now)
        if name not in self._pubends:
            self._pass_rows(name, asking_only=True)

    def heard(self, frame: Heard) -> None:
        """The pubend's broker has heard of a host: of this one, or of one behind this one, which is told."""
        name = frame.pubend
        if frame.host == self._me:
            stream = self._streams[name]
            if self._releases.heard(name, frame.sequence) and stream.listener is not None:
                # What was let go before the pubend heard of this host is not held: nobody starts there.
                if frame.lost > TICK_TOLD:
                    stream.lose(frame.lost)
                stream.listener.advanced(name, STARTED_ONLY, stream.position, stream.position)
                if frame.lost:
                    stream.promise_here()
            return
        way = self._rows[name].way_back(frame.host)
        if way is not None and self._neighbourhood.is_present(way):
            self._out.add(SendPeer(way, frame))

    # For the subscribers here.

    def may_begin(self, pubend: str) -> bool:
        """Return whether the pubend's broker is known to hold for subscribers here; if not, tell it so."""
        if pubend in self._pubends or self._releases.may_begin(pubend):
            return True
        self.report(pubend)
        return False

    def hold(self, subscription: HostedSubscription, done: Callable[[], None]) -> None:
        """Make every pubend hold what a subscriber has not consumed, then call `done`."""
        remote = self._streams.keys() - self._pubends.keys()
        held = {name: tick for name, tick in subscription.released.items() if name in remote}
        unheard = self._releases.hold_all(held, done)
        self._turn.counters["holds_in_force"] += len(held) - len(unheard)
        for name in unheard:
            self.report(name)
