"""Known: how far each store of a broker certainly was on the platter.

    known := check u32 | 0 u32 | log: segment u64, offset u64 | PFS: segment u64, offset u64 |
             generation u64 | incarnation u64 | subscribers u64 | topology u64

Every number only grows while a data directory is used, and is told to another store only after it is
durable. So whoever holds a higher number than a store has itself knows that the store has lost something:
it is damaged, was deleted, or is an older copy. A lower number proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from tidemark.message.batches.batch import Buffer
from tidemark.storage.log.checksum import crc32c
from tidemark.storage.log.segments.durable_end import NOWHERE, DurableEnd

_NUMBERS = Struct("<8Q")
_FORM = Struct("<II64s")

KNOWN_BYTES = _FORM.size


@dataclass(frozen=True, slots=True)
class Known:
    """What is certain of all stores. The default is to know nothing."""

    log: DurableEnd = NOWHERE
    pfs: DurableEnd = NOWHERE
    #: how many commits the tables have had
    generation: int = 0
    #: how often the broker was started
    incarnation: int = 0
    #: the greatest number that a subscriber was given
    subscribers: int = 0
    #: the version of the saved topology; 0 if none was saved
    topology: int = 0

    def joined(self, other: Known) -> Known:
        """Returns all that either of the two knows."""
        return Known(
            max(self.log, other.log),
            max(self.pfs, other.pfs),
            max(self.generation, other.generation),
            max(self.incarnation, other.incarnation),
            max(self.subscribers, other.subscribers),
            max(self.topology, other.topology),
        )

    def with_log(self, log: DurableEnd) -> Known:
        """Returns this with the log at `log`, which is no earlier than what is known of it."""
        return Known(log, self.pfs, self.generation, self.incarnation, self.subscribers, self.topology)

    def encode(self) -> bytes:
        """Returns the bytes of this, with a check."""
        numbers = _NUMBERS.pack(
            *self.log, *self.pfs, self.generation, self.incarnation, self.subscribers, self.topology
        )
        return _FORM.pack(crc32c(numbers), 0, numbers)


def decode_known(data: Buffer) -> Known | None:
    """Returns what was encoded; None unless the bytes pass their check."""
    if len(data) != KNOWN_BYTES:
        return None
    check, _, numbers = _FORM.unpack(data)
    if crc32c(numbers) != check:
        return None
    segment, offset, pfs_segment, pfs_offset, *others = _NUMBERS.unpack(numbers)
    return Known(DurableEnd(segment, offset), DurableEnd(pfs_segment, pfs_offset), *others)
