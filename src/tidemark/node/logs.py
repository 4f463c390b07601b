"""Logs: one line for each occurrence, as text for people or as JSON for programs.

A line is a fixed text and named values. Lines with the same text that come too often are counted instead of
written, so that a stranger who keeps connecting cannot fill a disk.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any, TextIO

from tidemark.message.visible import visible, visible_json

ROOT = "tidemark"
#: How many lines of the same text are written in a period; the next one after it has the number left out.
REPEATS_MAX = 20
PERIOD_SECONDS = 10.0
TEXTS_MAX = 1_000


class Log:
    """The log of one part of the process."""

    def __init__(self, part: str) -> None:
        self._logger = logging.getLogger(f"{ROOT}.{part}")
        #: text -> when its period began, and how many lines with it came since
        self._said: dict[str, tuple[float, int]] = {}

    def debug(self, text: str, **values: Any) -> None:
        """Log a detail for somebody who looks for a mistake."""
        if self._logger.isEnabledFor(logging.DEBUG):
            self._logger.debug(text, extra={"values": values})

    def info(self, text: str, **values: Any) -> None:
        """Log an occurrence that needs no attention."""
        self._say(logging.INFO, text, values)

    def warning(self, text: str, **values: Any) -> None:
        """Log an occurrence that an administrator should know of."""
        self._say(logging.WARNING, text, values)

    def error(self, text: str, *, cause: BaseException | None = None, **values: Any) -> None:
        """Log an occurrence that an administrator should act on. Errors are written however many they are."""
        self._logger.error(text, extra={"values": values}, exc_info=cause)

    def _say(self, level: int, text: str, values: dict[str, Any]) -> None:
        if not self._logger.isEnabledFor(level):
            return
        now = time.monotonic()
        began, count = self._said.get(text, (now, 0))
        if now - began > PERIOD_SECONDS:
            if count > REPEATS_MAX:
                values["left_out"] = count - REPEATS_MAX
            began, count = now, 0
        if len(self._said) >= TEXTS_MAX:
            self._said.clear()
        self._said[text] = began, count + 1
        if count < REPEATS_MAX:
            self._logger.log(level, text, extra={"values": values})


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Returns one line for a person."""
        at = self.formatTime(record, "%H:%M:%S") + f".{int(record.msecs):03}"
        part = record.name.removeprefix(ROOT + ".")
        # Values, and the texts of errors, may come from strangers: they stay on their line and do nothing.
        found: dict[str, Any] = getattr(record, "values", {})
        values = "".join(f" {name}={visible(str(value))}" for name, value in found.items())
        line = f"{at} {record.levelname.lower():<7} {part}: {visible(record.getMessage())}{values}"
        trace = self.formatException(record.exc_info).split("\n") if record.exc_info else []
        return "\n".join([line, *map(visible, trace)])


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Returns one JSON object for a program."""
        line = {
            "time": round(record.created, 6),
            "level": record.levelname.lower(),
            "part": record.name.removeprefix(ROOT + "."),
            "text": record.getMessage(),
            **getattr(record, "values", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return visible_json(line, default=str)


def configure(level: str, style: str, stream: TextIO | None = None) -> None:
    """Write lines of at least `level` to `stream`, by default standard error.

    `style` is text, json, or auto: text on a terminal and JSON elsewhere.
    """
    stream = sys.stderr if stream is None else stream
    is_text = style == "text" or (style == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Text() if is_text else _Json())
    root = logging.getLogger(ROOT)
    root.handlers = [handler]
    root.setLevel(level.upper())
    root.propagate = False
