"""A node as its clients see it: publish, subscribe, deliver; stop and go on; two nodes linked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.live_node import config_at
from tests.node.speech import Stage, play
from tidemark.errors import ConfigError
from tidemark.node.config.loading import load
from tidemark.node.config.settings import Config
from tidemark.wire.frames import Ack, Acked, Answer, Ask, Ping, Pong, Refused


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_what_is_published_is_delivered_to_a_durable_subscriber(tmp_path: Path, durability: str) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data", storage__durability=durability))
        publisher = await stage.client(node)
        await publisher.declare()
        subscriber = await stage.client(node)
        await subscriber.subscribe(selector="n > 2")
        await subscriber.started()
        await publisher.publish(1, 5)
        numbers, _ = await subscriber.numbers(3)
        assert numbers == [3, 4, 5]

    play(story)


def test_an_address_that_is_in_use_is_told_with_its_setting(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        first = await stage.node(config_at(tmp_path / "one"))
        for setting, address in (("broker.listen", first.address), ("http.listen", first.http_address)):
            with pytest.raises(ConfigError, match=f"{setting}: {address} is in use: stop"):
                await stage.node(config_at(tmp_path / setting, **{setting: str(address)}))

    play(story)


def test_a_subscriber_goes_on_from_its_token_after_a_restart(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        publisher = await stage.client(node)
        await publisher.declare()
        subscriber = await stage.client(node)
        await subscriber.subscribe()
        await subscriber.started()
        await publisher.publish(1, 3)
        numbers, token = await subscriber.numbers(3)
        assert numbers == [1, 2, 3]
        await subscriber.close()
        await publisher.publish(4, 2)
        await stage.stop(node)

        node = await stage.node(config_at(tmp_path / "data"))
        assert node.server.incarnation == 2
        publisher = await stage.client(node)
        await publisher.publish(6)
        subscriber = await stage.client(node)
        await subscriber.subscribe(token=token)
        numbers, _ = await subscriber.numbers(3)
        assert numbers == [4, 5, 6]

    play(story)


def test_an_acknowledgement_with_a_ticket_is_answered_and_survives(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        client = await stage.client(node)
        await client.declare()
        await client.subscribe()
        await client.started()
        await client.publish(1, 2)
        _, token = await client.numbers(2)
        await client.say(Ack((("s", token),), ticket=7))
        assert await client.hear(Acked) == Acked(7)
        await stage.stop(node)

        node = await stage.node(config_at(tmp_path / "data"))
        client = await stage.client(node)
        assert (await client.subscribe()).token["main"] >= token["main"]

    play(story)


def test_two_nodes_carry_an_event_from_one_to_the_other(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        file = tmp_path / "topology.toml"
        file.write_text(
            '[brokers.root]\nlisten = "127.0.0.1:0"\npubends = ["main"]\n'
            '[brokers.leaf]\nlisten = "127.0.0.1:0"\nparent = "root"\n'
        )
        root = await stage.node(config_of(file, "root"))
        text = file.read_text().replace(
            '[brokers.root]\nlisten = "127.0.0.1:0"', f'[brokers.root]\nlisten = "{root.address}"'
        )
        file.write_text(text)
        leaf = await stage.node(config_of(file, "leaf"))
        subscriber = await stage.client(leaf)
        publisher = await stage.client(root)
        await publisher.declare()
        await subscriber.subscribe()
        await subscriber.started()
        await publisher.publish(1, 3)
        assert (await subscriber.numbers(3))[0] == [1, 2, 3]
        # The root comes back at the same port; the leaf calls again and nothing is lost.
        await stage.stop(root)
        root = await stage.node(config_of(file, "root"))
        publisher = await stage.client(root)
        await publisher.publish(4, 2)
        assert (await subscriber.numbers(2))[0] == [4, 5]

    play(story)


def config_of(file: Path, broker: str) -> Config:
    options = {"thresholds.silence": "50ms", "thresholds.heartbeat": "10ms"}
    return load(file, broker=broker, options=options)


def test_an_administrator_asks_the_process_and_the_broker_alike(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        client = await stage.client(node, "admin")
        await client.declare()
        for what in ("status", "connections", "metrics", "config", "routes", "topics", "subscriptions"):
            await client.say(Ask(1, what))
            answer = json.loads((await client.hear(Answer)).payload)
            assert answer or what == "subscriptions"
        await client.say(Ask(2, "the meaning of life"))
        assert (await client.hear(Refused)).code == "unknown"
        await client.say(Ping(5))
        assert await client.hear(Pong) == Pong(5)

    play(story)
