"""Trace: a run as text, a line for each stimulus that a broker received and for each effect it returned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass

import numpy as np

from tidemark.broker.effects import Effect, Stimulus, Woken
from tidemark.message.batches.batch import EventBatch


class Trace:
    """Writes lines; times are in seconds since the start of the world."""

    def __init__(self, write: Callable[[str], None], start: int) -> None:
        self._write = write
        self._start = start

    def told(self, now: int, machine: str, stimulus: Stimulus) -> None:
        """A broker received a stimulus; wake-ups are left out."""
        if not isinstance(stimulus, Woken):
            self._line(now, machine, "<-", stimulus)

    def did(self, now: int, machine: str, effect: Effect) -> None:
        """A broker returned an effect."""
        self._line(now, machine, "->", effect)

    def note(self, now: int, machine: str, text: str) -> None:
        """Something happened to a machine."""
        self._write(f"{(now - self._start) / 1e6:10.6f} {machine:>4} ** {text}")

    def _line(self, now: int, machine: str, arrow: str, what: object) -> None:
        self._write(f"{(now - self._start) / 1e6:10.6f} {machine:>4} {arrow} {self._text(what)}")

    def _text(self, what: object) -> str:
        """A value as short text; ticks are shown relative to the start of the world."""
        match what:
            case EventBatch():
                return f"<{what.count} events {self._ticks(what.ticks.tolist())}>"
            case np.ndarray():
                return self._ticks(what.tolist())
            case bool() | None:
                return str(what)
            case int():
                return self._tick(what)
            case tuple() | list():
                return "(" + ", ".join(self._text(each) for each in what) + ")"
            case _ if is_dataclass(what) and not isinstance(what, type):
                inside = ", ".join(
                    f"{each.name}={self._text(getattr(what, each.name))}" for each in fields(what)
                )
                return f"{type(what).__name__}({inside})"
            case _:
                return str(what)

    def _tick(self, number: int) -> str:
        offset = number - self._start
        return f"+{offset}" if 0 <= offset < 1_000_000_000 else str(number)

    def _ticks(self, numbers: list[int]) -> str:
        shown = [self._tick(number) for number in numbers[:6]]
        return "[" + " ".join([*shown, "..."] if len(numbers) > 6 else shown) + "]"
