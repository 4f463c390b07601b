"""An archive of the classes that Spark loads: each JVM of the tests maps them instead of parsing them.

The archive (Java's class data sharing) takes a third off the CPU of a short Spark program. It belongs to one
Java and one PySpark, is made once, by a small program on Spark, and stays in pytest's cache. A Java that did
not make it ignores it.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

#: Java logs to standard output, where Spark's start script reads a command: so only errors, to stderr.
_READ = "-Xlog:disable -Xlog:all=error:stderr -XX:SharedArchiveFile={}"
_OPTIONS = "JAVA_TOOL_OPTIONS"
#: Java writes the archive when it ends; this takes long where much else runs.
_END_SECONDS_MAX = 600.0


def share(cache: Path) -> None:
    """All processes that this one starts from now on use the archive; the first process to ask makes it."""
    if "SharedArchiveFile" in os.environ.get(_OPTIONS, ""):
        return
    from tidemark.spark.engine.java import java_home

    java = java_home().resolve()
    maker = f"{java} {(java / 'release').read_text()} {version('pyspark')} {sys.prefix}"
    archive = cache / f"{sha256(maker.encode()).hexdigest()[:16]}.jsa"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive)
    # An empty one says that this Java cannot make it.
    if archive.stat().st_size:
        os.environ[_OPTIONS] = f"{os.environ.get(_OPTIONS, '')} {_READ.format(archive)}".strip()


def _make(archive: Path) -> None:
    draft = archive.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    here = Path(__file__).parent.parent
    command = [sys.executable, "-m", "tests.java_classes", str(draft)]
    made = subprocess.run(command, cwd=here, capture_output=True, check=False)
    if made.returncode or not draft.exists():
        draft.write_bytes(b"")
    draft.rename(archive)


def _train(archive: Path) -> None:
    """Load what most jobs load: tables in files, queries and streams from and to a broker."""
    from pyspark import SparkContext

    from tests.live_node import live_node
    from tidemark import sync
    from tidemark.spark.engine.session import session

    options = {"spark.driver.extraJavaOptions": f"-Xlog:disable -XX:ArchiveClassesAtExit={archive}"}
    with tempfile.TemporaryDirectory() as scratch, live_node(Path(scratch)) as node:
        spark = session("training", **options)
        table = f"{scratch}/table"
        spark.range(100).selectExpr("id", "id % 3 AS n", "CAST(id AS STRING) AS text").write.parquet(table)
        spark.read.parquet(table).groupBy("n").count().orderBy("n").collect()
        with sync.connect(node.url) as tm:
            for topic in ("numbers", "copies"):
                tm.create_topic(topic, "[n: int]")
            tm.publish_many("numbers", [{"n": n} for n in range(100)])
        options = {"broker": node.url, "topic": "numbers", "columns": "n"}
        spark.read.format("tidemark").options(**options).load().selectExpr("sum(n)").collect()
        copying = (
            spark.readStream.format("tidemark")
            .options(**options)
            .load()
            .repartition(2)
            .writeStream.format("tidemark")
            .options(broker=node.url, topic="copies", checkpointLocation=f"{scratch}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        copying.awaitTermination()
        spark.stop()
    gateway = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_END_SECONDS_MAX)


if __name__ == "__main__":
    _train(Path(sys.argv[1]))
