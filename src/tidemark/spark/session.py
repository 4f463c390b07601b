"""A Spark session set up the way Tidemark needs it, on any master.

Nothing listens beyond this machine unless asked to: the driver binds to the loopback address and the web
interface is off. Times are UTC. Python workers run the interpreter that runs this. A script that ends with an
error of ours says so in one line (`spark.plainerrors`).
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tidemark.spark import plainerrors
from tidemark.spark.java import java_home

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
    plainerrors.install()
    plainerrors.quieten(made)
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
    plainerrors.install()
    return SparkSession.builder.appName(app).remote(url).config(map=settings).getOrCreate()
