"""What a real broker keeps of its events, and what it lets go."""

from __future__ import annotations

from pathlib import Path

import tidemark
from tests.live_node import config_at, settings_at
from tests.waiting import PATIENCE_SECONDS, bounded, until
from tidemark.node.config.loading import load
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
        got = await sub.next(PATIENCE_SECONDS)
        assert isinstance(got, tidemark.Event)
        assert got["n"] == 2_000
    await node.stop()


@bounded
async def test_what_was_published_before_a_subscriber_came_can_be_asked_for(tmp_path: Path) -> None:
    node = await Node.start(config_at(tmp_path / "data"))
    async with tidemark.connect(f"tidemark://{node.address}") as tm:
        await tm.create_topic("trades", "[n: int]")
        async with tm.subscribe("trades", durable="first") as sub:
            ticks = await tm.publish_many("trades", [{"n": n} for n in range(10)])
            for _ in ticks:
                await sub.next(PATIENCE_SECONDS)
            await sub.ack()
            await until(lambda: (status_of(node).released or 0) >= (ticks[-1] or 0))
        async with tm.subscribe("trades", durable="second", start="earliest", gaps=True) as sub:
            got = [await sub.next(PATIENCE_SECONDS) for _ in ticks]
            assert [each["n"] for each in got if isinstance(each, tidemark.Event)] == list(range(10))
    await node.stop()


@bounded
async def test_no_more_is_kept_for_newcomers_than_the_bytes_say(tmp_path: Path) -> None:
    node = await Node.start(config_at(tmp_path / "data", retention__min_retain_bytes="16KiB"))
    async with tidemark.connect(f"tidemark://{node.address}") as tm:
        await tm.create_topic("trades", "[text: string]")
        async with tm.subscribe("trades", durable="first") as sub:
            for _ in range(20):
                await tm.publish("trades", {"text": "x" * 2_000})
                await sub.next(PATIENCE_SECONDS)
            await sub.ack()
            await until(lambda: status_of(node).bytes <= 16 << 10)
            assert status_of(node).bytes > 8 << 10
    await node.stop()


@bounded
async def test_events_go_to_pubends_by_priority_and_each_pubend_has_its_own_settings(tmp_path: Path) -> None:
    rules = {
        "broker.pubends": "alarms,ticker",
        "broker.assign": "priority",
        "pubends.alarms.priorities": "7,8,9",
        "pubends.ticker.priorities": "0,1,2,3,4,5,6",
        "pubends.ticker.durability": "os",
        "pubends.ticker.min_retain": "0s",
    }
    node = await Node.start(load(options={**settings_at(tmp_path / "data"), **rules}))
    async with tidemark.connect(f"tidemark://{node.address}") as tm:
        await tm.create_topic("news", "[n: int]")
        async with tm.subscribe("news", durable="all") as sub:
            for n in range(10):
                await tm.publish("news", {"n": n}, priority=n)
            got = [await sub.next(PATIENCE_SECONDS) for _ in range(10)]
            pubends = {each["n"]: each.pubend for each in got if isinstance(each, tidemark.Event)}
            assert pubends == {n: "alarms" if n >= 7 else "ticker" for n in range(10)}
            await sub.ack()
            await until(lambda: status_of(node, "ticker").bytes == 0)
            assert status_of(node, "alarms").bytes > 0
    await node.stop()


@bounded
async def test_events_of_one_key_are_in_one_pubend_and_a_named_publisher_is_in_one(tmp_path: Path) -> None:
    config = config_at(tmp_path / "data", broker__pubends="a,b,c", broker__assign="key")
    node = await Node.start(config)
    url = f"tidemark://{node.address}"
    async with tidemark.connect(url) as tm, tidemark.connect(url, publisher="me") as named:
        await tm.create_topic("news", "[n: int]")
        async with tm.subscribe("news") as sub:
            for n in range(40):
                await tm.publish("news", {"n": n}, key=f"key {n % 8}")
            await tm.publish_many("news", [{"n": n} for n in range(40, 44)], key="key 3")
            got = [await sub.next(PATIENCE_SECONDS) for _ in range(44)]
            events = [each for each in got if isinstance(each, tidemark.Event)]
            of_key = {each.key: each.pubend for each in events}
            assert all(of_key[each.key] == each.pubend for each in events)
            assert len(set(of_key.values())) > 1
            for n in range(8):
                await named.publish("news", {"n": n}, key=f"key {n}", sequence=n + 1)
            got = [await sub.next(PATIENCE_SECONDS) for _ in range(8)]
            assert len({each.pubend for each in got if isinstance(each, tidemark.Event)}) == 1
    await node.stop()
