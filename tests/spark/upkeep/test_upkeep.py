"""Erasing events from an archive, and comparing it with its broker."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

import tidemark
from tests.live_node import LiveNode
from tests.spark.archive.on_disk import table_directory
from tests.waiting import PATIENCE_SECONDS
from tidemark import sync
from tidemark.broker.publishing.pubend import Pubend
from tidemark.cli import main
from tidemark.errors import ConfigError, SelectorError
from tidemark.spark.archive import compaction, reader
from tidemark.spark.archive.archive import Archive
from tidemark.spark.archive.table import ArchiveTable
from tidemark.spark.deep.service import DeepService
from tidemark.spark.deep.thread import DeepThread
from tidemark.spark.upkeep import erasing
from tidemark.spark.upkeep.asking import erase, who_asks
from tidemark.spark.upkeep.erasure import load_erasures, new_erasure, save_erasure
from tidemark.spark.upkeep.verifying import verify
from tidemark.ticks import TICK_MAX, TICK_MIN, CheckpointToken
from tidemark.wire.answers import PUBENDS


@pytest.fixture
def tm(node: LiveNode) -> Iterator[sync.Client]:
    with sync.connect(node.url) as client:
        client.create_topic("people", "[id: int, name: string]")
        client.create_topic("people.old", "[id: int, name: string]")
        client.create_topic("news", "[text: string]")
        # What is archived stays at the broker, too.
        client.subscribe(">", durable="holds").close()
        yield client


def publish(tm: sync.Client, numbers: range) -> list[int]:
    ticks: list[int | None] = []
    for n in numbers:
        ticks.append(tm.publish("people" if n % 2 else "people.old", {"id": n % 5, "name": f"n{n}"}))
        ticks.append(tm.publish("news", {"text": f"t{n}"}))
    return [tick for tick in ticks if tick is not None]


def ticks_in(path: Path, pattern: str = ">") -> list[int]:
    batches = reader.read(path, "main", TICK_MIN, TICK_MAX, pattern)
    return [int(tick) for batch in batches for tick in batch.ticks]


def never(_: float) -> bool:
    return False


def patiently(seconds: float) -> bool:
    """Wait for brokers to let go what is erased: their hosts report once a second."""
    time.sleep(seconds)
    return True


def test_events_are_erased_for_good_and_nothing_else_changes(
    node: LiveNode, tm: sync.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "archive"
    ticks = publish(tm, range(10))
    with Archive(node.url, path) as archive:
        archive.round()
        covered = archive.state.covered
    ticks += publish(tm, range(10, 20))  # not archived yet
    report = erase(path, node.url, "people", "id = 3", sleep=patiently)
    assert (report.erasure.stage, report.erasure.events, report.erasure.files) == ("erased", 2, 2)
    # The broker has let go what it held of that time, although a subscriber that is away lacks it.
    assert report.held == {}
    assert tm.ask(PUBENDS)[0].lost == ticks[-1]
    meant = {ticks[2 * n] for n in range(20) if n % 2 and n % 5 == 3}
    assert ticks_in(path) == [tick for tick in ticks if tick not in meant]
    assert reader.gaps(path, "main", covered["main"], ticks[-1]) == []
    # Events that come later are not meant, and the archive goes on.
    ticks += publish(tm, range(20, 30))
    with Archive(node.url, path) as archive:
        archive.round()
    assert ticks_in(path) == [tick for tick in ticks if tick not in meant]
    found = verify(path, node.url, None)
    assert found.wrong == ()
    assert (found.compared, found.events) == (20, len(ticks) - 2)
    # The files that had them go when readers are done.
    replaced = [table_directory(path, "people") / name for name in report.erasure.replaced["people"]]
    assert all(each.exists() for each in replaced)
    monkeypatch.setattr(erasing, "GRACE_SECONDS", 0.0)
    with Archive(node.url, path):
        erasing.erase_pending(archive, None)
    assert not any(each.exists() for each in replaced)
    assert [each.stage for each in load_erasures(path)] == ["gone"]


def test_who_was_away_gets_everything_but_what_was_erased(
    node: LiveNode, tm: sync.Client, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    ticks = publish(tm, range(10))
    with Archive(node.url, path) as archive:
        archive.round()
    report = erase(path, node.url, "people.>", "id IN (1, 2)", sleep=never)
    ticks += publish(tm, range(10, 12))
    assert report.erasure.events
    meant = {tick for tick in ticks if tick not in ticks_in(path) and tick <= report.erasure.upto["main"]}
    assert len(meant) == report.erasure.events
    with DeepThread(DeepService([node.url], path)), tm.subscribe(">", durable="holds", gaps=True) as sub:
        got: list[int] = []
        while not got or got[-1] < ticks[-1]:
            item = sub.next(PATIENCE_SECONDS)
            assert isinstance(item, tidemark.Event), item
            got.append(item.tick)
    assert got == [tick for tick in ticks if tick not in meant]


def test_an_erasure_that_was_interrupted_is_completed_by_the_next_process(
    node: LiveNode, tm: sync.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "archive"
    ticks = publish(tm, range(4))
    with Archive(node.url, path) as archive:
        archive.round()
        publish(tm, range(4, 8))
        archive.round()
    monkeypatch.setattr(erasing, "FILES_AT_ONCE", 1)
    exchange = ArchiveTable.exchange
    calls: list[int] = []

    def crash(self: ArchiveTable, *given: Any, **more: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        exchange(self, *given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArchiveTable, "exchange", crash)
        with pytest.raises(KeyboardInterrupt):
            erase(path, node.url, "people.>", "TRUE", sleep=never)
    assert load_erasures(path)[0].stage == "asked"
    with Archive(node.url, path) as archive:
        archive.round()
    (erased,) = load_erasures(path)
    # Each event and each file counts once, also those of the commit that was interrupted.
    assert (erased.stage, erased.events, erased.files) == ("erased", 4, 2)
    assert ticks_in(path, "people.>") == []
    assert ticks_in(path, "people")
    assert len(ticks_in(path)) == len(ticks) + 8 - 4
    assert verify(path, node.url, None).wrong == ()


def test_an_erasure_that_is_resumed_counts_no_file_again_that_was_due_to_be_merged(
    node: LiveNode, tm: sync.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "archive"
    with Archive(node.url, path) as archive:
        for first in (0, 4):
            publish(tm, range(first, first + 4))
            archive.round()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArchiveTable, "exchange", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            erase(path, node.url, "people.>", "TRUE", sleep=never)
    (asked,) = load_erasures(path)
    # What was counted is noted, and no commit has it.
    assert (asked.stage, asked.events, asked.files) == ("asked", 4, 2)
    monkeypatch.setattr(compaction, "SMALL_FILES_MIN", 2)
    with Archive(node.url, path) as archive:
        archive.round()
        assert [len(table.files()) for table in archive.tables] == [1, 1]
    (erased,) = load_erasures(path)
    assert (erased.stage, erased.events, erased.files) == ("erased", 4, 2)
    assert ticks_in(path, "people.>") == []


def test_a_broker_that_has_let_go_already_is_asked_once_so_that_it_tells_others(
    node: LiveNode, tm: sync.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "archive"
    publish(tm, range(4))
    with Archive(node.url, path) as archive:
        archive.round()
    asked: list[CheckpointToken] = []
    dismiss = Pubend.dismiss

    def dismissed(self: Pubend, upto: int) -> None:
        asked.append(CheckpointToken({self.name: upto}))
        dismiss(self, upto)

    monkeypatch.setattr(Pubend, "dismiss", dismissed)
    first = erase(path, node.url, "people", "id = 3", sleep=patiently)
    assert first.held == {}
    asked.clear()
    second = erase(path, node.url, "people", "id = 1", sleep=patiently)
    assert second.held == {}
    assert asked == [CheckpointToken(second.erasure.upto)]


def test_events_are_erased_from_files_that_another_tool_has_written(
    node: LiveNode, tm: sync.Client, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    ticks = publish(tm, range(10))
    with Archive(node.url, path) as archive:
        archive.round()
        ticks += publish(tm, range(10, 20))
        archive.round()
    DeltaTable(table_directory(path, "people")).optimize.z_order(["name"])
    assert verify(path, node.url, None).wrong == ()
    report = erase(path, node.url, "people", "id = 3", sleep=patiently)
    meant = {ticks[2 * n] for n in range(20) if n % 2 and n % 5 == 3}
    assert (report.erasure.events, report.held) == (len(meant), {})
    assert ticks_in(path) == [tick for tick in ticks if tick not in meant]
    # Whoever was away gets the rest from those files, in order.
    with DeepThread(DeepService([node.url], path)), tm.subscribe(">", durable="holds", gaps=True) as sub:
        got = [sub.next(PATIENCE_SECONDS) for _ in range(len(ticks) - len(meant))]
    assert [item.tick for item in got if isinstance(item, tidemark.Event)] == ticks_in(path)
    ticks += publish(tm, range(20, 24))
    with Archive(node.url, path) as archive:
        archive.round()
    assert ticks_in(path) == [tick for tick in ticks if tick not in meant]
    assert verify(path, node.url, None).wrong == ()


def test_what_nobody_could_mean_is_refused_before_anything_is_noted(
    node: LiveNode, tm: sync.Client, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    publish(tm, range(2))
    with pytest.raises(ConfigError, match="there is no directory"):
        erase(path, node.url, "people", "id = 3", sleep=never)
    with Archive(node.url, path) as archive:
        archive.round()
        with pytest.raises(SelectorError):
            erase(path, node.url, "people", "nonsense = 3", sleep=never)
        with pytest.raises(ConfigError, match="TRUE"):
            erase(path, node.url, "people", "", sleep=never)
        assert load_erasures(path) == []
        # While a process writes the archive, that process does it.
        assert erase(path, node.url, "people", "TRUE", sleep=never).erasure.stage == "asked"
        archive.maintenance.run(is_changed=True)
    assert load_erasures(path)[0].stage == "erased"


def test_the_commands_erase_and_verify(node: LiveNode, tm: sync.Client, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    publish(tm, range(10))
    with Archive(node.url, path) as archive:
        archive.round()

    def run(*arguments: str) -> Any:
        where = ["--path", str(path), "--broker", node.url, "--light"]
        return CliRunner().invoke(main, ["pipeline", *arguments, *where])

    assert run("erase", "--topic", "people", "--where", "id = 1").exit_code == 1
    done = run("erase", "--topic", "people", "--where", "id = 1", "--yes", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert (told["events"], told["asked_by"]) == (1, who_asks())
    status = ["pipeline", "status", "--path", str(path), "--offline"]
    assert f"{who_asks()}  people  id = 1  erased       1" in CliRunner().invoke(main, status).output
    shown = json.loads(CliRunner().invoke(main, [*status, "--json"]).output)["erasures"]
    assert [each["id"] for each in shown] == [told["id"]]
    assert "nothing is wrong" in run("verify").output
    (file, *_) = table_directory(path, "news").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-20])
    found = run("verify", "--json")
    assert found.exit_code == 1
    wrong = json.loads(found.output)["wrong"]
    assert any(file.name in each["what"] and "cannot be read" in each["wrong"] for each in wrong)


def test_a_record_says_who_asked_as_what_user_of_brokers_or_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEMARK_USER", raising=False)
    monkeypatch.setenv("LOGNAME", "mara")
    assert who_asks() == f"mara@{socket.gethostname()}"
    monkeypatch.setenv("TIDEMARK_USER", "privacy")
    assert who_asks() == "privacy"
    # Records from before this was noted say nothing of it.
    (tmp_path / "_archive" / "erasures").mkdir(parents=True)
    save_erasure(tmp_path, new_erasure("people", "TRUE", {"main": 7}, 1.0, who_asks()))
    (file,) = (tmp_path / "_archive" / "erasures").iterdir()
    record = json.loads(file.read_text())
    assert record.pop("asked_by") == "privacy"
    file.write_text(json.dumps(record))
    assert load_erasures(tmp_path)[0].asked_by is None


@pytest.mark.spark
def test_both_are_jobs_of_spark(spark: Any, node: LiveNode, tm: sync.Client, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    ticks = publish(tm, range(10))
    with Archive(node.url, path) as archive:
        archive.round()
    found = verify(path, node.url, lambda: nullcontext(spark))
    assert (found.wrong, found.compared) == ((), len(ticks))
    report = erase(path, node.url, "people", "id = 3", sleep=never, sessions=lambda: nullcontext(spark))
    assert report.erasure.events == 1
    assert len(ticks_in(path)) == len(ticks) - 1
    assert verify(path, node.url, lambda: nullcontext(spark)).wrong == ()
