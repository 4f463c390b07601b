"""What a real broker keeps of its events, and what it lets go."""

from __future__ import annotations

import asyncio
from pathlib import Path

import tidemark
from tests.live_node import config_at
from tests.waiting import bounded, until
from tidemark.node.node import Node
from tidemark.wire.answers import PubendStatus


def status_of(node: Node, pubend: str = "main") -> PubendStatus:
    return next(each for each in node.runtime.broker.describe_pubends() if each.pubend == pubend)


@bounded
async def test_short_lived_events_are_let_go_although_a_durable_subscriber_is_away(tmp_path: Path) -> None:
    node = await Node.start(config_at(tmp_path / "data"))
    async with tidemark.connect(f"tidemark://{node.address}") as tm:
        await tm.create_topic("alerts", "[n: int]")
        async with tm.subscribe("alerts", durable="away"):
            pass
        ticks = await tm.publish_many("alerts", [{"n": n} for n in range(1_000)], validity=0.05)
        await until(lambda: status_of(node).bytes == 0)
        status = status_of(node)
        assert status.released is not None
        assert ticks[0] is not None
        assert status.released < ticks[0]
        await tm.publish("alerts", {"n": 2_000})
    await node.stop()
    node = await Node.start(config_at(tmp_path / "data"))
    async with (
        tidemark.connect(f"tidemark://{node.address}") as tm,
        tm.subscribe("alerts", durable="away", gaps=True) as sub,
    ):
        got = await asyncio.wait_for(sub.next(), 10)
        assert isinstance(got, tidemark.Event)
        assert got["n"] == 2_000
    await node.stop()
