"""OverlayRole: which neighbours are up, and which one each pubend's stream is taken from (docs/overlay.md).

A broker follows one neighbour for each pubend: the best one by the routing of its layout and by which links
are up, its own and its cellmates', and how well they work. A route that fails is left at once, and one whose
neighbour says that it has lost its own way is left soon. A better route that appears is taken after a delay,
at another time for each pubend, so that a neighbour that comes back is not met by a storm, and the old one is
left when the new one has taken over (`changeover`). Cellmates may
disagree for a moment on which links are up: two may then follow each other, and get nothing, until they
agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tidemark.broker.config import BrokerConfig
from tidemark.broker.effects import DropAnswers, LinkMeasured, SendPeer
from tidemark.broker.overlay.changeover import Changeover
from tidemark.broker.overlay.conditions import Conditions
from tidemark.broker.overlay.layout import Layout
from tidemark.broker.overlay.routing import Routing
from tidemark.broker.streams.interest import Interests
from tidemark.broker.streams.stream import Stream
from tidemark.broker.turn import Turn
from tidemark.wire.answers import LinkCondition
from tidemark.wire.frames import Hello, Interest, Knowledge, Links, Unfollow, Ways
from tidemark.wire.limits import PUBENDS_MAX
from tidemark.wire.rendezvous import weight

#: Interests of one neighbour that are remembered for pubends that are not in this broker's layout yet.
STRANGERS_MAX = 4_096
#: The version of the protocol between brokers since which they say Ways.
WAYS_SINCE = 3
#: A neighbour that has lost its way to a pubend is left after so many microseconds for one that has not said
#: so: when the pubend's own broker is down, all neighbours say so within this time, and nobody moves.
CUT_US = 250_000
#: An old way is left so many microseconds after the longest time for which a neighbour keeps silence back.
OVERLAP_US = 500_000


class RouteListener(Protocol):
    """A part of the broker that has something to say to whichever neighbour a stream comes from."""

    def attached(self, pubend: str) -> None:
        """The stream of a pubend comes from another neighbour now, which has been told nothing yet."""


class OverlayRole:
    """The neighbours of one broker and the routes it takes; see above."""

    def __init__(
        self, config: BrokerConfig, streams: Mapping[str, Stream], interests: Interests, turn: Turn
    ) -> None:
        self._me = config.name
        self._hello = Hello(config.name, config.incarnation, newest=config.link_version)
        self.routing = Routing(config.layout, config.name)
        #: pubend of the layout -> its stream; the broker's own, which only the broker changes
        self._streams = streams
        self._interests = interests
        self._turn = turn
        self._out = turn.out
        self._counters = turn.counters
        self._return_us = config.return_delay
        self._linger_us = config.linger
        self._overlap_us = config.silence_patience + OVERLAP_US
        #: told, in this order, when a stream comes from another neighbour; the broker adds them once
        self.listeners: list[RouteListener] = []
        #: incarnation of each neighbour whose Hello was heard on the link that is up
        self._lives: dict[str, int] = {}
        self._last_life: dict[str, int] = {}
        #: cellmate -> the sequence of its last Links, and what that said
        self._links: dict[str, tuple[int, frozenset[str]]] = {}
        self._sequence = 0
        #: brokers with a link to this one that are no neighbours in its layout yet -> their Hello, if it came
        self._early: dict[str, Hello | None] = {}
        #: pubend -> a better neighbour than the one followed, and the monotonic time when it will be followed
        self._better: dict[str, tuple[str, int]] = {}
        #: pubend -> its change to a better neighbour that has begun
        self._changeovers: dict[str, Changeover] = {}
        #: (pubend, follower whose link is down) -> the monotonic time when its interest is forgotten
        self._absent: dict[tuple[str, str], int] = {}
        #: neighbour -> pubend -> its interest, for pubends that are not in the layout here yet
        self._strangers: dict[str, dict[str, Interest]] = {}
        #: pubend -> the neighbour that was followed last
        self._last: dict[str, str] = {}
        self._conditions = Conditions(config.name, config.damping)
        #: neighbours whose links are up and that understand Ways -> what was said to them last
        self._said_ways: dict[str, Ways] = {}
        #: links, followers or the layout have changed since routes were chosen
        self._is_stale = True

    # The neighbourhood.

    def present(self) -> list[str]:
        """Return the neighbours that frames can be sent to now, sorted by name."""
        return sorted(self._lives)

    def is_present(self, peer: str) -> bool:
        """Return whether frames can be sent to this neighbour now."""
        return peer in self._lives

    def is_member(self, broker: str) -> bool:
        """Return whether a broker of this name is in the layout."""
        return broker in self.routing.members

    def last_life(self, peer: str) -> int:
        """Return the last incarnation of a neighbour that was heard of; 0 if none was."""
        return self._last_life.get(peer, 0)

    def way_to(self, broker: str) -> str | None:
        """Return a neighbour that is there and is nearer to this broker; None if there is none."""
        return self.routing.way_to(broker, self._lives)

    # Links.

    def link_up(self, peer: str) -> None:
        """A link is up: introduce this broker, if the other end is a neighbour."""
        self.link_down(peer)
        if peer in self.routing.neighbours:
            self._out.add(SendPeer(peer, self._hello))
        else:
            self._early[peer] = None

    def hello(self, peer: str, frame: Hello) -> bool:
        """A neighbour introduces itself; return whether its frames count from now on.

        They do not while it is no neighbour in the layout yet, or if this Hello is of a former life.
        """
        if peer not in self.routing.neighbours:
            self._early[peer] = frame
            return False
        if frame.incarnation < self._last_life.get(peer, 0):
            self._counters["former_lives"] += 1
            return False
        self._last_life[peer] = self._lives[peer] = frame.incarnation
        if min(frame.newest, self._hello.newest) >= WAYS_SINCE:
            self._said_ways[peer] = Ways()
        if peer in self.routing.cellmates:
            self._out.add(SendPeer(peer, self._links_frame()))
        self._tell_links(but=peer)
        self._is_stale = True
        return True

    def link_down(self, peer: str) -> None:
        """A link is down: nothing said over it holds, but the interest of the neighbour is kept a while."""
        self._early.pop(peer, None)
        if self._lives.pop(peer, None) is None:
            return
        self._links.pop(peer, None)
        self._strangers.pop(peer, None)
        self._said_ways.pop(peer, None)
        self._conditions.link_lost(peer, self._turn.now)
        for name in [name for name, each in self._changeovers.items() if each.peer == peer]:
            del self._changeovers[name]
            self._tell_anew(name, self._streams[name])
        for name, stream in self._streams.items():
            if peer in stream.followers:
                stream.leave(peer)
                self._absent[name, peer] = self._turn.now + self._linger_us
            if stream.upstream == peer:
                stream.detach()
        self._tell_links()
        self._is_stale = True

    def linked(self, peer: str, frame: Links) -> None:
        """A cellmate tells which of its links are up."""
        known = self._links.get(peer)
        if peer in self.routing.cellmates and (known is None or frame.sequence > known[0]):
            self._links[peer] = frame.sequence, frozenset(frame.up)
            self._is_stale = True

    def ways_said(self, peer: str, frame: Ways) -> None:
        """A neighbour tells which pubends it cannot reach, and how well its links work."""
        self._conditions.heard(peer, frame)
        self._is_stale = True

    def measured(self, stimulus: LinkMeasured) -> None:
        """The link to a neighbour was measured."""
        if stimulus.peer not in self.routing.neighbours:
            return
        self._is_stale |= self._conditions.of(stimulus.peer).measure(
            self._turn.now,
            stimulus.delay,
            stimulus.bytes_per_second,
            is_lower_bound=stimulus.is_lower_bound,
        )

    def condition(self, peer: str) -> LinkCondition:
        """Return how well the link to a neighbour has worked."""
        return self._conditions.of(peer).describe(self._turn.now)

    def _tell_links(self, but: str | None = None) -> None:
        for mate in self.routing.cellmates:
            if mate in self._lives and mate != but:
                self._out.add(SendPeer(mate, self._links_frame()))

    def _links_frame(self) -> Links:
        self._sequence += 1
        return Links(self._me, self._sequence, tuple(sorted(self._lives)))

    # Followers.

    def followed(self, peer: str, frame: Interest) -> None:
        """A neighbour follows a stream, or has changed its interest in it."""
        if frame.pubend not in self._streams:
            known = self._strangers.setdefault(peer, {})
            if len(known) < STRANGERS_MAX or frame.pubend in known:
                known[frame.pubend] = frame
            return
        self._absent.pop((frame.pubend, peer), None)
        self._interests.heard(peer, frame)
        changeover = self._changeovers.get(frame.pubend)
        self._is_stale |= peer == self._streams[frame.pubend].upstream
        self._is_stale |= changeover is not None and changeover.peer == peer
        self._streams[frame.pubend].follow(peer)
        self._interests.note_change()

    def unfollowed(self, peer: str, frame: Unfollow) -> None:
        """A neighbour does not follow a stream any more: it has the pubend from another broker."""
        self._strangers.get(peer, {}).pop(frame.pubend, None)
        if frame.version >= self._interests.heard_version(frame.pubend, peer) > 0:
            self._forget(frame.pubend, peer)
            self._out.add(DropAnswers(peer, frame.pubend))

    def _forget(self, pubend: str, peer: str) -> None:
        self._absent.pop((pubend, peer), None)
        self._interests.forget(pubend, peer)
        if pubend in self._streams:
            self._streams[pubend].leave(peer)
        self._is_stale = True  # this broker may follow that neighbour now
        self._interests.note_change()

    # Ways.

    def change(self, layout: Layout) -> list[str]:
        """Go by another layout; the broker has opened and closed streams for it already.

        Return the brokers that have become neighbours and had introduced themselves before.
        """
        before = set(self.routing.neighbours)
        self.routing = Routing(layout, self._me)
        self._changeovers = {name: it for name, it in self._changeovers.items() if name in self._streams}
        for peer in sorted(before - set(self.routing.neighbours)):
            self.link_down(peer)
            self._last_life.pop(peer, None)
            self._conditions.forget(peer)
            for name in self._streams:
                self._forget(name, peer)
        self._links = {mate: said for mate, said in self._links.items() if mate in self.routing.cellmates}
        for mate in self.routing.cellmates:
            if mate in self._lives:
                self._out.add(SendPeer(mate, self._links_frame()))
        for peer, interests in list(self._strangers.items()):
            for frame in [each for name, each in interests.items() if name in self._streams]:
                del interests[frame.pubend]
                self.followed(peer, frame)
        self._better = {name: better for name, better in self._better.items() if name in self._streams}
        self._absent = {key: at for key, at in self._absent.items() if key[0] in self._streams}
        self._is_stale = True
        return self._greet_early()

    def _greet_early(self) -> list[str]:
        """Greet the neighbours whose links came up before the layout had them; return those introduced."""
        greeted = []
        for peer in [each for each in self._early if each in self.routing.neighbours]:
            frame = self._early.pop(peer)
            self._out.add(SendPeer(peer, self._hello))
            if frame is not None and self.hello(peer, frame):
                greeted.append(peer)
        return greeted

    def settle(self) -> None:
        """Follow the best neighbour for each pubend for which something has changed or a delay has ended."""
        if not (self._is_stale or self._better or self._changeovers):
            return
        now = self._turn.now
        due = [name for name, (_, at) in self._better.items() if now >= at]
        due += [name for name, each in self._changeovers.items() if now >= each.until and name not in due]
        is_stale, self._is_stale = self._is_stale, False
        if is_stale:
            due = [name for name, stream in self._streams.items() if not stream.is_hosted]
        live = self._live() if due else {}
        for name in due:
            self._choose(name, self._streams[name], live)
        if is_stale:
            self._say_ways(live)

    def wake(self) -> None:
        """Forget the interests of neighbours whose links have been down for too long, and old troubles."""
        self._is_stale |= self._conditions.wake(self._turn.now)
        for key, at in list(self._absent.items()):
            if self._turn.now >= at:
                self._forget(*key)

    def next_wake(self) -> int | None:
        """Return the monotonic time when the next better route is due; None if there is none."""
        if not self._better and not self._changeovers:
            return None
        times = [at for _, at in self._better.values()] + [each.until for each in self._changeovers.values()]
        return min(times, default=None)

    def _say_ways(self, live: Mapping[str, frozenset[str]]) -> None:
        """Tell neighbours what they should not take from this broker, where that has changed."""
        if not self._said_ways:
            return
        rank, reachable = self._conditions.rank, self.routing.is_reachable
        others = sorted(name for name, stream in self._streams.items() if not stream.is_hosted)
        cut = tuple(name for name in others if not reachable(name, live, rank, alone=False))
        cut_alone = tuple(name for name in others if not reachable(name, live, rank, alone=True))
        for peer, before in self._said_ways.items():
            is_cellmate = peer in self.routing.cellmates
            said = self._conditions.ways(
                peer, (cut_alone if is_cellmate else cut)[:PUBENDS_MAX], is_cellmate=is_cellmate
            )
            if said != before:
                self._said_ways[peer] = said
                self._out.add(SendPeer(peer, said))

    def _live(self) -> dict[str, frozenset[str]]:
        live = {mate: up for mate, (_, up) in self._links.items()}
        live[self._me] = frozenset(self._lives)
        return live

    def _choose(self, name: str, stream: Stream, live: Mapping[str, frozenset[str]]) -> None:
        now = self._turn.now
        ways = self.routing.ways(name, live, self._conditions.rank)
        present = stream.upstream
        # A neighbour that follows this broker would only hand back what this broker gave it.
        best = next((way for way in ways if way not in stream.followers), ways[0] if ways else None)
        changeover = self._changeovers.get(name)
        if changeover is not None:
            if best == changeover.peer:
                if present not in ways or present in stream.followers or now >= changeover.until:
                    self._change_over(name, stream)
                return
            self._stay(name, stream)
        if best is None or best == present:
            self._better.pop(name, None)
            if best is None and present is not None:
                self._leave(name, stream)
            return
        if present in ways and present not in stream.followers:
            target, at = self._better.get(name, (None, 0))
            is_cut = self._conditions.is_cut(name, present) and not self._conditions.is_cut(name, best)
            patience = min(CUT_US, self._return_us) if is_cut else self._patience(name)
            if target != best or at > now + patience:
                self._better[name] = best, now + patience
                return
            if now < at:
                return
            self._counters["returns"] += 1
            if not is_cut:
                self._better.pop(name, None)
                self._prepare(name, best)
                return
        self._better.pop(name, None)
        self._follow(name, stream, best)

    def _patience(self, name: str) -> int:
        """Return half to all of the delay, another for each pubend and each broker."""
        return self._return_us // 2 + weight(name, self._me) % (self._return_us // 2 + 1)

    def _leave(self, name: str, stream: Stream) -> None:
        if stream.upstream in self._lives and stream.upstream is not None:
            version = self._interests.said_version(name)
            self._out.add(SendPeer(stream.upstream, Unfollow(name, version)))
        stream.detach()

    def _follow(self, name: str, stream: Stream, upstream: str) -> None:
        self._leave(name, stream)
        self._attach(name, stream, upstream, self._interest(name, upstream))

    def _interest(self, name: str, upstream: str) -> int:
        """Tell a neighbour the interest in a pubend, again if it knows it; return its version."""
        said = self._interests.say(name, upstream, again=True)
        assert said is not None
        self._out.add(SendPeer(upstream, said))
        return said.version

    def _attach(self, name: str, stream: Stream, upstream: str, version: int) -> None:
        self._counters["reroutes"] += self._last.get(name, upstream) != upstream
        self._last[name] = upstream
        stream.attach(upstream, version)
        for listener in self.listeners:
            listener.attached(name)

    # Changing over.

    def _prepare(self, name: str, upstream: str) -> None:
        """Follow a better neighbour beside the present one, until the stream has come together."""
        version = self._interest(name, upstream)
        self._changeovers[name] = Changeover(upstream, version, self._turn.now + self._overlap_us)

    def passed_on(self, peer: str, frame: Knowledge) -> None:
        """A neighbour that is not followed, but perhaps will be, has passed on first-time knowledge."""
        changeover = self._changeovers.get(frame.pubend)
        if changeover is not None and changeover.peer == peer:
            changeover.heard(frame)
            self.reached(frame.pubend)

    def reached(self, name: str) -> None:
        """The stream of a pubend may have reached where a better neighbour goes on: change over then."""
        changeover = self._changeovers.get(name)
        if changeover is not None and changeover.is_due(self._streams[name].known_upto, self._turn.now):
            self._change_over(name, self._streams[name])

    def _change_over(self, name: str, stream: Stream) -> None:
        changeover = self._changeovers.pop(name)
        self._leave(name, stream)
        self._attach(name, stream, changeover.peer, changeover.version)
        for frame in changeover.frames:
            stream.first(frame.base, frame.upto, frame.lost, frame.version, frame.batch)

    def _stay(self, name: str, stream: Stream) -> None:
        """The neighbour that was to be followed is not the best any more."""
        changeover = self._changeovers.pop(name)
        self._out.add(SendPeer(changeover.peer, Unfollow(name, changeover.version)))
        self._tell_anew(name, stream)

    def _tell_anew(self, name: str, stream: Stream) -> None:
        """Tell the way in use the newest interest, which only the neighbour that is not followed was told."""
        if stream.upstream is not None:
            self._interest(name, stream.upstream)

    def say_interest(self) -> None:
        """Tell the followed neighbours the present interest, where that has changed."""
        for name, stream in self._streams.items():
            if name in self._changeovers:
                self._change_over(name, stream)  # what is wanted now is told to one neighbour only
            if stream.upstream is not None:
                said = self._interests.say(name, stream.upstream)
                if said is not None:
                    self._out.add(SendPeer(stream.upstream, said))
            stream.promise()
