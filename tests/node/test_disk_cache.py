"""The cache on disk of a real broker: who catches up later costs the pubend nothing."""

from __future__ import annotations

from pathlib import Path

import tidemark
from tests.live_node import settings_at
from tests.ports import free_ports
from tests.waiting import PATIENCE_SECONDS, bounded, until
from tidemark.node.config.loading import load
from tidemark.node.node import Node

SUBSCRIBERS = 4
EVENTS = 300


@bounded
async def test_many_that_catch_up_one_after_the_other_ask_the_pubend_once(tmp_path: Path) -> None:
    ports = free_ports(2)
    file = tmp_path / "overlay.toml"
    file.write_text(
        f'[brokers.phb]\nlisten = "127.0.0.1:{ports[0]}"\npubends = ["main"]\n'
        f'[brokers.shb]\nlisten = "127.0.0.1:{ports[1]}"\nparent = "phb"\n'
    )
    settings = settings_at(tmp_path, limits__window="4KiB", cache__bytes="16MiB")
    del settings["broker.listen"], settings["storage.data_dir"]
    phb, shb = [
        await Node.start(
            load(file, broker=name, options={**settings, "storage.data_dir": str(tmp_path / name)})
        )
        for name in ("phb", "shb")
    ]
    await until(lambda: "phb" in shb.runtime.peers)
    async with (
        tidemark.connect(f"tidemark://{phb.address}") as publisher,
        tidemark.connect(f"tidemark://{shb.address}") as tm,
    ):
        await publisher.create_topic("trades", "[n: int, text: string]")
        names = [f"s{number}" for number in range(SUBSCRIBERS)]
        for name in names:
            async with tm.subscribe("trades", durable=name):
                pass
        known = shb.runtime.broker.known_from
        await until(lambda: all(known(name, "main") is not None for name in names))
        for n in range(EVENTS):
            await publisher.publish("trades", {"n": n, "text": "x" * 500})
        asked: list[int] = []
        for name in names:
            async with tm.subscribe("trades", durable=name, gaps=True) as sub:
                got = [await sub.next(PATIENCE_SECONDS) for _ in range(EVENTS)]
                assert [each["n"] for each in got if isinstance(each, tidemark.Event)] == list(range(EVENTS))
            asked.append(phb.runtime.broker.counters["nacks_received"])
        assert asked[1:] == [asked[0]] * (SUBSCRIBERS - 1)
        assert shb.runtime.broker.counters["answers_from_disk"] > 0
    for node in (shb, phb):
        await node.stop()
    assert (tmp_path / "shb" / "cache").is_dir()
