"""PfsStore: the PFS of this broker, which forgets nothing because a disk is full.

What was appended since the last sync is kept, and appended again when the disk had no room for it; the PFS
recognises what it has. Reads see what was appended at once, synced or not: that a tick matched is a fact, and
after a crash it is found again by matching again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidemark.broker.effects import AppendPfs, ChopPfs, PfsRead, PfsSynced, ReadPfs, Sets
from tidemark.errors import DiskFailedError, DiskFullError
from tidemark.persistence.patient_sync import PatientSync
from tidemark.storage.log.volume import LogVolume
from tidemark.storage.pfs.filtering import PersistentFiltering
from tidemark.ticks import Tick

#: Appended and not synced; more while the disk is full, and the broker stops.
UNSYNCED_BYTES_MAX = 64 << 20
_EFFECT_BYTES = 256


class PfsStore:
    """See above. Numbers of match sets mean the same as long as it lives: as long as its broker does."""

    def __init__(self, volume: LogVolume, alarm: Callable[[str], None]) -> None:
        self._pfs = PersistentFiltering(volume)
        self._sync = PatientSync(self._write, PfsSynced, alarm)
        #: since the last sync, in order
        self._unsynced: list[AppendPfs | ChopPfs] = []
        self._unsynced_bytes = 0
        #: some of it was forgotten by the PFS
        self._is_behind = False
        #: pubend -> appended up to, in this life
        self._appended: dict[str, Tick] = {}
        #: match sets of the effect that is being appended
        self._sets: Mapping[int, Sets] = {}
        self.sync = self._sync.sync
        self.retry = self._sync.retry

    @property
    def is_waiting(self) -> bool:
        """The disk had no room for something."""
        return self._sync.is_waiting

    def delivered(self) -> dict[str, Tick]:
        """pubend -> up to where it is known what matched whom."""
        lasts = ((pubend, self._pfs.last(pubend)) for pubend in self._pfs.pubends)
        return {pubend: last for pubend, last in lasts if last is not None}

    def append(self, effect: AppendPfs) -> None:
        """What matched whom, for the next sync."""
        self._appended[effect.pubend] = max(effect.upto, self._appended.get(effect.pubend, effect.upto))
        members = sum(each.nbytes for each in effect.members.values())
        self._keep(effect, effect.ticks.nbytes + effect.sets.nbytes + members)

    def chop(self, effect: ChopPfs) -> None:
        """What nobody will ask for."""
        self._keep(effect, 0)

    def read(self, effect: ReadPfs) -> PfsRead:
        """What a subscriber matched, as far as one answer goes."""
        missed = self._pfs.read(effect.pubend, effect.subscriber, effect.base, effect.limit)
        unknown = missed.unknown
        appended = self._appended.get(effect.pubend, effect.base)
        if unknown is None and missed.upto == effect.base < appended:
            unknown = (effect.base, appended)  # it was forgotten, and waits to be appended again
        return PfsRead(effect.pubend, effect.subscriber, effect.base, missed.upto, missed.ticks, unknown)

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
        self._pfs.append(effect.pubend, effect.base, effect.upto, effect.ticks, effect.sets, self._members_of)

    def _members_of(self, number: int) -> Sets:
        """The PFS asks for the sets that it does not know; an effect brings all that it names."""
        return self._sets[number]

    def _write(self) -> None:
        try:
            if self._is_behind:
                for effect in self._unsynced:
                    self._give(effect)
            self._pfs.sync()
        except DiskFullError:
            self._is_behind = True
            raise
        self._is_behind = False
        self._unsynced.clear()
        self._unsynced_bytes = 0

    def _write_or_stop(self) -> None:
        try:
            self._write()
        except DiskFullError as error:
            reason = f"full for so long that {UNSYNCED_BYTES_MAX} bytes wait; make room and restart"
            raise DiskFailedError(reason, path=error.path) from error
