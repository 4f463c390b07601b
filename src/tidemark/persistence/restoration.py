"""Restoration: what a store has to know at its first start after it was put back from a backup.

The broker went on after the backup was made, and nobody here knows how far: what it acknowledged, whom it
gave which number, how often it was started. So the first start treats its stores as what they are: a log that
has lost its end, and tables that have lost their newest rows. The ticks between the end of the log and the
time of that start, and a little more, are L: a gap for who needs them. No tick, no subscriber's number and no
incarnation that the lost broker may have used is used again (docs/howto/backup.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from tidemark.storage.log.segments.durable_end import DurableEnd
from tidemark.storage.witness.known import Known
from tidemark.ticks import Tick
from tidemark.wire.limits import INCARNATION_MAX, INCARNATIONS_MAX

#: The lost log may have had so many more segments: the numbers of new ones begin beyond them, so that no file
#: of the lost broker, in a later backup for example, has the name of another one here.
SEGMENTS_MARGIN = 1_000_000
#: How often in a second the lost broker may have been started again, by a service manager for example.
STARTS_A_SECOND_MAX = 2
_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Restoration:
    """The backup that a data directory was put back from, until its first start has succeeded."""

    #: when the backup was made, by the clock of the lost machine, in microseconds
    taken: Tick
    #: commits of the tables, and the last segment of the log, in the backup
    generation: int
    segment: int
    #: how many microseconds that clock may have been ahead of this one's
    ahead: int

    @property
    def known(self) -> Known:
        """How far the stores of the lost broker may have come: further than what is here.

        It is the same at a second start if a crash has ended the first, so that nothing is done twice.
        """
        return Known(log=DurableEnd(self.segment + SEGMENTS_MARGIN, 0), generation=self.generation + 1)

    def last_life(self, incarnation: int, now: Tick) -> int:
        """Returns the highest incarnation that the lost broker can have come to from that of the backup.

        `now` is the time of this start.
        """
        seconds = max(0, now - self.taken) // _SECOND
        starts = min(STARTS_A_SECOND_MAX * seconds, INCARNATIONS_MAX - 1)
        return min(incarnation + starts, INCARNATION_MAX // 2)

    @property
    def text(self) -> str:
        """What an administrator should know of it."""
        when = datetime.fromtimestamp(self.taken / _SECOND, UTC).isoformat(timespec="seconds")
        return f"restored from the backup of {when}: what the lost broker did after it is told as a gap"
