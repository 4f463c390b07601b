"""Deep catch-up: brokers recall history that pubends have released, and get it from the archive.

The service holds a connection to each broker, on which it offers to answer. Recalls that arrive together
become one scan; recalls that arrive while it is read become the next one. Scans take turns, wave by wave, so
that a subscriber that wants a day does not wait for one that wants a year. What is read waits in a bounded
spool until the subscribers take it. A subscriber that takes nothing while others wait for room loses its
place in the spool, and is read for again when it takes something.

All state here is soft: after a crash of either side, brokers recall again from where their subscribers are,
and nothing is delivered twice, since each part of an answer names its range.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from tidemark.client.client import Client, connect
from tidemark.client.connecting.addresses import SCHEME, TLS_SCHEME, is_tls, parse_url
from tidemark.errors import TidemarkError
from tidemark.spark.archive.reader import Snapshot
from tidemark.spark.archive.state import FOLDER
from tidemark.spark.archive_scan.slices import current_snapshot
from tidemark.spark.deep.request import OpenRecall, Request
from tidemark.spark.deep.shared_scan import SharedScan
from tidemark.spark.deep.spool import SliceReader, Spool
from tidemark.spark.deep.tasks import SliceResult
from tidemark.spark.deep.waves import read_wave
from tidemark.spark.engine.tasks import SessionLender
from tidemark.spark.locations import Place, folder_at
from tidemark.spark.reports import ReportTaker
from tidemark.ticks import TICK_MIN

#: Recalls of one broker that may be under way.
RECALLS_MAX = 4_096
#: Recalls that arrive within so long of each other share a scan.
GATHER_SECONDS = 0.1
#: Scans that take turns.
SCANS_MAX = 4
#: No wave begins while the spool has more than this; a wave may add several times what it reads.
SPOOL_BYTES_MAX = 2 << 30
#: While the spool has no room, a subscriber that has taken nothing for so long loses its place there.
STALL_SECONDS = 5.0
#: The archive may be behind for so long before what it lacks is a gap; it is looked at every LOOK_SECONDS.
BEHIND_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.5
#: The pause after a failure.
RETRY_SECONDS = 5.0

log = logging.getLogger("tidemark.deep")


class DeepService:
    """Answers the recalls of some brokers from one archive."""

    def __init__(
        self,
        urls: Sequence[str],
        path: Place,
        *,
        sessions: SessionLender | None = None,
        tell: ReportTaker = lambda _: None,
        spool_bytes_max: int = SPOOL_BYTES_MAX,
        behind_seconds_max: float = BEHIND_SECONDS_MAX,
    ) -> None:
        """Every address of every URL is a broker that is served, also addresses that stand in for each other.

        Without `sessions` all is read in this process.
        """
        schemes = {url: TLS_SCHEME if is_tls(url) else SCHEME for url in urls}
        #: a URL for each broker
        self._urls = list(dict.fromkeys(f"{schemes[url]}{each}" for url in urls for each in parse_url(url)))
        self._path = folder_at(path)
        self._sessions = sessions
        self._tell = tell
        self._spool_bytes_max = spool_bytes_max
        self._behind_seconds_max = behind_seconds_max
        self._waiting: list[Request] = []
        self._scans: deque[SharedScan] = deque()
        self._arrived = asyncio.Event()
        self._tasks: dict[Request, asyncio.Task[None]] = {}
        #: tasks beside those; held here, since an event loop holds tasks weakly
        self._others: set[asyncio.Task[None]] = set()
        self.counters = dict.fromkeys(("recalls", "scans", "waves", "events_read", "parked", "behind"), 0)

    async def run(self) -> None:
        """Serve until cancelled."""
        self._spool = Spool(self._path / FOLDER / "spool")
        try:
            async with asyncio.TaskGroup() as group:
                for url in self._urls:
                    group.create_task(self._serve(url))
                group.create_task(self._work())
        finally:
            for task in [*self._tasks.values(), *self._others]:
                task.cancel()
            await asyncio.gather(*self._tasks.values(), *self._others, return_exceptions=True)
            self._spool.close()

    # Brokers.

    async def _serve(self, url: str) -> None:
        """Offer to answer one broker, until cancelled; the broker may not be there yet."""
        logged = ""
        while True:
            client = connect(url, client="tidemark-pipeline")
            try:
                await client.open()
            except (TidemarkError, OSError) as error:
                if logged != str(error):
                    logged = str(error)
                    log.info("%s: no recalls from there yet: %s", url, logged)
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
        """A recall has arrived."""
        self.counters["recalls"] += 1
        self._add(Request(recall, self._spool))

    def _add(self, request: Request) -> None:
        self._waiting.append(request)
        self._arrived.set()

    # Reading.

    async def _work(self) -> None:
        while True:
            if not self._scans:
                await self._idle()
            try:
                await self._turn()
            except Exception as error:
                # Whatever failed, its requests wait for the next scan, and the log says why they wait.
                level = logging.WARNING if isinstance(error, TidemarkError) else logging.ERROR
                is_bug = not isinstance(error, TidemarkError)
                log.log(level, "history cannot be read, it is tried again: %s", error, exc_info=is_bug)
                self._give_up()
                await asyncio.sleep(RETRY_SECONDS)

    async def _idle(self) -> None:
        """Return when there may be something to read, after a moment in which further recalls may arrive."""
        if not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
            await asyncio.sleep(GATHER_SECONDS)
        elif all(each.waits_since is not None for each in self._waiting):
            self._arrived.clear()
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._arrived.wait()
                    await asyncio.sleep(GATHER_SECONDS)
            except TimeoutError:
                return

    async def _turn(self) -> None:
        """Begin a scan for the waiting requests, if there may be one more; read a wave of the next scan."""
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
        """Keep a request waiting that the archive does not reach; after too long, answer it with a gap.

        Pubends release only what is archived, so normally the archive reaches it in a moment.
        """
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
        self._spawn(_answer_gone(request))

    async def _wave(self, scan: SharedScan, found: Snapshot) -> None:
        parts = scan.wave(found)
        if not parts:
            return
        self.counters["waves"] += 1
        prefix = f"{scan.name}-{scan.waves}"
        work = scan.work(found, self._spool.folder)
        results = await asyncio.to_thread(read_wave, work, parts, prefix, self._sessions)
        readers = [self._opened(each) for each in results]
        scan.events += sum(each.read for each in results)
        self.counters["events_read"] += sum(each.read for each in results)
        scan.deliver(parts, readers)
        # Files that no request uses are removed, and so are those of a task that Spark ran twice.
        for reader in readers:
            if reader is not None and reader.readers == 0:
                reader.readers = 1
                self._spool.release(reader)
        self._spool.sweep(prefix, [each.name for each in results])

    def _opened(self, result: SliceResult) -> SliceReader | None:
        return self._spool.opened(result.name) if result.name else None

    def _give_up(self) -> None:
        """Drop the scan whose turn it was, after a failure; its requests wait for another one."""
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
        """All that was read for a request has been sent; if it wants more, it waits for the next scan."""
        del self._tasks[request]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("a recall of %s failed: %s", request.pubend, error, exc_info=error)
        if not request.is_over:
            self._add(request)

    async def _make_room(self) -> None:
        """Wait until the spool has room; requests whose subscribers take nothing meanwhile are parked."""
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


async def _answer_gone(request: Request) -> None:
    recall = request.recall
    if not recall.is_over:
        await recall.answer(recall.upto, None, ((recall.position, recall.upto),))
