"""A Spark session set up the way Tidemark needs it, on any master.

Nothing listens beyond this machine unless asked to: the driver binds to the loopback address and the web
interface is off. Times are UTC. Python workers run the interpreter that runs this.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

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


def session(app: str = "tidemark", master: str = "local[2]", **conf: str) -> SparkSession:
    """The running session, else a new one; `conf` (`**{"spark.some.option": "value"}`) wins over DEFAULTS.

    Sets JAVA_HOME and the Python of the workers in this process's environment, which Spark reads.
    """
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    settings = DEFAULTS | conf
    return SparkSession.builder.appName(app).master(master).config(map=settings).getOrCreate()
