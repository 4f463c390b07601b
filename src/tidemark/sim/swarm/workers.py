"""Workers: one function on many arguments, in several processes, with the results in order.

Whoever stops asking, or is interrupted, leaves no process behind.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children, get_context
from typing import TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def in_order(
    function: Callable[[Argument], Result], arguments: Iterable[Argument], jobs: int
) -> Generator[Result, None, None]:
    """As `map`, `jobs` at a time."""
    if jobs <= 1:
        yield from map(function, arguments)
        return
    # Ctrl-C reaches every process of the terminal: this one decides, and ends the others.
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        yield from pool.map(function, arguments)
    except BaseException:
        for child in active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
