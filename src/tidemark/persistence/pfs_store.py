"""PfsStore: the PFS of one broker, which loses nothing when the disk is full.

What was appended since the last sync is kept in memory, and appended again when the disk had no room for it;
the PFS recognises what it already has. Reads see what was appended at once, synced or not.

What a crash may lose: what was appended since the last sync. That is safe because latest_delivered goes up
only after the sync: the constream matches the same events again and appends the same result.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.broker.effects import (
    AppendPfs,
    ChopPfs,
    CountPfs,
    Owed,
    PfsCounted,
    PfsRead,
    PfsSynced,
    ReadPfs,
    Sets,
)
from tidemark.errors import DiskFailedError, DiskFullError
from tidemark.persistence.alarm import Alarms
from tidemark.persistence.patient_sync import PatientSync
from tidemark.persistence.vouching import Vouching
from tidemark.storage.log.volume import LogVolume
from tidemark.storage.pfs.filtering import PersistentFiltering
from tidemark.ticks import Tick, nearest_position

#: Bytes that may be appended and not synced. If more gathers while the disk is full, the broker stops.
UNSYNCED_BYTES_MAX = 64 << 20
#: Bytes that an effect counts for besides its arrays.
_EFFECT_BYTES = 256


class PfsStore:
    """The PFS of one broker, for effects that concern it.

    The numbers of match sets must mean the same while this object lives, which is as long as its broker does.
    """

    def __init__(self, volume: LogVolume, vouching: Vouching, alarms: Alarms, *, group_bits: int = 0) -> None:
        """`volume` belongs to the store. With `group_bits` the PFS is imprecise."""
        self._pfs = PersistentFiltering(volume, group_bits=group_bits)
        self._vouching = vouching
        self._sync = PatientSync(self._write, PfsSynced, alarms, "pfs")
        #: effects since the last sync, in order
        self._unsynced: list[AppendPfs | ChopPfs] = []
        self._unsynced_bytes = 0
        #: the PFS has dropped some of `_unsynced`, because the disk was full
        self._is_behind = False
        #: pubend -> the last tick that was appended since the start
        self._appended: dict[str, Tick] = {}
        #: match sets of the effect that is being appended: number -> subscribers
        self._sets: Mapping[int, Sets] = {}
        self.sync = self._sync.sync
        self.retry = self._sync.retry

    @property
    def is_waiting(self) -> bool:
        """Whether a sync waits for room on the disk."""
        return self._sync.is_waiting

    def delivered(self) -> dict[str, Tick]:
        """Returns pubend -> the last tick of which the PFS knows whom it matched.

        Earlier versions took any int64 of a neighbour for a tick; such a one counts as the last real tick.
        """
        lasts = ((pubend, self._pfs.last(pubend)) for pubend in self._pfs.pubends)
        return {pubend: nearest_position(last) for pubend, last in lasts if last is not None}

    def append(self, effect: AppendPfs) -> None:
        """Append which ticks matched which subscribers, durable with the next sync."""
        self._appended[effect.pubend] = max(effect.upto, self._appended.get(effect.pubend, effect.upto))
        members = sum(each.nbytes for each in effect.members.values())
        self._keep(effect, effect.ticks.nbytes + effect.sets.nbytes + effect.lengths.nbytes + members)

    def chop(self, effect: ChopPfs) -> None:
        """Let go of ticks that no subscriber will ask for."""
        self._keep(effect, 0)

    def read(self, effect: ReadPfs) -> PfsRead:
        """Returns the ticks that matched a subscriber, as many as one answer holds."""
        missed = self._pfs.read(effect.pubend, effect.subscriber, effect.base, effect.limit)
        unknown = missed.unknown
        appended = self._appended.get(effect.pubend, effect.base)
        if unknown is None and missed.upto == effect.base < appended:
            unknown = (effect.base, appended)  # the PFS has dropped it, and it waits to be appended again
        return PfsRead(
            effect.pubend,
            effect.subscriber,
            effect.base,
            missed.upto,
            missed.ticks,
            unknown,
            missed.is_exact,
        )

    def count(self, effect: CountPfs) -> PfsCounted:
        """Returns what matched each subscriber and is owed to it, or that there is more to be read."""
        found = self._pfs.count(effect.pubend, effect.bases)
        if found is None:
            return PfsCounted(effect.ticket, effect.pubend, None)
        # What the PFS has dropped waits to be appended again.
        owed = {
            subscriber: Owed(each.events, each.bytes, each.oldest, each.is_exact and not self._is_behind)
            for subscriber, each in found.items()
        }
        return PfsCounted(effect.ticket, effect.pubend, owed)

    def _keep(self, effect: AppendPfs | ChopPfs, size: int) -> None:
        self._unsynced.append(effect)
        self._unsynced_bytes += _EFFECT_BYTES + size
        if not self._is_behind:
            try:
                self._give(effect)
            except DiskFullError:
                self._is_behind = True
        if self._unsynced_bytes > UNSYNCED_BYTES_MAX:
            self._write_or_stop()

    def _give(self, effect: AppendPfs | ChopPfs) -> None:
        if isinstance(effect, ChopPfs):
            self._pfs.chop(effect.pubend, effect.upto)
            return
        self._sets = effect.members
        rows = effect.ticks, effect.sets, effect.lengths
        self._pfs.append(effect.pubend, effect.base, effect.upto, *rows, self._members_of)

    def _members_of(self, number: int) -> Sets:
        """Returns the subscribers of a match set. The PFS asks only for sets of the effect being appended."""
        return self._sets[number]

    def _write(self) -> None:
        try:
            if self._is_behind:
                for effect in self._unsynced:
                    self._give(effect)
            self._pfs.flush()
            self._vouching.syncs_pfs()
            self._pfs.sync()
        except DiskFullError:
            self._is_behind = True
            raise
        self._vouching.pfs_synced()
        self._is_behind = False
        self._unsynced.clear()
        self._unsynced_bytes = 0

    def _write_or_stop(self) -> None:
        try:
            self._write()
        except DiskFullError as error:
            reason = f"full for so long that {UNSYNCED_BYTES_MAX} bytes wait; make room and restart"
            raise DiskFailedError(reason, path=error.path) from error
