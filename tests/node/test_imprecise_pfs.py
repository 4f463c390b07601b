"""An imprecise PFS at a real broker: who returns gets what matched, also after the setting was changed."""

from __future__ import annotations

from pathlib import Path

import tidemark
from tests.live_node import config_at
from tests.waiting import PATIENCE_SECONDS, bounded
from tidemark.node.node import Node

SUBSCRIBERS = 5
EVENTS = 50


@bounded
async def test_who_returns_gets_exactly_what_matched(tmp_path: Path) -> None:
    published = 0
    for bits in ("3", "0", "2"):
        config = config_at(tmp_path / "data", storage__pfs_group_bits=bits, limits__window="4KiB")
        node = await Node.start(config)
        async with tidemark.connect(f"tidemark://{node.address}") as tm:
            if not published:
                await tm.create_topic("t", "[n: int, kind: int]")
                for number in range(SUBSCRIBERS):
                    async with tm.subscribe("t", where=f"kind = {number}", durable=f"s{number}"):
                        pass
            for _ in range(EVENTS):
                await tm.publish("t", {"n": published, "kind": published % SUBSCRIBERS})
                published += 1
        await node.stop()
    node = await Node.start(config_at(tmp_path / "data", limits__window="4KiB"))
    async with tidemark.connect(f"tidemark://{node.address}") as tm:
        for number in range(SUBSCRIBERS):
            wanted = list(range(number, published, SUBSCRIBERS))
            where = f"kind = {number}"
            async with tm.subscribe("t", where=where, durable=f"s{number}", gaps=True) as sub:
                got = [await sub.next(PATIENCE_SECONDS) for _ in wanted]
                assert [each["n"] for each in got if isinstance(each, tidemark.Event)] == wanted
    await node.stop()
