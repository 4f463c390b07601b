"""A change of a topology that is not in force: an error with both versions, and a code on the wire."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.live_node import LiveNode, config_at, live_node
from tests.node.speech import Stage, play
from tidemark import admin
from tidemark.admin.joining import join_overlay
from tidemark.errors import ConfigError, RefusedError, StaleTopologyError
from tidemark.node.config.loading import load
from tidemark.node.topology.file import parse_topology
from tidemark.node.topology.membership import Membership
from tidemark.node.topology.text import to_text
from tidemark.node.topology.topology import Topology
from tidemark.wire.answers import OVERLAY, PROPOSE
from tidemark.wire.frames import Ask, Refused

TEXT = '[brokers.a]\nlisten = "127.0.0.1:1"\n'


def test_a_change_of_another_version_is_refused_with_both_versions() -> None:
    async def save(_: Topology) -> Mapping[str, Any]:
        return {}

    async def propose() -> None:
        membership = Membership(parse_topology(TEXT, 3), save, lambda _topology, _states: None)
        await membership.propose(TEXT.replace(":1", ":2"), 1)

    with pytest.raises(StaleTopologyError, match="has version 3 by now, not 1: look") as caught:
        asyncio.run(propose())
    assert (caught.value.expected, caught.value.actual) == (1, 3)
    assert isinstance(caught.value, ConfigError)
    assert caught.value.key == "version"


def test_a_node_refuses_a_stale_change_with_a_code_and_a_wrong_one_with_another(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        client = await stage.client(node)
        text = to_text(node.topology)
        for given, code in (
            ({"text": text, "base": 7}, "version"),
            ({"text": "[brokers", "base": 0}, "frame"),
            ({"text": text}, "frame"),
        ):
            await client.say(Ask(1, "propose", json.dumps(given)))
            assert (await client.hear(Refused)).code == code

    play(story)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LiveNode]:
    with live_node(tmp_path) as found:
        yield found


def test_the_code_reaches_a_program(node: LiveNode) -> None:
    with admin.connect(node.url) as client:
        found = client.ask(OVERLAY)
        assert client.ask(PROPOSE, text=found.text, base=found.version).version == found.version + 1
        with pytest.raises(RefusedError) as caught:
            client.ask(PROPOSE, text=found.text.replace("main", "other"), base=found.version)
    assert caught.value.code == "version"


def test_a_broker_that_joins_plans_again_when_another_was_faster(
    node: LiveNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidemark.node.topology import plan

    joined = plan.joined
    late: list[bool] = []

    def joined_late(topology: Topology, *rest: Any) -> Topology:
        if not late:
            # Another change comes between the question for the topology and the proposal.
            late.append(True)
            admin.ask(node.url, PROPOSE, text=to_text(topology), base=topology.version)
        return joined(topology, *rest)

    monkeypatch.setattr(plan, "joined", joined_late)
    settings = admin.settings_to_join("new", "127.0.0.1:7999", str(tmp_path / "new"), {})
    config = join_overlay(node.url, load(options=settings), "new", "127.0.0.1:7999", ())
    assert config.topology.version == 2
    assert "new" in config.topology.brokers
