"""What Spark's web interface shows of jobs."""

from __future__ import annotations

from typing import Any


def job_descriptions(spark: Any) -> list[str]:
    """The descriptions of the jobs of a session that have one, the newest first."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    jobs = context.statusStore().jobsList(None)
    found = [jobs.apply(at).description() for at in range(jobs.size())]
    return [str(each.get()) for each in found if each.isDefined()]
