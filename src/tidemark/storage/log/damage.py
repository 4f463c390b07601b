"""Damage: records that were in the log and cannot be read any more."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Damage:
    """Lost records of a stream, or bytes of nobody knows whom.

    With a stream: its records `first_index` to `last_index` are lost. Without: the bytes at `offset` of the
    segment are unreadable; whatever records they held are missing in their streams' indexes, and a stream
    that has no later record counts as having lost one.
    """

    stream: str | None
    first_index: int
    last_index: int
    #: 0 where nobody knows: a whole segment file is missing
    segment: int
    offset: int
    #: it was on the platter, so it was acknowledged; otherwise a crash may have made it, before the sync
    synced: bool

    def __str__(self) -> str:
        where = f"segment {self.segment}, byte {self.offset}" if self.segment else "a missing segment"
        what = (
            f"records {self.first_index} to {self.last_index} of {self.stream}"
            if self.stream is not None
            else "bytes that cannot be told to be any stream's"
        )
        doubt = "" if self.synced else ", possibly never acknowledged"
        return f"{what} lost in {where}{doubt}"
