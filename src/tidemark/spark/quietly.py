"""A Spark session for a command: what the JVM says stays off the screen, and a failure is one line.

A JVM prints a greeting on every start and a stack of Java on every failure. For as long as it starts, this
process's error output is a file without a name, which the JVM then keeps; the line of it that says what went
wrong becomes the error's. For commands only: other threads must not write to the error output meanwhile.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from tidemark.errors import TidemarkError
from tidemark.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STDERR = 2
#: How a line with a reason begins: the name of an error, after what Java puts before it.
_REASON = re.compile(
    r"^(?:Exception in thread \S+ |Caused by: )?(?:[\w.$]*(?:Exception|Error)): *(?P<reason>\S.*)$",
    re.MULTILINE,
)


@contextmanager
def quiet_session(app: str, master: str) -> Iterator[SparkSession]:
    """A session that is stopped at the end; TidemarkError, of one line, for all that goes wrong in Spark."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    with tempfile.TemporaryFile() as said:
        try:
            with _spoken_into(said):
                spark = session(app, master)
            try:
                yield spark
            finally:
                spark.stop()
        except (PySparkException, Py4JError) as error:
            said.seek(0)
            reason = reason_of(str(error), said.read().decode(errors="replace"))
            raise TidemarkError(f"Spark ({master}) cannot do it: {reason}") from error


def reason_of(text: str, said: str = "") -> str:
    """The one line that tells most, of an error's text and what the JVM said."""
    for each in (text, said):
        # Of a stack of Python the last is the reason, and what follows of Java only wraps it.
        found = _REASON.findall(each.split("JVM stacktrace")[0])
        if found:
            return str(found[-1] if "Traceback" in each else found[0])
    return next((line.strip() for line in text.splitlines() if line.strip()), "it does not say why")


@contextmanager
def _spoken_into(file: IO[bytes]) -> Iterator[None]:
    sys.stderr.flush()
    before = os.dup(_STDERR)
    os.dup2(file.fileno(), _STDERR)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, _STDERR)
        os.close(before)
