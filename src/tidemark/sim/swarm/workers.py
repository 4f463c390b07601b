"""Workers: one function on many arguments, in several processes, with the results in order.

No process is left behind when the generator is closed or interrupted.
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
    """Yields the results as `map` does, computed by `jobs` processes; in this process if `jobs` is 1."""
    if jobs <= 1:
        yield from map(function, arguments)
        return
    # Ctrl-C reaches every process of the terminal: the workers ignore it, and this process ends them.
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
