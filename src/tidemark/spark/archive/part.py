"""A task of a round: fetch a tick range from a broker and write it into files. Imports no pyspark.

Everything that a task needs is in a `Part`, which Spark carries to wherever the task runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemark import sync
from tidemark.spark.archive.layout import ArchiveLayout
from tidemark.spark.archive.plan import FetchTask
from tidemark.spark.archive.state import ArchiveTopics
from tidemark.spark.archive.table import DataFile
from tidemark.spark.archive.writer import PartWriter
from tidemark.ticks.tick import Range
from tidemark.wire.frames import Fetched

FETCH_BYTES = 4 << 20
FETCH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RoundPart:
    """What to read, and all that is needed to write it."""

    path: str
    batch: int
    number: int
    tasks: tuple[FetchTask, ...]
    #: as a broker describes them
    topics: list[dict[str, Any]]
    #: root -> its columns, as an Arrow schema in bytes
    layouts: Mapping[str, bytes]
    #: root -> pubend -> what its table has already
    reached: Mapping[str, Mapping[str, int]]
    #: stop after about so much
    bytes_max: int | None = None


@dataclass(slots=True)
class PartResult:
    """What came of a part: the files are on the platter, and in no commit yet."""

    files: list[DataFile] = field(default_factory=list)
    #: pubend -> how far it was read
    reached: dict[str, int] = field(default_factory=dict)
    #: of what was read, this was gone
    missing: list[tuple[str, Range]] = field(default_factory=list)
    events: int = 0
    bytes: int = 0

    def to_json(self) -> str:
        """For the way back from a Spark task."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PartResult:
        """The reverse."""
        found = json.loads(text)
        files = [
            DataFile(**{**each, "bounds": {name: tuple(pair) for name, pair in each["bounds"].items()}})
            for each in found["files"]
        ]
        missing = [(pubend, (base, upto)) for pubend, (base, upto) in found["missing"]]
        return cls(files, found["reached"], missing, found["events"], found["bytes"])


def run_part_alone(part: RoundPart) -> PartResult:
    """Read and write it over connections of its own."""
    with ExitStack() as stack:
        urls = {task.broker for task in part.tasks}
        clients = {url: stack.enter_context(sync.connect(url, timeout=FETCH_SECONDS)) for url in sorted(urls)}
        return run_part(part, clients.__getitem__)


def run_part(
    part: RoundPart, client: Callable[[str], sync.Client], topics: ArchiveTopics | None = None
) -> PartResult:
    """Read and write it; `client` gives the connection to a broker."""
    layouts = {
        root: ArchiveLayout(pa.ipc.read_schema(pa.py_buffer(data))) for root, data in part.layouts.items()
    }
    schemas = (topics or ArchiveTopics(part.topics)).schemas
    writer = PartWriter(Path(part.path), layouts, part.reached, schemas, batch=part.batch, part=part.number)
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
    """One task's range, or a first part of it once the writer has got so much in all."""
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
    """All answers for a range, one after the other; the next is on its way while one is worked on."""

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
