"""A Spark session set up the way Tidemark needs it, on any master.

Nothing listens beyond this machine unless asked to: the driver binds to the loopback address and the web
interface is off. Times are UTC. Python workers run the interpreter that runs this. A script that ends with an
error of ours says so in one line (`spark.engine.plain_errors`).

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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    # Spark's 200 are for clusters: each costs a task, also when it is empty.
    "spark.sql.shuffle.partitions": "4",
}

#: What Java may take to end.
_END_SECONDS_MAX = 30.0
#: How the address of a Spark Connect server begins.
CONNECT = "sc://"
_STDERR = 2
#: How a line with a reason begins: the name of an error, after what Java puts before it.
_REASON = re.compile(
    r"^(?:Exception in thread \S+ |Caused by: )?(?:[\w.$]*(?:Exception|Error)): *(?P<reason>\S.*)$",
    re.MULTILINE,
)


def session(app: str = "tidemark", master: str = "local[2]", **conf: str) -> SparkSession:
    """The running session, else a new one; `conf` (`**{"spark.some.option": "value"}`) wins over DEFAULTS.

    `master` is any of Spark's, or the address of a Spark Connect server, `sc://host:port`; that one runs
    elsewhere and was set up there, so of DEFAULTS it gets the time zone only. Otherwise this sets JAVA_HOME
    and the Python of the workers in this process's environment, which Spark reads.
    """
    if master.startswith(CONNECT):
        return _connected(app, master, conf)
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    settings = DEFAULTS | conf
    made = SparkSession.builder.appName(app).master(master).config(map=settings).getOrCreate()
    plain_errors.install()
    plain_errors.quieten(made)
    return made


def end(session: SparkSession) -> None:
    """Stop a session and the Java that runs it, which otherwise stays until this process ends."""
    from pyspark import SparkContext

    session.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        # It watches its standard input, and ends with it.
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
