"""Our errors that come back through Spark, in one line.

What fails in a task or in the data source's own process reaches a program as Spark's exception, which quotes
the Python traceback and, below it, Spark's own Java stack. After `install`, a script that ends with such an
exception prints the line that says what to do, and where in the script it happened. Every other exception
ends the script as it always did.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from traceback import FrameSummary, extract_tb
from types import TracebackType
from typing import Any

from tidemark.errors import TidemarkError
from tidemark.message.visible import visible_lines

Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]

#: The last line of a Python traceback, if the error is ours, and the further lines of its message.
_OURS = re.compile(r"^(?:\w+: )*tidemark\.errors\.\w+: (.+(?:\n {2}.+)*)", re.MULTILINE)
#: What Spark says of a format that takes no updates, before the format is asked; and what to do then.
_NO_UPDATES = re.compile(r"\btidemark does not support Update mode")
UPDATES_RECIPE = (
    "write with foreachBatch, where the options job and batch publish each batch once: docs/spark.md, Updates"
)
#: Loggers that repeat, with a Java stack, an error that the caller gets as an exception too.
_REPEATING_LOGGERS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.datasources.v2.AppendDataExec",
    "org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec",
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
)
#: Frames inside these packages are not where a program went wrong.
_PACKAGES = ("pyspark", "py4j", "tidemark")


def own_error_text(error: BaseException) -> str | None:
    """The text of our own error that caused `error`, or what to do where Spark refuses a write to us.

    None if it is another error.
    """
    if isinstance(error, TidemarkError):
        return str(error)
    text = str(error)
    if _NO_UPDATES.search(text):
        return f"outputMode: update publishes no rows by itself: {UPDATES_RECIPE}"
    found = _OURS.findall(text)
    return found[-1].strip() if found else None


def install() -> None:
    """Let a script that ends with one of our errors print one line, unless it has set an excepthook."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _hook(sys.__excepthook__)


def quieten(spark: Any) -> None:
    """Keep Spark's log from repeating, with a Java stack, what its exceptions say."""
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j
    for name in _REPEATING_LOGGERS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def _hook(otherwise: Hook) -> Hook:
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        text = own_error_text(error)
        if text is None:
            otherwise(kind, error, trace)
        else:
            print(f"{_place(extract_tb(trace))}{visible_lines(text)}", file=sys.stderr)

    return hook


def _place(frames: Iterable[FrameSummary]) -> str:
    """The innermost line of the program itself, as `file:line: `; "" if there is none."""
    inside = [
        Path(file).parent for name in _PACKAGES if (file := getattr(sys.modules.get(name), "__file__", None))
    ]
    own = [each for each in frames if not any(Path(each.filename).is_relative_to(one) for one in inside)]
    return f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
