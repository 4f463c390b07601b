"""Running a function once for each of several items: as tasks of a Spark job, or here, one after the other.

Whether a job is worthwhile is the caller's decision, which it makes by lending a session or not. The items
and the function go to the tasks with the job; Spark broadcasts them when they are large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Item = TypeVar("Item")
#: The property of a thread in which Spark keeps the description of its jobs.
_DESCRIPTION = "spark.job.description"


class SessionLender(Protocol):
    """Lends a Spark session for the length of a `with` block; the session does not end meanwhile."""

    def __call__(self) -> AbstractContextManager[SparkSession]:
        """The session, which is started first if need be."""


class TaskResult(Protocol):
    """What a task returns. It travels from a Spark task to the driver as text."""

    def to_json(self) -> str:
        """The result as text."""


Result = TypeVar("Result", bound=TaskResult)


def run_tasks(
    items: Sequence[Item],
    work: Callable[[Item], Result],
    from_json: Callable[[str], Result],
    sessions: SessionLender | None,
    what: str,
) -> list[Result]:
    """`work(item)` for each item, in the order of the items.

    With `sessions` each item is a task of its own in one Spark job, whose result `from_json` reads and which
    Spark's web interface shows as `what`; without it, `work` runs in this process.
    """
    if sessions is None:
        return [work(item) for item in items]
    import pyarrow as pa

    def result(number: int) -> Iterator[pa.RecordBatch]:
        text = work(items[number]).to_json()
        yield pa.record_batch([pa.array([number]), pa.array([text])], ["number", "result"])

    with sessions() as spark, described(spark, what):
        rows = frame_of_tasks(spark, len(items), result, "number long, result string").collect()
    texts = {row["number"]: row["result"] for row in rows}
    return [from_json(texts[number]) for number in range(len(items))]


@contextmanager
def described(spark: SparkSession, what: str) -> Iterator[None]:
    """Let Spark's web interface show the jobs that this thread starts within the block as `what`.

    A session of Spark Connect has no such descriptions.
    """
    context = getattr(spark, "_sc", None)
    if context is None:
        yield
        return
    before = context.getLocalProperty(_DESCRIPTION)
    context.setJobDescription(what)
    try:
        yield
    finally:
        context.setJobDescription(before)


def frame_of_tasks(
    spark: SparkSession, count: int, batches: Callable[[int], Iterable[pa.RecordBatch]], schema: Any
) -> DataFrame:
    """A DataFrame with the rows of `batches(number)` for each number below `count`, each a task of its own.

    `schema` is that of the record batches, as Spark's `mapInArrow` takes it. Nothing runs before the
    DataFrame is evaluated.
    """

    def run(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from batches(number)

    return spark.range(0, count, 1, max(count, 1)).mapInArrow(run, schema)
