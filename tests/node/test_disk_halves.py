"""The two disk threads: neither waits for the other, each keeps its order, and both end together."""

from __future__ import annotations

import asyncio
import threading

from tidemark.broker.effects import (
    AppendLease,
    CommitTables,
    Effect,
    LogSynced,
    Stimulus,
    SyncLog,
    SyncPfs,
    TablesCommitted,
)
from tidemark.errors import DiskFailedError
from tidemark.node.disks import Disks


class Slow:
    """A worker whose commits of the tables wait at a gate."""

    def __init__(self) -> None:
        self.seen: list[Effect] = []
        self.gate = threading.Event()
        self.is_waiting = False
        self.error: Exception | None = None

    def carry_out(self, effect: Effect) -> Stimulus | None:
        self.seen.append(effect)
        match effect:
            case CommitTables(ticket):
                assert self.gate.wait(10)
                return TablesCommitted(ticket)
            case SyncLog(ticket):
                if self.error is not None:
                    raise self.error
                return LogSynced(ticket)
        return None

    def retry(self) -> list[Stimulus]:
        return []


def test_a_commit_of_the_tables_keeps_no_publisher_waiting() -> None:
    async def story() -> None:
        worker, done, synced = Slow(), list[Stimulus](), asyncio.Event()

        def report(stimuli: list[Stimulus]) -> None:
            done.extend(stimuli)
            synced.set()

        disks = Disks(worker, report, lambda _: None, lambda _, __: None)
        disks.put((CommitTables(1), AppendLease("p", 5), SyncLog(2), SyncPfs(3), SyncLog(4)))
        async with asyncio.timeout(10):
            while len(done) < 2:
                synced.clear()
                await synced.wait()
        assert done == [LogSynced(2), LogSynced(4)]
        worker.gate.set()
        await disks.reached()
        assert done[2:] == [TablesCommitted(1)]
        await disks.stop()
        of_log = [each for each in worker.seen if isinstance(each, AppendLease | SyncLog)]
        assert of_log == [AppendLease("p", 5), SyncLog(2), SyncLog(4)]
        assert [each for each in worker.seen if each not in of_log] == [CommitTables(1), SyncPfs(3)]
        assert disks.busy_seconds == 0

    asyncio.run(story())


def test_after_a_failure_of_the_log_the_other_thread_writes_nothing_more() -> None:
    async def story() -> None:
        worker, failures = Slow(), list[BaseException]()
        worker.error = DiskFailedError("sync failed", path="x")
        failed = asyncio.Event()

        def fail(error: BaseException) -> None:
            failures.append(error)
            failed.set()

        disks = Disks(worker, lambda _: None, fail, lambda _, __: None)
        disks.put((CommitTables(1), SyncLog(2), CommitTables(3)))
        async with asyncio.timeout(10):
            await failed.wait()
            worker.gate.set()
            await disks.reached()
            await disks.stop()
        assert failures == [worker.error]
        assert CommitTables(3) not in worker.seen

    asyncio.run(story())
