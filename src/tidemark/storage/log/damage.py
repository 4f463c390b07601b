"""Damage: a report of records that were in the log and cannot be read any more."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Damage:
    """Lost records of a stream, or unreadable bytes of which it is unknown whose they were.

    With a stream: its records `first_index` to `last_index` are lost. Without one: the bytes at `offset` of
    the segment are unreadable. The records in them are missing among the indexes of their streams, and a
    stream that has no later record counts as having lost one.
    """

    stream: str | None
    first_index: int
    last_index: int
    #: number of the segment; 0 if a whole segment file is missing
    segment: int
    offset: int
    #: The bytes were on the platter once, so what they held was acknowledged. Otherwise the damage may come
    #: from a crash before the sync.
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
