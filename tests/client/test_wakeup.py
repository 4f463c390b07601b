"""Wakeup: one task waits until it is woken, and only then."""

from __future__ import annotations

import asyncio

import pytest

from tests.waiting import bounded
from tidemark.client.wakeup import Wakeup


@bounded
async def test_a_task_that_waits_goes_on_when_it_is_woken_and_can_wait_again() -> None:
    wakeup = Wakeup()
    for _ in range(2):
        waiting = asyncio.create_task(wakeup.wait())
        await asyncio.sleep(0)
        assert wakeup.is_awaited
        assert not waiting.done()
        wakeup.wake()
        wakeup.wake()
        await waiting
        assert not wakeup.is_awaited


@bounded
async def test_a_call_that_finds_nobody_does_nothing() -> None:
    wakeup = Wakeup()
    wakeup.wake()
    waiting = asyncio.create_task(wakeup.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    wakeup.wake()
    await waiting


@bounded
async def test_a_task_that_is_cancelled_waits_no_more() -> None:
    wakeup = Wakeup()
    waiting = asyncio.create_task(wakeup.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not wakeup.is_awaited
    wakeup.wake()
