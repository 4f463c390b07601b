"""SimDiskThread: the disks of a simulated machine, and the one thread that works on them.

The real store and the real storage code carry out effects in order; only the disks are memory. A sync or a
read takes simulated time, and later effects wait, so that a sync covers exactly the appends before it. The
work is done at the end of that time. If the power fails meanwhile, the work is begun and cut off at one of
its steps, and of the bytes that were not synced the disks keep all, nothing, or a torn part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from random import Random

from tidemark.broker.config import Recovered
from tidemark.broker.effects import (
    CommitTables,
    CountPfs,
    Effect,
    LogRead,
    ReadCache,
    ReadLog,
    ReadPfs,
    Stimulus,
    SyncLog,
    SyncPfs,
)
from tidemark.errors import DiskFailedError, DiskFullError
from tidemark.persistence.store import Store, StoreDisks, StoreSettings
from tidemark.sim.world.engine import Action, Engine
from tidemark.storage.disk.memory_disk import MemoryDisk, PowerLossError, by_chance
from tidemark.storage.log.record import CATALOGUE_STREAM, HEADER_BYTES, seed_of
from tidemark.storage.log.segments.scan import scan
from tidemark.storage.log.segments.segment import SEGMENT_HEADER_BYTES, parse_name
from tidemark.storage.tables.memory_tables import MemoryTables

#: Segments and reads are small, so that a world of a few seconds has many of them.
SMALL_STORE = StoreSettings(segment_bytes=8 << 10, read_bytes=8 << 10)
#: The longest time of an effect, in microseconds. Effects that are not listed take no time.
SYNC_US_MAX = 20_000
READ_US_MAX = 5_000
TAKES_US_MAX: dict[type, int] = {
    SyncLog: SYNC_US_MAX,
    SyncPfs: SYNC_US_MAX,
    CommitTables: SYNC_US_MAX,
    ReadCache: READ_US_MAX,
    ReadLog: READ_US_MAX,
    ReadPfs: READ_US_MAX,
    CountPfs: READ_US_MAX,
}
#: Microseconds between attempts to write to a disk that was full.
RETRY_US = 100_000
#: About how many disk operations a sync has at which the power can fail.
STEPS = 6


class SimDiskThread:
    """The disks survive every crash of the machine; each life opens a new store on them."""

    def __init__(
        self,
        engine: Engine,
        chance: Random,
        name: str,
        done: Callable[[Effect, Stimulus | None], None],
        report: Callable[[Stimulus], None],
        failed: Action,
        settings: StoreSettings = SMALL_STORE,
    ) -> None:
        """`done` is called with every effect and its result, `report` with each stimulus for the broker.

        `failed` is called when a disk failed, after which the broker must stop. If events of some
        pubends are durable once they are written, crashes are those of the process and not of the machine.
        """
        self._engine = engine
        self._chance = chance
        self._done = done
        self._report = report
        self._failed = failed
        self._settings = settings
        self._identity = chance.getrandbits(64)
        self._log = MemoryDisk(f"{name}/log")
        self._pfs = MemoryDisk(f"{name}/pfs")
        self._disks = (self._log, self._pfs)
        #: what may be full, fail and rot without an excuse: it is soft state
        self._cache = MemoryDisk(f"{name}/cache")
        #: what the stores know of each other
        self._witness = MemoryDisk(f"{name}/witness")
        self._tables = MemoryTables()
        #: what `harm_tables` has chosen for the next crash: the tables that the next start finds
        self._harmed: MemoryTables | None = None
        #: the tables as they were when this life began, and the right ones while those in use are harmed
        self._older = MemoryTables()
        self._right: MemoryTables | None = None
        self._store: Store | None = None
        #: effects that wait; the first one is being carried out while `_is_busy`
        self._jobs: deque[Effect] = deque()
        self._is_busy = False
        self._life = 0
        self._stalled_until = 0
        self._will_retry = False
        #: number of records that `rot` has damaged
        self.rots = 0

    def start(self, pubends: Iterable[str], now: int) -> tuple[Recovered, int]:
        """Open the store; returns the recovered state and the incarnation.

        Raises DiskFullError or DiskFailedError if the disk is full or fails.
        """
        try:
            disks = StoreDisks(self._log, self._pfs, self._tables, self._witness, cache=self._cache)
            self._store = Store(disks, self._settings, identity=self._identity)
            recovered = self._store.recover(pubends, now)
        except (DiskFullError, DiskFailedError):
            self.crash()
            raise
        self._older = self._tables.copy()
        return recovered, self._store.incarnation

    def put(self, effect: Effect) -> None:
        """Carry out an effect after all effects that were put before it."""
        self._jobs.append(effect)
        self._work()

    def read(self, effect: ReadLog) -> LogRead:
        """Read the log at once, outside the queue, to compare it with the ground truth."""
        assert self._store is not None
        answer = self._store.carry_out(effect)
        assert isinstance(answer, LogRead)
        return answer

    def crash(self) -> None:
        """The power fails: the running effect is cut off, and unsynced bytes may be lost or torn.

        Where events are durable once they are written, and where tables are harmed, only the process dies.
        """
        self._life += 1
        loses_power = self._harmed is None and not self._settings.os_pubends
        if self._is_busy and loses_power:
            self._cut_off(self._jobs[0])
        self._jobs.clear()
        self._is_busy = self._will_retry = False
        for disk in (*self._disks, self._cache):
            disk.syncs_to_fail = 0
        cache = (self._cache,) if self._settings.is_cached else ()
        for disk in (*self._disks, self._witness, *cache):
            if loses_power:
                disk.crash(by_chance(self._chance))
            else:
                disk.kill()
        self._tables = self._tables.crash()
        if self._harmed is not None:
            self._right, self._tables = self._tables, self._harmed
            self._tables.is_full = self._right.is_full
            self._harmed = None
        self._store = None

    # Faults.

    @property
    def is_hindered(self) -> bool:
        """Whether there is no room on the disks, or nothing finishes just now."""
        return self._tables.is_full or self._engine.now < self._stalled_until

    def fail_next_sync(self) -> None:
        """The next sync of each volume fails, if the machine is on."""
        for disk in (*self._disks, self._cache):
            disk.syncs_to_fail = int(self._store is not None)

    def fill(self) -> None:
        """Leave no room on the disks."""
        self._tables.is_full = True
        for disk in (*self._disks, self._cache):
            disk.fill()

    def free(self) -> None:
        """Make room on the disks again."""
        self._tables.is_full = False
        for disk in (*self._disks, self._cache):
            disk.bytes_max = None

    def stall(self, duration: int) -> None:
        """No effect that takes time finishes before `duration` microseconds have passed."""
        self._stalled_until = max(self._stalled_until, self._engine.now + duration)

    def rot(self, chance: Random) -> bool:
        """Flip a bit of a synced record that has another record after it; returns False if there is none.

        Rot in the last record cannot be told from a tail that a crash has torn. The catalogue is spared: it
        is stored twice, which survives one flip but not two. A machine that is off is spared as well: its
        disk may have events that no broker has been told of yet.
        """
        if self._store is None:
            return False
        self._rot_cache(Random(self.rots))
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
        # The log is chosen more often: a lost event has more consequences than a lost match set.
        disk, name, offset, length = chance.choice(log if log and (not pfs or chance.random() < 0.7) else pfs)
        disk.rot(name, offset + chance.randrange(HEADER_BYTES + length), 1 << chance.randrange(8))
        self.rots += 1
        return True

    def _rot_cache(self, chance: Random) -> None:
        """Flip a bit of a record of the cache, if there is one. That excuses nothing."""
        found = [
            (name, *record)
            for name in self._cache.list()
            for record in _records(self._cache, name, self._identity ^ 2)
        ]
        if found:
            name, offset, length = chance.choice(found)
            self._cache.rot(name, offset + chance.randrange(HEADER_BYTES + length), 1)

    def harm_tables(self, chance: Random) -> None:
        """At the next crash only the process dies, and it finds its tables gone, or as they once were.

        If the power failed as well, what the other stores know of the tables might be lost with it.
        """
        if self._store is not None:
            self._harmed = chance.choice((MemoryTables(), self._older.copy()))

    def put_tables_back(self) -> None:
        """The broker has refused its tables: it finds the right ones at the next start."""
        assert self._right is not None, "nothing was done to the tables that were refused"
        self._tables, self._right = self._right, None
        self._tables.is_full = False

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
        """Begin the running effect; the power fails at one of its operations, or just after the last."""
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
    """Returns offset and length of every record in a segment file that may rot."""
    place = parse_name(name)
    if place is None or place[1]:
        return []
    rows = scan(disk.platter(name), SEGMENT_HEADER_BYTES, seed_of(identity, place[0])).rows
    listed = zip(rows.homes.tolist(), rows.offsets.tolist(), rows.lengths.tolist(), strict=True)
    return [(offset, length) for home, offset, length in list(listed)[:-1] if home != CATALOGUE_STREAM]
