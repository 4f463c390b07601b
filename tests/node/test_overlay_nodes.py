"""An overlay of nodes in one loop: ways around a lost broker, brokers of one process, changes at run time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.node.speech import Speaker, Stage, events, play
from tests.ports import free_ports
from tests.waiting import PATIENCE_SECONDS, until
from tidemark.admin import PUBENDS, STREAMS, SUBSCRIPTIONS, what_keeps_broker
from tidemark.errors import ConfigError
from tidemark.node.config.loading import load
from tidemark.node.config.settings import Config
from tidemark.node.local_link import LocalBrokers
from tidemark.node.node import Node
from tidemark.node.topology.text import to_text
from tidemark.wire.frames import Ack, Answer, Ask, Deliver, Publish, Published, Refused, Subscribe

CELLS = {"east": ("e1", "e2"), "middle": ("m1", "m2"), "west": ("w1", "w2")}


class Overlay:
    """Three cells of two brokers each, in a line; the pubend is at e1."""

    def __init__(self, stage: Stage, path: Path) -> None:
        self.stage = stage
        self.file = path / "overlay.toml"
        brokers = [(broker, cell) for cell, brokers in CELLS.items() for broker in brokers]
        self.ports = dict(zip([*dict(brokers), "new"], free_ports(len(brokers) + 1), strict=True))
        self.file.write_text(
            "".join(self.table(broker, cell) for broker, cell in brokers)
            + '[bundles.em]\ncells = ["east", "middle"]\n[bundles.mw]\ncells = ["west", "middle"]\n'
        )
        self.nodes: dict[str, Node] = {}
        self.local_brokers = LocalBrokers()

    def table(self, broker: str, cell: str, *more: str) -> str:
        pubends = 'pubends = ["main"]\n' if broker == "e1" else ""
        listen = f'listen = "127.0.0.1:{self.ports[broker]}"\n'
        return f'[brokers.{broker}]\ncell = "{cell}"\n{listen}{pubends}' + "".join(more)

    def config(self, name: str) -> Config:
        options = {"thresholds.silence": "50ms", "thresholds.heartbeat": "10ms", "links.wait_max": "100ms"}
        return load(self.file, broker=name, options=options)

    async def start(self, *names: str, together: bool = False) -> None:
        for name in names:
            local_brokers = self.local_brokers if together else None
            self.nodes[name] = await self.stage.node(self.config(name), local_brokers)

    async def stop(self, name: str) -> None:
        await self.stage.stop(self.nodes.pop(name))

    async def linked(self) -> None:
        """Wait until every link between running brokers is up."""
        await until(
            lambda: all(
                set(node.runtime.peers) >= set(node.server.neighbours) & set(self.nodes)
                for node in self.nodes.values()
            )
        )

    async def client(self, name: str) -> Speaker:
        return await self.stage.client(self.nodes[name])

    async def ask(self, name: str, what: str, **arguments: Any) -> Any:
        client = await self.client(name)
        await client.say(Ask(1, what, json.dumps(arguments)))
        return json.loads((await client.hear(Answer)).payload)

    def changed(self, change: Callable[[str], str], at: str = "e1") -> str:
        return change(to_text(self.nodes[at].topology))


def test_events_find_another_way_when_a_broker_of_a_cell_is_gone(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        overlay = Overlay(stage, tmp_path)
        await overlay.start("e1", "e2", "m1", "m2", "w1", "w2")
        await overlay.linked()
        publisher, subscriber = await overlay.client("e1"), await overlay.client("w2")
        await publisher.declare()
        await subscriber.subscribe()
        await subscriber.started()
        await publisher.publish(1, 10)
        assert (await subscriber.numbers(10))[0] == list(range(1, 11))
        upstream = {route["upstream"] for route in await overlay.ask("w2", "routes")}
        (relay,) = {"m1", "m2"} & (upstream | {r["upstream"] for r in await overlay.ask("w1", "routes")})
        await stage.crash(overlay.nodes.pop(relay))
        await publisher.publish(11, 10)
        assert (await subscriber.numbers(10))[0] == list(range(11, 21))

    play(story)


def test_brokers_of_one_process_are_linked_without_a_socket(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        overlay = Overlay(stage, tmp_path)
        await overlay.start("e1", "m1", together=True)
        await overlay.start("w1")
        await overlay.linked()
        links = {link["peer"]: link for link in await overlay.ask("m1", "links")}
        assert links["e1"]["is_local"]
        assert not links["w1"]["is_local"]
        publisher, subscriber = await overlay.client("e1"), await overlay.client("w1")
        await publisher.declare()
        await subscriber.subscribe()
        await subscriber.started()
        await publisher.publish(1, 100)
        assert (await subscriber.numbers(100))[0] == list(range(1, 101))
        assert {link["peer"]: link["events"] for link in await overlay.ask("e1", "links")}["m1"] == 100
        # One of them is restarted in the same process: the other goes on.
        await overlay.stop("m1")
        assert "m1" not in overlay.nodes["e1"].runtime.peers
        await publisher.publish(101, 10)
        await overlay.start("m1", together=True)
        assert (await subscriber.numbers(10))[0] == list(range(101, 111))

    play(story)


def test_a_change_reaches_everybody_and_those_who_were_away_when_they_are_back(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        overlay = Overlay(stage, tmp_path)
        await overlay.start("e1", "e2", "m1", "w1")
        await overlay.linked()
        text = overlay.changed(lambda text: text + overlay.table("new", "west"))
        told = await overlay.ask("w1", "propose", text=text, base=0)
        assert told["version"] == 1
        await until(lambda: all(node.topology.version == 1 for node in overlay.nodes.values()))
        # It was not there, and its file says something else.
        await overlay.start("m2")
        await until(lambda: overlay.nodes["m2"].topology.version == 1)
        assert "new" in overlay.nodes["m2"].server.neighbours
        # It comes back with what it was told.
        await overlay.stop("m2")
        await overlay.start("m2")
        assert overlay.nodes["m2"].topology.version == 1

    play(story)


def test_a_change_of_an_older_version_is_refused_and_the_same_again_is_not(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        overlay = Overlay(stage, tmp_path)
        await overlay.start("e1")
        text = overlay.changed(lambda text: text + overlay.table("new", "west"))
        client = await overlay.client("e1")
        for _ in range(2):
            await client.say(Ask(1, "propose", json.dumps({"text": text, "base": 0})))
            assert json.loads((await client.hear(Answer)).payload)["version"] == 1
        for given, complaint in (
            ({"text": text.replace("west", "north"), "base": 0}, "plan again"),
            ({"text": text.replace('pubends = ["main"]', ""), "base": 1}, "goes with its broker only"),
            ({"text": "[brokers", "base": 1}, "is not TOML"),
            ({"text": text}, "'base'"),
        ):
            await client.say(Ask(2, "propose", json.dumps(given)))
            assert complaint in (await client.hear(Refused)).reason

    play(story)


def test_a_broker_that_is_removed_ends_and_does_not_come_back_by_mistake(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        overlay = Overlay(stage, tmp_path)
        await overlay.start("e1", "e2", "m1", "m2")
        await overlay.linked()

        def drop(text: str) -> str:
            head, _, rest = text.partition("[brokers.m2]")
            return head + rest[rest.index("[") :]

        await overlay.ask("e1", "propose", text=overlay.changed(drop), base=0)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await overlay.nodes["m2"].removed.wait()
        await until(lambda: all("m2" not in overlay.nodes[each].runtime.peers for each in ("e1", "e2", "m1")))
        await overlay.stop("m2")
        with pytest.raises(ConfigError, match="goes on without 'm2' since version 1"):
            await overlay.start("m2")

    play(story)


def test_a_broker_that_is_drained_takes_nothing_new_and_says_where_to_go(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        overlay = Overlay(stage, tmp_path)
        await overlay.start("e1", "e2")
        await overlay.linked()
        publisher, subscriber = await overlay.client("e1"), await overlay.client("e1")
        await publisher.declare()
        await subscriber.subscribe()
        await subscriber.started()
        await publisher.publish(1, 3)
        text = overlay.changed(
            lambda text: text.replace('pubends = ["main"]', 'pubends = ["main"]\ndraining = true')
        )
        await overlay.ask("e2", "propose", text=text, base=0)
        others = tuple(f"127.0.0.1:{overlay.ports[name]}" for name in ("e2", "m1", "m2", "w1", "w2"))
        refused = await subscriber.hear(Refused)
        assert (refused.code, refused.addresses) == ("draining", others)
        assert f"tidemark://{others[0]}," in refused.reason
        assert await subscriber.is_closed()
        # What was logged is acknowledged again; what is new is not logged.
        await publisher.say(Publish("main", "p", 2, events(2, 2)), Publish("main", "p", 4, events(4, 1)))
        assert (await publisher.hear(Published)).sequence == 3
        refused = await publisher.hear(Refused)
        assert (refused.what, refused.code, refused.addresses) == ("publish", "draining", others)
        # A client of version 1 would give the connection up over addresses, and gets none.
        for newest, told in ((1, ()), (2, others)):
            client = await stage.client(overlay.nodes["e1"], newest=newest)
            await client.say(Subscribe("s", "t.>", "", True, 1 << 20))
            refused = await client.hear(Refused)
            assert (refused.what, refused.code, refused.addresses) == ("subscribe", "draining", told)
        assert (await overlay.ask("e1", "status"))["draining"] is True

    play(story)


def test_a_pubend_that_is_added_reaches_those_who_are_there_and_one_that_is_drained_lets_go(
    tmp_path: Path,
) -> None:
    async def story(stage: Stage) -> None:
        overlay = Overlay(stage, tmp_path)
        await overlay.start("e1", "e2", "m1", "w1")
        await overlay.linked()
        publisher, subscriber = await overlay.client("e2"), await overlay.client("w1")
        await publisher.declare()
        await subscriber.subscribe()
        await subscriber.started()
        with_spare = overlay.changed(
            lambda text: text.replace(
                f'listen = "127.0.0.1:{overlay.ports["e2"]}"',
                f'listen = "127.0.0.1:{overlay.ports["e2"]}"\npubends = ["spare"]',
            )
        )
        await overlay.ask("m1", "propose", text=with_spare, base=0)
        await until(lambda: all(node.topology.version == 1 for node in overlay.nodes.values()))
        # The subscription starts at the new pubend, too, and is told where.
        while (await subscriber.hear(Deliver)).pubend != "spare":
            pass
        await publisher.publish(1, 5, pubend="spare")
        numbers, token = await subscriber.numbers(5)
        assert numbers == [1, 2, 3, 4, 5]

        drained = with_spare.replace('pubends = ["spare"]', 'pubends = ["spare"]\ndraining = true')
        await overlay.ask("m1", "propose", text=drained, base=1)

        async def kept_by() -> list[str]:
            return what_keeps_broker(
                PUBENDS.read(await overlay.ask("e2", "pubends")),
                SUBSCRIPTIONS.read(await overlay.ask("e2", "subscriptions")),
                STREAMS.read(await overlay.ask("e2", "streams")),
            )

        assert "not everybody has the events of spare" in await kept_by()
        await subscriber.say(Ack((("s", token),)))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await kept_by():
                await asyncio.sleep(0.02)
        head, _, rest = drained.partition("[brokers.e2]")
        await overlay.ask("m1", "propose", text=head + rest[rest.index("[brokers") :], base=2)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await overlay.nodes["e2"].removed.wait()
        await overlay.stop("e2")
        publisher = await overlay.client("e1")
        await publisher.publish(1, 3)
        assert (await subscriber.numbers(3))[0] == [1, 2, 3]

    play(story)
