"""Quotas at a running broker: what is refused, and publishers that wait and lose nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.node.security.secured import PASSWORDS, RULES, client_of, document, secured
from tests.node.speech import Stage, play
from tidemark.client.client import connect
from tidemark.errors import RefusedError, TidemarkError


def _with(role: str, quota: str) -> str:
    return document().replace(RULES, RULES.replace(f"[roles.{role}]", f"[roles.{role}]\n{quota}"))


def test_a_publisher_over_its_quota_waits_and_loses_nothing(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path, text=_with("writer", "quota.publish_events = 200"))
        async with client_of(node, "paula") as writer, client_of(node, "alice") as reader:
            await writer.create_topic("t.x", "[n: int]")
            async with reader.subscribe("t.>") as subscription:
                for n in range(3):
                    await asyncio.gather(*(writer.publish("t.x", {"n": n}) for _ in range(200)))
                seen = [(await anext(subscription))["n"] for _ in range(600)]
        assert seen == [0] * 200 + [1] * 200 + [2] * 200
        assert node.runtime.broker.counters["quota_waits"] >= 1

    play(story)


def test_a_connection_too_many_is_told_which_quota_it_is_over(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path, text=_with("reader", "quota.connections = 1"))
        async with client_of(node, "alice") as first:
            with pytest.raises(TidemarkError, match=r"quota\.connections"):
                await connect(
                    f"tidemark://{node.address}",
                    user="alice",
                    password=PASSWORDS["alice"],
                    connect_timeout=5.0,
                )
            assert await first.ask("topics") == []
            async with client_of(node, "bob"):
                pass

    play(story)


def test_a_subscription_too_many_is_told_which_quota_it_is_over(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path, text=_with("reader", "quota.subscriptions = 1"))
        async with client_of(node, "alice") as reader, reader.subscribe("t.>"):
            with pytest.raises(RefusedError, match=r"quota\.subscriptions"):
                await reader.subscribe("t.>")

    play(story)
