"""Trust: what a neighbour may say, by its place in the layout (docs/security.md, docs/traps.md 27).

A broker that has proved its name is believed in what only it can know: of its own subscribers, of hosts
behind it, and of pubends that come from its side. It is not believed beyond that.

- A number that leaps is refused, and the link ends: incarnations, and the versions and sequences that count
  from them, grow by one with each start of a broker, and by INCARNATIONS_MAX at most when one is restored; an
  epoch is a time of day, at most EPOCHS_AHEAD_US ahead of the clock here, or follows the one that was known;
  nobody has heard what was never said. No honest broker comes to such numbers, and after one there would be
  no room for those of honest brokers.
- A tick is a time of day at the pubend's broker, and clocks are a day apart at the most. A tick that is
  further ahead is refused, and the link ends: subscribers would be told that they have consumed the future,
  and after a restart of this broker their tokens would be refused. Knowledge, questions and
  announcements are all looked at. Only the rows of a host may say TICK_MAX, which stands for no subscriber.
- Topics are told one creation after the other, under names that clients can declare, and in all not many more
  than this broker would let clients declare. More than that is refused, and the link ends.
- What a neighbour says of a host that is not behind it counts for nothing. That does not end the link: the
  neighbour may go by another layout for a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from tidemark.broker.config import BrokerConfig
from tidemark.broker.overlay.overlay import OverlayRole
from tidemark.broker.turn import Turn
from tidemark.errors import NeighbourError
from tidemark.ticks import TICK_MIN
from tidemark.ticks.tick import CLOCKS_APART_MAX
from tidemark.wire.frames import (
    AckExpected,
    Claim,
    Fetched,
    Heard,
    Hello,
    Interest,
    Knowledge,
    Links,
    Nack,
    PeerFrame,
    Release,
    ReleaseRow,
    Topic,
    Unfollow,
)
from tidemark.wire.limits import EPOCHS_AHEAD_US, INCARNATION_MAX, INCARNATIONS_MAX
from tidemark.wire.moving.frames import Left

#: Versions and sequences of a life count up from its incarnation, shifted by so many bits.
LIFE_BITS = 32
#: An incarnation of which nothing was known before is at most this: a restored broker comes to no higher one.
FIRST_MAX = INCARNATION_MAX // 2 + 1
#: Sequences of one life that may be missed.
ROWS_MISSED_MAX = 1 << 31
#: Nacks for one pubend that come together: a broker says one in a turn.
NACKS_MAX = 8


class KnownEpochs(Protocol):
    """The epochs of subscriptions; `Handover` is the implementation."""

    def known_epoch(self, claim: Claim) -> int:
        """Return the highest epoch that this broker knows of what is claimed; 0 if it knows none."""


class KnownTopics(Protocol):
    """What is known of topics; `Topics` is the implementation."""

    def lie_of(self, frame: Topic) -> str | None:
        """Return what no honest broker says of a topic; None if the frame has nothing of that."""


class SaidRows(Protocol):
    """What this broker has reported of itself; `ReleaseReports` is the implementation."""

    @property
    def last_said(self) -> int:
        """The highest sequence under which this broker can have reported in this life."""


class Trust:
    """Looks at the frames of neighbours before any other part of the broker hears them."""

    def __init__(
        self,
        config: BrokerConfig,
        overlay: OverlayRole,
        claims: KnownEpochs,
        said: SaidRows,
        topics: KnownTopics,
        turn: Turn,
    ) -> None:
        self._me = config.name
        self._incarnation = config.incarnation
        self._overlay = overlay
        self._claims = claims
        self._said = said
        self._topics = topics
        self._turn = turn
        #: the latest time of day that this broker was told
        self._latest = 0
        #: host -> the highest sequence of a row of it that came, of whichever pubend
        self._sequences: dict[str, int] = {}

    def look(self, peer: str, frame: PeerFrame) -> None:
        """Raise FrameError if `peer` says what no honest broker says. Changes nothing but counters."""
        with self._turn.looking:
            self._look(peer, frame)

    def look_at_nacks(self, peer: str, frames: Sequence[PeerFrame]) -> None:
        """Raise FrameError if frames that came together ask more often for a pubend than brokers do.

        Each nack may be answered with megabytes (`streams.answers`), and what came together is handled in
        one turn.
        """
        asked = Counter(frame.pubend for frame in frames if isinstance(frame, Nack))
        with self._turn.looking:
            for pubend, times in asked.most_common(1):
                if times > NACKS_MAX:
                    raise self._lie(f"{peer!r} asks for ticks of {pubend!r} in {times} nacks at once")

    def _look(self, peer: str, frame: PeerFrame) -> None:
        match frame:
            case Hello(broker, incarnation):
                known = self._overlay.last_life(peer)
                if broker != peer:
                    raise self._lie(f"{peer!r} introduces itself as {broker!r}")
                self._check_life(peer, peer, incarnation, known)
            case Interest(version=version) | Unfollow(version=version):
                self._check_version(peer, version)
            case Nack(pubend, ranges, version):
                self._check_version(peer, version)
                self._check_tick(peer, pubend, max((upto for _, upto in ranges), default=TICK_MIN))
            case AckExpected(pubend, tick) | Left(pubend, tick=tick):
                self._check_tick(peer, pubend, tick)
            case Knowledge(pubend, version=version):
                self._check_ticks(peer, frame)
                if version >> LIFE_BITS > self._incarnation:
                    raise self._lie(
                        f"{peer!r} knows {pubend!r} for version {version} of the interest here, "
                        "which was never said"
                    )
            case Links(broker):
                if broker != peer:
                    raise self._lie(f"{peer!r} tells which links of {broker!r} are up")
            case Release(_, rows):
                for row in rows:
                    self._check_row(peer, row)
            case Claim():
                self._check_claim(peer, frame)
            case Topic():
                lie = self._topics.lie_of(frame)
                if lie is not None:
                    raise self._lie(f"{peer!r} {lie}")
            case Fetched():
                self._check_ticks(peer, frame)
            case Heard(pubend, host, sequence, lost):
                self._check_tick(peer, pubend, lost)
                if host == self._me and sequence > self._said.last_said:
                    raise self._lie(f"{peer!r} has heard the sequence {sequence}, which was never said")
            case _:
                pass  # nothing in it can leap

    def _check_ticks(self, peer: str, frame: Knowledge | Fetched) -> None:
        furthest = max(frame.upto, frame.lost, *(end for _, end in frame.damaged))
        self._check_tick(peer, frame.pubend, furthest)

    def _latest_wall(self) -> int:
        """Return the latest time of day here: a clock that was set back does not make liars of others."""
        self._latest = max(self._latest, self._turn.wall)
        return self._latest

    def _check_tick(self, peer: str, pubend: str, tick: int) -> None:
        if tick > self._latest_wall() + CLOCKS_APART_MAX:
            raise self._lie(
                f"{peer!r} tells of the tick {tick} of {pubend!r}, which is more than a day ahead of the "
                "clock here: compare the clocks"
            )

    def believed(self, peer: str, pubend: str, rows: Iterable[ReleaseRow]) -> list[ReleaseRow]:
        """A neighbour tells how far hosts are; return the rows that count: those of hosts behind it."""
        return [row for row in rows if self._is_believed(peer, pubend, row)]

    def _is_believed(self, peer: str, pubend: str, row: ReleaseRow) -> bool:
        if row.host == self._me:
            return False  # a row of this broker that has gone in a circle
        if not self._overlay.routing.is_behind(pubend, row.host, peer):
            self._turn.counters["frames_misplaced"] += 1
            return False
        if row.sequence > self._sequences.get(row.host, 0):
            self._sequences[row.host] = row.sequence
        return True

    def may_answer(self, pubend: str, peer: str) -> bool:
        """Return whether a neighbour can have heard from a pubend: the pubend is on its side."""
        if self._overlay.routing.is_towards(pubend, peer):
            return True
        self._turn.counters["frames_misplaced"] += 1
        return False

    def keep_only(self, brokers: tuple[str, ...]) -> None:
        """The layout has only these brokers now."""
        self._sequences = {host: last for host, last in self._sequences.items() if host in brokers}

    def _lie(self, reason: str) -> NeighbourError:
        """Return the error for what no honest broker says, and count it."""
        self._turn.counters["neighbours_refused"] += 1
        return NeighbourError(reason)

    def _check_version(self, peer: str, version: int) -> None:
        life = self._overlay.last_life(peer)
        if version >> LIFE_BITS > life:
            raise self._lie(
                f"{peer!r} speaks of version {version} of its interest, and is in its life {life}"
            )

    def _check_row(self, peer: str, row: ReleaseRow) -> None:
        known = self._sequences.get(row.host, 0)
        life, known_life = row.sequence >> LIFE_BITS, known >> LIFE_BITS
        if row.host == peer and life > self._overlay.last_life(peer):
            raise self._lie(
                f"{peer!r} reports of itself under the sequence {row.sequence}, which is of another life"
            )
        if life == known_life and row.sequence - known > ROWS_MISSED_MAX:
            raise self._lie(
                f"{peer!r} reports of {row.host!r} under the sequence {row.sequence} after {known}"
            )
        self._check_life(peer, row.host, life, max(known_life, self._overlay.last_life(row.host)))

    def _check_life(self, peer: str, broker: str, life: int, known: int) -> None:
        if life > (known + INCARNATIONS_MAX if known else FIRST_MAX):
            raise self._lie(
                f"{peer!r} says that {broker!r} is in its life {life}, and {known} was the last known"
            )

    def _check_claim(self, peer: str, claim: Claim) -> None:
        known = self._claims.known_epoch(claim)
        if claim.epoch > max(self._latest_wall() + EPOCHS_AHEAD_US, known + 1):
            raise self._lie(
                f"{peer!r} tells of the epoch {claim.epoch} of {claim.name!r}, which is more than three days "
                f"ahead of the clock here, and {known} was the last known: compare the clocks"
            )
