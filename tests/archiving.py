"""A real archive for tests that only look at one: the light engine, on a thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from tidemark.spark.pipeline import run_archive


@contextmanager
def archiving(urls: Sequence[str], path: Path) -> Iterator[None]:
    """Write an archive of these brokers for the time of the block."""
    stop = Event()
    told: list[object] = []
    thread = Thread(
        target=lambda: run_archive(
            urls, path, tell=told.append, sleep=lambda seconds: not stop.wait(seconds), interval=0.05
        )
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
