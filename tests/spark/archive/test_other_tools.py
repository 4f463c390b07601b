"""Tables that other tools have changed: they are read as before, and written on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.spark.archive.on_disk import table_directory
from tests.spark.archive.small_archive import SCHEMA, SmallArchive
from tidemark.spark.archive import compaction, reader
from tidemark.spark.archive.compaction import mergeable
from tidemark.spark.archive.table import ArchiveTable
from tidemark.spark.history_frames.frame import history
from tidemark.ticks import TICK_MAX, TICK_MIN

Tool = Callable[[DeltaTable], object]


def ticks_and_numbers(path: Path, pattern: str = ">") -> list[tuple[int, int]]:
    return [
        (int(batch.ticks[row]), SCHEMA.decode(batch.message(row))["n"])
        for batch in reader.read(path, "p", TICK_MIN, TICK_MAX, pattern)
        for row in range(batch.count)
    ]


@pytest.mark.parametrize(
    ("tool", "removed"),
    [
        (lambda table: table.optimize.compact(), []),
        (lambda table: table.optimize.z_order(["kind"]), []),
        (lambda table: table.delete("n = 12"), [12]),
        (
            lambda table: (
                table.optimize.compact(),
                table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False),
            ),
            [],
        ),
    ],
    ids=["optimize", "z-order", "delete", "vacuum"],
)
def test_what_other_tools_have_rewritten_is_read_and_written_on(
    tmp_path: Path, tool: Tool, removed: list[int]
) -> None:
    archive = SmallArchive(tmp_path)
    made: list[tuple[int, int]] = []
    for turn in range(4):
        events = [
            ("news.local" if n % 3 else "sports", 10 * n, n, n % 2) for n in range(5 * turn, 5 * turn + 5)
        ]
        archive.round({"p": 50 * turn + 45}, {"p": events})
        made += [(tick, n) for _, tick, n, _ in events]
    before = [len(files) for files in reader.snapshot(tmp_path).files.values()]
    for root in ("news", "sports"):
        tool(DeltaTable(table_directory(tmp_path, root)))
    assert [len(files) for files in reader.snapshot(tmp_path).files.values()] <= before
    made = [each for each in made if each[1] not in removed]
    assert ticks_and_numbers(tmp_path) == made
    assert ticks_and_numbers(tmp_path, "sports") == [each for each in made if not each[1] % 3]
    again = SmallArchive.__new__(SmallArchive)
    again.__dict__.update(archive.__dict__)
    again._tables = {root: ArchiveTable(tmp_path, root) for root in archive._tables}
    events = [("news.local", 10 * n, n, n % 2) for n in range(30, 40)]
    again.round({"p": 400}, {"p": events})
    made += [(tick, n) for _, tick, n, _ in events]
    assert ticks_and_numbers(tmp_path) == made
    # A file of another tool is never taken for a neighbour in the order of ticks.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "SMALL_FILES_MIN", 1)
        files = again._tables["news"].files()
        assert all(each.is_own for each in mergeable(files))


@pytest.mark.spark
def test_history_reads_what_other_tools_have_rewritten(spark: Any, tmp_path: Path) -> None:
    archive = SmallArchive(tmp_path)
    for turn in range(3):
        events = [("news.local", 10 * n, n, n % 2) for n in range(5 * turn, 5 * turn + 5)]
        archive.round({"p": 50 * turn + 45}, {"p": events})
    table = DeltaTable(table_directory(tmp_path, "news"))
    table.optimize.z_order(["kind"])
    table.delete("n = 12")
    rows = history(spark, "news.local", archive=tmp_path).select("n", "_tick").collect()
    assert sorted((row.n, row["_tick"]) for row in rows) == [(n, 10 * n) for n in range(15) if n != 12]
    some = history(spark, "news.local", "n >= 10", 110, archive=tmp_path)
    assert sorted(row.n for row in some.collect()) == [11, 13, 14]
