"""A Spark session set up the way Tidemark needs it, on any master.

Nothing listens beyond this machine unless asked to: the driver binds to the loopback address and the web
interface is off. Times are UTC. Python workers run the interpreter that runs this process, and of a local
master they are spoken to over Unix domain sockets (`spark.engine.worker_sockets`). A script that ends with an
error of ours prints one line (`spark.engine.plain_errors`).

`quiet_session` is for commands. A JVM prints a greeting on every start and a Java stack trace on every
failure. While it starts, the stderr of this process is redirected to an anonymous temporary file that the JVM
inherits; the line of that file that says what went wrong becomes the message of the error. Other threads must
not write to stderr meanwhile.
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
from tidemark.spark.engine import plain_errors
from tidemark.spark.engine.java import java_home
from tidemark.spark.engine.worker_sockets import worker_sockets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    # Spark's default of 200 is for clusters: each partition costs a task, even if it is empty.
    "spark.sql.shuffle.partitions": "4",
}

#: How long Java may take to end.
_END_SECONDS_MAX = 30.0
#: How the address of a Spark Connect server begins.
CONNECT = "sc://"
_STDERR = 2
#: A line with a reason: the name of an error after what Java puts before it, then the reason.
_REASON = re.compile(
    r"^(?:Exception in thread \S+ |Caused by: )?(?:[\w.$]*(?:Exception|Error)): *(?P<reason>\S.*)$",
    re.MULTILINE,
)


def session(app: str = "tidemark", master: str = "local[2]", **conf: str) -> SparkSession:
    """The running session, or a new one; `conf` (`**{"spark.some.option": "value"}`) wins over DEFAULTS.

    `master` is any of Spark's, or the address of a Spark Connect server, `sc://host:port`. The server runs
    elsewhere and was set up there, so of DEFAULTS only the time zone is set for it. Otherwise this function
    sets JAVA_HOME and the Python of the workers in the environment of this process, which Spark reads.
    """
    if master.startswith(CONNECT):
        return _connected(app, master, conf)
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    settings = DEFAULTS | worker_sockets(master) | conf
    made = SparkSession.builder.appName(app).master(master).config(map=settings).getOrCreate()
    plain_errors.install()
    plain_errors.quieten(made)
    from tidemark.spark.history_frames.table_function import register

    register(made)
    return made


def end(session: SparkSession) -> None:
    """Stop a session and the Java that runs it; without this, Java stays until this process ends."""
    from pyspark import SparkContext

    session.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        # Java watches its standard input, and ends when that is closed.
        gateway.proc.stdin.close()
        gateway.proc.wait(_END_SECONDS_MAX)
        SparkContext._gateway = SparkContext._jvm = None


def _connected(app: str, url: str, conf: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    settings = {"spark.sql.session.timeZone": DEFAULTS["spark.sql.session.timeZone"]} | conf
    plain_errors.install()
    return SparkSession.builder.appName(app).remote(url).config(map=settings).getOrCreate()


@contextmanager
def quiet_session(app: str, master: str) -> Iterator[SparkSession]:
    """A session for a `with` block. Raises TidemarkError, of one line, for all that goes wrong in Spark."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    with tempfile.TemporaryFile() as printed:
        try:
            with _stderr_into(printed):
                spark = session(app, master)
            try:
                yield spark
            finally:
                spark.stop()
        except (PySparkException, Py4JError) as error:
            printed.seek(0)
            reason = reason_of(str(error), printed.read().decode(errors="replace"))
            raise TidemarkError(f"Spark ({master}) cannot do it: {reason}") from error


def reason_of(text: str, printed: str = "") -> str:
    """The line with the reason, out of an error's text or else of what the JVM has printed."""
    for each in (text, printed):
        # In a Python traceback the last error is the reason; the Java stack below only wraps it.
        found = _REASON.findall(each.split("JVM stacktrace")[0])
        if found:
            return str(found[-1] if "Traceback" in each else found[0])
    return next((line.strip() for line in text.splitlines() if line.strip()), "it does not say why")


@contextmanager
def _stderr_into(file: IO[bytes]) -> Iterator[None]:
    sys.stderr.flush()
    before = os.dup(_STDERR)
    os.dup2(file.fileno(), _STDERR)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, _STDERR)
        os.close(before)
