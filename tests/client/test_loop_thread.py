"""The loop behind blocking clients: work is begun there, and nobody waits for it in vain."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.waiting import PATIENCE_SECONDS
from tidemark.client.loop_thread import LoopThread
from tidemark.errors import ClosedError


def closed() -> ClosedError:
    return ClosedError("it is closed")


async def nothing() -> None:
    pass


def test_work_is_begun_on_the_loop_and_gives_what_it_gives() -> None:
    async def sum_of(one: int, *, two: int) -> tuple[int, str]:
        return one + two, threading.current_thread().name

    def future_of(value: int) -> asyncio.Future[int]:
        future = asyncio.get_running_loop().create_future()
        future.set_result(value)
        return future

    loop = LoopThread("beside", closed, last=nothing)
    assert loop.run(sum_of, 1, two=2) == (3, "beside")
    assert loop.run(future_of, 7) == 7
    loop.stop()


def test_what_work_raises_comes_to_who_waits() -> None:
    async def fails() -> None:
        raise ValueError("later")

    def refuses() -> asyncio.Future[None]:
        raise ValueError("at once")

    loop = LoopThread("beside", closed, last=nothing)
    with pytest.raises(ValueError, match="later"):
        loop.run(fails)
    with pytest.raises(ValueError, match="at once"):
        loop.run(refuses)
    loop.stop()


def test_who_waits_when_it_ends_or_comes_later_is_told() -> None:
    loop = LoopThread("beside", closed, last=nothing)
    begun: Future[None] = Future()

    async def never_ends() -> None:
        begun.set_result(None)
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(loop.run, never_ends)
        begun.result(PATIENCE_SECONDS)
        loop.stop()
        with pytest.raises(ClosedError, match="it is closed"):
            waiting.result(PATIENCE_SECONDS)
    with pytest.raises(ClosedError, match="it is closed"):
        loop.run(never_ends)
    loop.stop()


def test_the_last_thing_is_done_before_anything_is_cancelled() -> None:
    done = []

    async def works() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            done.append("cancelled")

    async def last() -> None:
        await asyncio.sleep(0.01)
        done.append("last")

    async def begin() -> asyncio.Task[None]:
        return asyncio.create_task(works())

    loop = LoopThread("beside", closed, last=last)
    loop.run(begin)
    loop.stop()
    assert done == ["last", "cancelled"]


def test_threads_that_ask_while_it_ends_are_all_answered() -> None:
    def ask_on(loop: LoopThread) -> None:
        while True:
            loop.run(nothing)

    for _ in range(20):
        loop = LoopThread("beside", closed, last=nothing)
        with ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(ask_on, loop) for _ in range(4)]
            loop.run(nothing)
            loop.stop()
            for each in asking:
                with pytest.raises(ClosedError):
                    each.result(PATIENCE_SECONDS)
