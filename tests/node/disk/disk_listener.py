"""A listener of disk threads that keeps what it is told, and lets a test wait for it."""

from __future__ import annotations

import asyncio

from tidemark.broker.effects import Stimulus


class KeepingListener:
    """Keeps every completion, failure and measured sync; `news` is set with each of them."""

    def __init__(self) -> None:
        self.done: list[Stimulus] = []
        self.failures: list[BaseException] = []
        self.timed: list[str] = []
        self.news = asyncio.Event()

    def disk_finished(self, stimuli: list[Stimulus]) -> None:
        self.done += stimuli
        self.news.set()

    def disk_failed(self, error: BaseException) -> None:
        self.failures.append(error)
        self.news.set()

    def sync_took(self, which: str, seconds: float) -> None:
        assert seconds >= 0
        self.timed.append(which)
        self.news.set()
