"""A task of a round: fetch tick ranges from brokers and write their events into files. Imports no pyspark.

`run_part` runs in the driver, over the connections that are there; `run_part_alone` runs in a Spark task,
over connections of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field

from tidemark import sync
from tidemark.spark.archive.plan import FetchTask, RoundPart, divided
from tidemark.spark.archive.state import ArchiveTopics
from tidemark.spark.archive.table import DataFile
from tidemark.spark.archive.writer import PartWriter
from tidemark.ticks import TICK_MIN
from tidemark.ticks.tick import Range
from tidemark.wire.frames import Fetched

FETCH_BYTES = 4 << 20
FETCH_SECONDS = 60.0


@dataclass(slots=True)
class PartResult:
    """What a part has done: its files are on the platter, and in no commit yet."""

    files: list[DataFile] = field(default_factory=list)
    #: pubend -> the tick up to which it was read
    reached: dict[str, int] = field(default_factory=dict)
    #: pubend and range: what was gone from the broker
    missing: list[tuple[str, Range]] = field(default_factory=list)
    events: int = 0
    bytes: int = 0

    def to_json(self) -> str:
        """The result as text, for the way back from a Spark task."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PartResult:
        """The result that `to_json` made the text of."""
        found = json.loads(text)
        files = [
            DataFile(**{**each, "bounds": {name: tuple(pair) for name, pair in each["bounds"].items()}})
            for each in found["files"]
        ]
        missing = [(pubend, (base, upto)) for pubend, (base, upto) in found["missing"]]
        return cls(files, found["reached"], missing, found["events"], found["bytes"])


def merged_results(parts: Sequence[PartResult]) -> PartResult:
    """The results of all parts of a batch as one."""
    whole = PartResult()
    for each in parts:
        whole.files += each.files
        whole.missing += each.missing
        whole.events += each.events
        whole.bytes += each.bytes
        for pubend, tick in each.reached.items():
            whole.reached[pubend] = max(tick, whole.reached.get(pubend, tick))
    return whole


def divided_backlog(
    tasks: Sequence[FetchTask],
    batch_bytes: int,
    part_bytes: int,
    client: Callable[[str], sync.Client],
) -> list[FetchTask]:
    """The first `batch_bytes` or so of all tasks, in tasks of about `part_bytes` each."""
    found: list[FetchTask] = []
    for task in tasks:
        first = client(task.broker)._fetch(
            task.pubend, TICK_MIN, task.upto, bytes_max=1, timeout=FETCH_SECONDS
        )
        held_from = first.upto if first.batch is None else int(first.batch.ticks[0]) - 1
        found += divided(task, held_from, batch_bytes // len(tasks), part_bytes)
    return found


def run_part_alone(part: RoundPart) -> PartResult:
    """Fetch and write a part over connections of its own."""
    with ExitStack() as stack:
        urls = {task.broker for task in part.tasks}
        clients = {url: stack.enter_context(sync.connect(url, timeout=FETCH_SECONDS)) for url in sorted(urls)}
        return run_part(part, clients.__getitem__)


def run_part(
    part: RoundPart, client: Callable[[str], sync.Client], topics: ArchiveTopics | None = None
) -> PartResult:
    """Fetch and write a part; `client` returns the connection to the broker at a URL.

    `topics` are those of the part, if the caller has them parsed. If anything fails, no file is left.
    """
    schemas = (topics or ArchiveTopics(part.topics)).schemas
    writer = PartWriter(part, schemas)
    done = PartResult()
    try:
        for at, task in enumerate(part.tasks):
            share = None if part.bytes_max is None else part.bytes_max // len(part.tasks) * (at + 1)
            _copy(client(task.broker), task, writer, done, share)
        done.files = writer.close()
    except BaseException:
        writer.discard()
        raise
    done.events, done.bytes = writer.events, writer.bytes
    return done


def _copy(
    client: sync.Client, task: FetchTask, writer: PartWriter, done: PartResult, bytes_max: int | None
) -> None:
    """Write the range of one task, or a first part of it, until the writer has `bytes_max` bytes in all."""
    done.reached[task.pubend] = task.base
    for answer in fetched(client, task):
        if answer.lost > answer.base:
            done.missing.append((task.pubend, (answer.base, min(answer.lost, task.upto))))
        done.missing += [(task.pubend, (base, upto)) for base, upto in answer.damaged]
        if answer.batch is not None:
            writer.add(task.pubend, answer.batch)
        done.reached[task.pubend] = answer.upto
        if bytes_max is not None and writer.bytes >= bytes_max:
            return


def fetched(client: sync.Client, task: FetchTask) -> Iterator[Fetched]:
    """The broker's answers that tile a task's range; the next is on its way while one is worked on."""

    def ask(base: int) -> Fetched:
        return client._fetch(task.pubend, base, task.upto, bytes_max=FETCH_BYTES, timeout=FETCH_SECONDS)

    if task.base >= task.upto:
        return
    with ThreadPoolExecutor(1, thread_name_prefix="tidemark fetch") as ahead:
        coming = ahead.submit(ask, task.base)
        while True:
            answer = coming.result()
            is_last = answer.upto >= task.upto or answer.upto <= answer.base
            if not is_last:
                coming = ahead.submit(ask, answer.upto)
            yield answer
            if is_last:
                return
