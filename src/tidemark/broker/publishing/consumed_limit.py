"""ConsumedLimit: the furthest tick that anybody can have consumed of a pubend, by all that is known here.

A token that is ahead of this broker is normal: after a crash, or where links are slow. A token beyond every
tick that the pubend can have told is a mistake, or belongs to another overlay: a subscriber that went on
from it would get nothing until that time has come, and its acknowledgements would let go of events that
nobody has seen.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.broker.publishing.pubend import Pubend
from tidemark.broker.streams.stream import Stream
from tidemark.broker.turn import Turn
from tidemark.ticks import TICK_MAX, TICK_MIN, CheckpointToken
from tidemark.ticks.tick import CLOCKS_APART_MAX


class ConsumedLimit:
    """What tokens and acknowledgements are compared with."""

    def __init__(
        self, pubends: Mapping[str, Pubend], streams: Mapping[str, Stream], turn: Turn, lease_ahead: int
    ) -> None:
        """`pubends` and `streams` belong to the broker, which adds to them and removes from them."""
        self._pubends = pubends
        self._streams = streams
        self._turn = turn
        self._lease_ahead = lease_ahead

    def of(self, pubend: str) -> int:
        """Return the furthest tick that can have been told; TICK_MAX for a pubend that is not known here."""
        wall, hosted = self._turn.wall, self._pubends.get(pubend)
        if hosted is not None:
            # Nothing is told beyond its position, also before a crash: events and leases are synced first.
            return max(hosted.position, wall + self._lease_ahead)
        # Ticks are times of the clock at the pubend's broker, and its stream may not have arrived here yet.
        stream = self._streams.get(pubend)
        if stream is None:
            return TICK_MAX
        # An answer, or what is lost, may be known here beyond what first-time knowledge has told of.
        return max(stream.position, stream.window.end, wall) + CLOCKS_APART_MAX

    def problem(
        self, token: CheckpointToken, proved: Mapping[str, int], limits: dict[str, int] | None = None
    ) -> str | None:
        """Return what is wrong with a token that is from the future; None for a token that is not.

        Ticks are microseconds since 1970. `proved` is what the subscriber was told on its connection, or has
        acknowledged on disk: the clock here may have been set back since. `limits` has what `of` returns for
        each pubend that other tokens of the same frame have; those of this token are added.
        """
        limits = {} if limits is None else limits
        for pubend, tick in token.items():
            limit = limits.get(pubend)
            if limit is None:
                limit = limits[pubend] = self.of(pubend)
            if tick > limit and tick > proved.get(pubend, TICK_MIN):
                return (
                    f"a token says that {pubend!r} was consumed up to {tick}, but nothing beyond {limit} can "
                    "have been: use a token that this subscription was given, or none"
                )
        return None
