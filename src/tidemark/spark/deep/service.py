"""Deep catch-up: brokers ask for history that pubends have let go, and get it from the archive (DESIGN 11).

A connection to each broker offers to answer. Recalls that come together are one scan; what comes while it is
read is the next. Scans take turns, wave by wave, so that who wants a day does not wait for who wants a year.
What is read waits in a bounded spool until subscribers take it; one that does not take anything while others
wait for room gives up its place, and is read for again when it does.

All of it is soft: after a crash of any side brokers ask again from where their subscribers are, and nothing
is told twice, since a part is known by its range.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidemark.client.client import Client, connect
from tidemark.client.connecting.addresses import SCHEME, parse_url
from tidemark.errors import TidemarkError
from tidemark.spark.archive.reader import Snapshot
from tidemark.spark.archive.state import FOLDER
from tidemark.spark.deep.plan import current_snapshot
from tidemark.spark.deep.request import OpenRecall, Request
from tidemark.spark.deep.shared_scan import SharedScan
from tidemark.spark.deep.spool import SliceReader, Spool
from tidemark.spark.deep.tasks import SliceResult
from tidemark.spark.deep.waves import read_wave
from tidemark.spark.engine.tasks import SessionLender
from tidemark.spark.reports import ReportTaker
from tidemark.ticks import TICK_MIN

#: Of one broker: recalls under way.
RECALLS_MAX = 4_096
#: Those who come within so long of each other are served together.
GATHER_SECONDS = 0.1
#: Scans that take turns.
SCANS_MAX = 4
#: A wave is not begun while the spool has more than this; a wave may add some times what it reads.
SPOOL_BYTES_MAX = 2 << 30
#: Who has taken nothing for so long, while there is no room in the spool, loses its place there.
STALL_SECONDS = 5.0
#: The archive may be behind for so long before what it lacks is told as a gap; it is looked at this often.
BEHIND_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.5
#: After something failed.
RETRY_SECONDS = 5.0

log = logging.getLogger("tidemark.deep")


class DeepService:
    """Answers the recalls of some brokers from one archive."""

    def __init__(
        self,
        urls: Sequence[str],
        path: Path,
        *,
        sessions: SessionLender | None = None,
        tell: ReportTaker = lambda _: None,
        spool_bytes_max: int = SPOOL_BYTES_MAX,
        behind_seconds_max: float = BEHIND_SECONDS_MAX,
    ) -> None:
        """Addresses that stand in for each other in a URL are brokers with subscribers of their own here.

        Without `sessions` all is read in this process.
        """
        self._addresses = list(dict.fromkeys(str(each) for url in urls for each in parse_url(url)))
        self._path = path
        self._sessions = sessions
        self._tell = tell
        self._spool_bytes_max = spool_bytes_max
        self._behind_seconds_max = behind_seconds_max
        self._waiting: list[Request] = []
        self._scans: deque[SharedScan] = deque()
        self._came = asyncio.Event()
        self._tasks: dict[Request, asyncio.Task[None]] = {}
        #: kept here, for a loop holds them weakly
        self._others: set[asyncio.Task[None]] = set()
        self.counters = dict.fromkeys(("recalls", "scans", "waves", "events_read", "parked", "behind"), 0)

    async def run(self) -> None:
        """Serve until cancelled."""
        self._spool = Spool(self._path / FOLDER / "spool")
        try:
            async with asyncio.TaskGroup() as group:
                for address in self._addresses:
                    group.create_task(self._serve(f"{SCHEME}{address}"))
                group.create_task(self._work())
        finally:
            for task in [*self._tasks.values(), *self._others]:
                task.cancel()
            await asyncio.gather(*self._tasks.values(), *self._others, return_exceptions=True)
            self._spool.close()

    # Brokers.

    async def _serve(self, url: str) -> None:
        """Offer to one broker, for ever; it may not be there yet."""
        said = ""
        while True:
            client = connect(url, client="tidemark-pipeline")
            try:
                await client.open()
            except (TidemarkError, OSError) as error:
                if said != str(error):
                    said = str(error)
                    log.info("%s: no recalls from there yet: %s", url, said)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            try:
                await self._take(client)
            finally:
                await client.close(0)

    async def _take(self, client: Client) -> None:
        async for recall in client._offer(RECALLS_MAX):
            self.recalled(recall)

    def recalled(self, recall: OpenRecall) -> None:
        """Something is wanted from the archive, for the first time."""
        self.counters["recalls"] += 1
        self._add(Request(recall, self._spool))

    def _add(self, request: Request) -> None:
        self._waiting.append(request)
        self._came.set()

    # Reading.

    async def _work(self) -> None:
        while True:
            if not self._scans:
                await self._idle()
            try:
                await self._turn()
            except Exception as error:
                # Whatever it was, those who wait are asked for again, and somebody is told why they wait.
                level = logging.WARNING if isinstance(error, TidemarkError) else logging.ERROR
                told = not isinstance(error, TidemarkError)
                log.log(level, "history cannot be read, it is tried again: %s", error, exc_info=told)
                self._give_up()
                await asyncio.sleep(RETRY_SECONDS)

    async def _idle(self) -> None:
        """Return when there may be something to do, and all who come together are there."""
        if not self._waiting:
            self._came.clear()
            await self._came.wait()
            await asyncio.sleep(GATHER_SECONDS)
        elif all(each.waits_since is not None for each in self._waiting):
            self._came.clear()
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._came.wait()
                    await asyncio.sleep(GATHER_SECONDS)
            except TimeoutError:
                return

    async def _turn(self) -> None:
        """Begin a scan for those who wait, if one more may be, and read a wave of one."""
        found = await asyncio.to_thread(current_snapshot, self._path)
        if len(self._scans) < SCANS_MAX:
            self._gather(found)
        if not self._scans:
            return
        await self._make_room()
        scan = self._scans[0]
        await self._wave(scan, found)
        self._scans.popleft()
        if not scan.is_done:
            self._scans.append(scan)
        else:
            self._tell(scan.summary())

    def _gather(self, found: Snapshot) -> None:
        waiting, self._waiting = self._waiting, []
        now = time.monotonic()
        ready: list[Request] = []
        for each in waiting:
            if each.is_over:
                continue
            if each.recall.position < found.state.covered.get(each.pubend, TICK_MIN):
                each.waits_since = None
                ready.append(each)
            else:
                self._hold(each, now)
        if ready:
            self.counters["scans"] += 1
            self._scans.append(SharedScan(ready, found))
            for each in ready:
                self._answer(each)

    def _hold(self, request: Request, now: float) -> None:
        """The archive has not got so far: pubends let go only what it has, so it will in a moment."""
        recall = request.recall
        request.waits_since = now if request.waits_since is None else request.waits_since
        if now - request.waits_since < self._behind_seconds_max:
            self._waiting.append(request)
            return
        self.counters["behind"] += 1
        log.error(
            "pubend %s: (%d, %d] is neither at its broker nor in the archive: a subscriber is told of a gap",
            *(request.pubend, recall.position, recall.upto),
        )
        self._spawn(_tell_gone(request))

    async def _wave(self, scan: SharedScan, found: Snapshot) -> None:
        parts = scan.wave(found)
        if not parts:
            return
        self.counters["waves"] += 1
        prefix = f"{scan.name}-{scan.waves}"
        work = scan.work(found, str(self._spool.path.absolute()))
        came = await asyncio.to_thread(read_wave, work, parts, prefix, self._sessions)
        readers = [self._opened(each) for each in came]
        scan.events += sum(each.read for each in came)
        self.counters["events_read"] += sum(each.read for each in came)
        scan.deliver(parts, readers)
        # A file that nobody took up goes; so does what a task that was run twice has left.
        for reader in readers:
            if reader is not None and reader.readers == 0:
                reader.readers = 1
                self._spool.release(reader)
        self._spool.sweep(prefix, [each.name for each in came])

    def _opened(self, found: SliceResult) -> SliceReader | None:
        return self._spool.opened(found.name) if found.name else None

    def _give_up(self) -> None:
        """The scan whose turn it was failed: those it was for wait again."""
        if self._scans:
            scan = self._scans.popleft()
            for each in list(scan.requests):
                scan.leave(each)

    # Answering.

    def _answer(self, request: Request) -> None:
        task = asyncio.create_task(request.run())
        self._tasks[request] = task
        task.add_done_callback(lambda done: self._answered(request, done))

    def _answered(self, request: Request, task: asyncio.Task[None]) -> None:
        """All that was read has left: what is still wanted waits for the next scan."""
        del self._tasks[request]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("a recall of %s failed: %s", request.pubend, error, exc_info=error)
        if not request.is_over:
            self._add(request)

    async def _make_room(self) -> None:
        """Wait until the spool has room; those who take nothing meanwhile are put aside."""
        while self._spool.bytes > self._spool_bytes_max:
            before = {each: each.recall.position for each in self._tasks if each.is_loaded}
            began = time.monotonic()
            while self._spool.bytes > self._spool_bytes_max and time.monotonic() < began + STALL_SECONDS:
                await asyncio.sleep(GATHER_SECONDS)
            if self._spool.bytes > self._spool_bytes_max:
                for each, position in before.items():
                    if each in self._tasks and each.recall.position == position:
                        await self._park(each)

    async def _park(self, request: Request) -> None:
        self.counters["parked"] += 1
        task = self._tasks[request]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for scan in self._scans:
            scan.leave(request)
        self._spawn(self._unpark(request))

    async def _unpark(self, request: Request) -> None:
        while not request.is_over and not request.recall.has_room(1):
            await request.recall.granted()
        if not request.is_over:
            self._add(request)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)


async def _tell_gone(request: Request) -> None:
    recall = request.recall
    if not recall.is_over:
        await recall.answer(recall.upto, None, ((recall.position, recall.upto),))
