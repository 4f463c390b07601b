"""Lives of applications in processes of their own, that die at a chosen point as by kill -9.

Only what an application needs is imported here: each life imports this.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import tidemark.queue
from tests.waiting import PATIENCE_SECONDS
from tidemark.queue import Queue
from tidemark.queue.outbox import MessageOutbox
from tidemark.queue.state import QueueState

#: how a process ends that has died on purpose
DIED = 77
TOTAL = 40

# Lives begin in milliseconds, from a process that has imported everything and has no threads.
_children = get_context("forkserver")
_children.set_forkserver_preload(["pytest", "tidemark.queue"])


def live(life: Callable[..., None], *arguments: Any) -> int:
    """Run a life in a process of its own; returns its exit code."""
    process = begin(life, *arguments)
    process.join(PATIENCE_SECONDS)
    code: int | None = process.exitcode
    if code is None:
        process.kill()
        process.join()
    assert code in (0, DIED), f"{life.__name__}{arguments}: {'hangs' if code is None else code}"
    process.close()
    return code


def begin(life: Callable[..., None], *arguments: Any) -> Any:
    process = _children.Process(target=life, args=arguments)
    process.start()
    return process


def die() -> None:
    """As by kill -9: nothing is flushed, closed or said."""
    os._exit(DIED)


def die_at(step: int) -> None:
    """This process dies at one of its steps: around every statement and every batch that leaves."""
    taken = iter(range(1, step))

    def tick() -> None:
        if next(taken, None) is None:
            die()

    def around(owner: type, name: str) -> None:
        inner = getattr(owner, name)

        def stepped(*arguments: Any) -> Any:
            tick()
            result = inner(*arguments)
            tick()
            return result

        async def sent(*arguments: Any) -> None:
            tick()
            await inner(*arguments)
            tick()

        setattr(owner, name, sent if asyncio.iscoroutinefunction(inner) else stepped)

    around(QueueState, "_execute")
    around(MessageOutbox, "_send_some")


def opened(url: str, state: Path, timeout: float = PATIENCE_SECONDS) -> Queue:
    """The queue of a state file; the path of the file is the name of the queue."""
    return tidemark.queue.connect(url, name=str(state), state=state, timeout=timeout, connect_timeout=timeout)


def put_and_die_before_it_is_kept(url: str, state: Path) -> None:
    queue = opened(url, state)
    queue.put("put", "a")
    QueueState.put = lambda *_: die()  # type: ignore[method-assign, assignment]  # the fault
    queue.put("put", "b")


def put_and_die_before_it_is_sent(url: str, state: Path) -> None:
    queue = opened(url, state)
    queue.put("put", "a")
    MessageOutbox.add = lambda *_: die()  # type: ignore[method-assign]  # the fault
    queue.put("put", "b")


def put_and_die_before_it_is_known_to_have_arrived(url: str, state: Path) -> None:
    queue = opened(url, state)
    queue.put("put", "a")
    queue.put("put", "b")
    die()


def get_and_die(url: str, state: Path, *, is_done: bool) -> None:
    queue = opened(url, state)
    with (state.parent / "seen").open("a") as seen:
        seen.write(f"{queue.get('got', PATIENCE_SECONDS)!s} ")
    if is_done:
        queue.done("got")
    die()


def die_before_done(url: str, state: Path) -> None:
    get_and_die(url, state, is_done=False)


def die_after_done(url: str, state: Path) -> None:
    get_and_die(url, state, is_done=True)


def die_before_the_broker_has_unsubscribed(url: str, state: Path) -> None:
    queue = opened(url, state)
    Queue._end = lambda *_: die()  # type: ignore[method-assign]  # the fault
    queue.unsubscribe("ended")


def die_before_the_state_has_unsubscribed(url: str, state: Path) -> None:
    queue = opened(url, state)
    QueueState.forget = lambda *_: die()  # type: ignore[method-assign]  # the fault
    queue.unsubscribe("ended")


def die_before_the_start_is_kept(url: str, state: Path) -> None:
    queue = opened(url, state)
    QueueState.consume = lambda *_: die()  # type: ignore[method-assign]  # the fault
    queue.subscribe("begun")


def produce(url: str, state: Path, step: int) -> None:
    """Puts 0, 1, 2 ... and after a crash some of them again, by their ids."""
    die_at(step)
    queue = opened(url, state)
    for n in range(max(0, queue.puts - 5), TOTAL):
        queue.put("in", {"n": n}, message_id=str(n))
    queue.close()


def relay(url: str, state: Path, step: int) -> None:
    """Puts what it gets into another topic, and counts."""
    die_at(step)
    queue = opened(url, state)
    while queue.puts < TOTAL:
        with queue.take("in", PATIENCE_SECONDS) as message:
            assert isinstance(message, dict)
            queue.put("out", message)
    queue.flush()  # what has not arrived when the queue is closed would wait for another life
    queue.close()


def consume(url: str, state: Path, step: int) -> None:
    """Writes what it gets into its own table."""
    die_at(step)
    queue = opened(url, state)
    while True:
        with queue.take("out", PATIENCE_SECONDS) as message:
            assert isinstance(message, dict)
            queue.database.execute("CREATE TABLE IF NOT EXISTS got (n INTEGER)")
            queue.database.execute("INSERT INTO got VALUES (?)", (message["n"],))
            last = message["n"] == TOTAL - 1
        if last:
            break
    queue.close()
