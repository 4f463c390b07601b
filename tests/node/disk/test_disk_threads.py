"""The two disk threads: neither waits for the other, each keeps its order, and both end together."""

from __future__ import annotations

import asyncio
import threading

import numpy as np

from tests.node.disk.disk_listener import KeepingListener
from tests.waiting import PATIENCE_SECONDS
from tidemark.broker.effects import (
    AppendLease,
    AppendPfs,
    CommitTables,
    Effect,
    LogSynced,
    Stimulus,
    SyncLog,
    SyncPfs,
    TablesCommitted,
)
from tidemark.errors import DiskFailedError
from tidemark.node.disk.disk_thread import Report
from tidemark.node.disk.disk_threads import HELD_EVENTS_MAX, HELD_MAX, DiskThreads


class Slow:
    """A worker whose commits of the tables wait at a gate."""

    def __init__(self) -> None:
        self.seen: list[Effect] = []
        self.gate = threading.Event()
        self.is_waiting = False
        self.error: Exception | None = None

    def carry_out(self, effect: Effect, _: Report) -> Stimulus | None:
        self.seen.append(effect)
        match effect:
            case CommitTables(ticket):
                assert self.gate.wait(PATIENCE_SECONDS)
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
        worker, listener = Slow(), KeepingListener()
        done = listener.done
        disks = DiskThreads(worker, listener)
        disks.put((CommitTables(1), AppendLease("p", 5), SyncLog(2), SyncPfs(3), SyncLog(4)))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(done) < 2:
                listener.news.clear()
                await listener.news.wait()
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
        worker, listener = Slow(), KeepingListener()
        worker.error = DiskFailedError("sync failed", path="x")
        disks = DiskThreads(worker, listener)
        disks.put((CommitTables(1), SyncLog(2), CommitTables(3)))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not listener.failures:
                listener.news.clear()
                await listener.news.wait()
            worker.gate.set()
            await disks.reached()
            await disks.stop()
        assert listener.failures == [worker.error]
        assert CommitTables(3) not in worker.seen

    asyncio.run(story())


def test_what_single_events_add_to_the_pfs_goes_together_and_before_all_that_comes_after_it() -> None:
    async def story() -> None:
        worker = Slow()
        worker.gate.set()
        disks = DiskThreads(worker, KeepingListener())

        def addition(tick: int, events: int = 1) -> AppendPfs:
            ticks = np.arange(tick, tick + events)
            ones = np.ones(events, np.uint32)
            return AppendPfs("p", tick - 1, tick + events, ticks, ones, ones, {})

        put: list[Effect] = []
        steps: tuple[list[Effect], ...] = (
            [addition(1)],
            [addition(2), SyncLog(1)],
            [CommitTables(1)],  # waited for: with it goes all that was held
            [addition(3)],
            [addition(4, HELD_EVENTS_MAX + 1)],  # worth a thread's while
            *(list[Effect]([addition(100 + number)]) for number in range(HELD_MAX + 5)),
        )
        for effects in steps:
            disks.put(effects)
            put += [each for each in effects if not isinstance(each, SyncLog)]
        async with asyncio.timeout(PATIENCE_SECONDS):
            await disks.reached()
            seen = [each for each in worker.seen if not isinstance(each, SyncLog)]
            assert [id(each) for each in seen] == [id(each) for each in put]
            disks.put([addition(500)])
            await disks.stop()
        assert len(worker.seen) == len(put) + 2

    asyncio.run(story())


def test_additions_to_the_pfs_that_follow_one_another_are_carried_out_as_one() -> None:
    async def story() -> None:
        worker = Slow()
        worker.gate.set()
        disks = DiskThreads(worker, KeepingListener())

        def addition(base: int, *ticks: int, pubend: str = "p", number: int = 1) -> AppendPfs:
            sets, lengths = np.full(len(ticks), number, np.uint32), np.array(ticks, np.uint32)
            members = {number: np.array([number], np.uint32)} if ticks else {}
            return AppendPfs(pubend, base, base + 10, np.array(ticks, np.int64), sets, lengths, members)

        disks.put([addition(0, 3, 4), addition(10)])
        disks.put([addition(20, 25, number=2)])
        disks.put([addition(40, 41)])  # what lies between is not known
        disks.put([addition(0, 1, pubend="q")])
        disks.put([SyncPfs(1), addition(10, 12, pubend="q")])
        async with asyncio.timeout(PATIENCE_SECONDS):
            await disks.stop()
        first, gap, other, sync, last = worker.seen
        assert isinstance(first, AppendPfs)
        assert (first.base, first.upto, first.ticks.tolist()) == (0, 30, [3, 4, 25])
        assert (first.sets.tolist(), first.lengths.tolist()) == ([1, 1, 2], [3, 4, 25])
        assert {number: each.tolist() for number, each in first.members.items()} == {1: [1], 2: [2]}
        assert isinstance(gap, AppendPfs)
        assert isinstance(other, AppendPfs)
        assert isinstance(last, AppendPfs)
        assert [(each.pubend, each.base) for each in (gap, other, last)] == [("p", 40), ("q", 0), ("q", 10)]
        assert sync == SyncPfs(1)

    asyncio.run(story())
