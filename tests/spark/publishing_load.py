"""Events that are published while the pipeline is hurt: a few at a time, without a pause."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tidemark import sync

#: The schema of the topic `t`, to which they are published.
SCHEMA = "[n: int, text: string]"
PAUSE_SECONDS = 0.02
BATCH_EVENTS = 20


@contextmanager
def publishing(url: str) -> Iterator[list[tuple[int, dict[str, Any]]]]:
    """Create the topic `t` and publish to it for the length of the block; yields tick and values of each."""
    published: list[tuple[int, dict[str, Any]]] = []
    stop = threading.Event()

    def publish() -> None:
        with sync.connect(url) as tm:
            while not stop.wait(PAUSE_SECONDS):
                first = len(published)
                values = [{"n": n, "text": f"event {n}"} for n in range(first, first + BATCH_EVENTS)]
                ticks = [tick for tick in tm.publish_many("t", values) if tick is not None]
                published.extend(zip(ticks, values, strict=True))

    with sync.connect(url) as tm:
        tm.create_topic("t", SCHEMA)
    load = threading.Thread(target=publish)
    load.start()
    try:
        yield published
    finally:
        stop.set()
        load.join()
