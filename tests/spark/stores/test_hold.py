"""One process writes a folder: by a lock, or by a lease, and who has lost the lease cannot write any more."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.spark.archive.small_archive import SCHEMA
from tests.spark.stores.faulty_proxy import Fault, FaultyProxy
from tests.waiting import PATIENCE_SECONDS
from tidemark.errors import DirectoryLockedError, FencedError
from tidemark.spark.archive.layout import ArchiveLayout, fields_of
from tidemark.spark.archive.state import (
    ArchiveState,
    ArchiveTopics,
    fence_files,
    load_state,
    save_state,
    save_topics,
)
from tidemark.spark.archive.table import ArchiveTable, DataFile
from tidemark.spark.locations import folder_at
from tidemark.spark.stores import hold as hold_module
from tidemark.spark.stores.folder import Folder
from tidemark.spark.stores.hold import LEASE, hold, writer_of

LAYOUT = ArchiveLayout().extended(fields_of(SCHEMA).items())


def lease_in(folder: Folder) -> dict[str, object]:
    found: dict[str, object] = json.loads(folder.read(LEASE) or b"")
    return found


def change(folder: Folder, **more: object) -> None:
    folder.replace(LEASE, json.dumps({**lease_in(folder), **more}).encode())


def waited(seconds: float) -> None:
    """Stands for a wait."""


def test_a_lock_keeps_others_out(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    assert writer_of(folder) is None
    mine = hold(folder)
    assert mine.number == 0
    mine.check()
    with pytest.raises(DirectoryLockedError, match="writes it already"):
        hold(folder)
    assert writer_of(folder) is not None
    mine.release()
    hold(folder).release()


def test_each_holder_of_a_lease_has_a_greater_number(s3: Folder) -> None:
    assert writer_of(s3) is None
    for number in (1, 2, 3):
        mine = hold(s3)
        assert mine.number == number
        assert writer_of(s3) is not None
        mine.check()
        mine.release()
        assert writer_of(s3) is None


def test_a_lease_that_is_renewed_is_not_taken(s3: Folder) -> None:
    mine = hold(s3)

    def renewed(_: float) -> None:
        change(s3, renewed=int(str(lease_in(s3)["renewed"])) + 1)

    with pytest.raises(DirectoryLockedError, match="writes it already: stop that first"):
        hold(s3, sleep=renewed)
    mine.release()


def test_a_lease_that_is_old_is_taken_and_its_holder_finds_out(
    s3: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold_module, "RENEW_SECONDS", PATIENCE_SECONDS)
    first = hold(s3)
    monkeypatch.setattr(hold_module, "LEASE_SECONDS", -10.0)
    second = hold(s3, sleep=waited)
    assert second.number == first.number + 1
    first.check()
    monkeypatch.setattr(hold_module, "RENEW_SECONDS", 0.0)
    first._renew()  # type: ignore[attr-defined]  # its thread was paused, and goes on
    with pytest.raises(FencedError):
        first.check()
    first.release()
    second.check()
    assert lease_in(s3)["number"] == 2
    second.release()


def test_the_lease_of_a_process_of_this_machine_that_has_ended_is_taken_at_once(s3: Folder) -> None:
    hold(s3).release()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    change(s3, holder="somebody", process=ended.pid)
    mine = hold(s3, sleep=lambda _: pytest.fail("nobody waits"))
    assert mine.number == 2
    mine.release()


def test_a_renewal_whose_answer_was_lost_keeps_the_lease(
    s3: Folder, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold_module, "RENEW_SECONDS", 0.05)
    left: list[Fault] = ["cut after", "error", "cut before"] * 2
    mine = hold(s3)
    proxy.fault = lambda method, path: left.pop() if left and method == "PUT" and LEASE in path else "pass"
    while left or int(str(lease_in(s3)["renewed"])) < 8:
        mine.check()
    mine.release()


def test_who_has_lost_the_lease_cannot_replace_state_or_topics(s3: Folder) -> None:
    save_topics(s3, ArchiveTopics([]), 1)
    save_state(s3, ArchiveState(batch=1), 1)
    fence_files(s3, 2)
    with pytest.raises(FencedError):
        save_state(s3, ArchiveState(batch=2), 1)
    with pytest.raises(FencedError):
        save_topics(s3, ArchiveTopics([]), 1)
    with pytest.raises(FencedError):
        fence_files(s3, 1)
    assert load_state(s3).batch == 1
    save_state(s3, ArchiveState(batch=7), 2)
    assert load_state(s3).batch == 7


def test_an_archive_that_is_new_is_fenced_too(s3: Folder) -> None:
    fence_files(s3, 2)
    with pytest.raises(FencedError):
        save_state(s3, ArchiveState(batch=1), 1)


def a_file(n: int) -> DataFile:
    return DataFile("news", f"{n:010d}-{n:010d}-00000-00000-abc.parquet", 10, 1)


def test_who_has_lost_the_lease_cannot_commit_to_a_table(s3: Folder) -> None:
    old = ArchiveTable.to_write(s3, "news", LAYOUT, 1)
    old.add([a_file(1)], {"main": 10}, {})
    new = ArchiveTable(s3, "news", 2)
    new.fence()
    for work in (
        lambda: old.add([a_file(2)], {"main": 20}, {}),
        lambda: old.add([a_file(2)], {"other": 20}, {}),
        lambda: old.exchange([a_file(1)], []),
        old.fence,
        lambda: ArchiveTable.to_write(s3, "news", LAYOUT, 1),
    ):
        with pytest.raises(FencedError, match="another process writes the table now"):
            work()
    new.add([a_file(3)], {"main": 20}, {})
    assert [each.name for each in ArchiveTable(s3, "news").files()] == [a_file(1).name, a_file(3).name]


@pytest.mark.parametrize("fault", ["cut after", "cut before", "error"])
def test_a_commit_whose_answer_was_lost_is_one_commit(s3: Folder, proxy: FaultyProxy, fault: str) -> None:
    table = ArchiveTable.to_write(s3, "news", LAYOUT, 1)
    before = table.version
    for n in (1, 2):
        proxy.once(fault, "PUT", "_delta_log/")  # type: ignore[arg-type]  # one of the faults
        table.add([replace(a_file(n))], {"main": 10 * n}, {"about": "it"})
    assert proxy.faults == 2
    assert table.version == before + 2
    again = ArchiveTable(s3, "news")
    assert [each.name for each in again.files()] == [a_file(1).name, a_file(2).name]
    assert again.reached("main") == 20


def test_a_table_whose_making_was_not_answered_is_made(s3: Folder, proxy: FaultyProxy) -> None:
    proxy.once("cut after", "PUT", "_delta_log/")
    table = ArchiveTable.to_write(s3, "_odd.name", LAYOUT, 3)
    assert proxy.faults == 1
    table.add([replace(a_file(1), root="_odd.name")], {"main": 10}, {})
    assert ArchiveTable(s3, "_odd.name").reached("main") == 10
