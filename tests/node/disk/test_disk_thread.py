"""The disk thread and what is measured of it: order, completions, marks, failure, backlog."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from tests.node.disk.disk_listener import KeepingListener
from tests.waiting import PATIENCE_SECONDS
from tidemark.broker.effects import (
    AppendPfs,
    CommitTables,
    Effect,
    LogFull,
    LogSynced,
    PfsSynced,
    ReadLog,
    ResumeLog,
    Stimulus,
    SyncLog,
    SyncPfs,
    TablesCommitted,
)
from tidemark.errors import DiskFailedError
from tidemark.node.disk import disk_thread
from tidemark.node.disk.backlog import APPEND_BYTES, Backlog
from tidemark.node.disk.disk_thread import READ_AFTER, DiskThread, Report


class Recorder:
    """A worker that notes what it is given, and waits at a gate before each effect."""

    def __init__(self) -> None:
        self.seen: list[Effect] = []
        self.gate = threading.Event()
        self.gate.set()
        self.is_waiting = False
        self.error: Exception | None = None

    def carry_out(self, effect: Effect, _: Report) -> Stimulus | None:
        assert self.gate.wait(PATIENCE_SECONDS)
        self.seen.append(effect)
        if self.error is not None:
            raise self.error
        return LogSynced(effect.ticket) if isinstance(effect, SyncLog) else None

    def retry(self) -> list[Stimulus]:
        self.is_waiting = False
        return [TablesCommitted(9)]


def test_effects_are_carried_out_in_order_and_completions_reported_in_order() -> None:
    async def story() -> None:
        worker, listener = Recorder(), KeepingListener()
        disk = DiskThread(worker, listener)
        worker.gate.clear()
        for ticket in range(50):
            disk.put((SyncLog(ticket), CommitTables(ticket)))
        worker.gate.set()
        await disk.reached()
        assert listener.done == [LogSynced(ticket) for ticket in range(50)]
        await disk.stop()
        assert worker.seen[:2] == [SyncLog(0), CommitTables(0)]
        assert len(worker.seen) == 100
        assert listener.timed[:2] == ["log", "tables"]
        assert disk.busy_seconds == 0

    asyncio.run(story())


def test_publishers_do_not_wait_for_reads_and_reads_are_not_starved() -> None:
    async def story() -> None:
        worker, listener = Recorder(), KeepingListener()
        disk = DiskThread(worker, listener)
        worker.gate.clear()
        disk.put((SyncLog(0),))  # while this one runs, all others gather
        disk.put([ReadLog("p", at, at + 1) for at in range(8)])
        for ticket in range(1, 2 * READ_AFTER):
            disk.put((SyncLog(ticket),))
        worker.gate.set()
        await disk.reached()
        await disk.stop()
        reads = [at for at, effect in enumerate(worker.seen) if isinstance(effect, ReadLog)]
        syncs = [effect for effect in worker.seen if isinstance(effect, SyncLog)]
        assert syncs == [SyncLog(ticket) for ticket in range(2 * READ_AFTER)]
        assert [worker.seen[at] for at in reads] == [ReadLog("p", at, at + 1) for at in range(8)]
        assert reads[0] >= READ_AFTER - 1, "all that publishers wait for goes first"
        assert reads[0] < 2 * READ_AFTER, "but not for ever"

    asyncio.run(story())


def test_what_waits_for_room_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_thread, "RETRY_SECONDS", 0.001)

    async def story() -> None:
        worker, listener = Recorder(), KeepingListener()
        worker.is_waiting = True
        disk = DiskThread(worker, listener)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await listener.news.wait()
        assert listener.done == [TablesCommitted(9)]
        await disk.stop()

    asyncio.run(story())


def test_after_a_failure_nothing_more_is_carried_out_and_nobody_waits_for_ever() -> None:
    async def story() -> None:
        worker, listener = Recorder(), KeepingListener()
        worker.error = DiskFailedError("sync failed", path="x")
        disk = DiskThread(worker, listener)
        disk.put((SyncLog(1), SyncLog(2)))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await disk.reached()
            await disk.reached()
            await disk.stop()
        assert listener.failures == [worker.error]
        assert worker.seen == [SyncLog(1)]

    asyncio.run(story())


def pfs(count: int) -> AppendPfs:
    return AppendPfs(
        "p", 0, count, np.zeros(count, np.int64), np.zeros(count, np.uint32), np.zeros(count, np.uint32), {}
    )


def test_the_backlog_is_what_no_sync_has_covered() -> None:
    backlog = Backlog()
    backlog.put((pfs(10), SyncPfs(1), pfs(5)))
    assert backlog.bytes == 15 * 16 + 2 * APPEND_BYTES
    backlog.done((PfsSynced(1),))
    assert backlog.bytes == 5 * 16 + APPEND_BYTES
    backlog.put((SyncPfs(2), SyncLog(1)))
    backlog.done((PfsSynced(2), LogFull(1)))
    backlog.put((ResumeLog(),))
    assert backlog.bytes == 0


def test_the_log_is_full_until_a_group_finds_room() -> None:
    backlog = Backlog()
    full: list[bool] = []
    for stimulus in (LogFull(1), PfsSynced(1), LogSynced(2)):
        backlog.done((stimulus,))
        full.append(backlog.is_log_full)
    assert full == [True, True, False]


def test_what_a_worker_reports_before_it_is_done_is_told_at_once_and_once() -> None:
    class Early(Recorder):
        def carry_out(self, effect: Effect, report: Report) -> Stimulus | None:
            if isinstance(effect, SyncLog):
                report(LogSynced(effect.ticket))
            super().carry_out(effect, report)
            return None

    async def story() -> None:
        worker, listener = Early(), KeepingListener()
        worker.gate.clear()
        disk = DiskThread(worker, listener)
        disk.put((SyncLog(1),))
        await asyncio.wait_for(listener.news.wait(), PATIENCE_SECONDS)
        assert listener.done == [LogSynced(1)]
        assert worker.seen == [], "the worker is still at it"
        worker.gate.set()
        await disk.stop()
        assert listener.done == [LogSynced(1)]
        assert listener.timed == ["log"]

    asyncio.run(story())


def test_what_is_completed_can_be_collected_before_the_loop_gets_to_it() -> None:
    async def story() -> None:
        worker, listener = Recorder(), KeepingListener()
        disk = DiskThread(worker, listener)
        disk.collect()
        disk.put((SyncLog(1),))
        waited = threading.Event()
        while not disk.finished:  # the loop stands still meanwhile
            waited.wait(0.001)
        assert listener.done == []
        disk.collect()
        assert listener.done == [LogSynced(1)]
        await disk.reached()
        assert listener.done == [LogSynced(1)], "the loop reports it no second time"
        await disk.stop()

    asyncio.run(story())
