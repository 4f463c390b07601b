"""LinkCaller: how long a broker waits before it calls a neighbour again."""

from __future__ import annotations

import asyncio
from errno import EHOSTUNREACH
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from tidemark.node.config.settings import LinksSection
from tidemark.node.config.units import Duration, HostPort
from tidemark.node.connection import Connection
from tidemark.node.links import REFUSED_SECONDS_MAX, LinkCaller
from tidemark.node.local_link import LocalBrokers
from tidemark.node.server import Server

CALLS = 9


class NoRandom(Random):
    """Returns the larger bound."""

    def uniform(self, a: float, b: float) -> float:
        return max(a, b)


def waits(error: OSError, settings: LinksSection, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Returns the first waits of a broker all of whose calls end with this error."""
    waited: list[float] = []
    sleep, enough = asyncio.sleep, asyncio.Event()

    async def call(*_: object) -> Connection:
        raise error

    async def noted(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == CALLS:
            enough.set()
        await sleep(0)

    async def run() -> None:
        calm = SimpleNamespace(seconds_left=lambda _: 0.0)
        server = cast(Server, SimpleNamespace(name="a", call=call, refused_neighbours=calm))
        caller = LinkCaller(server, settings, LocalBrokers(), NoRandom())
        caller.change({"b": HostPort("127.0.0.1", 1)})
        await enough.wait()
        await caller.stop()

    monkeypatch.setattr(asyncio, "sleep", noted)
    asyncio.run(run())
    return waited[:CALLS]


def test_the_wait_doubles_up_to_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    found = waits(OSError(EHOSTUNREACH, "no way"), LinksSection(), monkeypatch)
    assert found == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]


def test_a_neighbour_that_is_being_started_again_is_called_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    found = waits(ConnectionRefusedError(), LinksSection(), monkeypatch)
    assert found == [0.05, 0.1, 0.2, 0.4, *[REFUSED_SECONDS_MAX] * 5]


def test_no_wait_is_shorter_than_the_setting_of_the_shortest(monkeypatch: pytest.MonkeyPatch) -> None:
    found = waits(ConnectionRefusedError(), LinksSection(wait=Duration(1_000_000)), monkeypatch)
    assert found == [1.0] * CALLS
