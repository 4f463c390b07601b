"""An archive in an object store: written, read, kept and served as in a directory, whatever fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live_node import LiveNode
from tests.spark.archive.small_archive import SmallArchive, Taker
from tests.spark.stores.faulty_proxy import Fault, FaultyProxy
from tests.spark.stores.s3_servers import SECRET
from tests.waiting import PATIENCE_SECONDS
from tidemark import sync
from tidemark.errors import FencedError, StoreAwayError
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.topic_selector import TopicSelector
from tidemark.spark.archive import compaction, reader
from tidemark.spark.archive.archive import Archive
from tidemark.spark.archive.status import status
from tidemark.spark.archive_scan.parquet_frames import sparks_own_paths
from tidemark.spark.deep.service import DeepService
from tidemark.spark.locations import folder_at
from tidemark.spark.round_log import OBJECT_BYTES_MAX, Diary, RoundNote, diary_files
from tidemark.spark.sink.staging import BatchRecord, Staging
from tidemark.spark.stores import objects
from tidemark.spark.stores.folder import Folder
from tidemark.spark.upkeep.asking import erase
from tidemark.spark.upkeep.verifying import verify
from tidemark.wire.frames import Line

Row = tuple[int, int]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LiveNode]:
    node = LiveNode(tmp_path / "node", retention__archive="true")
    try:
        with sync.connect(node.url) as client:
            client.create_topic("news", "[n: int]")
            client.create_topic("_odd.one", "[n: int]")
        yield node
    finally:
        node.close()


def publish(node: LiveNode, first: int, count: int) -> list[Row]:
    """Publish events to two tables in turn; returns the tick and the number of each."""
    with sync.connect(node.url) as client:
        numbers = range(first, first + count)
        ticks = [client.publish(("news", "_odd.one")[n % 2], {"n": n}) for n in numbers]
    return [(tick, n) for tick, n in zip(ticks, numbers, strict=True) if tick is not None]


def rows_in(folder: Folder) -> list[Row]:
    """tick and n of every event of the archive."""
    taken = reader.snapshot(folder)
    found = []
    for batch in reader.read(folder, "main", 0, taken.state.covered["main"]):
        for row, shape in enumerate(batch.prelude("shape").tolist()):
            schema = taken.topics.schemas[batch.shapes[shape].fingerprint]
            found.append((int(batch.ticks[row]), schema.decode(batch.message(row))["n"]))
    return found


def test_what_is_archived_is_read_merged_erased_and_verified(
    store: Folder, node: LiveNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "SMALL_FILES_MIN", 3)
    monkeypatch.setattr(compaction, "GRACE_SECONDS", -1.0)
    published = []
    with Archive(node.url, store) as archive:
        for n in range(0, 16, 4):
            published += publish(node, n, 4)
            archive.round()
        archive.maintenance.run(is_changed=True)
        assert all(len(table.files()) < 4 for table in archive.tables)
        assert status(store, None).process is not None
    assert rows_in(store) == published
    report = erase(store, node.url, "news", "n = 4", sleep=lambda _: False)
    assert report.erasure.events == 1
    kept = [row for row in published if row[1] != 4]
    assert rows_in(store) == kept
    checked = verify(store, node.url, None)
    assert (checked.wrong, checked.events) == ((), len(kept))
    found = status(store, None)
    assert (found.process, found.events, found.path) == (None, 16, store.text)
    assert SECRET not in json.dumps(found.to_json()) + json.dumps(report.to_json())


def test_every_row_is_there_once_whatever_fails_between_put_and_answer(
    s3: Folder, node: LiveNode, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request in turn fails, in every way; the next round goes on, and nothing is lost or doubled."""
    monkeypatch.setattr(objects, "RETRIES_MAX", 0)
    objects._store.cache_clear()
    published = []
    faults: list[Fault] = ["error", "cut before", "cut after"]
    with Archive(node.url, s3) as archive:
        monkeypatch.setattr(archive.maintenance, "run", lambda **_: None)
        for n in range(6):
            published += publish(node, 2 * n, 2)
            left = [n]

            def choose(method: str, path: str, left: list[int] = left, n: int = n) -> Fault:
                if method == "PUT" and "lease" not in path:
                    left[0] -= 1
                    if left[0] == -1:
                        return faults[n % 3]
                return "pass"

            proxy.fault = choose
            for _ in range(10):
                try:
                    if archive.round() is None:
                        break
                except StoreAwayError:
                    continue
            proxy.fault = lambda *_: "pass"
            assert rows_in(s3) == published
        assert proxy.faults >= 5
    objects._store.cache_clear()
    # What rounds that failed have left goes with time.
    monkeypatch.setattr(compaction, "GRACE_SECONDS", -1.0)
    with Archive(node.url, s3) as archive:
        archive.maintenance.run(is_changed=True)
        for table in archive.tables:
            there = [each.name for each in table.folder.files() if each.name.endswith(".parquet")]
            assert there == [each.name for each in table.files()]
    assert rows_in(s3) == published


def test_a_writer_that_was_paused_finds_another_one_and_adds_nothing(
    s3: Folder, node: LiveNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidemark.spark.stores import hold

    published = publish(node, 0, 4)
    # Whoever is paused does not renew its lease either; one that is renewed meanwhile is not taken.
    monkeypatch.setattr(hold, "RENEW_SECONDS", PATIENCE_SECONDS)
    paused = Archive(node.url, s3)
    paused.round()
    monkeypatch.setattr(hold, "LEASE_SECONDS", -10.0)
    with Archive(node.url, s3) as archive:
        published += publish(node, 4, 4)
        with pytest.raises(FencedError):
            paused.round()
        archive.round()
        assert rows_in(s3) == published
        with pytest.raises(FencedError):
            paused.save(paused.state)
    paused.close()
    with Archive(node.url, s3):
        assert rows_in(s3) == published


def test_subscribers_catch_up_from_an_archive_in_s3(s3: Folder) -> None:
    archive = SmallArchive(s3)
    archive.round({"a": 100}, {"a": [("news.local", 10 * n, n, n % 2) for n in range(1, 10)]})
    archive.round({"a": 200}, {"a": [("news.world", 100 + 10 * n, n, n % 2) for n in range(1, 10)]})
    taker = Taker("a", [Line(TopicSelector("news.>", "kind = 1"), 0, 200)], 0, 200)

    async def run() -> None:
        service = DeepService([], s3)
        serving = asyncio.create_task(service.run())
        while not hasattr(service, "_spool"):
            await asyncio.sleep(0.01)
        service.recalled(taker)
        while not taker.is_over:
            assert not serving.done()
            await asyncio.sleep(0.01)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(run())
    odd = [n for n in range(1, 10) if n % 2]
    assert taker.got == [(10 * n, n) for n in odd] + [(100 + 10 * n, n) for n in odd]
    assert (s3 / "_archive" / "spool").folders() == []


def events(*texts: str) -> EventBatch:
    builder = BatchBuilder()
    for text in texts:
        builder.add(Shape("t", 1), text.encode())
    return builder.build()


def test_rows_are_staged_and_recorded_once_in_s3(s3: Folder, proxy: FaultyProxy) -> None:
    staging = Staging(s3)
    part = staging.stage(3, [events("a", "b"), events("c")])
    assert [batch.message(0) for batch in staging.read(part)] == [b"a", b"c"]
    record = BatchRecord(0, "p", "main", 0, (part,))
    proxy.once("cut after", "PUT", ".json")
    assert staging.record(record) == record
    other = BatchRecord(0, "other", "main", 0, ())
    assert staging.record(other) == record
    assert staging.last() == record
    assert not staging.is_published(record)
    staging.mark_published(record)
    assert staging.is_published(record)
    assert not any(each.name.endswith((".staged", ".events")) for each in s3.files())
    staging.remove()
    assert staging.last() is None


def test_the_diary_in_s3_is_of_small_files(s3: Folder) -> None:
    line = 150
    for n in range(2 * OBJECT_BYTES_MAX // line):
        if n % 100 == 0:
            diary = Diary(s3)
            diary._newest += b" " * (100 * line)
        diary.note(RoundNote(float(n), 1.0, 1, 1, 1, None, None, 0)) if n % 100 == 0 else None
    files = diary_files(s3)
    assert len(files) > 1
    assert files[-1].name == "rounds.jsonl"


def test_sparks_own_reader_is_used_where_it_can_reach_the_files(s3: Folder, tmp_path: Path) -> None:
    here = folder_at(tmp_path).file("a.parquet")
    there = folder_at("s3://bucket/x").file("a.parquet")
    assert sparks_own_paths([here], lambda _: False) == [str(tmp_path / "a.parquet")]
    assert sparks_own_paths([there], lambda name: name.endswith("S3AFileSystem")) == [
        "s3a://bucket/x/a.parquet"
    ]
    assert sparks_own_paths([there], lambda _: False) is None
    # What is reached with options of our own is not reached with those of Spark.
    assert sparks_own_paths([s3.file("a.parquet")], lambda _: True) is None
