"""DiskThread: the disks of a simulated machine, and the one thread that works on them, as in a real broker.

Effects are carried out in order, by the real store on real storage code; only the disks are of memory. A sync
or a read takes its time, and what was asked for later waits: so a sync covers what was appended before it and
nothing else. The work is done at the end of that time. If the power goes meanwhile, it is begun and cut off
at one of its steps, and the disks keep what they like of what was not synced: all, nothing, or a torn part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from random import Random

from tidemark.broker.broker import Recovered
from tidemark.broker.effects import (
    CommitTables,
    Effect,
    LogRead,
    ReadLog,
    ReadPfs,
    Stimulus,
    SyncLog,
    SyncPfs,
)
from tidemark.errors import DiskFailedError, DiskFullError
from tidemark.persistence.store import Store
from tidemark.sim.world.engine import Action, Engine
from tidemark.storage.disk.memory_disk import MemoryDisk, PowerLossError, by_chance
from tidemark.storage.log.record import CATALOGUE_STREAM, HEADER_BYTES, seed_of
from tidemark.storage.log.segments.scan import scan
from tidemark.storage.log.segments.segment import SEGMENT_HEADER_BYTES, parse_name
from tidemark.storage.tables.memory_tables import MemoryTables

SEGMENT_BYTES = 8 << 10
READ_BYTES = 8 << 10
#: How long something takes at the most, in microseconds. What is not here takes no time.
SYNC_US_MAX = 20_000
READ_US_MAX = 5_000
TAKES_US_MAX: dict[type, int] = {
    SyncLog: SYNC_US_MAX,
    SyncPfs: SYNC_US_MAX,
    CommitTables: SYNC_US_MAX,
    ReadLog: READ_US_MAX,
    ReadPfs: READ_US_MAX,
}
#: A disk that was full is tried again this often.
RETRY_US = 100_000
#: A sync has about so many steps at which the power can go.
STEPS = 6


class SimDiskThread:
    """See above. The disks survive the machine's lives, a store does not."""

    def __init__(
        self,
        engine: Engine,
        chance: Random,
        name: str,
        done: Callable[[Effect, Stimulus | None], None],
        report: Callable[[Stimulus], None],
        failed: Action,
    ) -> None:
        """`done` hears of every effect and what came of it, `report` of what the broker is to be told."""
        self._engine = engine
        self._chance = chance
        self._done = done
        self._report = report
        self._failed = failed
        self._identity = chance.getrandbits(64)
        self._log = MemoryDisk(f"{name}/log")
        self._pfs = MemoryDisk(f"{name}/pfs")
        self._disks = (self._log, self._pfs)
        self._tables = MemoryTables()
        self._store: Store | None = None
        #: what waits, and first what is being done if `is_busy`
        self._jobs: deque[Effect] = deque()
        self._is_busy = False
        self._life = 0
        self._stalled_until = 0
        self._will_retry = False
        #: how often something rotted
        self.rots = 0

    def start(self, pubends: Iterable[str], now: int) -> tuple[Recovered, int]:
        """A new life: what it finds, and its number; an error if the disk is full or fails."""
        try:
            self._store = Store(
                self._log,
                self._pfs,
                self._tables,
                identity=self._identity,
                segment_bytes=SEGMENT_BYTES,
                read_bytes=READ_BYTES,
            )
            return self._store.recover(pubends, now), self._store.incarnation
        except (DiskFullError, DiskFailedError):
            self.crash()
            raise

    def put(self, effect: Effect) -> None:
        """Carry it out, after all that was put before."""
        self._jobs.append(effect)
        self._work()

    def read(self, effect: ReadLog) -> LogRead:
        """A look at the log that takes no time, for whoever keeps the truth."""
        assert self._store is not None
        answer = self._store.carry_out(effect)
        assert isinstance(answer, LogRead)
        return answer

    def crash(self) -> None:
        """The power goes, and comes back."""
        self._life += 1
        if self._is_busy:
            self._cut_off(self._jobs[0])
        self._jobs.clear()
        self._is_busy = self._will_retry = False
        for disk in self._disks:
            disk.syncs_to_fail = 0
            disk.crash(by_chance(self._chance))
        self._tables = self._tables.crash()
        self._store = None

    # Faults.

    def fail_next_sync(self) -> None:
        """The next sync of either volume fails, if the machine is on."""
        for disk in self._disks:
            disk.syncs_to_fail = int(self._store is not None)

    def fill(self) -> None:
        """There is no room for anything more."""
        self._tables.is_full = True
        for disk in self._disks:
            disk.fill()

    def free(self) -> None:
        """There is room again."""
        self._tables.is_full = False
        for disk in self._disks:
            disk.bytes_max = None

    def stall(self, duration: int) -> None:
        """Nothing that is or will be under way is done before that much time has passed."""
        self._stalled_until = max(self._stalled_until, self._engine.now + duration)

    def rot(self, chance: Random) -> bool:
        """Flip bits of a record that was synced, if there is one with another after it: whether there was.

        Rot in the last record cannot be told from a tail that a crash has torn. The catalogue is spared: it
        is there twice, which one flip cannot harm and two could. A machine that is off is spared as well: it
        may have what nobody has been told of yet.
        """
        if self._store is None:
            return False
        log, pfs = (
            [
                (disk, name, offset, length)
                for name in disk.list()
                for offset, length in _records(disk, name, identity)
            ]
            for disk, identity in zip(self._disks, (self._identity, self._identity ^ 1), strict=True)
        )
        if not log and not pfs:
            return False
        # There is much more to tell of an event that is gone than of who wanted it.
        disk, name, offset, length = chance.choice(log if log and (not pfs or chance.random() < 0.7) else pfs)
        disk.rot(name, offset + chance.randrange(HEADER_BYTES + length), 1 << chance.randrange(8))
        self.rots += 1
        return True

    # The thread.

    def _work(self) -> None:
        while self._jobs and not self._is_busy:
            longest = TAKES_US_MAX.get(type(self._jobs[0]))
            if longest is None:
                self._carry_out(self._jobs.popleft())
            else:
                self._is_busy = True
                self._later(self._chance.randint(1, longest), self._finish)

    def _finish(self) -> None:
        if self._engine.now < self._stalled_until:
            self._later(self._stalled_until - self._engine.now, self._finish)
            return
        self._is_busy = False
        self._carry_out(self._jobs.popleft())
        self._work()

    def _carry_out(self, effect: Effect) -> None:
        assert self._store is not None
        try:
            stimulus = self._store.carry_out(effect)
        except DiskFailedError:
            self._failed()
            return
        self._done(effect, stimulus)
        if self._store.is_waiting and not self._will_retry:
            self._will_retry = True
            self._later(RETRY_US, self._retry)
        if stimulus is not None:
            self._report(stimulus)

    def _retry(self) -> None:
        assert self._store is not None
        self._will_retry = False
        try:
            told = self._store.retry()
        except DiskFailedError:
            self._failed()
            return
        if self._store.is_waiting:
            self._will_retry = True
            self._later(RETRY_US, self._retry)
        life = self._life
        for stimulus in told:
            if self._life == life:
                self._report(stimulus)

    def _cut_off(self, effect: Effect) -> None:
        """Begin what was under way; the power goes at one of its steps, or just after the last."""
        assert self._store is not None
        if isinstance(effect, CommitTables) and self._chance.random() < 0.5:
            return
        for disk in self._disks:
            disk.power_off_at = disk.operations + self._chance.randint(1, STEPS)
        with suppress(PowerLossError, DiskFailedError):
            self._store.carry_out(effect)

    def _later(self, delay: int, action: Action) -> None:
        life = self._life

        def act() -> None:
            if self._life == life:
                action()

        self._engine.after(delay, act)


def _records(disk: MemoryDisk, name: str, identity: int) -> list[tuple[int, int]]:
    """Offset and length of the records on the platter that may rot."""
    place = parse_name(name)
    if place is None or place[1]:
        return []
    rows = scan(disk.platter(name), SEGMENT_HEADER_BYTES, seed_of(identity, place[0])).rows
    listed = zip(rows.homes.tolist(), rows.offsets.tolist(), rows.lengths.tolist(), strict=True)
    return [(offset, length) for home, offset, length in list(listed)[:-1] if home != CATALOGUE_STREAM]
