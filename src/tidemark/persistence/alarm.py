"""Alarm: how the parts of the store say that an administrator should look at something."""

from __future__ import annotations

from typing import Protocol


class RaiseAlarm(Protocol):
    """Keeps an alarm for health, metrics and the log: a method of `Store`. May be called from any thread."""

    def __call__(self, text: str, /) -> None:
        """`text` is one sentence that says what is wrong."""
