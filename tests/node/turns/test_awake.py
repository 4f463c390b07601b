"""A loop that is kept awake makes turns until enough time has passed, and sleeps while a thread works."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live_node import config_at
from tests.node.speech import Stage, play
from tests.waiting import until
from tidemark.node.turns import awake
from tidemark.node.turns.awake import AWAKE_SECONDS, Awake


class Loop:
    """A loop that is turned by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.is_waiting = False
        self._soon: list[Callable[[], object]] = []
        self.awake = Awake(self, lambda: self.is_waiting, lambda: self.now)  # type: ignore[arg-type]

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._soon.append(callback)

    def turn(self) -> bool:
        """Make a turn; returns whether the loop would have slept before it."""
        soon, self._soon = self._soon, []
        for callback in soon:
            callback()
        return not soon


def test_the_loop_stays_awake_for_a_while_after_the_last_thing_that_happened() -> None:
    loop = Loop()
    assert loop.turn(), "nothing has happened yet"
    loop.awake.stay()
    loop.awake.stay()
    assert [loop.turn() for _ in range(3)] == [False] * 3
    loop.now = AWAKE_SECONDS * 0.9
    loop.awake.stay()
    loop.now = AWAKE_SECONDS * 1.8
    assert [loop.turn() for _ in range(3)] == [False] * 3
    loop.now = AWAKE_SECONDS * 2
    assert [loop.turn() for _ in range(3)] == [False, True, True]
    loop.awake.stay()
    assert not loop.turn()


def test_while_a_thread_is_at_work_the_loop_sleeps() -> None:
    loop = Loop()
    loop.awake.stay()
    loop.is_waiting = True
    assert [loop.turn() for _ in range(2)] == [False, True]
    loop.awake.stay()
    assert loop.turn()
    loop.is_waiting = False
    loop.awake.stay()
    assert not loop.turn()


def test_a_broker_with_low_latency_serves_and_then_sleeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays awake for as long as it should, here an hour after an event and then not at all."""

    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data", broker__latency="low"))
        client = await stage.client(node)
        await client.declare()
        await client.subscribe()
        await client.started()
        monkeypatch.setattr(awake, "AWAKE_SECONDS", 3600.0)
        for number in range(1, 20):
            assert (await client.publish(number, 1)).sequence == number
        await until(lambda: node.runtime.is_staying_awake)
        monkeypatch.setattr(awake, "AWAKE_SECONDS", 0.0)
        assert (await client.publish(20, 1)).sequence == 20
        await until(lambda: not node.runtime.is_staying_awake)

    play(story)
