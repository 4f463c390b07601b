"""Notes: what a log volume has been told of the other stores, in a stream of its own.

A note becomes durable with the next sync of the volume, which happens anyhow, and shares its checks. It is
written when the tables have changed since the last one.
"""

from __future__ import annotations

from tidemark.storage.log.volume import LogVolume
from tidemark.storage.witness.known import Known, decode_known

STREAM = "known"
#: How many notes are kept before the older ones are chopped.
_KEPT = 64
#: A note that is so many segments old is written again, because it keeps its segment on the disk.
_SEGMENTS_BEHIND_MAX = 2


class Notes:
    """The notes in one volume."""

    def __init__(self, volume: LogVolume) -> None:
        """Read the notes that are there. A volume without any says nothing."""
        self._volume = volume
        #: everything that the notes say
        self.known = _read(volume)
        self._generation = self.known.generation
        #: the newest segment of the volume when the note was found not to be too old; 0 before that
        self._looked_in = 0

    @property
    def _is_behind(self) -> bool:
        return self._volume.segments_behind(STREAM) > _SEGMENTS_BEHIND_MAX

    def is_due(self, generation: int) -> bool:
        """Whether tables that have had so many commits are worth a note."""
        if generation != self._generation:
            return True
        # How old the first note is changes with the segments only, or with a newer note.
        newest = self._volume.newest_segment
        if newest == self._looked_in:
            return False
        is_behind = self._is_behind
        if not is_behind:
            self._looked_in = newest
        return is_behind

    def note(self, known: Known) -> None:
        """Add a note to what the volume writes with its next sync, unless the last one still holds."""
        if not self.is_due(known.generation):
            return
        behind, before = self._is_behind, self._generation

        def undo() -> None:
            self._generation = before

        index = self._volume.append(STREAM, [known.encode()], undo=undo)
        self._generation = known.generation
        if behind or index - self._volume.bounds(STREAM)[0] >= _KEPT:
            self._volume.chop(STREAM, index - 1)


def _read(volume: LogVolume) -> Known:
    """Returns what the last note that can be read says, and those before it as far as they are at hand."""
    if STREAM not in volume.streams:
        return Known()
    known = Known()
    first, last = volume.bounds(STREAM)
    if first <= last:
        for record in volume.read_some(STREAM, first, last, bytes_max=None).records:
            known = known.joined(decode_known(record.payload) or Known())
    return known
