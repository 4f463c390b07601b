"""Vouching: every store of a broker is told how far the others are on the platter, and is held to it.

Log, PFS and tables are three stores of one truth. If one of them is damaged, deleted or put back from an
older copy, it cannot tell by itself: a log that ends earlier looks like a log with a torn tail. So what is
durable in one store is noted with the others (`Known`): at once in the witness, without a sync; in the tables
with their next commit; in the log and the PFS with the next sync after the tables have changed. Publishers do
not wait for the note of a sync of the log: one that is lost only means that less is expected. At a start all
of that is put together before anything is believed:
- A log that does not reach as far as it did has lost acknowledged events. The ticks from there on are L: a
  gap for who needs them, and an alarm.
- A PFS that does not reach as far is made up for by matching again. It is an alarm all the same.
- Tables of an earlier commit have forgotten subscriptions, topics or acknowledgements. Nobody could tell
  which, so the broker does not start, unless an administrator says that it shall.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from tidemark.errors import DamagedError, StorageError
from tidemark.persistence.restoration import Restoration
from tidemark.storage.disk.disk import Disk
from tidemark.storage.log.volume import LogVolume
from tidemark.storage.tables.tables import Tables
from tidemark.storage.witness.known import Known
from tidemark.storage.witness.notes import Notes
from tidemark.storage.witness.witness import Witness
from tidemark.ticks import Tick

#: What an administrator can do about tables that have lost rows.
ADVICE = (
    "put the newest copy back, or start once with --set storage.accept_damage=tables: the rows that are "
    "there are kept then, and subscribers are told a gap where that is not enough"
)


class Vouching:
    """What the stores of one broker know of each other.

    `log_*` are for the thread of the event logs, all others for the thread of the PFS and the tables; each of
    the two has a witness of its own, so that neither waits for the other.
    """

    def __init__(
        self,
        tables: Tables,
        witness: Disk | None,
        restoration: Restoration | None = None,
        second_witness: Disk | None = None,
    ) -> None:
        """Read what the witnesses and the tables know. Without any only the stores themselves know.

        `second_witness` is a directory that is not put back together with the stores. With `restoration` the
        stores were put back from a backup, and this is their first start.
        """
        self._tables = tables
        self._restoration = restoration
        disks = [each for each in (witness, second_witness) if each is not None]
        self._of_log = [Witness(each, "log") for each in disks]
        self._of_tables = [Witness(each, "tables") for each in disks]
        #: everything that was known at the start, as far as it has been read
        self.known = tables.known()
        for each in (*self._of_log, *self._of_tables):
            self.known = self.known.joined(each.known)
        if restoration is not None:
            self.known = self.known.joined(restoration.known)
        #: whether the tables have lost rows, and what an administrator should know of that
        self.has_lost_rows = False
        self.alarms: tuple[str, ...] = ()

    def opened_pfs(self, volume: LogVolume) -> None:
        """The PFS is open: what it knows counts too. Call it before `opened_log`."""
        self._pfs, self._pfs_notes = volume, Notes(volume)
        self.known = self.known.joined(self._pfs_notes.known)

    def opened_log(self, volume: LogVolume) -> None:
        """The log is open: what it knows counts too."""
        self._log, self._log_notes = volume, Notes(volume)
        self.known = self.known.joined(self._log_notes.known)

    def check_tables(self, *, accept: bool) -> None:
        """Compare the tables with what is known of them.

        Raises DamagedError if they have lost rows, unless an administrator accepts that.
        """
        found, known = self._tables.generation, self.known.generation
        self.has_lost_rows = found < known
        if self.has_lost_rows and not accept:
            reason = (
                f"has {found} commits, and other files know of {known}: it is gone, damaged, or an old copy"
            )
            raise DamagedError(f"{reason}; {ADVICE}", path=self._tables.path, offset=0)

    def accept_loss(self, now: Tick) -> None:
        """Go on with tables that have lost rows, if they have. `now` is the time of day in microseconds."""
        if self._restoration is not None:
            last = self._restoration.last_life(self.known.incarnation, now)
            self.known = replace(self.known, incarnation=last)
        if self.has_lost_rows:
            found, known = self._tables.generation, self.known.generation
            self.alarms = (
                f"{self._tables.path}: the rows of {known - found} commits were lost and that was accepted; "
                "subscribers that come again are told a gap",
            )
            self._tables.accept_loss(self.known)
        if self._restoration is not None:
            self.alarms = (self._restoration.text,)
            self._tables.restored(self._restoration.ahead)

    def syncs_log(self) -> None:
        """The log is about to be synced: note with it what is new of the tables."""
        if self._log.pending_bytes and self._log_notes.is_due(self._tables.generation):
            self._log_notes.note(self._now())

    def log_synced(self) -> None:
        """The log was synced."""
        for each in self._of_log:
            each.note_log(self._log.place)

    def topology_saved(self, version: int) -> None:
        """A topology was saved. Only the witness knows of it."""
        for each in self._of_log:
            each.note(Known(topology=version), sync=True)

    def syncs_pfs(self) -> None:
        """The PFS is about to be synced: note with it what is new of the tables."""
        if self._pfs.pending_bytes and self._pfs_notes.is_due(self._tables.generation):
            self._pfs_notes.note(self._now())

    def pfs_synced(self) -> None:
        """The PFS was synced."""
        for each in self._of_tables:
            each.note(Known(pfs=self._pfs.place))

    def commit_tables(self, *, reserved: bool = False) -> None:
        """Commit the tables, with what is new of the log and the PFS. Raises what `Tables.commit` raises.

        What nobody would say again, such as a subscription, is synced in the witness too before anybody is
        told that it was committed.
        """
        tables = self._tables
        if not tables.has_changes:
            return
        is_lasting = tables.has_lasting_changes
        tables.learn(self._log.place, self._pfs.place)
        tables.commit(reserved=reserved)
        for each in self._of_tables:
            each.note(tables.known(), sync=is_lasting or reserved)

    def abandon(self) -> None:
        """Close the witnesses and write nothing."""
        for each in (*self._of_log, *self._of_tables):
            each.close()

    def close(self) -> None:
        """Note where everything ended, and close the witnesses."""
        for each in (*self._of_log, *self._of_tables):
            with suppress(StorageError):
                each.note(self._now(), sync=True)
            each.close()

    def _now(self) -> Known:
        """Returns what is durable now. Either thread may ask: every number by itself is true."""
        known = self._tables.known()
        return replace(known, log=max(known.log, self._log.place), pfs=max(known.pfs, self._pfs.place))
