"""The mode "auto" at a real broker: a commit for each event, and one transaction for many subscribers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import tidemark
from tests.live_node import config_at
from tests.waiting import PATIENCE_SECONDS, bounded
from tidemark.broker.effects import CommitTables, Effect
from tidemark.node.node import Node
from tidemark.persistence.event_logs import Report
from tidemark.persistence.store import Store

SUBSCRIBERS = 20
EVENTS = 10


@bounded
async def test_what_many_acknowledge_event_by_event_is_committed_together(tmp_path: Path) -> None:
    node = await Node.start(config_at(tmp_path / "data"))
    store: Store = node._store
    commits: list[Effect] = []
    carry_out = store.carry_out

    def counted(effect: Effect, report: Report | None = None) -> object:
        if isinstance(effect, CommitTables):
            commits.append(effect)
        return carry_out(effect, report)

    store.carry_out = counted  # type: ignore[method-assign, assignment]
    url = f"tidemark://{node.address}"
    async with tidemark.connect(url) as tm:
        await tm.create_topic("t", "[n: int]")

        async def consume(name: str) -> list[int]:
            async with tm.subscribe("t", durable=name, ack="auto") as sub:
                ready.release()
                found = []
                for _ in range(EVENTS):
                    event = await sub.next(PATIENCE_SECONDS)
                    assert isinstance(event, tidemark.Event)
                    found.append(event["n"])
                return found

        ready = asyncio.Semaphore(0)
        names = [f"s{number}" for number in range(SUBSCRIBERS)]
        tasks = [asyncio.create_task(consume(name)) for name in names]
        for _ in names:
            await ready.acquire()
        before = len(commits)
        await tm.publish_many("t", [{"n": n} for n in range(EVENTS)])
        assert await asyncio.gather(*tasks) == [list(range(EVENTS))] * SUBSCRIBERS
        assert EVENTS - 1 <= len(commits) - before < SUBSCRIBERS * EVENTS / 2
    await node.stop()
    # What was acknowledged is on disk: nothing comes again.
    node = await Node.start(config_at(tmp_path / "data"))
    async with tidemark.connect(f"tidemark://{node.address}") as tm, tm.subscribe("t", durable="s0") as sub:
        assert await sub.next(0.2) is None
    await node.stop()
